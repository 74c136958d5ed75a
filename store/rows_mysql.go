package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"keyrange/store/sqldb"
)

// mysqlRows is the range tables of a MySQL or MariaDB node.
//
// Safety: table names come from tableName, which config keeps to letters, digits and underscores; everything else is
// bound as an argument.
type mysqlRows struct {
	sqlLedger
	sqlCounter
	sqlScanner
	db     *sqldb.DB
	shapes schema
	// packetBytes is the largest statement that the server takes, known once it has answered.
	packetBytes func() int64
}

// VARBINARY compares keys byte by byte; utf8mb4_bin would merge trailing spaces. LONGTEXT keeps JSON verbatim, which the
// JSON type does not. There is no secondary index, so inserts append to the right edge of the B-tree.
const createRangeTableMySQL = "CREATE TABLE IF NOT EXISTS `%s` (" + `
	id         BIGINT         NOT NULL PRIMARY KEY,
	biz_key    VARBINARY(512) NOT NULL,
	state      TINYINT        NOT NULL COMMENT '0 live, 1 fence',
	version    BIGINT         NOT NULL,
	token      BINARY(16)     NOT NULL COMMENT 'of the last write',
	created_at DATETIME(6)    NOT NULL COMMENT 'UTC',
	updated_at DATETIME(6)    NOT NULL COMMENT 'UTC',
	expires_at DATETIME(6)    NULL     COMMENT 'UTC',
	group_key  VARBINARY(255) NULL,
	document   LONGTEXT       CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL%s
) ENGINE=InnoDB`

const (
	// statementOverhead is room for everything in a statement but documents: SQL text, keys, tokens (bytes per row).
	statementOverhead = 4 << 10
	// escapeFactor bounds how much a document grows as a string literal: every byte may need a backslash.
	escapeFactor = 2
)

// maxDocumentMySQL is the largest document that a server takes in one statement, whatever its bytes are.
func maxDocumentMySQL(packetBytes int64) int64 {
	return (packetBytes - statementOverhead) / escapeFactor
}

func (m *mysqlRows) prepare(ctx context.Context, table string) error {
	if _, err := m.db.Exec(ctx, fmt.Sprintf(createRangeTableMySQL, table, m.shapes.of(table).definitions(sqldb.MySQL))); err != nil {
		return fmt.Errorf("create table %s: %w", table, err)
	}
	if err := m.sqlLedger.create(ctx); err != nil {
		return err
	}
	var idType, extra, engine string
	err := m.db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&idType, &extra, &engine) },
		`SELECT c.column_type, c.extra, t.engine FROM information_schema.columns c JOIN information_schema.tables t
		 USING (table_schema, table_name) WHERE table_schema = DATABASE() AND table_name = ? AND column_name = 'id'`, table)
	if err != nil {
		return fmt.Errorf("inspect table %s: %w", table, err)
	}
	// A narrower column would store a large ID as another one.
	if !strings.HasPrefix(idType, "bigint") || strings.Contains(idType, "unsigned") || extra != "" || engine != "InnoDB" {
		return fmt.Errorf("table %s: %w: its id column is %q %s in engine %s, want a plain BIGINT in InnoDB", table, sqldb.ErrRejected, idType, extra, engine)
	}
	return nil
}

func (m *mysqlRows) insert(ctx context.Context, table string, batch []row) []error {
	errs := make([]error, len(batch))
	// In ID order: two statements that lock the same IDs in opposite order would deadlock.
	order := make([]int, len(batch))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(batch[a].id - batch[b].id) })
	for len(order) > 0 {
		n := m.fit(batch, order)
		m.insertStatement(ctx, table, batch, order[:n], errs)
		order = order[n:]
	}
	return errs
}

// fit counts how many of the rows, at least one, go into a statement that the server takes.
func (m *mysqlRows) fit(batch []row, order []int) int {
	bytes := int64(0)
	for n, i := range order {
		bytes += statementOverhead + int64(batch[i].size())*escapeFactor
		if n > 0 && bytes > m.packetBytes() {
			return n
		}
	}
	return len(order)
}

// insertStatement adds rows in one statement. One bad row undoes the whole statement, so the rows then go one by one.
func (m *mysqlRows) insertStatement(ctx context.Context, table string, batch []row, order []int, errs []error) {
	shape := m.shapes.of(table)
	query := fmt.Sprintf("INSERT INTO `%s` (%s) VALUES %s%s", table, shape.names, shape.places, strings.Repeat(","+shape.places, len(order)-1))
	args := make([]any, 0, len(order)*shape.width())
	for _, i := range order {
		r := &batch[i]
		args = append(args, r.id, []byte(r.key), int64(r.state), r.version, r.token[:], r.createdAt, r.updatedAt,
			momentMySQL(r.ExpiresAt), groupArgument(r.Group), json.RawMessage(r.Document))
		args = append(args, shape.arguments(r.cells)...)
	}
	_, err := m.db.Exec(ctx, query, args...)
	if len(order) > 1 && (errors.Is(err, sqldb.ErrDuplicate) || errors.Is(err, sqldb.ErrRejected)) {
		for k := range order {
			m.insertStatement(ctx, table, batch, order[k:k+1], errs)
		}
		return
	}
	for _, i := range order {
		errs[i] = err
	}
}

