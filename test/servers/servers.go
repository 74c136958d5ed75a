// Package servers gives tests fresh databases on the real engines that GATEWAY_TEST_MYSQL and GATEWAY_TEST_MONGO name,
// and a proxy that makes the network between a test and its server misbehave. A test that asks for a server which does
// not answer fails; it is never skipped.
package servers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Environment variables that name the servers, see scripts/stack.sh.
const (
	// EnvMySQL holds URLs of the form mysql://user:password@host:port/, separated by spaces.
	EnvMySQL = "GATEWAY_TEST_MYSQL"
	// EnvMongo holds one URI of the form mongodb://user:password@host:port/.
	EnvMongo = "GATEWAY_TEST_MONGO"
)

// Kinds of a MySQL-protocol server.
const (
	// MySQLKind is a server of Oracle's MySQL.
	MySQLKind = "mysql"
	// MariaDBKind is a MariaDB server.
	MariaDBKind = "mariadb"
)

// adminTimeout bounds each step of making, dropping or asking a server.
const adminTimeout = 30 * time.Second

// Server is a MySQL-protocol server that answered.
type Server struct {
	// URL ends in a slash and names no database.
	URL string
	// Version as the server words it.
	Version string
	// Kind is MySQLKind or MariaDBKind.
	Kind string
}

// Host returns the host and port of the server.
func (s Server) Host() string { return hostOf(s.URL) }

// Engine is one of the SQL databases that a conformance suite runs on.
type Engine struct {
	// Name is for t.Run.
	Name string
	// Fresh makes an empty database that lives until the test ends, and returns its URL.
	Fresh func(t testing.TB) string
}

// MySQL returns the servers of GATEWAY_TEST_MYSQL in their order, at least one. It fails the test when the variable is
// not set or one of them does not answer.
func MySQL(t testing.TB) []Server {
	t.Helper()
	found, err := askMySQL()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// askMySQL asks each server once in the life of the test binary.
var askMySQL = sync.OnceValues(func() ([]Server, error) {
	urls := strings.Fields(os.Getenv(EnvMySQL))
	if len(urls) == 0 {
		return nil, notSet(EnvMySQL)
	}
	var found []Server
	for _, rawURL := range urls {
		s, err := ask(strings.TrimSuffix(rawURL, "/") + "/")
		if err != nil {
			return nil, noAnswer(EnvMySQL, rawURL, err)
		}
		found = append(found, s)
	}
	return found, nil
})

// ask finds out what a server is.
func ask(rawURL string) (Server, error) {
	s := Server{URL: rawURL, Kind: MySQLKind}
	err := admin(rawURL, func(ctx context.Context, db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&s.Version)
	})
	if strings.Contains(s.Version, "MariaDB") {
		s.Kind = MariaDBKind
	}
	return s, err
}

// FreshMySQL makes an empty database on the server, drops it when the test ends, and returns its URL.
func FreshMySQL(t testing.TB, s Server) string {
	t.Helper()
	name := freshName()
	// Safety: the name is made of letters, digits and an underscore.
	execute(t, s, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, s, "DROP DATABASE IF EXISTS "+name) })
	return s.URL + name
}

// execute runs one administrative statement; a failure fails the test and lets its cleanup go on.
func execute(t testing.TB, s Server, statement string) {
	t.Helper()
	err := admin(s.URL, func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, statement)
		return err
	})
	if err != nil {
		t.Errorf("%s: %s: %v", s.Host(), statement, err)
	}
}

// FreshSQLite returns the URL of a SQLite file that does not exist yet, in a folder of its own.
func FreshSQLite(t testing.TB) string {
	t.Helper()
	return "sqlite://" + filepath.Join(t.TempDir(), "test.db")
}

// SQLEngines returns SQLite and the first server of each kind in GATEWAY_TEST_MYSQL.
func SQLEngines(t testing.TB) []Engine {
	t.Helper()
	engines := []Engine{{Name: "sqlite", Fresh: FreshSQLite}}
	for _, kind := range []string{MySQLKind, MariaDBKind} {
		if of := ofKind(MySQL(t), kind); len(of) > 0 {
			engines = append(engines, Engine{Name: kind, Fresh: func(t testing.TB) string {
				t.Helper()
				return FreshMySQL(t, of[0])
			}})
		}
	}
	return engines
}

// Nodes returns the URLs of n fresh databases, spread evenly over the MySQL servers, or over the MariaDB servers when
// there is no other.
func Nodes(t testing.TB, n int) []string {
	t.Helper()
	all := MySQL(t)
	use := ofKind(all, MySQLKind)
	if len(use) == 0 {
		use = all
	}
	urls := make([]string, n)
	for i := range urls {
		urls[i] = FreshMySQL(t, use[i%len(use)])
	}
	return urls
}

// ofKind keeps the servers of one kind, in their order.
func ofKind(all []Server, kind string) []Server {
	var some []Server
	for _, s := range all {
		if s.Kind == kind {
			some = append(some, s)
		}
	}
	return some
}

// admin opens the server without a database and closes it again, so that no goroutine outlives the call.
func admin(rawURL string, fn func(ctx context.Context, db *sql.DB) error) error {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "mysql" {
		return errors.New("not a mysql:// URL")
	}
	cfg := mysql.NewConfig()
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.Net, cfg.Addr = "tcp", u.Host
	cfg.Timeout = adminTimeout
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	return fn(ctx, db)
}

// freshName names a database like no other: letters in lower case, as some servers fold the case of names.
func freshName() string { return "t_" + strings.ToLower(rand.Text()[:16]) }

// hostOf is the part of a URL that may be shown.
func hostOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "a URL that cannot be parsed"
	}
	return u.Host
}

// advice ends every message about a missing server; it takes the name of the variable.
const advice = `run "make test", or eval "$(scripts/stack.sh env)" first, or set %s to servers of your own`

// notSet is the error of a variable that names no server.
func notSet(env string) error {
	return fmt.Errorf("no test server: %s is not set: "+advice, env, env)
}

// noAnswer is the error of a server that the variable names in vain.
func noAnswer(env, rawURL string, err error) error {
	return fmt.Errorf("test server %s of %s does not answer: %w: "+advice, hostOf(rawURL), env, err, env)
}
