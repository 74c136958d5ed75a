package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"keyrange/store/sqldb"
	"keyrange/test/servers"
)

// holderEnv makes the test binary a process that holds the embedded database at that URL open until its input ends.
const holderEnv = "SQLDB_TEST_HOLD"

func TestMain(m *testing.M) {
	if url := os.Getenv(holderEnv); url != "" {
		db, err := sqldb.Open(context.Background(), url, sqldb.Options{})
		fmt.Println(err)
		if err == nil {
			_, _ = os.Stdin.Read(make([]byte, 1))
			_ = db.Close()
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func open(t *testing.T, url string) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), url, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func exec1(t *testing.T, db *sqldb.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func count(t *testing.T, db *sqldb.DB) (n int) {
	t.Helper()
	if err := db.Query(t.Context(), func(r *sql.Rows) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM t"); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOutcomes: each kind of failure is sorted by whether the statement may have taken effect.
func TestOutcomes(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			db := open(t, engine.Fresh(t))
			exec1(t, db, "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, v VARCHAR(5))")
			exec1(t, db, "INSERT INTO t VALUES (1, 'a')")
			canceled, cancel := context.WithCancel(t.Context())
			cancel()
			tests := []struct {
				name string
				ctx  context.Context
				sql  string
				want error
			}{
				{"duplicate", t.Context(), "INSERT INTO t VALUES (1, 'b')", sqldb.ErrDuplicate},
				{"duplicate among others", t.Context(), "INSERT INTO t VALUES (2, 'b'), (1, 'b')", sqldb.ErrDuplicate},
				{"nonsense", t.Context(), "INSERT INTO nowhere VALUES (1)", sqldb.ErrRejected},
				{"given up before it was sent", canceled, "INSERT INTO t VALUES (3, 'c')", sqldb.ErrUnavailable},
			}
			for _, test := range tests {
				if _, err := db.Exec(test.ctx, test.sql); !errors.Is(err, test.want) {
					t.Errorf("%s: %v, want %v", test.name, err, test.want)
				}
			}
			if n := count(t, db); n != 1 {
				t.Errorf("%d rows after statements that failed", n)
			}
		})
	}
}

// TestStrictMode: a value that does not fit is refused, never cut.
func TestStrictMode(t *testing.T) {
	for _, s := range servers.MySQL(t) {
		t.Run(s.Host(), func(t *testing.T) {
			db := open(t, servers.FreshMySQL(t, s))
			exec1(t, db, "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, v VARBINARY(2))")
			if _, err := db.Exec(t.Context(), "INSERT INTO t VALUES (1, 'abc')"); !errors.Is(err, sqldb.ErrRejected) {
				t.Errorf("an over-long value: %v", err)
			}
		})
	}
}

// TestDeadlockIsRepeated lets two transactions lock two rows in opposite order, again and again: the one that the server
// picks as the victim changed nothing, so it goes again, and nobody notices.
func TestDeadlockIsRepeated(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			db := open(t, engine.Fresh(t))
			exec1(t, db, "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, v BIGINT)")
			exec1(t, db, "INSERT INTO t VALUES (1, 0), (2, 0)")
			const rounds = 50
			var wg sync.WaitGroup
			for _, order := range [][]int{{1, 2}, {2, 1}} {
				wg.Go(func() {
					for range rounds {
						err := db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
							for _, id := range order {
								if _, err := tx.ExecContext(ctx, "UPDATE t SET v = v + 1 WHERE id = ?", id); err != nil {
									return err
								}
							}
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			var sum int
			if err := db.Query(t.Context(), func(r *sql.Rows) error { return r.Scan(&sum) }, "SELECT SUM(v) FROM t"); err != nil || sum != 4*rounds {
				t.Errorf("sum %d, %v; want %d", sum, err, 4*rounds)
			}
		})
	}
}

// TestReplyLost: a statement without an answer has an unknown outcome, one that was cut off before the server is not
// sent again either, because nobody can tell the two apart.
func TestReplyLost(t *testing.T) {
	for _, s := range servers.MySQL(t) {
		t.Run(s.Host(), func(t *testing.T) {
			url := servers.FreshMySQL(t, s)
			direct := open(t, url)
			exec1(t, direct, "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY)")
			proxy, through := servers.NewProxyFor(t, url)
			db := open(t, through)
			<-after(t, db, proxy.SwallowReply([]byte("VALUES (1)")), "INSERT INTO t VALUES (1)")
			<-after(t, db, proxy.CutBefore([]byte("VALUES (2)")), "INSERT INTO t VALUES (2)")
			if n := count(t, direct); n != 1 {
				t.Errorf("%d rows, want the one whose reply was lost", n)
			}
			exec1(t, db, "INSERT INTO t VALUES (3)")
			// Connections that were cut while idle are noticed before anything is sent on them.
			proxy.Refuse(true)
			if _, err := db.Exec(t.Context(), "INSERT INTO t VALUES (4)"); !errors.Is(err, sqldb.ErrUnavailable) {
				t.Errorf("a server that refuses: %v", err)
			}
			proxy.Refuse(false)
			exec1(t, db, "INSERT INTO t VALUES (5)")
		})
	}
}

func after(t *testing.T, db *sqldb.DB, happened <-chan struct{}, statement string) <-chan struct{} {
	t.Helper()
	if _, err := db.Exec(t.Context(), statement); !errors.Is(err, sqldb.ErrUnknown) {
		t.Errorf("%s: %v, want %v", statement, err, sqldb.ErrUnknown)
	}
	return happened
}

// TestIdleConnectionsClosedByServer is the case of a short wait_timeout: the server closes idle connections, and the next
// statements work all the same.
func TestIdleConnectionsClosedByServer(t *testing.T) {
	for _, s := range servers.MySQL(t) {
		t.Run(s.Host(), func(t *testing.T) {
			db := open(t, servers.FreshMySQL(t, s))
			exec1(t, db, "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY)")
			var id int64
			if err := db.Query(t.Context(), func(r *sql.Rows) error { return r.Scan(&id) }, "SELECT CONNECTION_ID()"); err != nil {
				t.Fatal(err)
			}
			admin := open(t, servers.FreshMySQL(t, s))
			exec1(t, admin, fmt.Sprintf("KILL %d", id)) // what wait_timeout does, at once
			waitGone(t, admin, id)
			exec1(t, db, "INSERT INTO t VALUES (1)")
			if n := count(t, db); n != 1 {
				t.Errorf("%d rows", n)
			}
		})
	}
}

func waitGone(t *testing.T, db *sqldb.DB, id int64) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; {
		alive := false
		err := db.Query(t.Context(), func(*sql.Rows) error { alive = true; return nil }, "SELECT 1 FROM information_schema.processlist WHERE id = ?", id)
		if err == nil && !alive {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("connection %d does not end: %v", id, err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := listener.Addr().String()
	listener.Close()
	_, err = sqldb.Open(t.Context(), "mysql://root:s3cret@"+closed+"/d", sqldb.Options{})
	if !errors.Is(err, sqldb.ErrUnavailable) || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), closed) {
		t.Errorf("nobody listens: %v", err)
	}
	for _, s := range servers.MySQL(t) {
		_, err = sqldb.Open(t.Context(), strings.Replace(s.URL, "root@", "nobody:s3cret@", 1)+"d", sqldb.Options{})
		if !errors.Is(err, sqldb.ErrUnavailable) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: wrong password: %v", s.Host(), err)
		}
		_, err = sqldb.Open(t.Context(), s.URL+"no_such_database", sqldb.Options{})
		if err == nil || !strings.Contains(err.Error(), "no_such_database") {
			t.Errorf("%s: no database: %v", s.Host(), err)
		}
	}
}

// TestDataFolderIsLocked: a second process is refused, this process may open more databases in the folder, and the lock
// ends with the last of them.
func TestDataFolderIsLocked(t *testing.T) {
	url := servers.FreshSQLite(t)
	first, second := open(t, url), open(t, strings.Replace(url, "test.db", "other.db", 1))
	if answer := hold(t, url); !strings.Contains(answer, "in use by another gateway process") {
		t.Errorf("a second process was told: %s", answer)
	}
	first.Close()
	if answer := hold(t, url); !strings.Contains(answer, "in use by another gateway process") {
		t.Errorf("a second process was told: %s", answer)
	}
	second.Close()
	if answer := hold(t, url); !strings.Contains(answer, "<nil>") {
		t.Errorf("after the first process was done: %s", answer)
	}
}

func hold(t *testing.T, url string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), holderEnv+"="+url)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	return string(output)
}

