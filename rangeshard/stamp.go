package rangeshard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"keyrange/store/sqldb"
)

// ErrStamp means that a database is not the node that config says it is. Nothing was written to it.
var ErrStamp = errors.New("node stamp mismatch")

// Stamp is what a node knows of itself: which cluster it belongs to, its name and its ranges.
type Stamp struct {
	// Cluster is the ID that the cluster's issuer made at its first start.
	Cluster string
	Node    string
	// RangeSize is the number of IDs in a range; it can never change.
	RangeSize int64
	Ranges    Ranges
}

// String words a stamp for messages.
func (s Stamp) String() string {
	return fmt.Sprintf("node %s of cluster %s, ranges %s of %d IDs", s.Node, s.Cluster, s.Ranges, s.RangeSize)
}

// Accept compares the stamp found on a database with the one that config wants there. A node may only grow (I7); every
// other difference is an ErrStamp that names both sides.
func (s Stamp) Accept(want Stamp) error {
	var why string
	switch {
	case s.Cluster != want.Cluster:
		why = "it belongs to another cluster"
	case s.Node != want.Node:
		why = "it is another node: are two DSNs swapped, or is one database listed twice?"
	case s.RangeSize != want.RangeSize:
		why = "the range size can never change"
	case !want.Ranges.Covers(s.Ranges):
		why = "a node never gives ranges away, their rows are stored on it"
	default:
		return nil
	}
	return fmt.Errorf("%w: config wants %s, but the database says: %s; %s", ErrStamp, want, s, why)
}

const (
	createStampMySQL = `CREATE TABLE IF NOT EXISTS gateway_stamp (
	one        TINYINT      NOT NULL PRIMARY KEY,
	cluster    VARCHAR(64)  NOT NULL,
	node       VARCHAR(64)  NOT NULL,
	range_size BIGINT       NOT NULL,
	ranges     TEXT         NOT NULL,
	stamped_at DATETIME(6)  NOT NULL
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`
	createStampSQLite = `CREATE TABLE IF NOT EXISTS gateway_stamp (
	one        INTEGER NOT NULL PRIMARY KEY,
	cluster    TEXT    NOT NULL,
	node       TEXT    NOT NULL,
	range_size INTEGER NOT NULL,
	ranges     TEXT    NOT NULL,
	stamped_at TEXT    NOT NULL
)`
	readStamp   = "SELECT cluster, node, range_size, ranges FROM gateway_stamp WHERE one = 1"
	insertStamp = "INSERT INTO gateway_stamp (one, cluster, node, range_size, ranges, stamped_at) VALUES (1, ?, ?, ?, ?, ?)"
	extendStamp = "UPDATE gateway_stamp SET ranges = ?, stamped_at = ? WHERE one = 1 AND ranges = ?"
	touchStamp  = "UPDATE gateway_stamp SET stamped_at = stamped_at WHERE one = 1"
	timeLayout  = "2006-01-02 15:04:05.000000"
)

// ReadStamp returns the stamp of a database; not ok when it has none.
func ReadStamp(ctx context.Context, db *sqldb.DB) (stamp Stamp, ok bool, err error) {
	exists, err := db.TableExists(ctx, "gateway_stamp")
	if err != nil || !exists {
		return Stamp{}, false, err
	}
	var ranges string
	err = db.Query(ctx, func(rows *sql.Rows) error {
		ok = true
		return rows.Scan(&stamp.Cluster, &stamp.Node, &stamp.RangeSize, &ranges)
	}, readStamp)
	if err != nil || !ok {
		return Stamp{}, false, err
	}
	stamp.Ranges, err = ParseRanges(ranges)
	return stamp, true, err
}

// TryWrite reports whether a node takes writes, with a statement that changes nothing: nil when it does.
func TryWrite(ctx context.Context, db *sqldb.DB) error {
	_, err := db.Exec(ctx, touchStamp)
	return err
}

// ClaimNode makes a database the node that want describes: it stamps a fresh database, accepts the node itself, and
// extends the stamp when config gave it more ranges. Everything else is an ErrStamp. Two gateways may claim at once.
func ClaimNode(ctx context.Context, db *sqldb.DB, want Stamp, now time.Time) error {
	create := createStampMySQL
	if db.Engine() == sqldb.SQLite {
		create = createStampSQLite
	}
	for {
		have, ok, err := ReadStamp(ctx, db)
		if err != nil {
			return err
		}
		if ok {
			return extend(ctx, db, have, want, now)
		}
		if _, err := db.Exec(ctx, create); err != nil {
			return fmt.Errorf("create the stamp table: %w", err)
		}
		_, err = db.Exec(ctx, insertStamp, want.Cluster, want.Node, want.RangeSize, want.Ranges.String(), now.UTC().Format(timeLayout))
		// A duplicate means that another gateway stamped it first: look again at what it wrote.
		if err != nil && !errors.Is(err, sqldb.ErrDuplicate) {
			return fmt.Errorf("write the stamp: %w", err)
		}
	}
}

func extend(ctx context.Context, db *sqldb.DB, have, want Stamp, now time.Time) error {
	if err := have.Accept(want); err != nil {
		return err
	}
	if have.Ranges.Equal(want.Ranges) {
		return nil
	}
	result, err := db.Exec(ctx, extendStamp, want.Ranges.String(), now.UTC().Format(timeLayout), have.Ranges.String())
	if err != nil {
		return fmt.Errorf("extend the stamp: %w", err)
	}
	if n, err := result.RowsAffected(); err == nil && n == 1 {
		return nil
	}
	// Another gateway extended it in between: what it wrote must fit too.
	have, ok, err := ReadStamp(ctx, db)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: the stamp of %s vanished", ErrStamp, want)
	}
	return have.Accept(want)
}
