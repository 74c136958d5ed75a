package idsegment

import (
	"context"
	"database/sql"
	"errors"
)

// dialect is what differs between the engines.
type dialect struct {
	tables []table
	// lease runs the one statement that leases up to count IDs. The segment is empty when it changed nothing.
	lease func(ctx context.Context, i *Issuer, name Name, count int64) (Segment, error)
}

// table is a table of the issuer.
type table struct{ name, create string }

const (
	segmentTable = "id_segment"
	clusterTable = "id_cluster"
)

// Names are binary in both dialects, so that they compare byte by byte: no case folding, no trimmed blanks.
var mysqlDialect = dialect{
	tables: []table{
		{name: segmentTable, create: `CREATE TABLE IF NOT EXISTS id_segment (
			collection VARBINARY(64) NOT NULL,
			range_no   BIGINT        NOT NULL,
			lo         BIGINT        NOT NULL,
			hi         BIGINT        NOT NULL,
			next_id    BIGINT        NOT NULL,
			PRIMARY KEY (collection, range_no)
		) ENGINE = InnoDB`},
		{name: clusterTable, create: `CREATE TABLE IF NOT EXISTS id_cluster (
			one     TINYINT       NOT NULL PRIMARY KEY,
			cluster VARBINARY(64) NOT NULL
		) ENGINE = InnoDB`},
	},
	lease: leaseMySQL,
}

// last_start carries the start of the last lease from the old row to the RETURNING clause, which sees only the new one.
var sqliteDialect = dialect{
	tables: []table{
		{name: segmentTable, create: `CREATE TABLE IF NOT EXISTS id_segment (
			collection BLOB    NOT NULL,
			range_no   INTEGER NOT NULL,
			lo         INTEGER NOT NULL,
			hi         INTEGER NOT NULL,
			next_id    INTEGER NOT NULL,
			last_start INTEGER NOT NULL DEFAULT 0,
			PRIMARY KEY (collection, range_no)
		) STRICT, WITHOUT ROWID`},
		{name: clusterTable, create: `CREATE TABLE IF NOT EXISTS id_cluster (
			one     INTEGER NOT NULL PRIMARY KEY,
			cluster BLOB    NOT NULL
		) STRICT`},
	},
	lease: leaseSQLite,
}

// leaseMySQL learns the start of the segment from the statement. The end follows from hi, which the statement itself
// compares: it changes nothing when the bounds are not, or no longer, as this process remembers them.
func leaseMySQL(ctx context.Context, i *Issuer, name Name, count int64) (Segment, error) {
	known, ok := i.bounds.Load(name)
	if !ok {
		return Segment{}, nil
	}
	hi := known.(Bounds).Hi
	result, err := i.db.Exec(ctx, `UPDATE id_segment SET next_id = LAST_INSERT_ID(next_id) + LEAST(?, hi - next_id)
		WHERE collection = ? AND range_no = ? AND hi = ? AND next_id < hi`,
		count, []byte(name.Collection), name.Range, hi)
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
	return Segment{Start: start, End: start + min(count, hi-start)}, nil
}

func leaseSQLite(ctx context.Context, i *Issuer, name Name, count int64) (Segment, error) {
	var segment Segment
	err := i.db.ExecReturning(ctx, []any{&segment.Start, &segment.End},
		`UPDATE id_segment SET last_start = next_id, next_id = next_id + MIN(?, hi - next_id)
		WHERE collection = ? AND range_no = ? AND next_id < hi RETURNING last_start, next_id`,
		count, []byte(name.Collection), name.Range)
	if errors.Is(err, sql.ErrNoRows) {
		return Segment{}, nil
	}
	return segment, err
}

var _ Leaser = (*Issuer)(nil)
