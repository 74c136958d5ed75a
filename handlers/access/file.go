package access

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Bounds of a file of keys.
const (
	maxClients           = 10_000
	maxKeysPerClient     = 2
	maxKeyPrefixBytes    = 512
	maxRequestsPerSecond = 1_000_000
	maxConcurrent        = 1_000_000
)

// clientName keeps names plain in logs.
var clientName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// keysFile is the text of a file of keys, in YAML or JSON.
type keysFile struct {
	Clients []clientText `yaml:"clients"`
}

// clientText is one client; nil where the file says nothing.
type clientText struct {
	Name              string            `yaml:"name"`
	Keys              []string          `yaml:"keys"`
	Roles             map[string]string `yaml:"roles"`
	KeyPrefix         *string           `yaml:"key_prefix"`
	RequestsPerSecond *float64          `yaml:"requests_per_second"`
	Burst             *int              `yaml:"burst"`
	Concurrent        *int              `yaml:"concurrent"`
}

// ParseClients reads a file of keys. collections are those that roles may name. The error lists every fault, one a line,
// and repeats nothing that could be a key.
func ParseClients(text []byte, collections []string) (*Clients, error) {
	file, err := decodeKeys(text)
	if err != nil {
		return nil, err
	}
	p := parser{collections: collections, names: map[string]string{}, out: &Clients{byKey: map[digest]keyed{}}}
	p.check(0 < len(file.Clients) && len(file.Clients) <= maxClients, "clients", "must list 1 to %d clients", maxClients)
	for i, client := range file.Clients {
		p.client(fmt.Sprintf("clients[%d]", i), client)
	}
	if len(p.faults) > 0 {
		return nil, errors.New(strings.Join(p.faults, "\n"))
	}
	return p.out, nil
}

// quoted finds what the YAML parser repeats of the file, which may be a key in the wrong place.
var quoted = regexp.MustCompile("`[^`]*`|anchor '.*'|\"[^\"]*\"")

// unknownField finds an unknown name in what the parser says. It is repeated when it is a plain word, which no key is.
var (
	unknownField = regexp.MustCompile(`(?s)field (.*) not found`)
	plainField   = regexp.MustCompile(`^field [a-z_]{1,32} not found$`)
)

// decodeKeys takes the text apart strictly.
func decodeKeys(text []byte) (file keysFile, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	err = decoder.Decode(&file)
	var wrongTypes *yaml.TypeError
	switch {
	case errors.Is(err, io.EOF):
		return file, errors.New("the file is empty or holds only comments; it may have been cut off")
	case errors.As(err, &wrongTypes):
		lines := slices.Clone(wrongTypes.Errors)
		for i := range lines {
			lines[i], _, _ = strings.Cut(quoted.ReplaceAllString(lines[i], "..."), " in type ")
			lines[i] = unknownField.ReplaceAllStringFunc(lines[i], func(found string) string {
				if plainField.MatchString(found) {
					return found
				}
				return "field ... not found"
			})
		}
		return file, errors.New(strings.Join(lines, "\n"))
	case err != nil:
		return file, errors.New("is not YAML or JSON: " + strings.TrimPrefix(quoted.ReplaceAllString(err.Error(), "..."), "yaml: "))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return file, errors.New("a second YAML document begins; the file holds one")
	}
	return file, nil
}

// parser gathers clients, and all that is wrong with them.
type parser struct {
	collections []string
	names       map[string]string // where a name was first, by name
	faults      []string
	out         *Clients
}

// check records a broken rule unless ok.
func (p *parser) check(ok bool, key, rule string, args ...any) {
	if !ok {
		p.faults = append(p.faults, key+": "+fmt.Sprintf(rule, args...))
	}
}

