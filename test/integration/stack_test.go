package integration

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"keyrange/test/servers"
)

// embedded is the kind of a stack that needs no server; the others are the kinds of package servers.
const embedded = "embedded"

// stack is a set of fresh databases that make a gateway. It is a value: a copy with a change is another config for the
// same databases, but its nodes must be cloned before they are changed.
type stack struct {
	index, issuer string
	moreIssuers   []string
	rangeSize     int64
	nodes         []nodeConfig
	// ids are further settings of the section ids.
	ids string
}

// nodeConfig is one element of nodes in a config file.
type nodeConfig struct{ name, dsn, ranges string }

// stackKinds lists what a gateway can stand on here.
func stackKinds(t *testing.T) []string {
	t.Helper()
	kinds := []string{embedded}
	for _, s := range servers.MySQL(t) {
		if !slices.Contains(kinds, s.Kind) {
			kinds = append(kinds, s.Kind)
		}
	}
	return kinds
}

// stacks runs a test on each kind of stack.
func stacks(t *testing.T, run func(t *testing.T, kind string)) {
	t.Helper()
	for _, kind := range stackKinds(t) {
		t.Run(kind, func(t *testing.T) { run(t, kind) })
	}
}

// newStack makes fresh databases that live until the test ends. Node i owns range i.
func newStack(t *testing.T, kind string, nodes int, rangeSize int64) stack {
	t.Helper()
	s := stack{rangeSize: rangeSize}
	var dsns []string
	switch kind {
	case embedded:
		folder := t.TempDir()
		s.index, s.issuer = "sqlite://"+filepath.Join(folder, "index.db"), "sqlite://"+filepath.Join(folder, "ids.db")
		for i := range nodes {
			dsns = append(dsns, "sqlite://"+filepath.Join(folder, fmt.Sprintf("node-%d.db", i+1)))
		}
	case servers.MySQLKind:
		s.index, s.issuer, dsns = servers.FreshMongo(t), servers.Nodes(t, 1)[0], servers.Nodes(t, nodes)
	default:
		s.index, s.issuer = servers.FreshMongo(t), freshOf(t, kind)
		for range nodes {
			dsns = append(dsns, freshOf(t, kind))
		}
	}
	for i, dsn := range dsns {
		s.nodes = append(s.nodes, nodeConfig{fmt.Sprintf("node-%d", i+1), dsn, fmt.Sprint(i + 1)})
	}
	return s
}

// freshOf makes a database on the first server of a kind.
func freshOf(t *testing.T, kind string) string {
	t.Helper()
	all := servers.MySQL(t)
	return servers.FreshMySQL(t, all[slices.IndexFunc(all, func(s servers.Server) bool { return s.Kind == kind })])
}

// config is the stack as a config file, on free ports.
func (s stack) config() string {
	var nodes strings.Builder
	for _, n := range s.nodes {
		fmt.Fprintf(&nodes, "  - {name: %s, dsn: %q, ranges: %q}\n", n.name, n.dsn, n.ranges)
	}
	issuers := ""
	for _, dsn := range append([]string{s.issuer}, s.moreIssuers...) {
		issuers += fmt.Sprintf("{dsn: %q}, ", dsn)
	}
	return fmt.Sprintf(`server: {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0"}
index: {uri: %q, allow_standalone: true}
ids: {issuers: [%s]%s}
ranges: {size: %d}
nodes:
%s`, s.index, strings.TrimSuffix(issuers, ", "), s.ids, s.rangeSize, nodes.String())
}

// with returns the stack with a change, and leaves the original alone.
func (s stack) with(change func(s *stack)) stack {
	s.nodes = slices.Clone(s.nodes)
	change(&s)
	return s
}

