package gateway

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

// Embedded is the kind of a stack that needs no server; the others are the kinds of package servers.
const Embedded = "embedded"

// Stack is a set of fresh databases that make a gateway. It is a value: a copy with a change is another config for the
// same databases, but its nodes must be cloned before they are changed.
type Stack struct {
	Index, Issuer string
	MoreIssuers   []string
	RangeSize     int64
	Nodes         []Node
	// IDs are further settings of the section ids.
	IDs string
}

// Node is one element of nodes in a config file.
type Node struct{ Name, DSN, Ranges string }

// Kinds lists what a gateway can stand on here.
func Kinds(t *testing.T) []string {
	t.Helper()
	kinds := []string{Embedded}
	for _, s := range servers.MySQL(t) {
		if !slices.Contains(kinds, s.Kind) {
			kinds = append(kinds, s.Kind)
		}
	}
	return kinds
}

// NewStack makes fresh databases that live until the test ends. Node i owns range i.
func NewStack(t *testing.T, kind string, nodes int, rangeSize int64) Stack {
	t.Helper()
	s := Stack{RangeSize: rangeSize}
	var dsns []string
	switch kind {
	case Embedded:
		folder := t.TempDir()
		s.Index, s.Issuer = "sqlite://"+filepath.Join(folder, "index.db"), "sqlite://"+filepath.Join(folder, "ids.db")
		for i := range nodes {
			dsns = append(dsns, "sqlite://"+filepath.Join(folder, fmt.Sprintf("node-%d.db", i+1)))
		}
	case servers.MySQLKind:
		s.Index, s.Issuer, dsns = servers.FreshMongo(t), servers.Nodes(t, 1)[0], servers.Nodes(t, nodes)
	default:
		s.Index, s.Issuer = servers.FreshMongo(t), freshOf(t, kind)
		for range nodes {
			dsns = append(dsns, freshOf(t, kind))
		}
	}
	for i, dsn := range dsns {
		s.Nodes = append(s.Nodes, Node{fmt.Sprintf("node-%d", i+1), dsn, fmt.Sprint(i + 1)})
	}
	return s
}

// freshOf makes a database on the first server of a kind.
func freshOf(t *testing.T, kind string) string {
	t.Helper()
	all := servers.MySQL(t)
	return servers.FreshMySQL(t, all[slices.IndexFunc(all, func(s servers.Server) bool { return s.Kind == kind })])
}

// Config is the stack as a config file, on free ports.
func (s Stack) Config() string {
	var nodes strings.Builder
	for _, n := range s.Nodes {
		fmt.Fprintf(&nodes, "  - {name: %s, dsn: %q, ranges: %q}\n", n.Name, n.DSN, n.Ranges)
	}
	issuers := ""
	for _, dsn := range append([]string{s.Issuer}, s.MoreIssuers...) {
		issuers += fmt.Sprintf("{dsn: %q}, ", dsn)
	}
	return fmt.Sprintf(`server: {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0"}
index: {uri: %q, allow_standalone: true}
ids: {issuers: [%s]%s}
ranges: {size: %d}
nodes:
%s`, s.Index, strings.TrimSuffix(issuers, ", "), s.IDs, s.RangeSize, nodes.String())
}

// With returns the stack with a change, and leaves the original alone.
func (s Stack) With(change func(s *Stack)) Stack {
	s.Nodes = slices.Clone(s.Nodes)
	change(&s)
	return s
}

// OpenSQL opens a database that a gateway may be using, behind its back; it is closed when the test ends.
func OpenSQL(t *testing.T, dsn string) *sql.DB {
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

// Tables lists the tables of a database.
func Tables(t *testing.T, db *sql.DB, dsn string) []string {
	t.Helper()
	query := "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1"
	if strings.HasPrefix(dsn, "sqlite:") {
		query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1"
	}
	return Column[string](t, db, query)
}

// Column returns the one column of a query.
func Column[T any](t *testing.T, db *sql.DB, query string) (all []T) {
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

// Entry is what the index holds for a key.
type Entry struct {
	Collection string
	Key        string `bson:"_id"`
	ID         int64  `bson:"id"`
}

// openIndex opens the database of a MongoDB index, behind a gateway's back, until the test ends.
func openIndex(t *testing.T, uri string) *mongo.Database {
	t.Helper()
	mongoClient, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mongoClient.Disconnect(context.Background()) }) // nothing is left to lose
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	return mongoClient.Database(strings.TrimPrefix(u.Path, "/"))
}

// DropIndex drops a MongoDB index as a whole.
func DropIndex(t *testing.T, uri string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := openIndex(t, uri).Drop(ctx); err != nil {
		t.Fatal(err)
	}
}

// LoseEntries deletes the entries of a MongoDB index whose keys begin with a prefix of plain letters.
func LoseEntries(t *testing.T, uri, collection, prefix string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: prefix}, {Key: "$lt", Value: prefix + "~"}}}}
	if _, err := openIndex(t, uri).Collection(collection).DeleteMany(ctx, filter); err != nil {
		t.Fatal(err)
	}
}

// StampCollection is where an index notes which cluster it belongs to, in a document that is no entry.
const StampCollection = "gateway.stamp"

// Entries lists a MongoDB index, and every collection in it as an entry without a key.
func Entries(t *testing.T, uri string) (all []Entry) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	db := openIndex(t, uri)
	collections, err := db.ListCollectionNames(ctx, bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(collections)
	for _, name := range collections {
		all = append(all, Entry{Collection: name})
		cursor, err := db.Collection(name).Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
		if err != nil {
			t.Fatal(err)
		}
		var found []Entry
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
