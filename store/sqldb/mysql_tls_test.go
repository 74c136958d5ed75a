package sqldb_test

import (
	"crypto/tls"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keyrange/store/sqldb"
	"keyrange/test/servers"
)

// mysqlServer is the first server of Oracle's MySQL, which has TLS with a certificate that it made itself.
func mysqlServer(t *testing.T) servers.Server {
	t.Helper()
	for _, s := range servers.MySQL(t) {
		if s.Kind == servers.MySQLKind {
			return s
		}
	}
	t.Fatal("there is no MySQL server")
	return servers.Server{}
}

// at is a database URL with another host, or the same for "", and with parameters in pairs.
func at(t *testing.T, rawURL, host string, params ...string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		u.Host = host
	}
	query := url.Values{}
	for i := 0; i < len(params); i += 2 {
		query.Set(params[i], params[i+1])
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// cipher is that of the connection of a database; empty without TLS.
func cipher(t *testing.T, rawURL string) (name string) {
	t.Helper()
	var variable string
	if err := open(t, rawURL).Query(t.Context(), func(r *sql.Rows) error { return r.Scan(&variable, &name) }, "SHOW STATUS LIKE 'Ssl_cipher'"); err != nil {
		t.Fatal(err)
	}
	return name
}

// refused opens a database that cannot be had, and checks why.
func refused(t *testing.T, rawURL string, kind error, want string) {
	t.Helper()
	db, err := sqldb.Open(t.Context(), rawURL, sqldb.Options{})
	if err == nil {
		_ = db.Close()
		t.Errorf("%s was opened", rawURL)
		return
	}
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %s", rawURL, err, want)
	}
}

// TestMySQLOwnCertificate: the certificate that a MySQL server makes for itself has no name in it. It is proved by
// verify-ca, and by nothing else that proves.
func TestMySQLOwnCertificate(t *testing.T) {
	server := mysqlServer(t)
	fresh := servers.FreshMySQL(t, server)
	own, other := servers.MySQLCertificate(t, server.Host()), servers.NewAuthority(t).File
	if got := cipher(t, at(t, fresh, "", "tls", "verify-ca", "tls_ca", own)); got == "" {
		t.Error("verify-ca: the connection is plain text")
	}
	if got := cipher(t, at(t, fresh, "", "tls", "skip-verify")); got == "" {
		t.Error("skip-verify: the connection is plain text")
	}
	if got := cipher(t, fresh); got != "" {
		t.Errorf("without tls: %s", got)
	}
	refused(t, at(t, fresh, "", "tls", "verify-ca", "tls_ca", other), sqldb.ErrUnavailable, "x509: certificate signed by unknown authority")
	refused(t, at(t, fresh, "", "tls", "true"), sqldb.ErrUnavailable, "x509: ")
	refused(t, at(t, fresh, "", "tls", "true", "tls_ca", own), sqldb.ErrUnavailable, "x509: ")
}

// TestMySQLTLS: tls=true checks the authority and the name, and shows the client's certificate, as its file is then.
func TestMySQLTLS(t *testing.T) {
	server := mysqlServer(t)
	fresh := servers.FreshMySQL(t, server)
	authority, other := servers.NewAuthority(t), servers.NewAuthority(t)
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	authority.Issue(t, in("server.pem"), in("server.key"), "server")
	pair, err := tls.LoadX509KeyPair(in("server.pem"), in("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	proxy := servers.NewMySQLTLS(t, server.Host(), config)
	if got := cipher(t, at(t, fresh, proxy, "tls", "true", "tls_ca", authority.File)); got == "" {
		t.Error("the connection is plain text")
	}
	refused(t, at(t, fresh, proxy, "tls", "true", "tls_ca", other.File), sqldb.ErrUnavailable, "x509: certificate signed by unknown authority")
	refused(t, at(t, fresh, proxy, "tls", "true"), sqldb.ErrUnavailable, "x509: certificate signed by unknown authority")
	refused(t, at(t, fresh, strings.Replace(proxy, "127.0.0.1", "127.0.0.2", 1), "tls", "true", "tls_ca", authority.File), sqldb.ErrUnavailable, "127.0.0.2")

	mutual := authority.Client(t, nil)
	mutual.Certificates, mutual.ClientCAs, mutual.ClientAuth = config.Certificates, mutual.RootCAs, tls.RequireAndVerifyClientCert
	proxy = servers.NewMySQLTLS(t, server.Host(), mutual)
	refused(t, at(t, fresh, proxy, "tls", "true", "tls_ca", authority.File), sqldb.ErrUnavailable, "")
	other.Issue(t, in("client.pem"), in("client.key"), "client")
	withCert := at(t, fresh, proxy, "tls", "true", "tls_ca", authority.File, "tls_cert", in("client.pem"), "tls_key", in("client.key"))
	refused(t, withCert, sqldb.ErrUnavailable, "")
	authority.Issue(t, in("client.pem"), in("client.key"), "client")
	if got := cipher(t, withCert); got == "" {
		t.Error("the connection is plain text")
	}
}

// TestMySQLTLSFiles: files that cannot be used are told at once, without their path, which may be part of a password.
func TestMySQLTLSFiles(t *testing.T) {
	folder := t.TempDir()
	text := filepath.Join(folder, "s3cret")
	if err := os.WriteFile(text, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	const base = "mysql://u:s3cret@127.0.0.1:1/d"
	for _, c := range []struct {
		params []string
		want   string
	}{
		{[]string{"tls", "true", "tls_ca", filepath.Join(folder, "s3cret-2")}, "tls_ca: cannot be read: no such file"},
		{[]string{"tls", "verify-ca", "tls_ca", text}, "tls_ca: the file has no certificate in PEM"},
		{[]string{"tls", "true", "tls_cert", text, "tls_key", text}, "tls_cert and tls_key: cannot be read: tls: failed to find any PEM data"},
	} {
		_, err := sqldb.New(at(t, base, "", c.params...), sqldb.Options{})
		if !errors.Is(err, sqldb.ErrRejected) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v: %v", c.params, err)
		}
	}
}