// openSQL opens a database that a gateway may be using, behind its back; it is closed when the test ends.
func openSQL(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	var db *sql.DB
	if u.Scheme == "sqlite" {
		db, err = sql.Open("sqlite", "file:"+u.Path+"?mode=ro")
	} else {
		cfg := mysql.NewConfig()
		cfg.User, cfg.Net, cfg.Addr, cfg.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
		cfg.Passwd, _ = u.User.Password()
		db, err = sql.Open("mysql", cfg.FormatDSN())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// tables lists the tables of a database.
func tables(t *testing.T, db *sql.DB, dsn string) []string {
	t.Helper()
	query := "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1"
	if strings.HasPrefix(dsn, "sqlite:") {
		query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1"
	}
	return column[string](t, db, query)
}

// column returns the one column of a query.
func column[T any](t *testing.T, db *sql.DB, query string) (all []T) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var one T
		if err := rows.Scan(&one); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		all = append(all, one)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return all
}

// dump is everything that is stored in the servers of a stack, to be compared with a later dump. Embedded databases
// are left out, because their files may not exist yet.
func (s stack) dump(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	seen := map[string]bool{}
	for _, dsn := range append([]string{s.issuer}, dsnsOf(s.nodes)...) {
		if !seen[dsn] {
			dumpSQL(t, &out, dsn)
		}
		seen[dsn] = true
	}
	for _, e := range entries(t, s.index) {
		fmt.Fprintf(&out, "%+v\n", e)
	}
	return out.String()
}

// dsnsOf lists the databases of nodes.
func dsnsOf(nodes []nodeConfig) (dsns []string) {
	for _, n := range nodes {
		dsns = append(dsns, n.dsn)
	}
	return dsns
}

// dumpSQL writes all rows of all tables.
func dumpSQL(t *testing.T, out *strings.Builder, dsn string) {
	t.Helper()
	db := openSQL(t, dsn)
	defer db.Close()
	for _, table := range tables(t, db, dsn) {
		fmt.Fprintf(out, "%s %s\n", dsn, table)
		rows, err := db.Query("SELECT * FROM " + table + " ORDER BY 1, 2") // the gateway made the name
		if err != nil {
			t.Fatal(err)
		}
		dumpRows(t, out, rows)
	}
}

// dumpRows writes one line per row.
func dumpRows(t *testing.T, out *strings.Builder, rows *sql.Rows) {
	t.Helper()
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	values, targets := make([]sql.RawBytes, len(names)), make([]any, len(names))
	for i := range values {
		targets[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(out, "  %q\n", values)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// entry is what the index holds for a key.
type entry struct {
	Collection string
	Key        string `bson:"_id"`
	ID         int64  `bson:"id"`
}

// entries lists a MongoDB index, and every collection in it as an entry without a key.
func entries(t *testing.T, uri string) (all []entry) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	mongoClient, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mongoClient.Disconnect(ctx) }() // nothing is left to lose
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	db := mongoClient.Database(strings.TrimPrefix(u.Path, "/"))
	collections, err := db.ListCollectionNames(ctx, bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(collections)
	for _, name := range collections {
		all = append(all, entry{Collection: name})
		cursor, err := db.Collection(name).Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
		if err != nil {
			t.Fatal(err)
		}
		var found []entry
		if err := cursor.All(ctx, &found); err != nil {
			t.Fatal(err)
		}
		for i := range found {
			found[i].Collection = name
		}
		all = append(all, found...)
	}
	return all
}

// ownedIDs checks that each node has no range tables but its own and no rows in them but its own, and returns the ID
// of each live row by key. size is the number of IDs in a range.
func ownedIDs(t *testing.T, s stack, collection string) map[string]int64 {
	t.Helper()
	ids := map[string]int64{}
	for i, n := range s.nodes {
		db := openSQL(t, n.dsn)
		own := fmt.Sprintf("%s_r%05d", collection, i+1)
		lo, hi := int64(i)*s.rangeSize+1, int64(i+1)*s.rangeSize
		for _, table := range tables(t, db, n.dsn) {
			if strings.HasPrefix(table, collection+"_r") && table != own {
				t.Errorf("%s has the range table %s, its own is %s", n.name, table, own)
			}
			if table != own {
				continue
			}
			for key, id := range liveRows(t, db, table) {
				if id < lo || id > hi {
					t.Errorf("%s holds ID %d, it owns %d to %d", n.name, id, lo, hi)
				}
				if other, twice := ids[key]; twice {
					t.Errorf("key %q lives at %d and at %d", key, other, id)
				}
				ids[key] = id
			}
		}
	}
	return ids
}

// liveRows reads the keys and IDs of a range table.
func liveRows(t *testing.T, db *sql.DB, table string) map[string]int64 {
	t.Helper()
	ids := map[string]int64{}
	rows, err := db.Query("SELECT biz_key, id FROM " + table + " WHERE state = 0") // the gateway made the name
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var key []byte
		var id int64
		if err := rows.Scan(&key, &id); err != nil {
			t.Fatal(err)
		}
		if other, twice := ids[string(key)]; twice {
			t.Errorf("key %q lives at %d and at %d", key, other, id)
		}
		ids[string(key)] = id
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return ids
}
