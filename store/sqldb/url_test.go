package sqldb

import (
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]string{
		"sqlite://data/x.db":                             "sqlite://data/x.db",
		"sqlite://./data//x.db":                          "sqlite://data/x.db",
		"sqlite:///var/lib/x.db":                         "sqlite:///var/lib/x.db",
		"SQLITE://x.db":                                  "sqlite://x.db",
		"mysql://u@db1/records":                          "mysql://db1:3306/records",
		"mysql://u:p@DB1:3306/records":                   "mysql://db1:3306/records",
		"mysql://u:p%40ss@[::1]:3307/records?tls=true":   "mysql://[::1]:3307/records",
		"mysql://u@/records?socket=/run/mysqld/sock":     "mysql:///run/mysqld/sock/records",
		"mysql://u@localhost/records?socket=/run/a.sock": "mysql:///run/a.sock/records",
	} {
		loc, err := ParseURL(raw)
		if err != nil || loc.String() != want {
			t.Errorf("%s: %s, %v; want %s", raw, loc, err, want)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	const secret = "s3cret"
	for raw, want := range map[string]string{
		"":                                   "not a URL",
		"data/x.db":                          "not a URL",
		"postgres://u:s3cret@h/d":            "unknown scheme",
		"sqlite://":                          "no file",
		"sqlite://data/":                     "no file",
		"sqlite://x.db?mode=ro":              "no parameters",
		"mysql://h/d":                        "no user name",
		"mysql://u:s3cret@h":                 "no database name",
		"mysql://u:s3cret@h/":                "no database name",
		"mysql://u:s3cret@h/a/b":             "no database name",
		"mysql://u:s3cret@h/`x`":             "no database name",
		"mysql://u:s3cret@/d":                "no host",
		"mysql://u:s3cret@h/d?tls=maybe":     "tls must be",
		"mysql://u:s3cret@h/d?tls=verify-ca": "needs tls_ca",
		"mysql://u:s3cret@h/d?tls_ca=s3cret": "need tls=true or tls=verify-ca",

		"mysql://u:s3cret@h/d?tls=skip-verify&tls_ca=s3cret":  "need tls=true or tls=verify-ca",
		"mysql://u:s3cret@h/d?tls=true&tls_cert=s3cret":       "go together",
		"mysql://u:s3cret@h/d?tls=true&tls_key=s3cret&tls_ca": "go together",
		"mysql://u:s3cret@h/d?multi=1":                        "unknown parameter",
		"mysql://u:12?s3cret@h/d":                             "no database name",
		"s3cret://h/d":                                        "unknown scheme",
		"mysql://u:s3cret%zz@h/d":                             "percent-encode",
		"mysql://u:s3cret@h:notaport/d":                       "percent-encode",
		"mysql://u:s3cret@h/d?allowAllFiles=tr":               "unknown parameter",
	} {
		_, err := ParseURL(raw)
		switch {
		case err == nil:
			t.Errorf("%s was taken", raw)
		case !strings.Contains(err.Error(), want):
			t.Errorf("%s: %q does not say %q", raw, err, want)
		case strings.Contains(err.Error(), secret):
			t.Errorf("%q shows the password", err)
		}
	}
}
