// Package sqldb opens the SQL databases that config names by URL, MySQL (or MariaDB) servers and embedded SQLite
// files, with the settings that the record protocol depends on, and sorts their errors by the one question that
// matters to it: may the statement have taken effect?
package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Engine is the kind of a database, chosen by the scheme of its URL.
type Engine string

const (
	// MySQL is a MySQL or MariaDB server: mysql://user:password@host:port/database.
	MySQL Engine = "mysql"
	// SQLite is a file that belongs to one gateway process: sqlite://path/to/file.db, relative or absolute.
	SQLite Engine = "sqlite"
)

// Outcomes of a failed statement. Every error of this package matches exactly one of them.
var (
	// ErrDuplicate: the statement would have repeated a primary key. It changed nothing.
	ErrDuplicate = errors.New("duplicate primary key")
	// ErrUnavailable: the server cannot be reached, is read-only or kept refusing. The statement changed nothing.
	ErrUnavailable = errors.New("database unavailable")
	// ErrRejected: the server answered that it will not run the statement. It changed nothing.
	ErrRejected = errors.New("statement rejected")
	// ErrUnknown: the statement was sent and no answer came back. It may have taken effect, or may yet.
	ErrUnknown = errors.New("outcome unknown")
)

// Options size the connection pool. Zero values take the defaults.
type Options struct {
	// MaxConnections bounds the open connections to a MySQL server; default 32. SQLite has one writer whatever it says.
	MaxConnections int
	// ConnectTimeout bounds one connection attempt; default 2 s.
	ConnectTimeout time.Duration
	// Observe is told of each call that asks the database: what it was, how long it took with the wait for a connection and
	// all attempts, and what became of it. nil when nobody wants to know.
	Observe func(operation string, took time.Duration, err error)
}

// DB is a database. It is safe for concurrent use once Connect has succeeded; before, only Connect, Ping and what tells
// of it may be called.
type DB struct {
	location Location
	write    *sql.DB
	read     *sql.DB // the same pool as write, except for SQLite: query-only connections beside its one writer
	server   atomic.Pointer[Server]
	// connecting lets one caller at a time connect, and guards unlockFile.
	connecting sync.Mutex
	unlockFile func()
	observer   func(operation string, took time.Duration, err error)
}

// Server is what a database said of itself when it was connected to.
type Server struct {
	// Version as the server words it, for instance "9.7.4" or "10.11.19-MariaDB".
	Version string
	// MaxPacketBytes is the largest statement that the server takes; 0 means that there is no limit.
	MaxPacketBytes int64
}

// New prepares the database that rawURL names and does not talk to it yet. Errors never contain credentials.
func New(rawURL string, opts Options) (*DB, error) {
	if opts.MaxConnections <= 0 {
		opts.MaxConnections = 32
	}
	if opts.ConnectTimeout <= 0 {
		opts.ConnectTimeout = 2 * time.Second
	}
	loc, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	db := &DB{location: loc, observer: opts.Observe}
	if loc.Engine == MySQL {
		err = db.prepareMySQL(opts)
	}
	return db, err
}

// Connect makes sure that the database answers and reads the facts in Server. It creates SQLite files and their folder,
// never a MySQL database. Once it has succeeded it does nothing.
func (db *DB) Connect(ctx context.Context) error {
	db.connecting.Lock()
	defer db.connecting.Unlock()
	if db.server.Load() != nil {
		return nil
	}
	connect := db.connectSQLite
	if db.Engine() == MySQL {
		connect = db.connectMySQL
	}
	server, err := connect(ctx)
	if err != nil {
		return fmt.Errorf("open %s: %w", db.location, err)
	}
	db.server.Store(&server)
	return nil
}

// Open is New and Connect.
func Open(ctx context.Context, rawURL string, opts Options) (*DB, error) {
	db, err := New(rawURL, opts)
	if err != nil {
		return nil, err
	}
	if err := db.Connect(ctx); err != nil {
		_ = db.Close() // the first error counts
		return nil, err
	}
	return db, nil
}

