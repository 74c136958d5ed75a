package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"keyrange/store/sqldb"
)

// database is a place where the gateway keeps something.
type database struct {
	key      string // of its URL, or of the file that held it
	use      use
	location sqldb.Location
}

// use is what a database is for.
type use string

const (
	useIndex  use = "index"
	useIssuer use = "issuer"
	useNode   use = "node"
)

// checkDatabases checks each URL, and that no two uses of a database get in each other's way. No message repeats a URL.
func checkDatabases(cfg *Config, f *faults) {
	var all []database
	keep := func(key, file string, secret Secret, use use) {
		if key = urlKey(key, file); f.isDropped(key) {
			return
		}
		location, err := parseDatabase(secret.Reveal())
		if err != nil {
			f.add(key, err.Error())
			return
		}
		all = append(all, database{key, use, location})
	}
	for i, issuer := range cfg.IDs.Issuers {
		keep(fmt.Sprintf("ids.issuers[%d].dsn", i), issuer.DSNFile, issuer.DSN, useIssuer)
	}
	for i, node := range cfg.Nodes {
		keep(fmt.Sprintf("nodes[%d].dsn", i), node.DSNFile, node.DSN, useNode)
	}
	index := database{key: urlKey("index.uri", cfg.Index.URIFile), use: useIndex}
	var ok bool
	if index.location, ok = checkIndex(cfg.Index, f); ok {
		all = append(all, index)
	}
	checkRepeated(all, f)
	if len(f.list) == 0 {
		checkMixed(append(all, index), f)
	}
}

// checkMixed refuses embedded databases beside servers. Two gateways would share the servers but not the files, so that
// one's records would be missing, or exist twice, for the other.
func checkMixed(all []database, f *faults) {
	var embedded, server string
	for _, d := range all {
		if d.location.Engine == sqldb.SQLite {
			embedded = cmp.Or(embedded, d.key)
		} else {
			server = cmp.Or(server, d.key)
		}
	}
	if embedded != "" && server != "" {
		f.add(embedded, "is an embedded database while "+server+" is a server; use servers for the index, the issuer and all nodes, or for none")
	}
}

// urlKey is the key to blame for a URL: its own or that of the file that it was read from.
func urlKey(key, file string) string {
	if file != "" {
		return key + fileSuffix
	}
	return key
}

// parseDatabase is sqldb.ParseURL with errors that repeat nothing of a URL whose password holds special characters.
func parseDatabase(rawURL string) (sqldb.Location, error) {
	scheme, rest, _ := strings.Cut(rawURL, "://")
	switch scheme = strings.ToLower(scheme); {
	case rawURL == "":
		return sqldb.Location{}, errors.New("is missing; give it a URL, mysql://user@host:port/database or sqlite://path/to/file.db, or name a file that holds one")
	case scheme != string(sqldb.MySQL) && scheme != string(sqldb.SQLite):
		return sqldb.Location{}, errors.New("must be a URL, mysql://user@host:port/database or sqlite://path/to/file.db")
	}
	if scheme == string(sqldb.MySQL) && isPasswordCut(rest) {
		return sqldb.Location{}, errEncode
	}
	return sqldb.ParseURL(rawURL)
}

// errEncode is the usual fault of a URL with a password in it.
var errEncode = errors.New("is not a valid URL; percent-encode special characters in the user name and the password")

// isPasswordCut reports whether a URL, without its scheme, has an @ beyond its host: it can only be the end of a user
// name and password in which a / ? or # has been taken for the end of the host.
func isPasswordCut(rest string) bool {
	i := strings.IndexAny(rest, "/?#")
	return i >= 0 && strings.Contains(rest[i:], "@")
}

// checkIndex checks the URI of the index; ok when it is a SQLite file.
func checkIndex(index IndexConfig, f *faults) (location sqldb.Location, ok bool) {
	key := urlKey("index.uri", index.URIFile)
	if f.isDropped(key) {
		return sqldb.Location{}, false
	}
	scheme, rest, _ := strings.Cut(index.URI.Reveal(), "://")
	var err error
	switch scheme = strings.ToLower(scheme); scheme {
	case "mongodb", "mongodb+srv":
		err = checkMongo(scheme, rest)
	case string(sqldb.SQLite):
		location, err = sqldb.ParseURL(index.URI.Reveal())
		ok = err == nil
	default:
		err = errors.New("must be a URL, mongodb://, mongodb+srv:// or sqlite://path/to/file.db")
	}
	if err != nil {
		f.add(key, err.Error())
	}
	return location, ok
}

// mongoHost is a host name, IPv4 address, bracketed IPv6 address or percent-encoded socket path, with or without port.
var mongoHost = regexp.MustCompile(`^([A-Za-z0-9._%-]+|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?$`)

// checkMongo checks the shape of a connection string without what knows MongoDB's options; index.Open does the rest.
func checkMongo(scheme, rest string) error {
	if isPasswordCut(rest) {
		return errEncode
	}
	authority, after := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, after = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	list := strings.Split(hosts, ",")
	for _, host := range list {
		if !mongoHost.MatchString(host) {
			return errors.New("is not a valid URL: want mongodb://user:password@host:port,host:port/database with special characters in the user name and the password percent-encoded")
		}
	}
	if scheme == "mongodb+srv" && (len(list) > 1 || strings.Contains(hosts, ":")) {
		return errors.New("mongodb+srv:// takes one host name without a port")
	}
	// net/url does not take several hosts; one stands in for them. Its error would repeat the URL.
	if _, err := url.Parse("mongodb://" + user + "host" + after); err != nil {
		return errEncode
	}
	return nil
}

// checkRepeated refuses two nodes in one database, whose rows would mix, two issuers in one, which would be one, and a
// SQLite file with two uses, which would wait for each other's writes. An issuer may share a MySQL database with a node.
func checkRepeated(all []database, f *faults) {
	type place struct {
		at  string
		use use // "" for a SQLite file
	}
	first := map[place]string{} // key by place
	for _, db := range all {
		at := place{placeOf(db.location), db.use}
		if db.location.Engine == sqldb.SQLite {
			at.use = ""
		}
		if earlier, repeated := first[at]; repeated {
			f.add(db.key, fmt.Sprintf("is the same database as %s (got %s)", earlier, db.location))
			continue
		}
		first[at] = db.key
	}
}

// placeOf tells databases apart. A path to a SQLite file is followed as far as its folder exists.
func placeOf(location sqldb.Location) string {
	if location.Engine != sqldb.SQLite {
		return location.String()
	}
	folder, name := filepath.Split(location.Path)
	if target, err := filepath.EvalSymlinks(filepath.Clean(folder)); err == nil {
		folder = target
	}
	path := filepath.Join(folder, name)
	if abs, err := filepath.Abs(path); err == nil {
		path = abs // without a working directory, the relative path has to do
	}
	return path
}
