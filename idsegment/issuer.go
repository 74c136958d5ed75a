package idsegment

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"keyrange/store/sqldb"
)

const (
	// nameMaxBytes is the width of the columns that hold a collection's name and the cluster id.
	nameMaxBytes = 64
	// leaseAttempts bounds how often a lease is tried while others change the row between its two statements.
	leaseAttempts = 4
)

// Issuer is an open issuer database. It is safe for concurrent use, by any number of gateways at once.
type Issuer struct {
	db      *sqldb.DB
	dialect dialect
	// bounds remembers the Bounds by Name: MySQL does not say where a lease ended, it follows from the upper bound.
	bounds sync.Map
}

// row is one row of id_segment.
type row struct {
	Bounds
	next int64
}

// NewIssuer takes over db, which Close closes. It reads and writes nothing: on a database that no gateway has used yet
// List is empty and Cluster is "", until JoinCluster creates the tables.
func NewIssuer(db *sqldb.DB) *Issuer {
	issuer := &Issuer{db: db, dialect: mysqlDialect}
	if db.Engine() == sqldb.SQLite {
		issuer.dialect = sqliteDialect
	}
	return issuer
}

// Cluster returns the id of the cluster that the issuer belongs to, "" when it has none yet.
func (i *Issuer) Cluster(ctx context.Context) (string, error) {
	if exists, err := i.exists(ctx, clusterTable); err != nil || !exists {
		return "", err
	}
	return i.cluster(ctx)
}

// JoinCluster creates the tables that are missing and returns the id of the cluster that the issuer belongs to. The
// first caller's proposal (1 to 64 bytes) is stored for good; concurrent callers all get the one that was stored.
func (i *Issuer) JoinCluster(ctx context.Context, propose string) (string, error) {
	if propose == "" || len(propose) > nameMaxBytes {
		return "", fmt.Errorf("cluster id %q: want 1 to %d bytes", propose, nameMaxBytes)
	}
	for _, table := range i.dialect.tables {
		// Looking first lets a user without the right to create tables, or a read-only server, do once they exist.
		exists, err := i.exists(ctx, table.name)
		if err != nil {
			return "", err
		}
		if exists {
			continue
		}
		if _, err := i.db.Exec(ctx, table.create); err != nil {
			return "", i.translate("create the table "+table.name, err)
		}
	}
	stored, err := i.cluster(ctx)
	if stored != "" || err != nil {
		return stored, err
	}
	_, err = i.db.Exec(ctx, "INSERT INTO id_cluster (one, cluster) VALUES (1, ?)", []byte(propose))
	if err != nil && !errors.Is(err, sqldb.ErrDuplicate) {
		return "", i.translate("store the cluster id", err)
	}
	return i.cluster(ctx)
}

func (i *Issuer) exists(ctx context.Context, table string) (bool, error) {
	exists, err := i.db.TableExists(ctx, table)
	if err != nil {
		return false, i.translate("look for the table "+table, err)
	}
	return exists, nil
}

// cluster reads the stored cluster id, "" when there is none yet.
func (i *Issuer) cluster(ctx context.Context) (string, error) {
	var stored []byte
	err := i.db.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&stored) },
		"SELECT cluster FROM id_cluster WHERE one = 1")
	if err != nil {
		return "", i.translate("read the cluster id", err)
	}
	return string(stored), nil
}

// Register makes a range known, with all of its IDs [lo, hi) still to lease. A range that is known already stays as it
// is; under other bounds it is ErrMismatch. After ErrUnavailable it may be known, and it is safe to try again.
//
// Register cannot tell a new range from one whose row was lost. The floor of a sequence can.
func (i *Issuer) Register(ctx context.Context, name Name, lo, hi int64) error {
	if name.Collection == "" || len(name.Collection) > nameMaxBytes || name.Range < 1 || lo < 1 || hi <= lo {
		return fmt.Errorf("register %s with IDs [%d, %d): want a name of 1 to %d bytes, a range from 1, 1 <= lo < hi",
			name, lo, hi, nameMaxBytes)
	}
	known, found, err := i.row(ctx, name)
	if err == nil && !found {
		_, err = i.db.Exec(ctx, "INSERT INTO id_segment (collection, range_no, lo, hi, next_id) VALUES (?, ?, ?, ?, ?)",
			[]byte(name.Collection), name.Range, lo, hi, lo)
		if err != nil && !errors.Is(err, sqldb.ErrDuplicate) {
			return i.translate("register "+name.String(), err)
		}
		known, found, err = i.row(ctx, name)
	}
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("register %s at %s: %w: the row vanished", name, i.Describe(), ErrUnavailable)
	case known.Bounds != Bounds{Lo: lo, Hi: hi}:
		return fmt.Errorf("register %s at %s: %w: [%d, %d) there, [%d, %d) here",
			name, i.Describe(), ErrMismatch, known.Lo, known.Hi, lo, hi)
	}
	return nil
}

