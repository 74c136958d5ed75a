package idsegment

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"

	"keyrange/store/sqldb"
)

const (
	// nameMaxBytes is the width of the columns that hold a collection's name and the cluster id.
	nameMaxBytes = 64
	// rowAttempts bounds how often a row is read and written while others change it in between.
	rowAttempts = 4
)

// Issuer is an open issuer database. It is safe for concurrent use, by any number of gateways at once.
type Issuer struct {
	db         *sqldb.DB
	dialect    dialect
	number, of int
	// known remembers the Bounds of rows by Name. A lease changes nothing when they are others by then.
	known sync.Map
}

// row is one row of id_segment.
type row struct {
	Bounds
	next int64
}

// NewIssuer takes over db, which Close closes, as issuer number (from 1) of `of`; other numbers are a mistake in the
// program and panic. It reads and writes nothing: on a database that no gateway has used yet List is empty and Identity is
// zero, until JoinCluster creates the tables.
func NewIssuer(db *sqldb.DB, number, of int) *Issuer {
	if number < 1 || number > of {
		panic(fmt.Sprintf("idsegment: issuer %d of %d", number, of))
	}
	issuer := &Issuer{db: db, dialect: mysqlDialect, number: number, of: of}
	if db.Engine() == sqldb.SQLite {
		issuer.dialect = sqliteDialect
	}
	return issuer
}

// Number is the issuer's number, from 1, as it was opened.
func (i *Issuer) Number() int { return i.number }

// Bounds are the IDs that are this issuer's to give in a range [lo, hi): those congruent to its number modulo the number
// of issuers.
func (i *Issuer) Bounds(lo, hi int64) Bounds {
	of := int64(i.of)
	ahead := (int64(i.number) - lo) % of
	if ahead < 0 {
		ahead += of
	}
	return Bounds{Lo: lo + ahead, Hi: hi, Stride: of}
}

// Register makes a range [lo, hi) known, with all IDs of the issuer's class still to lease. A range that is known already
// stays as it is; under other bounds it is ErrMismatch, and so is a database that is another issuer. After ErrUnavailable
// it may be known, and it is safe to try again.
//
// Register cannot tell a new range from one whose row was lost. The floor of a sequence can.
func (i *Issuer) Register(ctx context.Context, name Name, lo, hi int64) error {
	if err := i.checkRange(name, lo, hi); err != nil {
		return fmt.Errorf("register %w", err)
	}
	want := i.Bounds(lo, hi)
	known, found, err := i.row(ctx, name)
	if err == nil && !found {
		_, err = i.db.Exec(ctx, i.dialect.register,
			[]byte(name.Collection), name.Range, want.Lo, want.Hi, want.Stride, want.Lo, i.number, i.of)
		if err != nil && !errors.Is(err, sqldb.ErrDuplicate) {
			return i.translate("register "+name.String(), err)
		}
		known, found, err = i.row(ctx, name)
	}
	switch {
	case err != nil:
		return err
	case !found:
		return i.notRegistered(ctx, name)
	case known.Bounds != want:
		return fmt.Errorf("register %s at %s: %w: %v there, %v here", name, i.Describe(), ErrMismatch, known.Bounds, want)
	}
	return nil
}

// checkRange refuses what no row can hold.
func (i *Issuer) checkRange(name Name, lo, hi int64) error {
	if name.Collection == "" || len(name.Collection) > nameMaxBytes || name.Range < 1 {
		return fmt.Errorf("%s: want a collection's name of 1 to %d bytes and a range from 1", name, nameMaxBytes)
	}
	// The next ID of an exhausted range is behind hi by less than the number of issuers.
	if highest := math.MaxInt64 - int64(i.of); lo < 1 || hi <= lo || hi > highest {
		return fmt.Errorf("%s with IDs [%d, %d): want 1 <= lo < hi <= %d", name, lo, hi, highest)
	}
	return nil
}

// notRegistered says why a row that was just inserted is not there.
func (i *Issuer) notRegistered(ctx context.Context, name Name) error {
	stored, err := i.identity(ctx)
	if err == nil {
		err = i.recognise(stored)
	}
	if err == nil {
		err = fmt.Errorf("%w: the row vanished", ErrUnavailable)
	}
	return fmt.Errorf("register %s at %s: %w", name, i.Describe(), err)
}

// Look reads how far the issuer has come with one sequence; false when it does not know it.
func (i *Issuer) Look(ctx context.Context, name Name) (issued Issued, found bool, err error) {
	r, found, err := i.row(ctx, name)
	return Issued{Name: name, Bounds: r.Bounds, Next: r.next}, found, err
}

// row reads the row of a range. Its bounds are remembered if they are of the issuer's class.
func (i *Issuer) row(ctx context.Context, name Name) (r row, found bool, err error) {
	err = i.db.Query(ctx, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(&r.Lo, &r.Hi, &r.Stride, &r.next)
	}, "SELECT lo, hi, stride, next_id FROM id_segment WHERE collection = ? AND range_no = ?",
		[]byte(name.Collection), name.Range)
	if err != nil {
		return row{}, false, i.translate("read "+name.String(), err)
	}
	if found && r.Bounds == i.Bounds(r.Lo, r.Hi) {
		i.known.Store(name, r.Bounds)
	}
	return r, found, nil
}

