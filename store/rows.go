package store

import (
	"context"
	"fmt"
	"time"

	"keyrange/idsegment"
	"keyrange/store/sqldb"
	"keyrange/store/typed"
)

// rowState tells a record from a fence.
type rowState int8

const (
	live rowState = 0
	// fence is a tombstone: a row that proves that no record will ever live at its ID.
	fence rowState = 1
)

// row is one row of a range table. Its ID is the register that decides: whoever commits a row there first, a record or
// a fence, has decided the fate of the create that holds the ID (I2).
type row struct {
	id                   int64
	key                  string
	state                rowState
	version              int64
	token                token
	createdAt, updatedAt time.Time
	// expired says that the record had ceased to exist when the row was read, by the clock of the node.
	expired bool
	Content
	// cells are the values of the columns that the collection declares, in their order: nil for NULL, or what the driver
	// takes and gives.
	cells []any
	// layout tells that the row was read from columns, of which record makes the document; nil when Document is whole.
	layout *typed.Layout
}

// belongsTo reports whether the row is the record of a key.
func (r *row) belongsTo(key string) bool { return r.alive() && r.key == key }

// asFence is the row that proves that no record will ever live at its ID.
func (r row) asFence() row {
	r.state, r.expired, r.cells = fence, false, nil
	r.Content = Content{Document: []byte{}} // empty, not nil, which MySQL would take for NULL
	return r
}

func (r *row) tag() Tag { return Tag{ID: r.id, Version: r.version} }

// record is the record that a live row holds, or ErrUnreadable.
func (r *row) record() (Record, error) {
	content := r.Content
	content.split = nil // it is of this key, and of this document as it is
	if r.layout != nil {
		document, err := r.layout.Join(r.key, typed.Row{Cells: r.cells, Rest: r.Document})
		if err != nil {
			return Record{}, fmt.Errorf("row %d: %w: %w", r.id, ErrUnreadable, err)
		}
		content.Document = document
	}
	return Record{Key: r.key, Tag: r.tag(), Content: content, CreatedAt: r.createdAt, UpdatedAt: r.updatedAt}, nil
}

// size is about what the content of the row takes in a statement, in bytes.
func (r *row) size() int { return typed.Row{Cells: r.cells, Rest: r.Document}.Bytes() }

// rowChange is a conditional write to the live row of a key that has not expired: it puts another content there, or deletes
// the row when Document is nil.
type rowChange struct {
	id  int64
	key string
	// versions that the row must have; none means any.
	versions []int64
	// sameGroup demands that the row is in the group of Content, or in none when that is "".
	sameGroup bool
	// expired demands that the row has expired, instead of that it has not. Only for deleting it.
	expired   bool
	token     token
	updatedAt time.Time
	Content
	cells []any
}

// removes reports whether the change deletes the row.
func (c *rowChange) removes() bool { return c.Document == nil }

// size is as for a row.
func (c *rowChange) size() int { return typed.Row{Cells: c.cells, Rest: c.Document}.Bytes() }

// changed is what a conditional write did.
type changed struct {
	// ok is false when the condition did not hold, and nothing was written.
	ok bool
	// version is the new version of an updated row.
	version int64
}

// ledger is where a node keeps which segments of its ranges were leased, whatever the issuer remembers.
type ledger interface {
	// enter notes that an issuer leased a segment of a range table's IDs, and reports whether nobody has been given any of
	// them before. When somebody has, nothing is noted.
	enter(ctx context.Context, table string, issuer int, segment idsegment.Segment, now time.Time) (fresh bool, err error)
	// shorten takes back the unused end of what was noted.
	shorten(ctx context.Context, table string, issuer int, tail idsegment.Segment) error
	// entered is the end of the highest segment that was noted; 0 when there is none.
	entered(ctx context.Context, table string, issuer int) (end int64, err error)
	// usage says, by range table, what was leased since a moment. A table without such segments is not listed.
	usage(ctx context.Context, since time.Time) (map[string]usage, error)
}

// rows is the range tables of one node. Each method sends each statement at most once, unless the server proved that it
// changed nothing; errors match the outcomes of package sqldb.
type rows interface {
	// prepare creates a range table when it is missing, and refuses one of another shape.
	prepare(ctx context.Context, table string) error
	ledger
	counter
	scanner
	grouper
	lister
	// insert adds rows and answers for each of them; nil means added. One that is refused fails alone.
	insert(ctx context.Context, table string, batch []row) []error
	// read returns those of the rows that exist, in no particular order, fences included.
	read(ctx context.Context, table string, ids []int64) ([]row, error)
	// change runs conditional writes, in their order, and answers for each of them.
	change(ctx context.Context, table string, batch []rowChange) []answer[changed]
}

// rowsOf picks the dialect of a node.
func rowsOf(db *sqldb.DB, shapes schema) rows {
	if db.Engine() == sqldb.SQLite {
		return &sqliteRows{sqlLedger{db, shapes}, sqlCounter{db}, sqlScanner{db, shapes}, db, shapes}
	}
	return &mysqlRows{sqlLedger{db, shapes}, sqlCounter{db}, sqlScanner{db, shapes}, db, shapes, func() int64 { return db.Server().MaxPacketBytes }}
}

// tableName names the range table of a collection and a range. Collection names are checked by config: letters, digits
// and underscores only.
func tableName(collection string, number int64) string {
	return fmt.Sprintf("%s_r%05d", collection, number)
}

// repeat gives every row of a batch the same outcome.
func repeat(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
