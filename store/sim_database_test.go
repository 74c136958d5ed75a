package store

import (
	"fmt"
	"slices"
	"time"

	"keyrange/index"
)

// simDatabases is the state of the index and of all nodes, which gateways share. Only the controller's goroutine touches
// it, and each change is checked against the invariants on the spot.
type simDatabases struct {
	entries map[string]int64
	// places is the directory of groups.
	places map[string]bool
	rows   map[int64]row
	// lived are the IDs that have ever had a live row.
	lived map[int64]bool
	// alive lists the live rows of each key.
	alive map[string][]int64
	// written lists which versions of records came to hold a document. Documents are unique to operations, so this is what
	// an operation really did, whatever its client was told.
	written map[string][]Tag
	mutant  simMutant
	// broken takes the invariants that a change broke.
	broken func(format string, args ...any)
}

func newSimDatabases(broken func(format string, args ...any)) *simDatabases {
	return &simDatabases{map[string]int64{}, map[string]bool{}, map[int64]row{}, map[int64]bool{}, map[string][]int64{}, map[string][]Tag{}, mutantNone, broken}
}

func (d *simDatabases) insertEntry(e index.Entry) bool {
	if _, exists := d.entries[e.Key]; exists {
		return false
	}
	d.entries[e.Key] = e.ID
	d.check(e.Key)
	return true
}

func (d *simDatabases) insertPlace(e index.Entry) bool {
	inserted := !d.places[e.Key]
	d.places[e.Key] = true
	return inserted
}

func (d *simDatabases) replaceEntry(key string, old, new int64) bool {
	if d.entries[key] != old {
		return false
	}
	d.entries[key] = new
	d.check(key)
	return true
}

func (d *simDatabases) removeEntry(e index.Entry) {
	if d.entries[e.Key] == e.ID {
		delete(d.entries, e.Key)
		d.check(e.Key)
	}
}

// insertRows runs one statement and returns which rows were refused as duplicates, also of one another. Atomic statements,
// as of MySQL, add all rows or none, and refuse all; others leave out the duplicates.
func (d *simDatabases) insertRows(batch []row, atomic bool) (duplicates []bool) {
	duplicates = make([]bool, len(batch))
	taken := map[int64]bool{}
	for i, r := range batch {
		_, exists := d.rows[r.id]
		duplicates[i] = exists || taken[r.id]
		taken[r.id] = true
	}
	if atomic && slices.Contains(duplicates, true) {
		for i := range duplicates {
			duplicates[i] = true
		}
	}
	for i, r := range batch {
		if !duplicates[i] {
			d.insertRow(r)
		}
	}
	return duplicates
}

func (d *simDatabases) insertRow(r row) {
	d.rows[r.id] = r
	if r.state == fence {
		return
	}
	if d.lived[r.id] {
		d.broken("I2: row %d of %s lives a second time", r.id, r.key)
	}
	if place := (groupPlace{group: r.Group, number: 1 + (r.id-1)/simRangeIDs}); r.Group != "" && !d.places[place.entry().Key] {
		d.broken("row %d of group %s is in a range that is not listed for the group", r.id, r.Group)
	}
	d.lived[r.id] = true
	d.alive[r.key] = append(d.alive[r.key], r.id)
	d.written[string(r.Document)] = append(d.written[string(r.Document)], r.tag())
	d.check(r.key)
}

// read returns the row at an ID as it is at this moment: the clock of the world is that of every node.
func (d *simDatabases) read(id int64) (r row, ok bool) {
	r, ok = d.rows[id]
	now := time.Now()
	if d.mutant == mutantHasty {
		now = now.Add(takeOverPoll)
	}
	r.expired = !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(now)
	return r, ok
}

// expired lists the IDs of all expired rows, in order.
func (d *simDatabases) expired() []int64 {
	var ids []int64
	for id := range d.rows {
		if r, _ := d.read(id); r.outlived(r.key) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// change runs a conditional write.
func (d *simDatabases) change(c *rowChange) changed {
	r, ok := d.read(c.id)
	switch {
	case c.expired && d.mutant == mutantUnburied:
		return changed{ok: true}
	case c.expired != r.expired && (c.expired || d.mutant != mutantRevive):
		return changed{}
	}
	r.expired = false // it is as it is asked for
	if !ok || !r.belongsTo(c.key) || len(c.versions) > 0 && !slices.Contains(c.versions, r.version) {
		return changed{}
	}
	if c.removes() {
		d.removeRow(c.id, c.key)
		return changed{ok: true}
	}
	r.version++
	r.token, r.updatedAt, r.Content = c.token, c.updatedAt, c.Content
	d.rows[c.id] = r
	d.written[string(r.Document)] = append(d.written[string(r.Document)], r.tag())
	return changed{ok: true, version: r.version}
}

func (d *simDatabases) removeRow(id int64, key string) {
	delete(d.rows, id)
	d.alive[key] = slices.DeleteFunc(d.alive[key], func(other int64) bool { return other == id })
}

// check holds the invariants of a key that are true at every moment, not only when all is quiet.
func (d *simDatabases) check(key string) {
	alive := d.alive[key]
	switch {
	case len(alive) > 1:
		d.broken("I4: %s has the live rows %v", key, alive)
	case len(alive) == 1 && d.entries[key] != alive[0]:
		d.broken("I3: %s has the live row %d and the entry points at %d", key, alive[0], d.entries[key])
	}
}

// fences lists the IDs of all fences, in order.
func (d *simDatabases) fences() []int64 {
	var ids []int64
	for id, r := range d.rows {
		if r.state == fence {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// String shows all there is, for traces.
func (d *simDatabases) String() string {
	var rows []row
	for _, r := range d.rows {
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int { return int(a.id - b.id) })
	text := fmt.Sprintf("entries %v, rows", d.entries)
	for _, r := range rows {
		text += " " + describeRow(r)
	}
	return text
}

// describeRow names a row in labels and traces.
func describeRow(r row) string {
	if r.state == fence {
		return fmt.Sprintf("fence@%d", r.id)
	}
	return fmt.Sprintf("%s@%s", r.Document, r.tag())
}
