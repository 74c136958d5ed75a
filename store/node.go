package store

import (
	"context"

	"keyrange/rangeshard"
	"keyrange/store/sqldb"
)

// node is an open node of the map.
type node struct {
	admission
	name    string
	db      *sqldb.DB
	guarded *guardedRows
	// rows is guarded, or what a test puts around it.
	rows rows
	// tables lists all tables of the database, at a moment after it was asked.
	tables *lane[struct{}, []string]
}

func (s *Store) newNode(name string, db *sqldb.DB) *node {
	n := &node{name: name, db: db}
	n.guarded = guard(name, rowsOf(db, s.shapes), n.barred, func(kind string, down bool) {
		if !down {
			s.log.Info("node is up", "node", name, "for", kind)
			return
		}
		s.log.Error("node is down", "node", name, "for", kind, "location", db.Location())
		if s.background.Err() == nil {
			s.tasks.Go(func() { s.probe(n, kind) })
		}
	})
	n.rows = n.guarded
	n.tables = shared(func(ctx context.Context) ([]string, error) { return n.rows.tables(ctx) })
	return n
}

// down reports whether the node takes no new records: it is being left alone for writes, or has not been admitted.
func (n *node) down() bool { return n.barred() != nil || n.guarded.writes.open() }

// probe looks at a node until it is up again for a kind of statements.
func (s *Store) probe(n *node, kind string) {
	if kind == forWrites {
		n.guarded.writes.probe(s.background, func(ctx context.Context) error { return rangeshard.TryWrite(ctx, n.db) })
		return
	}
	n.guarded.reads.probe(s.background, n.db.Ping)
}