// row reads the row of a range and remembers its bounds.
func (i *Issuer) row(ctx context.Context, name Name) (r row, found bool, err error) {
	err = i.db.Query(ctx, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(&r.Lo, &r.Hi, &r.next)
	}, "SELECT lo, hi, next_id FROM id_segment WHERE collection = ? AND range_no = ?", []byte(name.Collection), name.Range)
	if err != nil {
		return row{}, false, i.translate("read "+name.String(), err)
	}
	if found {
		i.bounds.Store(name, r.Bounds)
	}
	return r, found, nil
}

// List returns every registered sequence, ordered by collection (bytewise) and range.
func (i *Issuer) List(ctx context.Context) ([]Issued, error) {
	if exists, err := i.exists(ctx, segmentTable); err != nil || !exists {
		return nil, err
	}
	var list []Issued
	err := i.db.Query(ctx, func(rows *sql.Rows) error {
		var collection []byte
		var issued Issued
		if err := rows.Scan(&collection, &issued.Range, &issued.Next, &issued.End); err != nil {
			return err
		}
		issued.Collection = string(collection)
		list = append(list, issued)
		return nil
	}, "SELECT collection, range_no, next_id, hi FROM id_segment ORDER BY collection, range_no")
	if err != nil {
		return nil, i.translate("list", err)
	}
	return list, nil
}

// Lease leases the next count IDs of the range, or as many as are left, in one atomic statement. ErrExhausted: none
// are left. ErrRewound: the range was never registered, or its row is gone. ErrUnavailable: the IDs may be leased, but
// nobody knows which, so they are lost.
func (i *Issuer) Lease(ctx context.Context, name Name, count int64) (Segment, error) {
	if count < 1 {
		return Segment{}, fmt.Errorf("lease %s: want a count from 1 (got %d)", name, count)
	}
	for range leaseAttempts {
		segment, err := i.dialect.lease(ctx, i, name, count)
		if err != nil {
			return Segment{}, i.translate("lease "+name.String(), err)
		}
		if segment.Start < segment.End {
			return segment, nil
		}
		known, found, err := i.row(ctx, name)
		switch {
		case err != nil:
			return Segment{}, err
		case !found:
			return Segment{}, fmt.Errorf("lease %s at %s: %w: it has no row", name, i.Describe(), ErrRewound)
		case known.next >= known.Hi:
			return Segment{}, fmt.Errorf("lease %s at %s: %w", name, i.Describe(), ErrExhausted)
		}
		// There is something to lease after all: a tail came back, or this was the first look at the row.
	}
	return Segment{}, fmt.Errorf("lease %s at %s: %w: the row keeps changing", name, i.Describe(), ErrUnavailable)
}

// Return gives an unused tail back, if nothing was leased since: it sets the next ID from tail.End to tail.Start when
// it is still tail.End, and reports whether it was. After ErrUnavailable it may have. The caller must not use the tail
// again in any case.
func (i *Issuer) Return(ctx context.Context, name Name, tail Segment) (bool, error) {
	if tail.Start >= tail.End {
		return false, nil
	}
	result, err := i.db.Exec(ctx,
		"UPDATE id_segment SET next_id = ? WHERE collection = ? AND range_no = ? AND next_id = ? AND lo <= ?",
		tail.Start, []byte(name.Collection), name.Range, tail.End, tail.Start)
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
