package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"keyrange/idsegment"
	"keyrange/store/sqldb"
)

// sqlLedger keeps a node's ledger in a table of it. A segment is one row: about a thousand for a full range of ten
// million IDs. When it was leased tells how fast the IDs are used.
type sqlLedger struct {
	db     *sqldb.DB
	shapes schema
}

// The columns are binary so that range tables compare byte by byte.
const (
	createLedgerMySQL = `CREATE TABLE IF NOT EXISTS gateway_segment (
	range_table VARBINARY(64) NOT NULL,
	issuer      SMALLINT      NOT NULL,
	start_id    BIGINT        NOT NULL,
	end_id      BIGINT        NOT NULL,
	leased_at   BIGINT        NOT NULL COMMENT 'seconds since 1970',
	PRIMARY KEY (range_table, issuer, start_id),
	KEY leased_at (leased_at)
) ENGINE=InnoDB`
	createLedgerSQLite = `CREATE TABLE IF NOT EXISTS gateway_segment (
	range_table BLOB    NOT NULL,
	issuer      INTEGER NOT NULL,
	start_id    INTEGER NOT NULL,
	end_id      INTEGER NOT NULL,
	leased_at   INTEGER NOT NULL,
	PRIMARY KEY (range_table, issuer, start_id)
) STRICT, WITHOUT ROWID`
)

func (l sqlLedger) create(ctx context.Context) error {
	create := createLedgerMySQL
	if l.db.Engine() == sqldb.SQLite {
		create = createLedgerSQLite
	}
	if _, err := l.db.Exec(ctx, create); err != nil {
		return fmt.Errorf("create the table gateway_segment: %w", err)
	}
	return groupings{l.db}.create(ctx)
}

// enter writes first and looks afterwards: of two gateways that were given overlapping segments at the same time, the one
// that writes last sees the other's.
func (l sqlLedger) enter(ctx context.Context, table string, issuer int, s idsegment.Segment, now time.Time) (fresh bool, err error) {
	_, err = l.db.Exec(ctx, "INSERT INTO gateway_segment (range_table, issuer, start_id, end_id, leased_at) VALUES (?, ?, ?, ?, ?)",
		[]byte(table), issuer, s.Start, s.End, now.Unix())
	if errors.Is(err, sqldb.ErrDuplicate) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var end int64
	err = l.db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&end) },
		"SELECT COALESCE(MAX(end_id), 0) FROM gateway_segment WHERE range_table = ? AND issuer = ? AND start_id < ? AND start_id <> ?",
		[]byte(table), issuer, s.End, s.Start)
	if err != nil {
		return false, fmt.Errorf("%w: it is noted, but not compared: %s", sqldb.ErrUnknown, err.Error())
	}
	if end <= s.Start {
		return l.allowed(ctx, table, issuer, s)
	}
	// Left behind it would do no harm: nobody uses the segment.
	_, err = l.db.Exec(ctx, "DELETE FROM gateway_segment WHERE range_table = ? AND issuer = ? AND start_id = ?", []byte(table), issuer, s.Start)
	return false, err
}

// allowed lets a segment be used that was noted just now, or takes it back when this gateway's config groups the records of
// its collection in another way.
func (l sqlLedger) allowed(ctx context.Context, table string, issuer int, s idsegment.Segment) (bool, error) {
	err := l.sameGrouping(ctx, table)
	if err == nil {
		return true, nil
	}
	if dropErr := l.shorten(ctx, table, issuer, s); dropErr != nil || !errors.Is(err, errGrouping) {
		return false, fmt.Errorf("%w: it is noted, but not used: %s", sqldb.ErrUnknown, err.Error())
	}
	return false, err
}

func (l sqlLedger) shorten(ctx context.Context, table string, issuer int, tail idsegment.Segment) error {
	return l.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM gateway_segment WHERE range_table = ? AND issuer = ? AND start_id >= ? AND end_id <= ?",
			[]byte(table), issuer, tail.Start, tail.End)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE gateway_segment SET end_id = ? WHERE range_table = ? AND issuer = ? AND start_id < ? AND end_id > ? AND end_id <= ?",
			tail.Start, []byte(table), issuer, tail.Start, tail.Start, tail.End)
		return err
	})
}

func (l sqlLedger) entered(ctx context.Context, table string, issuer int) (end int64, err error) {
	err = l.db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&end) },
		"SELECT COALESCE(MAX(end_id), 0) FROM gateway_segment WHERE range_table = ? AND issuer = ?", []byte(table), issuer)
	return end, err
}

// usage is what was leased of a range table's IDs since some moment.
type usage struct {
	// leased sums the lengths of the segments: the IDs in them times the number of issuers.
	leased int64
	// first is when the first of them was leased.
	first time.Time
	// before says that others had been leased before.
	before bool
}

// usage reads only the newest segments, and one older one of each table.
func (l sqlLedger) usage(ctx context.Context, since time.Time) (map[string]usage, error) {
	all := map[string]usage{}
	err := l.db.Query(ctx, func(r *sql.Rows) error {
		var table []byte
		var u usage
		var first int64
		if err := r.Scan(&table, &u.leased, &first, &u.before); err != nil {
			return err
		}
		u.first = time.Unix(first, 0)
		all[string(table)] = u
		return nil
	}, `SELECT range_table, SUM(end_id - start_id), MIN(leased_at),
		EXISTS (SELECT 1 FROM gateway_segment o WHERE o.range_table = s.range_table AND o.leased_at < ?)
		FROM gateway_segment s WHERE leased_at >= ? GROUP BY range_table`, since.Unix(), since.Unix())
	return all, unlessMissing(ctx, l.db, "gateway_segment", err)
}

// ledgered leases from an issuer, and uses no ID before its segment stands in the ledger of the node that owns it. So an
// issuer that was set back, by a restore for instance, cannot make an ID be issued twice (I1), whatever the gateways that
// used it remember.
type ledgered struct {
	issuer *issuer
	node   *node
	table  string
	now    func() time.Time
}

// Lease implements idsegment.Leaser.
func (l ledgered) Lease(ctx context.Context, name idsegment.Name, count int64) (idsegment.Segment, error) {
	segment, err := l.issuer.Lease(ctx, name, count)
	if err != nil {
		return idsegment.Segment{}, err
	}
	fresh, err := l.node.rows.enter(ctx, l.table, l.issuer.Number(), segment, l.now())
	switch {
	case errors.Is(err, sqldb.ErrUnavailable):
		_, _ = l.issuer.Return(ctx, name, segment) // at worst it is lost
		fallthrough
	case err != nil:
		return idsegment.Segment{}, fmt.Errorf("enter a segment of %s at %s: %w: %s", name, l.node.name, idsegment.ErrUnavailable, err.Error())
	case !fresh:
		return idsegment.Segment{}, fmt.Errorf("lease %s at %s: %w: IDs of the segment [%d, %d) stand in the ledger of %s, they were leased before",
			name, l.issuer.Describe(), idsegment.ErrRewound, segment.Start, segment.End, l.node.name)
	}
	return segment, nil
}

// Return implements idsegment.Leaser. The ledger comes first: once the issuer can lease the tail again, it must be gone
// from there.
func (l ledgered) Return(ctx context.Context, name idsegment.Name, tail idsegment.Segment) (bool, error) {
	if err := l.node.rows.shorten(ctx, l.table, l.issuer.Number(), tail); err != nil {
		return false, fmt.Errorf("return to %s: %w: %s", name, idsegment.ErrUnavailable, err.Error())
	}
	return l.issuer.Return(ctx, name, tail)
}
