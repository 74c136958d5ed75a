package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// Environment variables that name the servers, see scripts/stack.sh.
const (
	envMySQL = "GATEWAY_TEST_MYSQL"
	envMongo = "GATEWAY_TEST_MONGO"
)

// adminTimeout bounds making or dropping the databases.
const adminTimeout = time.Minute

// servers are the database servers of a run.
type servers struct {
	// mysql are URLs that end in a slash; those of MariaDB servers only when there is nothing else.
	mysql                      []string
	mongo                      string
	mysqlVersion, mongoVersion string
}

// askServers finds the servers and asks what they are.
func askServers(ctx context.Context) (*servers, error) {
	s := &servers{mongo: os.Getenv(envMongo)}
	urls := strings.Fields(os.Getenv(envMySQL))
	if len(urls) == 0 || s.mongo == "" {
		return nil, fmt.Errorf("%s and %s must name servers: use scripts/stack.sh run go run ./test/bench", envMySQL, envMongo)
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	for _, one := range urls {
		one = strings.TrimSuffix(one, "/") + "/"
		version, err := mysqlVersion(ctx, one)
		if err != nil {
			return nil, err
		}
		maria := strings.Contains(version, "MariaDB")
		if !maria {
			version = "MySQL " + version
		}
		switch known := strings.Contains(s.mysqlVersion, "MariaDB"); {
		case len(s.mysql) == 0, known && !maria:
			s.mysql, s.mysqlVersion = []string{one}, version
		case known == maria:
			s.mysql = append(s.mysql, one)
		}
	}
	return s, s.askMongo(ctx)
}

// mysqlVersion asks a server for its version.
func mysqlVersion(ctx context.Context, rawURL string) (version string, err error) {
	db, err := openMySQL(rawURL, 1)
	if err != nil {
		return "", err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
	return version, err
}

// askMongo asks the MongoDB-protocol server what it is.
func (s *servers) askMongo(ctx context.Context) error {
	m, err := openMongo(s.mongo, 1)
	if err != nil {
		return err
	}
	defer func() { _ = m.Disconnect(context.WithoutCancel(ctx)) }() // nothing is left to lose
	var info struct {
		Version  string `bson:"version"`
		FerretDB struct {
			Version string `bson:"version"`
		} `bson:"ferretdb"`
	}
	if err := m.Database("admin").RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info); err != nil {
		return fmt.Errorf("%s: %w", envMongo, err)
	}
	s.mongoVersion = "MongoDB " + info.Version
	if v := info.FerretDB.Version; v != "" {
		s.mongoVersion = "FerretDB " + strings.TrimPrefix(v, "v") + " (MongoDB protocol)"
	}
	return nil
}

// String names the servers by their versions, not their addresses.
func (s *servers) String() string {
	return fmt.Sprintf("%d x %s, %s", len(s.mysql), s.mysqlVersion, s.mongoVersion)
}

// openMySQL makes a pool of plain driver connections with the settings that a careful user would choose: one round trip
// per statement, and connections that stay open.
func openMySQL(rawURL string, connections int) (*sql.DB, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "mysql" {
		return nil, fmt.Errorf("%s: want URLs like mysql://user:password@host:port/", envMySQL)
	}
	cfg := mysql.NewConfig()
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.Net, cfg.Addr, cfg.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	cfg.InterpolateParams, cfg.ParseTime, cfg.Loc = true, true, time.UTC
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// openMongo makes a plain driver client with the concerns that the gateway uses as well: majority, journaled.
func openMongo(uri string, connections int) (*mongo.Client, error) {
	journal := true
	return mongo.Connect(options.Client().ApplyURI(uri).SetMaxPoolSize(uint64(connections)).
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journal}).
		SetReadConcern(readconcern.Majority()))
}

// databases are made for a part of a run and dropped after it.
type databases struct {
	servers *servers
	// made are URLs.
	made []string
}

// freshName names a database like no other.
func freshName() string { return "bench_" + strings.ToLower(rand.Text()[:16]) }

// mysql makes an empty database on server i, counted around, and returns its URL.
func (d *databases) mysql(ctx context.Context, i int) (string, error) {
	name := freshName()
	made := d.servers.mysql[i%len(d.servers.mysql)] + name
	if err := d.execute(ctx, made, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	d.made = append(d.made, made)
	return made, nil
}

// mongo returns the URI of a database that does not exist yet.
func (d *databases) mongo() (string, error) {
	u, err := url.Parse(d.servers.mongo)
	if err != nil {
		return "", fmt.Errorf("%s: not a URI with one host", envMongo)
	}
	u.Path = "/" + freshName()
	d.made = append(d.made, u.String())
	return u.String(), nil
}

// drop removes all databases, also when ctx has ended.
func (d *databases) drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminTimeout)
	defer cancel()
	var errs []error
	for _, made := range d.made {
		if strings.HasPrefix(made, "mysql://") {
			errs = append(errs, d.execute(ctx, made, "DROP DATABASE IF EXISTS "+databaseOf(made)))
			continue
		}
		m, err := openMongo(made, 1)
		if err == nil {
			err = errors.Join(m.Database(databaseOf(made)).Drop(ctx), m.Disconnect(ctx))
		}
		errs = append(errs, err)
	}
	d.made = nil
	return errors.Join(errs...)
}

// execute runs a statement on the server of a database, not in the database.
//
// Safety: the statements hold no text but freshName's letters and digits.
func (d *databases) execute(ctx context.Context, made, statement string) error {
	db, err := openMySQL(strings.TrimSuffix(made, databaseOf(made)), 1)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// databaseOf is the name of the database in a URL that this program made.
func databaseOf(made string) string {
	u, err := url.Parse(made)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(u.Path, "/")
}