// TestExecAll: statements that go in one trip take effect all or none, and a connection on which one failed is not used
// again inside its open transaction.
func TestExecAll(t *testing.T) {
	for _, s := range servers.MySQL(t) {
		t.Run(s.Host(), func(t *testing.T) {
			url := servers.FreshMySQL(t, s)
			proxy, through := servers.NewProxyFor(t, url)
			db := open(t, through)
			exec1(t, db, "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, v BIGINT)")
			insert := func(id int) sqldb.Statement {
				return sqldb.Statement{SQL: "INSERT INTO t VALUES (?, ?)", Args: []any{int64(id), int64(id)}}
			}
			effects, err := db.ExecAll(t.Context(), []sqldb.Statement{
				insert(1), insert(2), {SQL: "UPDATE t SET v = LAST_INSERT_ID(v + 10)"}, {SQL: "DELETE FROM t WHERE id = ?", Args: []any{int64(9)}},
			})
			if got := fmt.Sprint(effects); err != nil || got != "[{1 0} {1 0} {2 12} {0 0}]" {
				t.Errorf("effects %s, %v", got, err)
			}
			if _, err := db.ExecAll(t.Context(), []sqldb.Statement{insert(3), insert(1)}); !errors.Is(err, sqldb.ErrDuplicate) {
				t.Errorf("with a duplicate: %v", err)
			}
			if n := count(t, db); n != 2 {
				t.Errorf("%d rows after a batch that failed", n)
			}
			happened := proxy.SwallowReply([]byte("VALUES (4, 4)"))
			if _, err := db.ExecAll(t.Context(), []sqldb.Statement{insert(4), insert(5)}); !errors.Is(err, sqldb.ErrUnknown) {
				t.Errorf("with a lost reply: %v", err)
			}
			<-happened
			exec1(t, db, "INSERT INTO t VALUES (6, 6)")
			direct := open(t, url)
			if n := count(t, direct); n != 3 && n != 5 {
				t.Errorf("%d rows, want the batch whose reply was lost whole or not at all", n)
			}
		})
	}
}

// TestSetMaxConnections: the pool to a MySQL server can be made smaller and larger while it is in use.
func TestSetMaxConnections(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			db := open(t, engine.Fresh(t))
			db.SetMaxConnections(1)
			held, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				ended <- db.Tx(t.Context(), func(context.Context, *sql.Tx) error {
					close(held)
					<-release
					return nil
				})
			}()
			<-held
			ask := func(ctx context.Context) error {
				return db.Query(ctx, func(*sql.Rows) error { return nil }, "SELECT 1")
			}
			short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := ask(short); (err != nil) != (db.Engine() == sqldb.MySQL) {
				t.Errorf("a second connection of one: %v", err)
			}
			db.SetMaxConnections(2)
			if err := ask(t.Context()); err != nil {
				t.Errorf("a second connection of two: %v", err)
			}
			close(release)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
