package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"keyrange/store/sqldb"
)

// sqliteRows is the range tables of an embedded node. Times are integers: microseconds since 1970, UTC.
//
// Safety: as for mysqlRows.
type sqliteRows struct {
	sqlLedger
	sqlCounter
	sqlScanner
	db *sqldb.DB
}

const createRangeTableSQLite = `CREATE TABLE IF NOT EXISTS "%s" (
	id         INTEGER NOT NULL PRIMARY KEY,
	biz_key    BLOB    NOT NULL,
	state      INTEGER NOT NULL,
	version    INTEGER NOT NULL,
	token      BLOB    NOT NULL,
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	document   TEXT    NOT NULL
)`

func (s *sqliteRows) prepare(ctx context.Context, table string) error {
	if _, err := s.db.Exec(ctx, fmt.Sprintf(createRangeTableSQLite, table)); err != nil {
		return fmt.Errorf("create table %s: %w", table, err)
	}
	return s.sqlLedger.create(ctx)
}

func (s *sqliteRows) insert(ctx context.Context, table string, batch []row) []error {
	query := fmt.Sprintf(`INSERT INTO "%s" (%s) VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (id) DO NOTHING`, table, rowColumns)
	errs := make([]error, len(batch))
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		statement, err := tx.PrepareContext(ctx, query)
		if err != nil {
			return err
		}
		defer statement.Close()
		for i := range batch {
			r := &batch[i]
			result, err := statement.ExecContext(ctx, r.id, []byte(r.key), int64(r.state), r.version, r.token[:],
				r.createdAt.UnixMicro(), r.updatedAt.UnixMicro(), string(r.document))
			if err != nil {
				return err
			}
			errs[i] = nil
			if n, _ := result.RowsAffected(); n == 0 { // SQLite always knows
				errs[i] = fmt.Errorf("insert row %d: %w", r.id, sqldb.ErrDuplicate)
			}
		}
		return nil
	})
	if err != nil {
		return repeat(err, len(batch))
	}
	return errs
}

func (s *sqliteRows) read(ctx context.Context, table string, ids []int64) ([]row, error) {
	query := fmt.Sprintf(`SELECT %s FROM "%s" WHERE id IN (?%s)`, rowColumns, table, strings.Repeat(",?", len(ids)-1))
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	found := make([]row, 0, len(ids))
	err := s.db.Query(ctx, func(r *sql.Rows) error {
		var f row
		var key, tok []byte
		var created, updated int64
		if err := r.Scan(&f.id, &key, &f.state, &f.version, &tok, &created, &updated, &f.document); err != nil {
			return err
		}
		f.key, f.token = string(key), tokenOf(tok)
		f.createdAt, f.updatedAt = time.UnixMicro(created).UTC(), time.UnixMicro(updated).UTC()
		found = append(found, f)
		return nil
	}, query, args...)
	return found, err
}

func (s *sqliteRows) change(ctx context.Context, table string, batch []rowChange) []answer[changed] {
	answers := make([]answer[changed], len(batch))
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for i := range batch {
			var err error
			if answers[i].value, err = changeSQLite(ctx, tx, table, &batch[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return failed[changed](len(batch), err)
	}
	return answers
}

// changeSQLite runs one change in a transaction.
func changeSQLite(ctx context.Context, tx *sql.Tx, table string, change *rowChange) (changed, error) {
	where, args := change.condition()
	if change.removes() {
		result, err := tx.ExecContext(ctx, fmt.Sprintf(`DELETE FROM "%s"%s`, table, where), args...)
		if err != nil {
			return changed{}, err
		}
		n, err := result.RowsAffected()
		return changed{ok: n > 0}, err
	}
	query := fmt.Sprintf(`UPDATE "%s" SET version = version + 1, token = ?, updated_at = ?, document = ?%s RETURNING version`, table, where)
	args = append([]any{change.token[:], change.updatedAt.UnixMicro(), string(change.document)}, args...)
	var version int64
	err := tx.QueryRowContext(ctx, query, args...).Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		return changed{}, nil
	}
	return changed{ok: true, version: version}, err
}
