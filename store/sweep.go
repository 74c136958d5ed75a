package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"keyrange/index"
	"keyrange/rangeshard"
)

// DamageKind is one of the ways in which the stores can disagree.
type DamageKind string

// Kinds of damage.
const (
	// Dangling: an entry without a row of its key, seen twice a grace period apart. Harmless.
	Dangling DamageKind = "dangling"
	// Stray: a live row whose key has no entry, or one that points at no row of the key. The record cannot be read.
	Stray DamageKind = "stray"
	// Double: a live row whose key has another live row, at which its entry points. Nobody but a person can say which counts.
	Double DamageKind = "double"
	// Misplaced: a row in a range table that its ID does not belong to. Nobody looks for it there.
	Misplaced DamageKind = "misplaced"
	// Unlisted: a live row whose range the directory of groups does not list for its group. Its group is not listed in full.
	Unlisted DamageKind = "unlisted"
	// Beyond: an entry that points beyond the last range of this config, or at a range without a table. Its record is
	// somewhere else, or lost.
	Beyond DamageKind = "beyond"
)

// Damage is one thing that is wrong.
type Damage struct {
	Kind       DamageKind
	Collection string
	// Key is the key of the entry or row. It is for the eyes of operators that ask for it, never for logs.
	Key string
	// ID is that of the row, or for Dangling and Beyond the one that the entry points at.
	ID int64
	// Entry is what the key's entry points at instead of the row, for Stray and Double; 0 for nothing.
	Entry int64
	// Table and Node are where the row is or should be; both are empty when no range has the ID.
	Table, Node string
	// Repaired: it is as it should be now.
	Repaired bool
}

// sweptNode is a node as a sweep sees it. Without rows it is left out, as if it had no tables.
type sweptNode struct {
	name string
	rows rows
}

// sweptFleet is the nodes of a map, in its order.
type sweptFleet struct {
	layout *rangeshard.Map
	nodes  []*sweptNode
}

// sweptTable is a range table as a sweep sees it.
type sweptTable struct {
	collection string
	number     int64 // of the range
	owner      int   // its node, by place in the map
	node       *sweptNode
	name       string
}

// sweep compares entries with rows, batch by batch, while requests run. It never takes what is merely under way for
// damage, and what it mends stays right whatever requests do meanwhile:
//
//   - A row that was seen live before and after its key's entry was seen to lead elsewhere is stray: the entry exists before
//     the row and goes after it, and the row was live in between because no ID lives twice (I2, I3).
//   - An entry is removed only behind a fence where it points (or behind what is there instead), so a create that is about
//     to insert its row there is refused and starts over. That it is seen dangling twice first is mere politeness.
//   - An expired row is removed before its entry, by a statement that demands that it has expired, and the entry only when
//     the row is gone: no row will live there again (I2).
//   - An entry is made only by an insert that is refused when there is one, or by a compare-and-set.
//
// It is safe for concurrent use, also by several gateways at once.
type sweep struct {
	index index.Index
	// fleet is asked for each batch, because nodes may be appended meanwhile.
	fleet    func() sweptFleet
	identity *Identity
	now      func() time.Time
	// repair mends what can be mended; otherwise nothing is written.
	repair bool
	// batch bounds the entries or rows of one step, 1 to 1,000.
	batch int
	// fencesBefore tells fences that are old enough to be purged.
	fencesBefore func() time.Time

	mu sync.Mutex
	// known are the names of the tables that exist, by the name of their node, as far as they were asked for.
	known map[string]map[string]bool
}

// swept is what one step has found. After an error it is what was found, and mended, until then.
type swept struct {
	entries, rows, fences int64
	// expired are those of the rows that are overdue, and buried those that are gone.
	expired, buried int64
	damage          []Damage
	// doubtful are entries that dangle at first sight. Most belong to requests under way.
	doubtful []doubt
	// oldFences are those that may be purged.
	oldFences []int64
}

// doubt is an entry that was seen dangling.
type doubt struct {
	index.Entry
	collection string
	seen       time.Time
}

// spot is where the row of an ID belongs, and what is there.
type spot struct {
	sweptTable
	// known is false when no range has the ID, or its range has no table.
	known bool
	// row is nil when there is none.
	row *brief
}

// table returns the range table of an ID; not ok, and without names, beyond the last range.
func (f sweptFleet) table(collection string, id int64) (t sweptTable, ok bool) {
	r, n, ok := f.layout.Locate(id)
	if !ok {
		return sweptTable{node: &sweptNode{}}, false
	}
	return sweptTable{collection, r.Number, n, f.nodes[n], tableName(collection, r.Number)}, true
}

