package integration

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

// outage is a gateway on two nodes, of which the second takes the new records, with a proxy in front of each database.
type outage struct {
	*gateway.Process
	proxies map[string]*servers.Proxy
}

// Keys of records that an outage finds: one per node.
const (
	onNode1, onNode2 = "record-0", "record-50"
	outageRangeSize  = 50
	// outageTimeout is the request timeout: no answer may take much longer (I8).
	outageTimeout = time.Second
	// answerSlack is what an answer may take beyond the request timeout on a busy machine.
	answerSlack = 2 * time.Second
)

// newOutage fills node-1 and opens the range of node-2.
func newOutage(t *testing.T) *outage {
	t.Helper()
	s := gateway.NewStack(t, servers.MySQLKind, 2, outageRangeSize)
	o := &outage{proxies: map[string]*servers.Proxy{}}
	o.proxies["index"], s.Index = servers.NewProxyFor(t, s.Index)
	o.proxies["issuer"], s.Issuer = servers.NewProxyFor(t, s.Issuer)
	for i := range s.Nodes {
		o.proxies[s.Nodes[i].Name], s.Nodes[i].DSN = servers.NewProxyFor(t, s.Nodes[i].DSN)
	}
	o.Process = gateway.Start(t, s.Config(), "GATEWAY__SERVER__REQUEST_TIMEOUT="+outageTimeout.String())
	made := newAcknowledged()
	for i := range outageRangeSize + 1 {
		if err := made.create(o.Process, fmt.Sprintf("record-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// get reads a record and returns the status.
func (o *outage) get(t *testing.T, key string) int {
	t.Helper()
	return o.timed(t, "GET", "/v1/records/"+key, "").Status
}

// timed is do with a look at the time that it took.
func (o *outage) timed(t *testing.T, method, path, body string) gateway.Answer {
	t.Helper()
	start := time.Now()
	a := o.Do(t, method, path, body)
	if took := time.Since(start); took > outageTimeout+answerSlack {
		t.Errorf("%s %s took %s with a request timeout of %s", method, path, took, outageTimeout)
	}
	return a
}

// refusedCreate posts a key until that is refused, as unused IDs may be at hand, and returns the key.
func (o *outage) refusedCreate(t *testing.T, prefix string) string {
	t.Helper()
	for i := range outageRangeSize / 2 {
		key := fmt.Sprintf("%s-%d", prefix, i)
		a := o.timed(t, "POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key))
		switch {
		case a.Status == http.StatusCreated:
			continue
		case a.Status != http.StatusServiceUnavailable:
			t.Errorf("create in an outage: %d %s", a.Status, a.Body)
		case (a.Header.Get("Retry-After") == "") != (a.Code() == "outcome_unknown"):
			t.Errorf("create in an outage: Retry-After %q with %s", a.Header.Get("Retry-After"), a.Body)
		}
		return key
	}
	t.Errorf("%d creates went through in an outage", outageRangeSize/2)
	return ""
}

// ready asks for the readiness and looks for the reason of what is down; "" when all is well.
func (o *outage) ready(t *testing.T, down string) (status int, summary string) {
	t.Helper()
	var body struct {
		Status       string
		Dependencies []struct {
			Kind, Name, Reason string
			OK                 bool
		}
	}
	var last int
	for _, base := range []string{o.Admin, o.URL} {
		a, err := gateway.CallAt(base, "GET", "/readyz", "")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(a.Body), &body); err != nil {
			t.Fatalf("readyz: %s: %v", a.Body, err)
		}
		last = a.Status
	}
	for _, d := range body.Dependencies {
		if isDown := d.Name == down; d.OK == isDown || isDown && d.Reason == "" {
			return last, fmt.Sprintf("%s with %s ok=%t reason=%q", body.Status, d.Name, d.OK, d.Reason)
		}
	}
	return last, body.Status
}

// recovered waits until all is well again, without a restart, and the refused keys can be created.
func (o *outage) recovered(t *testing.T, refused ...string) {
	t.Helper()
	gateway.Poll(t, "ready again", func() bool {
		status, summary := o.ready(t, "")
		return status == http.StatusOK && summary == "ready"
	})
	for _, key := range refused {
		var a gateway.Answer
		gateway.Poll(t, "create "+key+" after the outage", func() bool {
			a = o.Do(t, "POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key))
			return a.Status != http.StatusServiceUnavailable
		})
		if !slices.Contains([]int{http.StatusCreated, http.StatusConflict}, a.Status) {
			t.Errorf("create %s after the outage: %d %s", key, a.Status, a.Body)
		}
		if got := o.get(t, key); got != http.StatusOK {
			t.Errorf("read %s after the outage: %d", key, got)
		}
	}
	for _, key := range []string{onNode1, onNode2} {
		if got := o.get(t, key); got != http.StatusOK {
			t.Errorf("read %s after the outage: %d", key, got)
		}
	}
}

// wantReady checks what readyz says while something is down.
func (o *outage) wantReady(t *testing.T, down string, status int, summary string) {
	t.Helper()
	if gotStatus, got := o.ready(t, down); gotStatus != status || got != summary {
		t.Errorf("readyz with %s down: got %d %s, want %d %s", down, gotStatus, got, status, summary)
	}
}

// TestDependencyDown: with one database away, what does not need it goes on, the rest is refused in time and in words,
// and all is well again when it is back (I6, I8).
func TestDependencyDown(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	faults := map[string]func(*servers.Proxy){
		"refuses": func(p *servers.Proxy) { p.Refuse(true) },
		"stalls":  func(p *servers.Proxy) { p.Stall() },
	}
	for name, fault := range faults {
		down := func(what string, look func(t *testing.T) (refused string)) {
			t.Run(what+" "+name, func(t *testing.T) {
				fault(o.proxies[what])
				refused := look(t)
				o.proxies[what].Resume()
				o.proxies[what].Refuse(false)
				o.recovered(t, refused)
			})
		}
		down("node-2", func(t *testing.T) string {
			o.wantReady(t, "node-2", http.StatusOK, "degraded")
			if one, two := o.get(t, onNode1), o.get(t, onNode2); one != http.StatusOK || two < 500 {
				t.Errorf("reads: %d on node-1, %d on node-2", one, two)
			}
			if a := o.timed(t, "PUT", "/v1/records/"+onNode1, `{"changed":1}`); a.Status != http.StatusOK {
				t.Errorf("update on node-1: %d %s", a.Status, a.Body)
			}
			return o.refusedCreate(t, "node-2-"+name)
		})
		down("node-1", func(t *testing.T) string {
			o.wantReady(t, "node-1", http.StatusOK, "degraded")
			if one, two := o.get(t, onNode1), o.get(t, onNode2); one < 500 || two != http.StatusOK {
				t.Errorf("reads: %d on node-1, %d on node-2", one, two)
			}
			key := "node-1-" + name
			if a := o.timed(t, "POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key)); a.Status != http.StatusCreated {
				t.Errorf("create on node-2: %d %s", a.Status, a.Body)
			}
			return key
		})
		down("issuer", func(t *testing.T) string {
			o.wantReady(t, "issuer", http.StatusOK, "degraded")
			refused := o.refusedCreate(t, "issuer-"+name)
			if one, two := o.get(t, onNode1), o.get(t, onNode2); one != http.StatusOK || two != http.StatusOK {
				t.Errorf("reads: %d, %d", one, two)
			}
			if a := o.timed(t, "PUT", "/v1/records/"+onNode2, `{"changed":2}`); a.Status != http.StatusOK {
				t.Errorf("update: %d %s", a.Status, a.Body)
			}
			if a := o.timed(t, "DELETE", "/v1/records/record-1", ""); a.Status != http.StatusNoContent && a.Status != http.StatusNotFound {
				t.Errorf("delete: %d %s", a.Status, a.Body)
			}
			return refused
		})
		down("index", func(t *testing.T) string {
			o.wantReady(t, "index", http.StatusServiceUnavailable, "unavailable")
			if got := o.get(t, onNode1); got != http.StatusOK && got < 500 {
				t.Errorf("read: %d", got)
			}
			return o.refusedCreate(t, "index-"+name)
		})
	}
	o.Stop(t)
}

// TestIdleConnectionsCut: when a server has closed idle connections, as wait_timeout makes it do, the next requests do
// not notice.
func TestIdleConnectionsCut(t *testing.T) {
	for _, kind := range gateway.Kinds(t)[1:] {
		t.Run(kind, func(t *testing.T) {
			s := gateway.NewStack(t, kind, 1, 10_000_000)
			g := gateway.Start(t, s.Config())
			err := gateway.Together(16, func(c int) error {
				_, err := g.Call("POST", "/v1/records", fmt.Sprintf(`{"key":"warm-%d"}`, c))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for round := range 3 {
				killConnections(t, kind, s.Nodes[0].DSN, s.Issuer)
				g.Expect(t, http.StatusOK, "GET", "/v1/records/warm-1", "")
				killConnections(t, kind, s.Nodes[0].DSN, s.Issuer)
				g.Expect(t, http.StatusCreated, "POST", "/v1/records", fmt.Sprintf(`{"key":"after-%d"}`, round))
				killConnections(t, kind, s.Nodes[0].DSN, s.Issuer)
				g.Expect(t, http.StatusOK, "PUT", fmt.Sprintf("/v1/records/after-%d", round), `{"n":1}`)
				killConnections(t, kind, s.Nodes[0].DSN, s.Issuer)
				g.Expect(t, http.StatusNoContent, "DELETE", fmt.Sprintf("/v1/records/after-%d", round), "")
			}
			g.Stop(t)
		})
	}
}

// noSuchThread is MySQL's error for a connection that has gone by itself.
const noSuchThread = 1094

// killConnections makes the server close all other connections to some databases, and waits until they are gone.
func killConnections(t *testing.T, kind string, dsns ...string) {
	t.Helper()
	others := "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
	if kind == servers.MySQLKind {
		// MySQL's processlist fails while any connection runs a statement with binary arguments.
		others = "SELECT processlist_id FROM performance_schema.threads WHERE processlist_db = DATABASE() AND processlist_id <> CONNECTION_ID()"
	}
	for _, dsn := range dsns {
		db := gateway.OpenSQL(t, dsn)
		db.SetMaxOpenConns(1)
		for _, id := range gateway.Column[int64](t, db, others) {
			_, err := db.Exec(fmt.Sprintf("KILL %d", id)) // it cannot be prepared
			var gone *mysql.MySQLError
			if err != nil && (!errors.As(err, &gone) || gone.Number != noSuchThread) {
				t.Fatal(err)
			}
		}
		gateway.Poll(t, "connections closed", func() bool { return len(gateway.Column[int64](t, db, others)) == 0 })
		_ = db.Close()
	}
}

// TestNodeReadOnly: a node that refuses writes is reported as 503, reads go on, and it is used again as soon as it takes
// writes; keys refused meanwhile can be created (on one database: a whole server is not the test's).
func TestNodeReadOnly(t *testing.T) {
	s := gateway.NewStack(t, servers.MySQLKind, 1, 10_000_000)
	g := gateway.Start(t, s.Config())
	g.Expect(t, http.StatusCreated, "POST", "/v1/records", `{"key":"before"}`)
	db := gateway.OpenSQL(t, s.Nodes[0].DSN)
	setReadOnly := func(on int) {
		t.Helper()
		// Safety: package servers made the name.
		if _, err := db.Exec(fmt.Sprintf("ALTER DATABASE %s READ ONLY = %d", s.Nodes[0].DSN[strings.LastIndex(s.Nodes[0].DSN, "/")+1:], on)); err != nil {
			t.Fatal(err)
		}
	}
	setReadOnly(1)
	t.Cleanup(func() { makeWritable(t, s.Nodes[0].DSN) })
	for _, call := range []exchange{{"POST", "/v1/records", `{"key":"refused"}`, nil}, {"PUT", "/v1/records/before", `{"n":1}`, nil}, {"DELETE", "/v1/records/before", "", nil}} {
		a := g.Expect(t, http.StatusServiceUnavailable, call.method, call.path, call.body)
		if a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After: %s", call.method, a.Body)
		}
	}
	if a := g.Expect(t, http.StatusOK, "GET", "/v1/records/before", ""); a.Body != `{"key":"before"}` {
		t.Errorf("a refused write changed the record: %s", a.Body)
	}
	setReadOnly(0)
	g.Expect(t, http.StatusCreated, "POST", "/v1/records", `{"key":"refused"}`)
	g.Expect(t, http.StatusOK, "PUT", "/v1/records/before", `{"n":1}`)
	g.Stop(t)
}

// makeWritable undoes READ ONLY, without which the database could not be dropped.
func makeWritable(t *testing.T, dsn string) {
	t.Helper()
	cut := strings.LastIndex(dsn, "/") + 1
	db := gateway.OpenSQL(t, dsn[:cut]+"information_schema")
	defer func(db *sql.DB) { _ = db.Close() }(db)
	// Safety: package servers made the name.
	if _, err := db.Exec(fmt.Sprintf("ALTER DATABASE %s READ ONLY = 0", dsn[cut:])); err != nil {
		t.Error(err)
	}
}
