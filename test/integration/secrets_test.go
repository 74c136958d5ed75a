package integration

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

// sentinel is a password with characters that need percent-encoding in a URL.
const sentinel = "S3ntinel/p@ss:w%rd"

// sentinelWords are parts of the sentinel that no encoding changes.
var sentinelWords = []string{"S3ntinel", "w%rd", "w%25rd"}

// wantNoSecret checks that a text repeats no part of the password.
func wantNoSecret(t *testing.T, where, text string) {
	t.Helper()
	for _, word := range sentinelWords {
		if strings.Contains(text, word) {
			t.Errorf("%s shows the password:\n%s", where, text)
			return
		}
	}
}

// withUser puts a user and the sentinel into a URL.
func withUser(t *testing.T, rawURL, user string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, sentinel)
	return u.String()
}

// secretConfig is a config for databases that may be of no use.
func secretConfig(index, issuer, node string) string {
	return fmt.Sprintf("server: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\"}\nlog: {level: debug}\nindex: {allow_standalone: true, %s}\nids: {issuers: [{%s}]}\nnodes: [{name: node-1, %s, ranges: \"1\"}]\n",
		index, issuer, node)
}

// TestSecretsNeverPrinted: whatever is wrong with a database or its URL, neither serve nor check shows its password,
// with logs at debug.
func TestSecretsNeverPrinted(t *testing.T) {
	t.Parallel()
	s := gateway.NewStack(t, servers.MySQLKind, 1, 1000)
	index, issuer, node := fmt.Sprintf("uri: %q", s.Index), fmt.Sprintf("dsn: %q", s.Issuer), fmt.Sprintf("dsn: %q", s.Nodes[0].DSN)
	const awaySQL, awayMongo = "mysql://gateway@127.0.0.1:1/db", "mongodb://gateway@127.0.0.1:1/db"
	deniedSQL := withUser(t, s.Nodes[0].DSN, "t_nobody")
	quoted := func(key, value string) string { return fmt.Sprintf("%s: %q", key, value) }
	raw := "mysql://gateway:" + sentinel + "@127.0.0.1:1/db"
	cases := map[string]string{
		"node unreachable":               secretConfig(index, issuer, quoted("dsn", withUser(t, awaySQL, "gateway"))),
		"node denied":                    secretConfig(index, issuer, quoted("dsn", deniedSQL)),
		"node unreachable, from a file":  secretConfig(index, issuer, "dsn_file: away"),
		"node denied, from a file":       secretConfig(index, issuer, "dsn_file: denied"),
		"node unreachable, variable":     secretConfig(index, issuer, quoted("dsn", "mysql://gateway:${SENTINEL}@127.0.0.1:1/db")),
		"node denied, variable":          secretConfig(index, issuer, quoted("dsn", "${DENIED}")),
		"issuer unreachable":             secretConfig(index, quoted("dsn", withUser(t, awaySQL, "gateway")), node),
		"issuer denied":                  secretConfig(index, quoted("dsn", deniedSQL), node),
		"index unreachable":              secretConfig(quoted("uri", withUser(t, awayMongo, "gateway")), issuer, node),
		"index denied":                   secretConfig(quoted("uri", withUser(t, s.Index, "t_nobody")+"?authSource=admin"), issuer, node),
		"index unreachable, from a file": secretConfig("uri_file: away-index", issuer, node),
		"index unreachable, variable":    secretConfig(quoted("uri", "mongodb://gateway:${SENTINEL}@127.0.0.1:1/db"), issuer, node),
		"index with a bad option":        secretConfig(quoted("uri", withUser(t, awayMongo, "gateway")+"?w=nonsense&nonsense=1"), issuer, node),
		"node not encoded":               secretConfig(index, issuer, quoted("dsn", raw)),
		"index not encoded":              secretConfig(quoted("uri", "mongodb://gateway:"+sentinel+"@127.0.0.1:1/db"), issuer, node),
		"node of another scheme":         secretConfig(index, issuer, quoted("dsn", strings.Replace(raw, "mysql", "postgres", 1))),
		"node without a scheme":          secretConfig(index, issuer, quoted("dsn", "gateway:"+sentinel+"@tcp(127.0.0.1:1)/db")),
		"node with a bad parameter":      secretConfig(index, issuer, quoted("dsn", withUser(t, awaySQL, "gateway")+"?nonsense=1")),
		"same database twice":            secretConfig(index, issuer, quoted("dsn", withUser(t, awaySQL, "a"))+", ranges: \"1\"}, {name: node-2, "+quoted("dsn", withUser(t, awaySQL, "b"))),
		"URL under a wrong key":          secretConfig(index, issuer, node+", "+quoted("url", raw)),
		"URL as a name":                  strings.Replace(secretConfig(index, issuer, node), "name: node-1", quoted("name", raw), 1),
		"URL as a range":                 strings.Replace(secretConfig(index, issuer, node), `ranges: "1"`, quoted("ranges", raw), 1),
		"broken YAML after the URL":      secretConfig(index, issuer, quoted("dsn", raw)) + "}}}",
	}
	for name, config := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := gateway.WriteConfig(t, config)
			for file, content := range map[string]string{"away": withUser(t, awaySQL, "gateway"), "denied": deniedSQL, "away-index": withUser(t, awayMongo, "gateway")} {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(content+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, command := range []string{"serve", "check"} {
				printed, code := gateway.Run(t, folder, []string{"SENTINEL=" + sentinel, "DENIED=" + deniedSQL}, command)
				if code != 1 {
					t.Errorf("exit code of %s: got %d, want 1\n%s", command, code, printed)
				}
				wantNoSecret(t, command, printed)
			}
		})
	}
}

