package idsegment

import (
	"context"
	"database/sql"
	"errors"

	"keyrange/store/sqldb"
)

// dialect is what differs between the engines.
type dialect struct {
	tables []table
	// lease runs the one statement that leases up to count IDs. The segment is empty when it changed nothing: none are left,
	// or the row has other bounds.
	lease func(ctx context.Context, db *sqldb.DB, name Name, bounds Bounds, count int64) (Segment, error)
	// register inserts a row (its six columns) if the database is the issuer that the last two arguments say.
	register string
}

// table is a table of the issuer.
type table struct{ name, create string }

const (
	segmentTable = "id_segment"
	clusterTable = "id_cluster"
)

// registerRow changes nothing when the database is another issuer. Otherwise a gateway with an old number of issuers could
// give itself a range of a database that was rebuilt for another number.
const registerRow = `INSERT INTO id_segment (collection, range_no, lo, hi, stride, next_id)
	SELECT ?, ?, ?, ?, ?, ? FROM id_cluster WHERE one = 1 AND issuer_no = ? AND issuers = ?`

// Names are binary in both dialects, so that they compare byte by byte: no case folding, no trimmed blanks.
var mysqlDialect = dialect{
	tables: []table{
		{name: segmentTable, create: `CREATE TABLE IF NOT EXISTS id_segment (
			collection VARBINARY(64) NOT NULL,
			range_no   BIGINT        NOT NULL,
			lo         BIGINT        NOT NULL,
			hi         BIGINT        NOT NULL,
			stride     BIGINT        NOT NULL,
			next_id    BIGINT        NOT NULL,
			PRIMARY KEY (collection, range_no)
		) ENGINE = InnoDB`},
		{name: clusterTable, create: `CREATE TABLE IF NOT EXISTS id_cluster (
			one       TINYINT       NOT NULL PRIMARY KEY,
			cluster   VARBINARY(64) NOT NULL,
			issuer_no BIGINT        NOT NULL,
			issuers   BIGINT        NOT NULL
		) ENGINE = InnoDB`},
	},
	lease: leaseMySQL,
	// The lock makes it wait for a rebuild that has begun, at any isolation level.
	register: registerRow + " LOCK IN SHARE MODE",
}

// last_start carries the start of the last lease from the old row to the RETURNING clause, which sees only the new one.
var sqliteDialect = dialect{
	tables: []table{
		{name: segmentTable, create: `CREATE TABLE IF NOT EXISTS id_segment (
			collection BLOB    NOT NULL,
			range_no   INTEGER NOT NULL,
			lo         INTEGER NOT NULL,
			hi         INTEGER NOT NULL,
			stride     INTEGER NOT NULL,
			next_id    INTEGER NOT NULL,
			last_start INTEGER NOT NULL DEFAULT 0,
			PRIMARY KEY (collection, range_no)
		) STRICT, WITHOUT ROWID`},
		{name: clusterTable, create: `CREATE TABLE IF NOT EXISTS id_cluster (
			one       INTEGER NOT NULL PRIMARY KEY,
			cluster   BLOB    NOT NULL,
			issuer_no INTEGER NOT NULL,
			issuers   INTEGER NOT NULL
		) STRICT`},
	},
	lease:    leaseSQLite,
	register: registerRow,
}

// leaseMySQL learns the start of the segment from the statement. The end follows from the bounds, which the statement
// itself compares.
func leaseMySQL(ctx context.Context, db *sqldb.DB, name Name, bounds Bounds, count int64) (Segment, error) {
	result, err := db.Exec(ctx, `UPDATE id_segment
		SET next_id = LAST_INSERT_ID(next_id) + LEAST(?, (hi - next_id - 1) DIV stride + 1) * stride
		WHERE collection = ? AND range_no = ? AND lo = ? AND hi = ? AND stride = ? AND next_id < hi`,
		count, []byte(name.Collection), name.Range, bounds.Lo, bounds.Hi, bounds.Stride)
	if err != nil {
		return Segment{}, err
	}
	if changed, err := result.RowsAffected(); changed == 0 || err != nil {
		return Segment{}, err
	}
	start, err := result.LastInsertId()
	if err != nil {
		return Segment{}, err
	}
	left := (bounds.Hi-start-1)/bounds.Stride + 1
	return Segment{Start: start, End: start + min(count, left)*bounds.Stride}, nil
}

func leaseSQLite(ctx context.Context, db *sqldb.DB, name Name, bounds Bounds, count int64) (Segment, error) {
	var segment Segment
	err := db.ExecReturning(ctx, []any{&segment.Start, &segment.End}, `UPDATE id_segment
		SET last_start = next_id, next_id = next_id + MIN(?, (hi - next_id - 1) / stride + 1) * stride
		WHERE collection = ? AND range_no = ? AND lo = ? AND hi = ? AND stride = ? AND next_id < hi
		RETURNING last_start, next_id`,
		count, []byte(name.Collection), name.Range, bounds.Lo, bounds.Hi, bounds.Stride)
	if errors.Is(err, sql.ErrNoRows) {
		return Segment{}, nil
	}
	return segment, err
}

var _ Leaser = (*Issuer)(nil)
