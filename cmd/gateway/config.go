package main

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
)

// defaultConfigFile is read, from the working directory, when no file is named.
const defaultConfigFile = "config.yaml"

// Config is all that an operator can set, after defaults, file and environment have been merged and checked. To add a
// key: a field here with its name in the tag, its default in defaultConfig (or elementDefaults), its rule in
// config_validate.go and its comment in config.yaml. The file's walk and the environment follow from the field.
type Config struct {
	Server ServerConfig `mapstructure:"server"`
	Admin  AdminConfig  `mapstructure:"admin"`
	Auth   AuthConfig   `mapstructure:"auth"`
	Log    LogConfig    `mapstructure:"log"`
	Traces TracesConfig `mapstructure:"traces"`
	// Collections has at least one element; their names are distinct even when case is ignored.
	Collections []CollectionConfig `mapstructure:"collections"`
	Index       IndexConfig        `mapstructure:"index"`
	Cache       CacheConfig        `mapstructure:"cache"`
	IDs         IDsConfig          `mapstructure:"ids"`
	Ranges      RangesConfig       `mapstructure:"ranges"`
	Sweeper     SweeperConfig      `mapstructure:"sweeper"`
	// Nodes has at least one element. Their ranges are disjoint and, taken together, contiguous from 1 (I5).
	Nodes []NodeConfig `mapstructure:"nodes"`
}

// ServerConfig is the listener of the record API.
type ServerConfig struct {
	// Listen is host:port; port 0 takes a free one.
	Listen string `mapstructure:"listen"`
	// AllowPublic lets Listen be other than a loopback address, although nobody is asked who they are.
	AllowPublic bool `mapstructure:"allow_public"`
	// RequestTimeout is the deadline of one request, 100 ms to 10 min.
	RequestTimeout time.Duration `mapstructure:"request_timeout"`
	// MaxBodyBytes bounds one record: a single body, or a line of an NDJSON stream.
	MaxBodyBytes Bytes `mapstructure:"max_body_bytes"`
	// MaxBulkBytes bounds a body that is a JSON array. An NDJSON stream as a whole has no bound.
	MaxBulkBytes Bytes `mapstructure:"max_bulk_bytes"`
	// MaxRequests bounds the requests for records under way at once; more are refused at once.
	MaxRequests int `mapstructure:"max_requests"`
	// MaxRequestBytes bounds the memory that the bodies of all requests under way take together.
	MaxRequestBytes Bytes `mapstructure:"max_request_bytes"`
	// ShutdownGrace is how long a stopping gateway waits for the requests under way; 0 cuts them off.
	ShutdownGrace time.Duration `mapstructure:"shutdown_grace"`
	// TrustedProxies are networks whose X-Forwarded-For counts.
	TrustedProxies Words      `mapstructure:"trusted_proxies"`
	TLS            TLSConfig  `mapstructure:"tls"`
	CORS           CORSConfig `mapstructure:"cors"`
}

// AdminConfig is the listener of metrics and operations.
type AdminConfig struct {
	// Listen is host:port; port 0 takes a free one.
	Listen string `mapstructure:"listen"`
	// AllowPublic is as in ServerConfig.
	AllowPublic bool      `mapstructure:"allow_public"`
	TLS         TLSConfig `mapstructure:"tls"`
}

// LogConfig says what is logged.
type LogConfig struct {
	// Level is the least that is logged: debug, info, warn or error.
	Level string `mapstructure:"level"`
	// SlowRequest is how long a request for records may take before the log warns of it; 0 warns of none.
	SlowRequest time.Duration `mapstructure:"slow_request"`
}

// TracesConfig says which requests are traced, and where the traces go.
type TracesConfig struct {
	// Endpoint is the URL of a collector that takes OTLP over HTTP; empty for no traces.
	Endpoint string `mapstructure:"endpoint"`
	// SampleRatio is the share of requests that are traced, of those whose client has not decided it.
	SampleRatio Ratio `mapstructure:"sample_ratio"`
}

// CollectionConfig is one collection of records.
type CollectionConfig struct {
	// Name is part of URLs and of table names.
	Name string `mapstructure:"name"`
	// Key is the JSON member of a record that holds its key.
	Key string `mapstructure:"key"`
	// Group is the JSON member of a record that holds its group; empty when the records have none.
	Group string `mapstructure:"group"`
	// TTL is the JSON member of a record that says for how many seconds it lives; "" for none.
	TTL string `mapstructure:"ttl"`
	// Columns are members that are kept in columns of their own; none keeps documents whole.
	Columns []ColumnConfig `mapstructure:"columns"`
	// UnknownMembers says what becomes of members without a column: "refuse" or "keep". It has no meaning without Columns.
	UnknownMembers string `mapstructure:"unknown_members"`
}