func (m *mysqlRows) read(ctx context.Context, table string, ids []int64) ([]row, error) {
	list, args := idList(ids)
	return m.query(ctx, table, "WHERE id IN ("+list+")", args)
}

// query reads whole rows.
func (m *mysqlRows) query(ctx context.Context, table, where string, args []any) (found []row, err error) {
	err = m.each(ctx, table, where, args, func(r row) error { found = append(found, r); return nil })
	return found, err
}

// each reads whole rows and hands each to take, whose error ends the reading.
func (m *mysqlRows) each(ctx context.Context, table, where string, args []any, take func(row) error) error {
	shape := m.shapes.of(table)
	return m.db.Query(ctx, func(r *sql.Rows) error {
		var f row
		var key, tok, group sql.RawBytes
		var expires sql.NullTime
		columns := []any{&f.id, &key, &f.state, &f.version, &tok, &f.createdAt, &f.updatedAt, &expires, &group, &f.Document}
		if err := r.Scan(append(shape.destinations(columns, &f), &f.expired)...); err != nil {
			return err
		}
		f.key, f.token, f.Group, f.ExpiresAt = string(key), tokenOf(tok), string(group), expires.Time
		return take(f)
	}, fmt.Sprintf("SELECT %s, %s FROM `%s` %s", shape.names, expiredSQL(sqldb.MySQL), table, where), args...)
}

// momentMySQL is a moment as an argument; NULL for none.
func momentMySQL(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

// condition is the WHERE clause of a conditional write, with its arguments.
func (c *rowChange) condition(engine sqldb.Engine) (string, []any) {
	where := " WHERE id = ? AND biz_key = ? AND state = 0 AND "
	if c.expired {
		where += expiredSQL(engine)
	} else {
		where += aliveSQL(engine)
	}
	args := []any{c.id, []byte(c.key)}
	if len(c.versions) > 0 {
		where += " AND version IN (?" + strings.Repeat(",?", len(c.versions)-1) + ")"
		for _, v := range c.versions {
			args = append(args, v)
		}
	}
	if c.sameGroup {
		is := " <=> " // NULL equals NULL
		if engine == sqldb.SQLite {
			is = " IS "
		}
		where += " AND group_key" + is + "?"
		args = append(args, groupArgument(c.Group))
	}
	return where, args
}

// statement is the SQL of one change.
func (m *mysqlRows) statement(table string, change *rowChange) sqldb.Statement {
	where, args := change.condition(sqldb.MySQL)
	if change.removes() {
		return sqldb.Statement{SQL: fmt.Sprintf("DELETE FROM `%s`%s", table, where), Args: args}
	}
	// LAST_INSERT_ID(expression) brings the new version back in the same trip.
	shape := m.shapes.of(table)
	query := fmt.Sprintf("UPDATE `%s` SET version = LAST_INSERT_ID(version + 1), token = ?, updated_at = ?, expires_at = ?, document = ?%s%s", table, shape.sets, where)
	values := append([]any{change.token[:], change.updatedAt, momentMySQL(change.ExpiresAt), json.RawMessage(change.Document)}, shape.arguments(change.cells)...)
	return sqldb.Statement{SQL: query, Args: append(values, args...)}
}

// change runs the statements of a batch in one transaction and one round trip. When the server rejects one of them, all
// are undone, and each goes alone.
func (m *mysqlRows) change(ctx context.Context, table string, batch []rowChange) []answer[changed] {
	statements := make([]sqldb.Statement, len(batch))
	for i := range batch {
		statements[i] = m.statement(table, &batch[i])
	}
	effects, err := m.db.ExecAll(ctx, statements)
	if len(batch) > 1 && errors.Is(err, sqldb.ErrRejected) {
		answers := make([]answer[changed], len(batch))
		for i := range batch {
			answers[i] = m.change(ctx, table, batch[i:i+1])[0]
		}
		return answers
	}
	if err != nil {
		return failed[changed](len(batch), err)
	}
	answers := make([]answer[changed], len(batch))
	for i, effect := range effects {
		answers[i].value = changed{ok: effect.Affected > 0, version: effect.LastInsertID}
	}
	return answers
}
