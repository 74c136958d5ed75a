package index

import (
	"crypto/tls"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"keyrange/test/servers"
)

// TestMongoTLS: with tls=true the server must show a certificate of the authority, and may ask for one of the client.
func TestMongoTLS(t *testing.T) {
	fresh, err := url.Parse(servers.FreshMongo(t))
	if err != nil {
		t.Fatal(err)
	}
	authority, other := servers.NewAuthority(t), servers.NewAuthority(t)
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	authority.Issue(t, cert, key, "server")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	plain := servers.NewTLS(t, fresh.Host, &tls.Config{Certificates: []tls.Certificate{pair}})
	mutual := authority.Client(t, nil)
	mutual.Certificates, mutual.ClientCAs, mutual.ClientAuth = []tls.Certificate{pair}, mutual.RootCAs, tls.RequireAndVerifyClientCert
	asking := servers.NewTLS(t, fresh.Host, mutual)
	for _, c := range []struct {
		name, host, params, want string
	}{
		{"the authority", plain, "tls=true&tlsCAFile=" + authority.File, ""},
		{"another authority", plain, "tls=true&tlsCAFile=" + other.File, "unknown authority"},
		{"no authority", plain, "tls=true", "unknown authority"},
		{"plain text", plain, "tls=false", "unreachable"},
		{"a client's certificate", asking, "tls=true&tlsCAFile=" + authority.File + "&tlsCertificateFile=" + cert + "&tlsPrivateKeyFile=" + key, ""},
		{"no client's certificate", asking, "tls=true&tlsCAFile=" + authority.File, "unreachable"},
		{"no such file", plain, "tls=true&tlsCAFile=/nowhere/" + secret, "tlsCAFile of the MongoDB URI cannot be read: no such file"},
	} {
		uri := *fresh
		uri.Host, uri.RawQuery = c.host, c.params+"&directConnection=true&serverSelectionTimeoutMS=1000"
		x, err := Open(testContext(t), uri.String(), Options{AllowStandalone: true})
		if err == nil {
			_ = x.Close()
		}
		if (err == nil) != (c.want == "") || c.want == "unreachable" && !errors.Is(err, ErrUnavailable) ||
			c.want != "" && c.want != "unreachable" && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		checkSecret(t, err)
	}
}
