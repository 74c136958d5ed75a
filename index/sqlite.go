package index

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"keyrange/store/sqldb"
)

// sqliteIndex keeps the entries of each collection in a table of one SQLite file.
type sqliteIndex struct {
	db *sqldb.DB
}

// newSQLite reports a malformed URL without an outcome, because no server was asked.
func newSQLite(uri string) (Index, error) {
	db, err := sqldb.New(uri, sqldb.Options{})
	if err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	return &sqliteIndex{db: db}, nil
}

// Pool implements Index.
func (s *sqliteIndex) Pool() sql.DBStats { return s.db.Pool() }

// entriesTable is the quoted name of a collection's table.
// Safety: config has checked that a collection is made of letters, digits and underscores.
func entriesTable(collection string) string { return `"entries_` + collection + `"` }

// Prepare implements Index. Keys are BLOBs, which compare byte by byte.
func (s *sqliteIndex) Prepare(ctx context.Context, collection string) error {
	if err := s.Ping(ctx); err != nil {
		return err
	}
	_, err := s.db.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+entriesTable(collection)+
		" (key BLOB PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID")
	return translate(ctx, "prepare the index", err, 0)
}

// Insert implements Index, in one transaction, because a commit costs far more than a row.
func (s *sqliteIndex) Insert(ctx context.Context, collection string, entries []Entry) []error {
	if len(entries) == 0 {
		return nil
	}
	results := make([]error, len(entries))
	query := "INSERT INTO " + entriesTable(collection) + " (key, id) VALUES (?, ?) ON CONFLICT DO NOTHING"
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return eachRow(ctx, tx, query, entries, func(i int, inserted bool) {
			results[i] = nil
			if !inserted {
				results[i] = translate(ctx, "insert entry", sqldb.ErrDuplicate, 0)
			}
		})
	})
	if err != nil {
		fill(results, translate(ctx, "insert entry", err, 0))
	}
	return results
}

// eachRow runs the statement once for each entry and reports whether it changed a row.
func eachRow(ctx context.Context, tx *sql.Tx, query string, entries []Entry, report func(i int, changed bool)) error {
	statement, err := tx.PrepareContext(ctx, query)
	if err != nil {
		return err
	}
	defer statement.Close()
	for i, e := range entries {
		result, err := statement.ExecContext(ctx, []byte(e.Key), e.ID)
		if err != nil {
			return err
		}
		changed, err := result.RowsAffected()
		if err != nil {
			return err
		}
		report(i, changed == 1)
	}
	return nil
}

// Find implements Index.
func (s *sqliteIndex) Find(ctx context.Context, collection string, keys []string) (map[string]int64, error) {
	found := make(map[string]int64, len(keys))
	if len(keys) == 0 {
		return found, nil
	}
	args := make([]any, len(keys))
	for i, key := range keys {
		args[i] = []byte(key)
	}
	query := "SELECT key, id FROM " + entriesTable(collection) + " WHERE key IN (?" + strings.Repeat(", ?", len(keys)-1) + ")"
	err := s.db.Query(ctx, func(rows *sql.Rows) error {
		var key []byte
		var id int64
		if err := rows.Scan(&key, &id); err != nil {
			return err
		}
		found[string(key)] = id
		return nil
	}, query, args...)
	if err != nil {
		return nil, translate(ctx, "find entries", err, 0)
	}
	return found, nil
}

// Replace implements Index.
func (s *sqliteIndex) Replace(ctx context.Context, collection, key string, old, new int64) (bool, error) {
	result, err := s.db.Exec(ctx, "UPDATE "+entriesTable(collection)+" SET id = ? WHERE key = ? AND id = ?", new, []byte(key), old)
	if err != nil {
		return false, translate(ctx, "replace entry", err, 0)
	}
	changed, err := result.RowsAffected()
	return changed == 1, translate(ctx, "replace entry", err, 0)
}

// Remove implements Index, in one transaction.
func (s *sqliteIndex) Remove(ctx context.Context, collection string, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	query := "DELETE FROM " + entriesTable(collection) + " WHERE key = ? AND id = ?"
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return eachRow(ctx, tx, query, entries, func(int, bool) {})
	})
	return translate(ctx, "remove entries", err, 0)
}

// Ping implements Index.
func (s *sqliteIndex) Ping(ctx context.Context) error {
	return translate(ctx, "ping the index", s.db.Ping(ctx), 0)
}

// Describe implements Index.
func (s *sqliteIndex) Describe() string {
	return fmt.Sprintf("SQLite %s at %s", s.db.Server().Version, s.db.Location())
}

// Close implements Index.
func (s *sqliteIndex) Close() error { return s.db.Close() }

// fill gives every item the same result.
func fill(results []error, err error) {
	for i := range results {
		results[i] = err
	}
}