// ownRow reads the row of a range that the issuer should have. ErrMismatch: the database, or the row, is another issuer's.
// ErrRewound: there is no row.
func (i *Issuer) ownRow(ctx context.Context, name Name) (row, error) {
	r, found, err := i.row(ctx, name)
	switch {
	case err != nil:
		return row{}, err
	case !found:
		stored, err := i.identity(ctx)
		if err == nil && stored != (Identity{}) {
			err = i.recognise(stored)
		}
		if err == nil {
			err = fmt.Errorf("%w: it has no row", ErrRewound)
		}
		return row{}, err
	case r.Bounds != i.Bounds(r.Lo, r.Hi):
		return row{}, fmt.Errorf("%w: its row is %v, which is not issuer %d of %d", ErrMismatch, r.Bounds, i.number, i.of)
	}
	return r, nil
}

// List returns every registered sequence, ordered by collection (bytewise) and range, with the bounds that are stored,
// which are another issuer's if the database is.
func (i *Issuer) List(ctx context.Context) ([]Issued, error) {
	if exists, err := i.exists(ctx, segmentTable); err != nil || !exists {
		return nil, err
	}
	var list []Issued
	err := i.db.Query(ctx, func(rows *sql.Rows) error {
		var collection []byte
		var issued Issued
		if err := rows.Scan(&collection, &issued.Range, &issued.Lo, &issued.Hi, &issued.Stride, &issued.Next); err != nil {
			return err
		}
		issued.Collection = string(collection)
		list = append(list, issued)
		return nil
	}, "SELECT collection, range_no, lo, hi, stride, next_id FROM id_segment ORDER BY collection, range_no")
	if err != nil {
		return nil, i.translate("list", err)
	}
	return list, nil
}

// Lease leases the next count IDs of the range, or as many as are left, in one atomic statement. ErrExhausted: none
// are left. ErrRewound: the range was never registered, or its row is gone. ErrMismatch: the database, or the row, is
// another issuer's; nothing was leased. ErrUnavailable: the IDs may be leased, but nobody knows which, so they are lost.
func (i *Issuer) Lease(ctx context.Context, name Name, count int64) (Segment, error) {
	if count < 1 {
		return Segment{}, fmt.Errorf("lease %s: want a count from 1 (got %d)", name, count)
	}
	for range rowAttempts {
		if known, ok := i.known.Load(name); ok {
			segment, err := i.dialect.lease(ctx, i.db, name, known.(Bounds), count)
			if err != nil {
				return Segment{}, i.translate("lease "+name.String(), err)
			}
			if segment.Start < segment.End {
				return segment, nil
			}
		}
		r, err := i.ownRow(ctx, name)
		if err == nil && r.next >= r.Hi {
			err = ErrExhausted
		}
		if err != nil {
			return Segment{}, fmt.Errorf("lease %s at %s: %w", name, i.Describe(), err)
		}
		// There is something to lease after all: a tail came back, or this was the first look at the row.
	}
	return Segment{}, fmt.Errorf("lease %s at %s: %w: the row keeps changing", name, i.Describe(), ErrUnavailable)
}

// Return gives an unused tail back, if nothing was leased since: it sets the next ID from tail.End to tail.Start when
// it is still tail.End, and reports whether it was. After ErrUnavailable it may have. The caller must not use the tail
// again in any case. A tail of another issuer's class is not taken back.
func (i *Issuer) Return(ctx context.Context, name Name, tail Segment) (bool, error) {
	if class := i.Bounds(1, math.MaxInt64); tail.Start >= tail.End || !class.inClass(tail.Start) || !class.inClass(tail.End) {
		return false, nil
	}
	result, err := i.db.Exec(ctx,
		"UPDATE id_segment SET next_id = ? WHERE collection = ? AND range_no = ? AND stride = ? AND next_id = ? AND lo <= ?",
		tail.Start, []byte(name.Collection), name.Range, i.of, tail.End, tail.Start)
	if err != nil {
		return false, i.translate("return to "+name.String(), err)
	}
	changed, err := result.RowsAffected()
	return changed == 1, err
}

// Ping checks that the issuer answers.
func (i *Issuer) Ping(ctx context.Context) error {
	if err := i.db.Ping(ctx); err != nil {
		return i.translate("ping", err)
	}
	return nil
}

// Close closes the database. It may be called twice.
func (i *Issuer) Close() error { return i.db.Close() }

// Describe names the database without credentials.
func (i *Issuer) Describe() string { return i.db.Location() }

// translate turns a failed statement into ErrUnavailable: whether it took effect makes no difference here, because a
// lease without an answer is lost and everything else may be repeated. Of the cause only the text is kept, lest a caller
// takes sqldb's outcome of the lease for the outcome of its own write.
func (i *Issuer) translate(op string, err error) error {
	return fmt.Errorf("%s at %s: %w: %s", op, i.Describe(), ErrUnavailable, err.Error())
}