// ColumnConfig is a column that keeps a member of records.
type ColumnConfig struct {
	// Name is the JSON member.
	Name string `mapstructure:"name"`
	// Column is the name of the column; empty for that of the member.
	Column string `mapstructure:"column"`
	// Type is a type as typed.ParseType reads it.
	Type string `mapstructure:"type"`
	// Required refuses records without the member.
	Required bool `mapstructure:"required"`
	// Default is what records without the member get, as typed.Type.Default reads it; empty for none.
	Default string `mapstructure:"default"`
}

// IndexConfig is where entries are kept.
type IndexConfig struct {
	// URI is sqlite://path or a MongoDB connection string, whose database name is optional.
	URI Secret `mapstructure:"uri"`
	// URIFile is the file that URI was read from; empty when URI was given itself.
	URIFile string `mapstructure:"uri_file"`
	// AllowStandalone accepts a MongoDB server outside a replica set, whose acknowledged writes die with it.
	AllowStandalone bool `mapstructure:"allow_standalone"`
	// Connections bounds the pool to each MongoDB server.
	Connections int `mapstructure:"connections"`
}

// CacheConfig bounds what the gateway remembers.
type CacheConfig struct {
	// MaxBytes is the memory for the IDs of keys; 0 remembers none.
	MaxBytes Bytes `mapstructure:"max_bytes"`
}

// IDsConfig is where IDs come from.
type IDsConfig struct {
	// Issuers has 1 to 9 elements. How many, and in which order, is part of what is stored.
	Issuers []IssuerConfig `mapstructure:"issuers"`
	Step    StepConfig     `mapstructure:"step"`
	// Order is how ranges are filled: "strict" is one after the other, "spread" is OpenRanges of them in turn.
	Order string `mapstructure:"order"`
	// OpenRanges is how many ranges, on different nodes, take new records in the order "spread".
	OpenRanges int `mapstructure:"open_ranges"`
	// HighLevelPercent is how full a range is when "spread" passes it over while others are below.
	HighLevelPercent int `mapstructure:"high_level_percent"`
}

// IssuerConfig is one database that leases segments.
type IssuerConfig struct {
	// DSN is a URL for sqldb.Open.
	DSN Secret `mapstructure:"dsn"`
	// DSNFile is the file that DSN was read from; empty when DSN was given itself.
	DSNFile string `mapstructure:"dsn_file"`
}

// StepConfig bounds how many IDs one segment takes.
type StepConfig struct {
	Min int64 `mapstructure:"min"`
	Max int64 `mapstructure:"max"`
}

// RangesConfig is about all ranges.
type RangesConfig struct {
	// Size is the number of IDs in a range. It can never change once a record is stored.
	Size int64 `mapstructure:"size"`
	// WarnPercent and AlarmPercent are how full the ranges of a collection are, all together, when the log warns and when
	// it raises an alarm.
	WarnPercent  int `mapstructure:"warn_percent"`
	AlarmPercent int `mapstructure:"alarm_percent"`
}

// SweeperConfig is how the gateway looks for damage in the stores.
type SweeperConfig struct {
	// RowsPerSecond bounds the rows and entries that are looked at; 0 turns the sweeper off.
	RowsPerSecond int `mapstructure:"rows_per_second"`
	// Interval is the pause between two passes, 1 s to 30 days.
	Interval time.Duration `mapstructure:"interval"`
}

// NodeConfig is one database that holds rows.
type NodeConfig struct {
	Name string `mapstructure:"name"`
	// DSN is a URL for sqldb.Open.
	DSN Secret `mapstructure:"dsn"`
	// DSNFile is the file that DSN was read from; empty when DSN was given itself.
	DSNFile string `mapstructure:"dsn_file"`
	// Connections bounds the pool; it has no meaning for SQLite.
	Connections int `mapstructure:"connections"`
	// Ranges are the numbers of the ranges that the node owns, as rangeshard.ParseRanges reads them.
	Ranges string `mapstructure:"ranges"`
	// Drain keeps new records off the node.
	Drain bool `mapstructure:"drain"`
}

// defaultConfig is what counts where neither file nor environment says otherwise: the embedded gateway, the same as
// the config.yaml at the root. A list in the file takes the place of the whole list here.
func defaultConfig() Config {
	return Config{
		Server: ServerConfig{
			Listen:         "127.0.0.1:8080",
			RequestTimeout: 5 * time.Second,
			MaxBodyBytes:   1 * mebibyte,
			MaxBulkBytes:   16 * mebibyte,
			MaxRequests:    4096, MaxRequestBytes: 256 * mebibyte,
			ShutdownGrace: 20 * time.Second,
		},
		Admin:       AdminConfig{Listen: "127.0.0.1:9090"},
		Auth:        AuthConfig{JWT: defaultJWT},
		Log:         LogConfig{Level: "info", SlowRequest: time.Second},
		Traces:      TracesConfig{SampleRatio: 0.01},
		Collections: []CollectionConfig{{Name: "records", Key: defaultKeyMember, Columns: []ColumnConfig{}, UnknownMembers: unknownRefuse}},
		Index:       IndexConfig{URI: "sqlite://data/index.db", Connections: 16},
		Cache:       CacheConfig{MaxBytes: 64 * mebibyte},
		IDs: IDsConfig{
			Issuers: []IssuerConfig{{DSN: "sqlite://data/ids.db"}},
			Step:    StepConfig{Min: 100, Max: 10_000},
			Order:   orderStrict, OpenRanges: 2, HighLevelPercent: 90,
		},
		Ranges:  RangesConfig{Size: 10_000_000, WarnPercent: 75, AlarmPercent: 90},
		Sweeper: SweeperConfig{RowsPerSecond: 1000, Interval: time.Hour},
		Nodes: []NodeConfig{
			{Name: "node-1", DSN: "sqlite://data/node-1.db", Connections: defaultNodeConnections, Ranges: "1"},
			{Name: "node-2", DSN: "sqlite://data/node-2.db", Connections: defaultNodeConnections, Ranges: "2"},
		},
	}
}

