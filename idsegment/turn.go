package idsegment

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"keyrange/store/sqldb"
)

// Turn says whose turn it is to sweep: a lease that one gateway of a fleet has at a time, and loses when it does not keep
// it. It saves work and nothing more; two gateways that sweep at the same time do no harm.
type Turn struct {
	// Holder is the instance name of the gateway, at most 64 bytes; "" when nobody has the turn.
	Holder string
	// Left is how long the turn lasts by the database's clock; 0 or less when anybody may take it.
	Left time.Duration
	// Progress is what the holder last noted, at most 60,000 bytes. It outlives the holder.
	Progress []byte
}

// turnTable is the name of the table that holds the turn in its only row.
const turnTable = "id_sweeper"

// turnDialect is what differs between the engines. Both expressions are the time in milliseconds since 1970 by the
// database's own clock, so that the clocks of gateways do not matter.
type turnDialect struct{ create, now string }

var (
	mysqlTurn = turnDialect{`CREATE TABLE IF NOT EXISTS id_sweeper (
		one        TINYINT       NOT NULL PRIMARY KEY,
		holder     VARBINARY(64) NOT NULL,
		expires_at BIGINT        NOT NULL COMMENT 'milliseconds since 1970',
		changes    BIGINT        NOT NULL,
		progress   BLOB          NOT NULL
	) ENGINE = InnoDB`, "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"}
	sqliteTurn = turnDialect{`CREATE TABLE IF NOT EXISTS id_sweeper (
		one        INTEGER NOT NULL PRIMARY KEY,
		holder     BLOB    NOT NULL,
		expires_at INTEGER NOT NULL,
		changes    INTEGER NOT NULL,
		progress   BLOB    NOT NULL
	) STRICT`, "CAST(unixepoch('subsec') * 1000 AS INTEGER)"}
)

func (i *Issuer) turnDialect() turnDialect {
	if i.db.Engine() == sqldb.SQLite {
		return sqliteTurn
	}
	return mysqlTurn
}

// TakeTurn takes the turn for a while if nobody has it, or the holder has it already, and reports whether it could; the
// turn is as it is afterwards, with the progress that the last holder noted. The table is created when it is missing.
// After ErrUnavailable the turn may have been taken, and it is safe to try again.
func (i *Issuer) TakeTurn(ctx context.Context, holder string, life time.Duration) (turn Turn, mine bool, err error) {
	if err := i.createTurn(ctx); err != nil {
		return Turn{}, false, err
	}
	now := i.turnDialect().now
	// The count of changes makes every success change the row, which is what MySQL counts as affected.
	result, err := i.db.Exec(ctx, "UPDATE id_sweeper SET holder = ?, expires_at = "+now+" + ?, changes = changes + 1 WHERE one = 1 AND (holder = ? OR expires_at <= "+now+")",
		[]byte(holder), life.Milliseconds(), []byte(holder))
	if err != nil {
		return Turn{}, false, i.translate("take the turn", err)
	}
	changed, err := result.RowsAffected()
	if err != nil {
		return Turn{}, false, i.translate("take the turn", err)
	}
	turn, err = i.turn(ctx)
	return turn, changed == 1, err
}

// createTurn makes the table and its row when they are missing.
func (i *Issuer) createTurn(ctx context.Context) error {
	exists, err := i.exists(ctx, turnTable)
	if err != nil {
		return err
	}
	if !exists {
		if _, err := i.db.Exec(ctx, i.turnDialect().create); err != nil {
			return i.translate("create the table "+turnTable, err)
		}
	}
	if found, err := i.turn(ctx); err != nil || found.Progress != nil {
		return err
	}
	_, err = i.db.Exec(ctx, "INSERT INTO id_sweeper (one, holder, expires_at, changes, progress) VALUES (1, ?, 0, 0, ?)", []byte{}, []byte{})
	if err != nil && !errors.Is(err, sqldb.ErrDuplicate) {
		return i.translate("make the turn", err)
	}
	return nil
}

// KeepTurn makes the holder's turn last a while longer, notes its progress, and reports whether it still was the holder's.
// A turn that is over but was taken by nobody still is. After ErrUnavailable it may have taken effect.
func (i *Issuer) KeepTurn(ctx context.Context, holder string, life time.Duration, progress []byte) (bool, error) {
	return i.changeTurn(ctx, "keep the turn", i.turnDialect().now+" + ?", life, holder, progress)
}

// EndTurn lets the next gateway take the turn at once, if it is the holder's. After ErrUnavailable it may have taken effect.
func (i *Issuer) EndTurn(ctx context.Context, holder string, progress []byte) error {
	_, err := i.changeTurn(ctx, "end the turn", "?", 0, holder, progress)
	return err
}

// changeTurn sets when the holder's turn ends, an expression of one argument.
func (i *Issuer) changeTurn(ctx context.Context, op, expires string, life time.Duration, holder string, progress []byte) (bool, error) {
	if progress == nil {
		progress = []byte{}
	}
	result, err := i.db.Exec(ctx, "UPDATE id_sweeper SET expires_at = "+expires+", progress = ?, changes = changes + 1 WHERE one = 1 AND holder = ?",
		life.Milliseconds(), progress, []byte(holder))
	if err != nil {
		return false, i.translate(op, err)
	}
	changed, err := result.RowsAffected()
	if err != nil {
		return false, i.translate(op, err)
	}
	return changed == 1, nil
}

// LookTurn says whose turn it is; the zero Turn when nobody has ever had it. It writes nothing.
func (i *Issuer) LookTurn(ctx context.Context) (Turn, error) {
	if exists, err := i.exists(ctx, turnTable); err != nil || !exists {
		return Turn{}, err
	}
	return i.turn(ctx)
}

// turn reads the row; Progress is nil when there is none. The table must exist.
func (i *Issuer) turn(ctx context.Context) (turn Turn, err error) {
	query := fmt.Sprintf("SELECT holder, expires_at - %s, progress FROM id_sweeper WHERE one = 1", i.turnDialect().now)
	err = i.db.Query(ctx, func(rows *sql.Rows) error {
		var holder []byte
		var left int64
		if err := rows.Scan(&holder, &left, &turn.Progress); err != nil {
			return err
		}
		turn.Holder, turn.Left = string(holder), time.Duration(left)*time.Millisecond
		if turn.Progress == nil {
			turn.Progress = []byte{}
		}
		return nil
	}, query)
	if err != nil {
		return Turn{}, i.translate("read the turn", err)
	}
	return turn, nil
}