// owns reports whether the ID of a row belongs to the table that it is in.
func (f sweptFleet) owns(t sweptTable, id int64) bool {
	r, n, ok := f.layout.Locate(id)
	return ok && r.Number == t.number && n == t.owner
}

// tablesOf lists the range tables of a collection that exist, wherever they should be, by number and node. Those beyond
// the last range are left out: another gateway may know more nodes.
func (s *sweep) tablesOf(ctx context.Context, collection string) (all []sweptTable, err error) {
	fleet := s.fleet()
	for n, node := range fleet.nodes {
		names, err := s.list(ctx, node)
		if err != nil {
			return nil, err
		}
		for name := range names {
			if number, ok := rangeNumber(collection, name); ok && number <= fleet.layout.LastRange() {
				all = append(all, sweptTable{collection, number, n, node, tableName(collection, number)})
			}
		}
	}
	slices.SortFunc(all, func(a, b sweptTable) int {
		if a.number != b.number {
			return int(a.number - b.number)
		}
		return a.owner - b.owner
	})
	return all, nil
}

// list asks a node for its tables and remembers them; in lower case, see tablesOf.
func (s *sweep) list(ctx context.Context, node *sweptNode) (map[string]bool, error) {
	known := map[string]bool{}
	if node.rows != nil {
		names, err := node.rows.tables(ctx)
		if err != nil {
			return nil, &sweepError{node.name, fmt.Errorf("list the tables: %w: %w", ErrUnavailable, err)}
		}
		for _, name := range names {
			known[strings.ToLower(name)] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]map[string]bool{}
	}
	s.known[node.name] = known
	return known, nil
}

// forget makes the sweep ask the nodes again for their tables.
func (s *sweep) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = nil
}

// exists reports whether a range table does. It asks the node only when it does not know of the table.
func (s *sweep) exists(ctx context.Context, t sweptTable) (bool, error) {
	name := strings.ToLower(t.name)
	s.mu.Lock()
	known := s.known[t.node.name][name]
	s.mu.Unlock()
	if known {
		return true, nil
	}
	names, err := s.list(ctx, t.node)
	return names[name], err
}

// at finds the rows at IDs of a collection.
func (s *sweep) at(ctx context.Context, collection string, ids []int64) (map[int64]spot, error) {
	fleet := s.fleet()
	spots, byTable := make(map[int64]spot, len(ids)), map[sweptTable][]int64{}
	for _, id := range ids {
		t, ok := fleet.table(collection, id)
		spots[id] = spot{sweptTable: t}
		if ok && !slices.Contains(byTable[t], id) {
			byTable[t] = append(byTable[t], id)
		}
	}
	for t, ids := range byTable {
		if ok, err := s.exists(ctx, t); err != nil || !ok {
			if err != nil {
				return nil, err
			}
			continue
		}
		found, err := s.glance(ctx, t, ids)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			spots[id] = spot{t, true, found[id]}
		}
	}
	return spots, nil
}

// glance reads rows of one table, by ID.
func (s *sweep) glance(ctx context.Context, t sweptTable, ids []int64) (map[int64]*brief, error) {
	found, err := t.node.rows.glance(ctx, t.name, ids)
	if err != nil {
		return nil, t.failed("read rows", err)
	}
	byID := make(map[int64]*brief, len(found))
	for i := range found {
		byID[found[i].id] = &found[i]
	}
	return byID, nil
}

// sweepError is a step that failed because a database did not do its part. It matches ErrUnavailable.
type sweepError struct {
	// where is the name of the node, or "index".
	where string
	cause error
}

func (e *sweepError) Error() string { return e.where + ": " + e.cause.Error() }

func (e *sweepError) Unwrap() error { return e.cause }

// failed makes an error of the store of one of a node.
func (t sweptTable) failed(op string, err error) error {
	return &sweepError{t.node.name, fmt.Errorf("%s of %s: %w: %w", op, t.name, ErrUnavailable, err)}
}

// indexFailed makes an error of the store of one of the index.
func indexFailed(op string, err error) error {
	return &sweepError{"index", fmt.Errorf("%s: %w: %w", op, ErrUnavailable, err)}
}

// find looks entries up.
func (s *sweep) find(ctx context.Context, collection string, keys []string) (map[string]int64, error) {
	found, err := s.index.Find(ctx, collection, keys)
	if err != nil {
		return nil, indexFailed("find entries", err)
	}
	return found, nil
}

// damaged describes what is wrong at a spot; beyond the last range nothing is said of the place.
func (p spot) damaged(kind DamageKind, collection, key string, id int64) Damage {
	return Damage{Kind: kind, Collection: collection, Key: key, ID: id, Table: p.name, Node: p.node.name}
}