// Values of ids.order.
const (
	orderStrict = "strict"
	orderSpread = "spread"
)

// Values of collections[].unknown_members.
const (
	unknownRefuse = "refuse"
	unknownKeep   = "keep"
)

const (
	defaultKeyMember       = "key"
	defaultNodeConnections = 32
)

// elementDefaults are the values that an element of a list starts from.
var elementDefaults = map[reflect.Type]any{
	reflect.TypeFor[CollectionConfig](): CollectionConfig{Key: defaultKeyMember, UnknownMembers: unknownRefuse},
	reflect.TypeFor[ColumnConfig]():     ColumnConfig{},
	reflect.TypeFor[IssuerConfig]():     IssuerConfig{},
	reflect.TypeFor[NodeConfig]():       NodeConfig{Connections: defaultNodeConnections},
}

// LoadConfig reads the config file at path ("" means config.yaml in the working directory), lays the variables of
// environ (as from os.Environ) over it, and checks the whole. Its error lists every fault, one per line, and holds no
// secret.
func LoadConfig(path string, environ []string) (*Config, error) {
	source := newConfigSource(path, environ)
	return source.parse(source.read())
}

// configSource is where a config is read from, as often as asked.
type configSource struct {
	path string
	env  environment
}

// newConfigSource takes what LoadConfig takes.
func newConfigSource(path string, environ []string) configSource {
	return configSource{cmp.Or(path, defaultConfigFile), parseEnviron(environ)}
}

// content is the text of a config file at one moment, or why there was none.
type content struct {
	text []byte
	err  error
	// beside tells apart what the files beside it hold, which only a reloader follows.
	beside [sha256.Size]byte
}

// read takes the config file as it is now, which may be half of what is being written.
func (s configSource) read() content {
	text, err := os.ReadFile(s.path)
	if err != nil {
		return content{err: fmt.Errorf("%s: cannot read the config file: %w", s.path, causeOf(err))}
	}
	return content{text: text}
}

// parse makes a config of a content; the files that it names for secrets are read now. For its error see LoadConfig.
func (s configSource) parse(c content) (*Config, error) {
	if c.err != nil {
		return nil, c.err
	}
	f := newFaults(s.path)
	root := parseYAML(c.text, f)
	if root == nil {
		return nil, f.err()
	}
	cfg, err := mergeSettings(walkYAML(root, f), s.env, f)
	if err != nil {
		return nil, err
	}
	resolveSecrets(cfg, s.path, s.env, f)
	validateConfig(cfg, f)
	if err := f.err(); err != nil {
		return nil, err
	}
	return cfg, nil
}

// mergeSettings lays the settings of the file over the defaults and the environment over both, and decodes the result.
// Faults of the environment go to f; the error is a defect of this program.
func mergeSettings(file settings, env environment, f *faults) (*Config, error) {
	v := viper.New()
	for key, value := range settingsOf(reflect.ValueOf(defaultConfig())) {
		v.SetDefault(key, value)
	}
	if err := v.MergeConfigMap(file); err != nil {
		return nil, fmt.Errorf("merge the config file: %w", err)
	}
	merged := v.AllSettings()
	applyEnvironment(merged, env, f)
	if err := v.MergeConfigMap(merged); err != nil {
		return nil, fmt.Errorf("merge the environment: %w", err)
	}
	cfg := new(Config)
	if err := v.UnmarshalExact(cfg, decodeAsIs); err != nil {
		return nil, fmt.Errorf("decode the config: %w", err)
	}
	return cfg, nil
}

// decodeAsIs takes back viper's leniency: the walks have made every value what its field is, so that nothing is left
// to convert.
func decodeAsIs(c *mapstructure.DecoderConfig) {
	c.WeaklyTypedInput = false
	c.DecodeHook = nil
	c.MatchName = func(key, field string) bool { return key == field }
}

// causeOf strips the path from a file error, because the message names the file in its own way.
func causeOf(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}
