package store

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"keyrange/idsegment"
	"keyrange/index"
	"keyrange/rangeshard"
	"keyrange/store/sqldb"
	"keyrange/store/typed"
	"keyrange/test/servers"
)

const testCollection = "records"

// deployment is a set of fresh databases that stores can be opened on, as a gateway would.
type deployment struct {
	Index string
	// Issuer is the first issuer, MoreIssuers those after it.
	Issuer      string
	MoreIssuers []string
	Nodes       []string
	// Ranges of each node, and the number of IDs in a range.
	Ranges    []string
	Size      int64
	Placement Placement
	// Group is the member that records are grouped by; "" for none.
	Group string
	// Drains says which nodes take no new records, when not nil.
	Drains []bool
	// CacheBytes is on by default; a test may turn it off.
	CacheBytes int64
	// Columns and KeepUnknown are those of the collection; none by default.
	Columns     []typed.Column
	KeepUnknown bool
	// Direct has the nodes' own URLs when Nodes lead through a proxy.
	Direct []string
	// renew makes another deployment on the same engines.
	renew func(t *testing.T) deployment
}

// engines are the combinations of databases that every suite of this package runs on, side by side.
func engines(t *testing.T, run func(t *testing.T, d deployment)) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			t.Parallel()
			run(t, fresh(t, engine))
		})
	}
}

func fresh(t *testing.T, engine servers.Engine) deployment {
	t.Helper()
	d := deployment{
		Index: servers.FreshSQLite(t), Issuer: engine.Fresh(t), Nodes: []string{engine.Fresh(t), engine.Fresh(t)},
		Size: 1000, Ranges: []string{"1", "2"}, CacheBytes: 1 << 20,
		renew: func(t *testing.T) deployment { return fresh(t, engine) },
	}
	if engine.Name != "sqlite" {
		d.Index = servers.FreshMongo(t)
	}
	return d
}

// opened is an open store with all that belongs to it.
type opened struct {
	*Store
	log     *logBuffer
	closers []func() error
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is the log so far.
func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// try opens a store on the deployment, doing what the gateway's own wiring does.
func (d deployment) try(ctx context.Context, logTo io.Writer) (*opened, error) {
	o := &opened{}
	fail := func(err error) (*opened, error) { o.abandon(); return nil, err }
	ix, err := index.New(d.Index, index.Options{AllowStandalone: true})
	if err != nil {
		return fail(err)
	}
	o.closers = append(o.closers, ix.Close)
	var issuers []*idsegment.Issuer
	for i, url := range append([]string{d.Issuer}, d.MoreIssuers...) {
		db, err := sqldb.New(url, sqldb.Options{})
		if err != nil {
			return fail(err)
		}
		o.closers = append(o.closers, db.Close)
		issuers = append(issuers, idsegment.NewIssuer(db, i+1, 1+len(d.MoreIssuers)))
	}
	var nodes []rangeshard.Node
	var dbs []*sqldb.DB
	for i, url := range d.Nodes {
		ranges, err := rangeshard.ParseRanges(d.Ranges[i])
		if err != nil {
			return fail(err)
		}
		db, err := sqldb.New(url, sqldb.Options{})
		if err != nil {
			return fail(err)
		}
		o.closers = append(o.closers, db.Close)
		nodes, dbs = append(nodes, rangeshard.Node{Name: fmt.Sprintf("node-%d", i+1), Ranges: ranges}), append(dbs, db)
	}
	layout, err := rangeshard.NewMap(d.Size, nodes)
	if err != nil {
		return fail(err)
	}
	identity, err := NewIdentity()
	if err != nil {
		return fail(err)
	}
	logger := slog.New(slog.NewTextHandler(logTo, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.Store, err = New(ctx, Config{
		Fleet: Fleet{Map: layout, Nodes: dbs, Issuers: issuers}, Index: ix, Identity: identity, CacheBytes: d.CacheBytes, Placement: d.Placement,
		Collections: []Collection{{Name: testCollection, Group: d.Group, KeyMember: "key", Columns: d.Columns, KeepUnknown: d.KeepUnknown}},
		Sequences:   idsegment.Options{MinStep: 10, MaxStep: 1000, Logger: logger}, Now: time.Now, Logger: logger,
	})
	if err != nil {
		return fail(err)
	}
	return o, nil
}

// open opens a store that is closed with the test.
func (d deployment) open(t *testing.T) *opened {
	t.Helper()
	log := &logBuffer{}
	o, err := d.try(t.Context(), log)
	if err != nil {
		t.Fatal(err)
	}
	o.log = log
	t.Cleanup(func() { o.shut(t) })
	return o
}

// shut stops the store gracefully. It may be called twice.
func (o *opened) shut(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := o.Store.Close(ctx); err != nil {
		t.Error(err)
	}
	o.abandon()
}

// abandon closes the connections without handing IDs back, as a crash would.
func (o *opened) abandon() {
	for i := len(o.closers) - 1; i >= 0; i-- {
		_ = o.closers[i]()
	}
	o.closers = nil
}

// issuerDB is a connection to the issuer's database, for doing damage.
func (o *opened) issuerDB(t *testing.T, d deployment) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), d.Issuer, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// storedRow is a row of some range table as a test finds it.
type storedRow struct {
	id    int64
	key   string
	state rowState
	node  int
}

// allRows reads every range table of every node, through the nodes' own URLs.
func (d deployment) allRows(t *testing.T) []storedRow {
	t.Helper()
	urls := d.Nodes
	if d.Direct != nil {
		urls = d.Direct
	}
	var all []storedRow
	for n, url := range urls {
		db, err := sqldb.Open(t.Context(), url, sqldb.Options{})
		if err != nil {
			t.Fatal(err)
		}
		list := "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
		if db.Engine() == sqldb.SQLite {
			list = "SELECT name FROM sqlite_master WHERE type = 'table'"
		}
		var tables []string
		err = db.Query(t.Context(), func(r *sql.Rows) error {
			var name string
			if err := r.Scan(&name); err != nil {
				return err
			}
			if strings.HasPrefix(name, testCollection+"_r") {
				tables = append(tables, name)
			}
			return nil
		}, list)
		for _, table := range tables {
			if err == nil {
				err = db.Query(t.Context(), func(r *sql.Rows) error {
					row := storedRow{node: n}
					var key []byte
					if err := r.Scan(&row.id, &key, &row.state); err != nil {
						return err
					}
					row.key = string(key)
					all = append(all, row)
					return nil
				}, "SELECT id, biz_key, state FROM "+table)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		db.Close()
	}
	return all
}

// checkInvariants reads all that is stored and checks what must hold at every moment at which nothing is on its way: I3
// (a live row's entry points at it), I4 (one live row per key), I5 (each row is on the node that owns its ID).
func (d deployment) checkInvariants(t *testing.T, o *opened) {
	t.Helper()
	liveOf := map[string]int64{}
	for _, r := range d.allRows(t) {
		if _, node, ok := o.topology.Load().layout.Locate(r.id); !ok || node != r.node {
			t.Errorf("I5: row %d is on node %d", r.id, r.node)
		}
		if r.state == fence {
			continue
		}
		if other, taken := liveOf[r.key]; taken {
			t.Errorf("I4: key %q has the live rows %d and %d", r.key, other, r.id)
		}
		liveOf[r.key] = r.id
	}
	for key, id := range liveOf {
		entry, ok, err := o.find(t.Context(), testCollection, key)
		if err != nil || !ok || entry != id {
			t.Errorf("I3: key %q lives in row %d, but its entry says %d (%v, %v)", key, id, entry, ok, err)
		}
	}
}
