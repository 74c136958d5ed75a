package store

import (
	"context"
	"sync"
	"sync/atomic"
)

// fitting makes sure, before the first statement, that a range table has the columns of its collection. A gateway that
// does not know all of them yet may have made the table after this one looked at the node. It is nil for a collection without
// columns.
type fitting struct {
	adapter
	table string
	done  atomic.Bool
	mu    sync.Mutex // lets one caller look
}

func newFitting(on *node, shapes schema, table string) *fitting {
	if shapes.of(table).layout == nil {
		return nil
	}
	return &fitting{adapter: adapter{on.db, shapes}, table: table}
}

// fit looks at the table once it exists. Its error means that nothing was sent.
func (f *fitting) fit(ctx context.Context) error {
	if f == nil || f.done.Load() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done.Load() {
		return nil
	}
	tables, err := f.columns(ctx, f.table)
	if err != nil || len(tables) == 0 {
		return err
	}
	if err := f.judge(ctx, tables); err != nil {
		return err
	}
	if err := f.complete(ctx, f.table, tables[f.table]); err != nil {
		return err
	}
	f.done.Store(true)
	return nil
}
