package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
	db     *sqldb.DB
	shapes schema
}

const createRangeTableSQLite = `CREATE TABLE IF NOT EXISTS "%s" (
	id         INTEGER NOT NULL PRIMARY KEY,
	biz_key    BLOB    NOT NULL,
	state      INTEGER NOT NULL,
	version    INTEGER NOT NULL,
	token      BLOB    NOT NULL,
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	expires_at INTEGER,
	group_key  BLOB,
	document   TEXT    NOT NULL%s
)`

func (s *sqliteRows) prepare(ctx context.Context, table string) error {
	if _, err := s.db.Exec(ctx, fmt.Sprintf(createRangeTableSQLite, table, s.shapes.of(table).definitions(sqldb.SQLite))); err != nil {
		return fmt.Errorf("create table %s: %w", table, err)
	}
	if s.shapes.of(table).grouped() {
		if err := indexGroups(ctx, s.db, table); err != nil {
			return err
		}
	}
	return s.sqlLedger.create(ctx)
}

func (s *sqliteRows) insert(ctx context.Context, table string, batch []row) []error {
	shape := s.shapes.of(table)
	query := fmt.Sprintf(`INSERT INTO "%s" (%s) VALUES %s ON CONFLICT (id) DO NOTHING`, table, shape.names, shape.places)
	errs := make([]error, len(batch))
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		statement, err := tx.PrepareContext(ctx, query)
		if err != nil {
			return err
		}
		defer statement.Close()
		for i := range batch {
			r := &batch[i]
			args := []any{r.id, []byte(r.key), int64(r.state), r.version, r.token[:], r.createdAt.UnixMicro(), r.updatedAt.UnixMicro(),
				momentSQLite(r.ExpiresAt), groupArgument(r.Group), string(r.Document)}
			result, err := statement.ExecContext(ctx, append(args, shape.arguments(r.cells)...)...)
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
	list, args := idList(ids)
	return s.query(ctx, table, "WHERE id IN ("+list+")", args)
}

// query reads whole rows.
func (s *sqliteRows) query(ctx context.Context, table, where string, args []any) (found []row, err error) {
	err = s.each(ctx, table, where, args, func(r row) error { found = append(found, r); return nil })
	return found, err
}

// each reads whole rows and hands each to take, whose error ends the reading.
func (s *sqliteRows) each(ctx context.Context, table, where string, args []any, take func(row) error) error {
	shape := s.shapes.of(table)
	return s.db.Query(ctx, func(r *sql.Rows) error {
		var f row
		var key, tok, group sql.RawBytes
		var created, updated int64
		var expires sql.NullInt64
		columns := []any{&f.id, &key, &f.state, &f.version, &tok, &created, &updated, &expires, &group, &f.Document}
		if err := r.Scan(append(shape.destinations(columns, &f), &f.expired)...); err != nil {
			return err
		}
		f.key, f.token, f.Group = string(key), tokenOf(tok), string(group)
		f.createdAt, f.updatedAt = time.UnixMicro(created).UTC(), time.UnixMicro(updated).UTC()
		if expires.Valid {
			f.ExpiresAt = time.UnixMicro(expires.Int64).UTC()
		}
		return take(f)
	}, fmt.Sprintf(`SELECT %s, %s FROM "%s" %s`, shape.names, expiredSQL(sqldb.SQLite), table, where), args...)
}

// momentSQLite is a moment as an argument; NULL for none.
func momentSQLite(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

func (s *sqliteRows) change(ctx context.Context, table string, batch []rowChange) []answer[changed] {
	answers := make([]answer[changed], len(batch))
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for i := range batch {
			var err error
			if answers[i].value, err = s.changeOne(ctx, tx, table, &batch[i]); err != nil {
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

// changeOne runs one change in a transaction.
func (s *sqliteRows) changeOne(ctx context.Context, tx *sql.Tx, table string, change *rowChange) (changed, error) {
	where, args := change.condition(sqldb.SQLite)
	if change.removes() {
		result, err := tx.ExecContext(ctx, fmt.Sprintf(`DELETE FROM "%s"%s`, table, where), args...)
		if err != nil {
			return changed{}, err
		}
		n, err := result.RowsAffected()
		return changed{ok: n > 0}, err
	}
	shape := s.shapes.of(table)
	query := fmt.Sprintf(`UPDATE "%s" SET version = version + 1, token = ?, updated_at = ?, expires_at = ?, document = ?%s%s RETURNING version`, table, shape.sets, where)
	values := append([]any{change.token[:], change.updatedAt.UnixMicro(), momentSQLite(change.ExpiresAt), string(change.Document)}, shape.arguments(change.cells)...)
	args = append(values, args...)
	var version int64
	err := tx.QueryRowContext(ctx, query, args...).Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		return changed{}, nil
	}
	return changed{ok: true, version: version}, err
}