// client reads one client.
func (p *parser) client(at string, text clientText) {
	p.check(clientName.MatchString(text.Name), at+".name", "must be a letter or digit and up to 63 letters, digits, . _ @ or -")
	if first, repeated := p.names[text.Name]; repeated && text.Name != "" {
		p.check(false, at+".name", "is the name of %s too", first)
	}
	p.names[text.Name] = at
	client := &Client{Name: text.Name, roles: p.roles(at+".roles", text.Roles)}
	if text.KeyPrefix != nil {
		client.keyPrefix = *text.KeyPrefix
		p.check(client.keyPrefix != "" && len(client.keyPrefix) <= maxKeyPrefixBytes && utf8.ValidString(client.keyPrefix), at+".key_prefix",
			"must be 1 to %d bytes of UTF-8; leave it out for a client that may use every key", maxKeyPrefixBytes)
	}
	entry := &clientEntry{client: client, limits: p.limits(at, text)}
	client.meter = newMeter(entry.limits)
	p.check(0 < len(text.Keys) && len(text.Keys) <= maxKeysPerClient, at+".keys", "must list one key, or two while a key is being changed")
	for i, key := range text.Keys {
		p.key(fmt.Sprintf("%s.keys[%d]", at, i), key, entry)
	}
	p.out.list = append(p.out.list, entry)
}

// key adds one key of a client.
func (p *parser) key(at, text string, entry *clientEntry) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != sha256.Size {
		p.check(false, at, "must be the SHA-256 of a key as 64 hex digits, not the key itself; gateway keygen prints both")
		return
	}
	sum := digest(raw)
	other, repeated := p.out.byKey[sum]
	p.check(sum != sha256.Sum256(nil), at, "is the SHA-256 of nothing")
	if repeated {
		p.check(false, at, "is a key of the client %s already", other.client.Name)
	}
	p.out.byKey[sum] = keyed{sum, entry.client}
	entry.sums = append(entry.sums, sum)
}

// roles reads the roles of a client.
func (p *parser) roles(at string, texts map[string]string) Roles {
	roles := Roles{}
	p.check(len(texts) > 0, at, `must give a role for a collection, such as {orders: write, "*": read}`)
	for _, collection := range slices.Sorted(maps.Keys(texts)) {
		role, ok := roleNames[texts[collection]]
		p.check(ok, at, "the role for %.64q must be read, write or admin", collection)
		p.check(collection == AnyCollection || slices.Contains(p.collections, collection), at,
			"the config has no collection %.64q; it has %s, and * stands for all", collection, strings.Join(p.collections, ", "))
		roles[collection] = role
	}
	return roles
}

// limits reads the limits of a client.
func (p *parser) limits(at string, text clientText) (limits Limits) {
	if text.RequestsPerSecond != nil {
		limits.RequestsPerSecond = *text.RequestsPerSecond
		p.check(0 < limits.RequestsPerSecond && limits.RequestsPerSecond <= maxRequestsPerSecond, at+".requests_per_second",
			"must be above 0 and at most %d; leave it out for no limit", maxRequestsPerSecond)
		limits.Burst = max(1, int(math.Ceil(min(limits.RequestsPerSecond, maxRequestsPerSecond))))
	}
	if text.Burst != nil {
		limits.Burst = *text.Burst
		p.check(text.RequestsPerSecond != nil, at+".burst", "has no meaning without requests_per_second")
		p.check(1 <= limits.Burst && limits.Burst <= maxRequestsPerSecond, at+".burst", "must be 1 to %d", maxRequestsPerSecond)
	}
	if text.Concurrent != nil {
		limits.Concurrent = *text.Concurrent
		p.check(1 <= limits.Concurrent && limits.Concurrent <= maxConcurrent, at+".concurrent", "must be 1 to %d; leave it out for no limit", maxConcurrent)
	}
	return limits
}

// equal reports whether two entries say the same.
func (e *clientEntry) equal(other *clientEntry) bool {
	order := func(a, b digest) int { return bytes.Compare(a[:], b[:]) }
	return maps.Equal(e.client.roles, other.client.roles) && e.client.keyPrefix == other.client.keyPrefix && e.limits == other.limits &&
		slices.Equal(slices.SortedFunc(slices.Values(e.sums), order), slices.SortedFunc(slices.Values(other.sums), order))
}
