package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	mysqlDefaultPort = "3306"
	// mysqlMaxLifetime renews connections, so that a changed address or a moved primary is noticed (driver's advice:
	// below 5 minutes); it is cut to half the server's wait_timeout.
	mysqlMaxLifetime = 3 * time.Minute
	// mysqlDriverPacket lifts the driver's own packet limit (1 GiB is the protocol's); the server's limit counts.
	mysqlDriverPacket = 1 << 30
)

// mysqlSession is set on each connection. Strict mode: without it an over-long key would be cut silently. The short lock
// wait (seconds) keeps a blocked statement from outliving its request by much.
var mysqlSession = map[string]string{
	"sql_mode":                 "'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'",
	"time_zone":                "'+00:00'",
	"innodb_lock_wait_timeout": "2",
	"lock_wait_timeout":        "5",
}

// Params of a mysql:// URL.
var mysqlParams = []string{paramTLS, paramTLSCA, paramTLSCert, paramTLSKey, "socket"}

var databaseName = regexp.MustCompile(`^/[A-Za-z0-9_$-]{1,64}$`)

func parseMySQL(rawURL string) (Location, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return Location{}, errors.New("not a valid URL; percent-encode special characters in the user name and the password")
	}
	loc := Location{Engine: MySQL, url: u}
	var faults []string
	if u.User == nil || u.User.Username() == "" {
		faults = append(faults, "no user name")
	}
	if !databaseName.MatchString(u.Path) {
		faults = append(faults, "no database name (letters, digits, _, $ and -)")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		faults = append(faults, "parameters are malformed")
	}
	for name := range query {
		if !slices.Contains(mysqlParams, name) {
			// Not named: it may be the rest of a password with a raw question mark in it.
			faults = append(faults, fmt.Sprintf("an unknown parameter (known: %s)", strings.Join(mysqlParams, ", ")))
		}
	}
	faults = append(faults, tlsFaults(query)...)
	if u.Hostname() == "" && query.Get("socket") == "" {
		faults = append(faults, "no host")
	}
	if len(faults) > 0 {
		return loc, fmt.Errorf("%s: want mysql://user:password@host:port/database", strings.Join(faults, ", "))
	}
	return loc, nil
}

func mysqlAddress(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = mysqlDefaultPort
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

func mysqlConfig(loc Location, opts Options) (cfg *mysql.Config, err error) {
	u := loc.url
	cfg = mysql.NewConfig()
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	cfg.Net, cfg.Addr = "tcp", mysqlAddress(u)
	if socket := u.Query().Get("socket"); socket != "" {
		cfg.Net, cfg.Addr = "unix", socket
	}
	if cfg.TLS, err = mysqlTLS(u.Query()); err != nil {
		return nil, err
	}
	if cfg.TLS == nil {
		cfg.TLSConfig = u.Query().Get(paramTLS)
	}
	cfg.Params = mysqlSession
	cfg.Timeout = opts.ConnectTimeout
	cfg.MaxAllowedPacket = mysqlDriverPacket
	cfg.ParseTime, cfg.Loc = true, time.UTC
	// One round trip for a statement with arguments. Safe because utf8mb4 is no multi-byte trap for the escaping.
	cfg.InterpolateParams = true
	// ExecAll sends a transaction in one trip. No SQL text holds data, so this opens no door.
	cfg.MultiStatements = true
	// After a failover the old primary says that it is read-only: drop the connection, so that the next one finds the new.
	cfg.RejectReadOnly = true
	cfg.Logger = &mysql.NopLogger{} // whatever it would log is returned as an error too
	return cfg, nil
}

// prepareMySQL makes the pool, which connects when it is used.
func (db *DB) prepareMySQL(opts Options) error {
	cfg, err := mysqlConfig(db.location, opts)
	if err != nil {
		return fmt.Errorf("open %s: %w: %w", db.location, ErrRejected, err)
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return fmt.Errorf("open %s: %w: bad connection settings", db.location, ErrRejected)
	}
	db.write = sql.OpenDB(connector)
	db.read = db.write
	db.SetMaxConnections(opts.MaxConnections)
	return nil
}

func (db *DB) connectMySQL(ctx context.Context) (server Server, err error) {
	var waitTimeout int64 // seconds
	err = db.Query(ctx, func(rows *sql.Rows) error {
		return rows.Scan(&server.Version, &server.MaxPacketBytes, &waitTimeout)
	}, "SELECT VERSION(), @@global.max_allowed_packet, @@global.wait_timeout")
	if err != nil {
		return Server{}, err
	}
	db.write.SetConnMaxLifetime(min(mysqlMaxLifetime, time.Duration(waitTimeout)*time.Second/2))
	return server, nil
}

// execMySQL runs statements on a connection and returns the effect of each.
func execMySQL(ctx context.Context, conn *sql.Conn, statements []Statement) (effects []Effect, err error) {
	text, args := statements[0].SQL, named(nil, statements[0].Args)
	skip := 0 // effects of BEGIN, before those of the statements
	if len(statements) > 1 {
		var b strings.Builder
		b.WriteString("BEGIN")
		args = args[:0]
		for _, s := range statements {
			b.WriteString("; ")
			b.WriteString(s.SQL)
			args = named(args, s.Args)
		}
		b.WriteString("; COMMIT")
		text, skip = b.String(), 1
	}
	var cause error
	err = conn.Raw(func(driverConn any) error {
		var result driver.Result
		if result, cause = driverConn.(driver.ExecerContext).ExecContext(ctx, text, args); cause != nil {
			if len(statements) > 1 {
				return driver.ErrBadConn // it may be inside the transaction: it must not go back to the pool
			}
			return cause
		}
		all := result.(mysql.Result)
		affected, ids := all.AllRowsAffected()[skip:], all.AllLastInsertIds()[skip:]
		for i := range statements {
			effects = append(effects, Effect{affected[i], ids[i]})
		}
		return nil
	})
	return effects, cmp.Or(cause, err)
}

// named adds arguments in the form that a driver takes.
func named(to []driver.NamedValue, args []any) []driver.NamedValue {
	for _, arg := range args {
		to = append(to, driver.NamedValue{Ordinal: len(to) + 1, Value: arg})
	}
	return to
}