// Location is a parsed database URL.
type Location struct {
	Engine Engine
	// Path is the file of a SQLite database, cleaned.
	Path string
	url  *url.URL
}

// ParseURL checks the URL of a database without connecting. Its errors name the fault and never repeat the URL, which
// may hold a password.
func ParseURL(rawURL string) (Location, error) {
	scheme, rest, ok := cutScheme(rawURL)
	if !ok {
		return Location{}, errors.New("not a URL: want mysql://user@host:port/database or sqlite://path/to/file.db")
	}
	switch Engine(scheme) {
	case SQLite:
		return parseSQLite(rest)
	case MySQL:
		return parseMySQL(rawURL)
	}
	return Location{}, errors.New("unknown scheme: want mysql:// or sqlite://")
}

// String names the database without credentials. Two URLs with the same string are the same database.
func (l Location) String() string {
	if l.Engine == SQLite {
		return "sqlite://" + l.Path
	}
	if socket := l.url.Query().Get("socket"); socket != "" {
		return "mysql://" + socket + l.url.Path
	}
	return "mysql://" + mysqlAddress(l.url) + l.url.Path
}

// Engine says which SQL dialect the database speaks.
func (db *DB) Engine() Engine { return db.location.Engine }

// Location names the database without credentials.
func (db *DB) Location() string { return db.location.String() }

// Server returns what the database said of itself; zero before Connect.
func (db *DB) Server() Server {
	if server := db.server.Load(); server != nil {
		return *server
	}
	return Server{}
}

// Ping checks that the database answers, within the deadline of ctx, and connects to it if need be.
func (db *DB) Ping(ctx context.Context) error {
	if db.server.Load() == nil {
		return db.Connect(ctx)
	}
	if err := db.read.PingContext(ctx); err != nil {
		return translate("ping", err, unsent)
	}
	return nil
}

// SetMaxConnections bounds the pool to a MySQL server anew; the connections above the bound end when they come back. It
// does nothing for SQLite.
func (db *DB) SetMaxConnections(n int) {
	if db.Engine() == MySQL {
		db.write.SetMaxOpenConns(n)
		db.write.SetMaxIdleConns(n)
	}
}

// observe tells the observer of a call that ends.
func (db *DB) observe(operation string, began time.Time, err *error) {
	if db.observer != nil {
		db.observer(operation, time.Since(began), *err)
	}
}

// Pool says how many connections there are and how long calls waited for one: of SQLite, of its one writer. Zero before Connect.
func (db *DB) Pool() sql.DBStats {
	if db.server.Load() == nil {
		return sql.DBStats{}
	}
	return db.write.Stats()
}

// Close ends all connections. It may be called twice.
func (db *DB) Close() error {
	db.connecting.Lock()
	defer db.connecting.Unlock()
	var errs []error
	for _, pool := range []*sql.DB{db.read, db.write} {
		if pool != nil {
			errs = append(errs, pool.Close())
		}
	}
	if db.unlockFile != nil {
		db.unlockFile()
		db.unlockFile = nil
	}
	return errors.Join(errs...)
}

const (
	// attempts bounds how often a statement that certainly changed nothing (dead connection, deadlock, lock wait) is sent.
	attempts = 6
	// firstPause is the longest wait before the second attempt; it doubles each time, so all take 124 ms at most.
	firstPause = 4 * time.Millisecond
)

// Exec runs one autocommit statement. It is sent again only after an answer that proves that it changed nothing, so it
// takes effect at most once. Errors match one of the package's outcomes.
func (db *DB) Exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	var result sql.Result
	err := db.retry(ctx, "execute", func(conn *sql.Conn) error {
		var err error
		result, err = conn.ExecContext(db.sendContext(ctx), query, args...)
		return err
	})
	return result, err
}