// TestSecretsOfRunningGateway: a gateway at work, with logs at debug, shows its passwords neither in its log nor in its
// answers, while a node comes and goes.
func TestSecretsOfRunningGateway(t *testing.T) {
	s := gateway.NewStack(t, servers.MySQLKind, 1, 1000)
	user := s.Nodes[0].DSN[strings.LastIndex(s.Nodes[0].DSN, "/")+1:] // like no other on that server
	db := gateway.OpenSQL(t, s.Nodes[0].DSN)
	for _, statement := range []string{"DROP USER IF EXISTS " + user, "CREATE USER " + user + " IDENTIFIED BY '" + sentinel + "'", "GRANT ALL ON *.* TO " + user} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(strings.ReplaceAll(err.Error(), sentinel, "***"))
		}
	}
	t.Cleanup(func() { _, _ = gateway.OpenSQL(t, s.Nodes[0].DSN).Exec("DROP USER IF EXISTS " + user) })
	proxy, through := servers.NewProxyFor(t, withUser(t, s.Nodes[0].DSN, user))
	s.Nodes[0].DSN = through
	g := gateway.Start(t, s.Config(), "GATEWAY__LOG__LEVEL=debug", "GATEWAY__SERVER__REQUEST_TIMEOUT=1s")
	g.Expect(t, http.StatusCreated, "POST", "/v1/records", `{"key":"one"}`)
	proxy.Refuse(true)
	answers := g.Expect(t, http.StatusServiceUnavailable, "POST", "/v1/records", `{"key":"two"}`).Body
	answers += g.Expect(t, http.StatusServiceUnavailable, "GET", "/v1/records/one", "").Body
	answers += g.Do(t, "GET", "/readyz", "").Body
	proxy.Refuse(false)
	gateway.Poll(t, "the node is back", func() bool { return g.Do(t, "GET", "/v1/records/one", "").Status == http.StatusOK })
	for _, path := range []string{"/readyz", "/metrics", "/admin/config", "/debug/vars"} {
		a, err := gateway.CallAt(g.Admin, "GET", path, "")
		if err != nil {
			t.Fatal(err)
		}
		answers += a.Body
	}
	g.Stop(t)
	wantNoSecret(t, "an answer", answers)
	wantNoSecret(t, "the log", g.Output.String())
}