// ExecReturning runs one autocommit statement with a RETURNING clause, which only SQLite has on every statement, and
// scans its row into dest. It returns sql.ErrNoRows when the statement changed no row; otherwise see Exec.
func (db *DB) ExecReturning(ctx context.Context, dest []any, query string, args ...any) error {
	return db.retry(ctx, "execute", func(conn *sql.Conn) error {
		return conn.QueryRowContext(db.sendContext(ctx), query, args...).Scan(dest...)
	})
}

// Tx runs fn in one transaction on a writing connection and commits it when fn returns nil. It is sent again like Exec,
// so fn must start from scratch each time.
func (db *DB) Tx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return db.retry(ctx, "transaction", func(conn *sql.Conn) error {
		ctx := db.sendContext(ctx)
		tx, err := conn.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		// A commit after a failed statement can report success (1213), so the statement's own error decides.
		if err := fn(ctx, tx); err != nil {
			_ = tx.Rollback() // the connection dies with the transaction in the worst case; the first error counts
			return err
		}
		return tx.Commit()
	})
}

// Statement is one statement of a batch.
type Statement struct {
	SQL  string
	Args []any
}

// Effect is what one statement did.
type Effect struct{ Affected, LastInsertID int64 }

// ExecAll runs statements on a MySQL server in one transaction and one round trip; a single one as by Exec. They take
// effect all or none; it is sent again like Exec.
func (db *DB) ExecAll(ctx context.Context, statements []Statement) ([]Effect, error) {
	var effects []Effect
	err := db.retry(ctx, "batch", func(conn *sql.Conn) error {
		var err error
		effects, err = execMySQL(ctx, conn, statements)
		return err
	})
	return effects, err
}

// Query reads rows from the primary and calls scan for each. Reading changes nothing, so a failure is ErrUnavailable
// or ErrRejected; it is sent again when a connection turns out to be dead.
func (db *DB) Query(ctx context.Context, scan func(rows *sql.Rows) error, query string, args ...any) (err error) {
	defer db.observe("query", time.Now(), &err)
	rows, err := db.read.QueryContext(ctx, query, args...)
	if err != nil {
		return translate("query", err, unsent)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return translate("scan", err, unsent)
		}
	}
	if err := rows.Err(); err != nil {
		return translate("read rows", err, unsent)
	}
	return nil
}

// TableExists reports whether the database has a table of that name.
func (db *DB) TableExists(ctx context.Context, table string) (found bool, err error) {
	query := "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?"
	if db.Engine() == SQLite {
		query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
	}
	err = db.Query(ctx, func(*sql.Rows) error { found = true; return nil }, query, table)
	return found, err
}

// sendContext is the context under which a statement runs once it has a connection. SQLite works in this process: it
// ends by itself within its busy timeout, and letting it end means that its outcome is always known.
func (db *DB) sendContext(ctx context.Context) context.Context {
	if db.Engine() == SQLite {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// retry takes a connection and runs send on it, again while the outcome proves that nothing happened. Waiting for the
// connection and sending are separate steps, because only a failure of the second leaves an unknown outcome.
func (db *DB) retry(ctx context.Context, operation string, send func(*sql.Conn) error) (err error) {
	defer db.observe(operation, time.Now(), &err)
	for attempt := 1; ; attempt++ {
		conn, err := db.write.Conn(ctx)
		if err != nil {
			return translate("connect", err, unsent)
		}
		err = send(conn)
		_ = conn.Close() // gives it back to the pool; a broken one is dropped there
		if err == nil || errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if !repeatable(err) || attempt == attempts || !pause(ctx, attempt) {
			return translate("execute", err, sent)
		}
	}
}

// pause waits a random time before the next attempt and reports whether ctx still stands.
func pause(ctx context.Context, attempt int) bool {
	timer := time.NewTimer(rand.N(firstPause << (attempt - 1)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
