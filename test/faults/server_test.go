package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

// ownMariaDB starts a private server for what no proxy can imitate.
func ownMariaDB(t *testing.T, options servers.MariaDBOptions) *servers.Private {
	t.Helper()
	server := servers.PrivateMariaDB(t, options)
	if !server.IsReal() {
		// Asked for by name: without the variable PrivateMariaDB fails the test.
		t.Skipf("a proxy cannot imitate this, and %s=%s does without private servers", servers.EnvMariaDB, servers.NoPrivate)
	}
	return server
}

// TestNodeTurnsReadOnly: a node becomes read-only under load, as an old primary does in a failover, and writable again. Writes
// are refused meanwhile, reads go on, and no restart is needed.
func TestNodeTurnsReadOnly(t *testing.T) {
	t.Parallel()
	server := ownMariaDB(t, servers.MariaDBOptions{})
	s := newSite(t, plan{change: func(s *gateway.Stack) {
		dsn := server.Fresh(t)
		database := dsn[strings.LastIndex(dsn, "/")+1:]
		// An administrator may write to a read-only server; the gateway must not be one.
		server.Exec(t, "CREATE USER service@'127.0.0.1'", "GRANT ALL ON "+database+".* TO service@'127.0.0.1'")
		s.Nodes[0].DSN = strings.Replace(dsn, "root@", "service@", 1)
	}})
	s.begin()
	for range 2 {
		s.under(t, fault{"read_only", func() {
			server.Exec(t, "SET GLOBAL read_only = 1")
			<-time.After(faultLasts / 3)
			s.gateways[0].Expect(t, http.StatusServiceUnavailable, "PUT", "/v1/records/"+s.canaries[0], "{}")
			s.readsGoOn(t)
		}, func() { server.Exec(t, "SET GLOBAL read_only = 0") }, faultLasts})
	}
	s.finish(t)
	s.gateways[0].Stop(t)
}

// readsGoOn reads the record on the first node, which refuses writes.
func (s *site) readsGoOn(t *testing.T) {
	t.Helper()
	const reads = 100
	refused := 0
	for range reads {
		if a := s.gateways[0].Do(t, "GET", "/v1/records/"+s.canaries[0], ""); a.Status != http.StatusOK {
			refused++
		}
	}
	if refused > 0 {
		t.Errorf("%d of %d reads were refused by a node that refuses writes", refused, reads)
	}
}

// TestNodeDiskFull: the disk of a node fills up under load, and there is room again. Meanwhile reads go on and writes that do
// not fit are refused; nothing that was acknowledged is lost.
func TestNodeDiskFull(t *testing.T) {
	t.Parallel()
	server := ownMariaDB(t, servers.MariaDBOptions{DiskBytes: 128 << 20})
	s := newSite(t, plan{change: func(s *gateway.Stack) { s.Nodes[0].DSN = server.Fresh(t) }})
	ballast := filepath.Join(server.Disk(), "ballast")
	s.begin()
	s.under(t, fault{"a full disk", func() {
		fillDisk(t, ballast)
		s.expectRefusedWrites(t)
		s.readsGoOn(t)
	}, func() {
		if err := os.Remove(ballast); err != nil {
			t.Error(err)
		}
	}, haltedFor})
	s.finish(t)
	s.gateways[0].Stop(t)
}

// fillDisk writes a file until nothing fits any more.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, size := range []int{1 << 20, 4 << 10, 1} {
		for chunk := make([]byte, size); err == nil; {
			_, err = file.Write(chunk)
		}
		err = nil
	}
}

// expectRefusedWrites replaces the record on the first node by ever more data until there is no room for it.
func (s *site) expectRefusedWrites(t *testing.T) {
	t.Helper()
	large := fmt.Sprintf(`{"n":%q}`, strings.Repeat("x", 500<<10))
	gateway.Poll(t, "a write is refused", func() bool {
		a := s.gateways[0].Do(t, "PUT", "/v1/records/"+s.canaries[0], large)
		if a.Status != http.StatusOK && a.Status != http.StatusServiceUnavailable {
			t.Errorf("a write to a full disk: %d %s", a.Status, a.Body)
		}
		return a.Status == http.StatusServiceUnavailable
	})
}

// TestIdleConnections: a server closes connections that are idle for longer than its wait_timeout; the next requests do not
// notice.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	const waitTimeout, idle = 3 * time.Second, 5 * time.Second
	server := servers.PrivateMariaDB(t, servers.MariaDBOptions{Args: []string{fmt.Sprintf("--wait-timeout=%.0f", waitTimeout.Seconds())}})
	if !server.IsReal() {
		t.Log("the shared server keeps its own wait_timeout")
	}
	s := newSite(t, plan{change: func(s *gateway.Stack) {
		s.Issuer, s.Nodes[0].DSN, s.Nodes[1].DSN = server.Fresh(t), server.Fresh(t), server.Fresh(t)
	}})
	g := s.gateways[0]
	for round := range 2 {
		s.begin() // so that there are many connections
		<-time.After(waitTimeout / 3)
		s.end()
		<-time.After(idle)
		g.Expect(t, http.StatusOK, "GET", "/v1/records/"+s.canaries[0], "")
		g.Expect(t, http.StatusCreated, "POST", "/v1/records", fmt.Sprintf(`{"key":"after-idling-%d"}`, round))
		g.Expect(t, http.StatusOK, "PUT", "/v1/records/"+s.canaries[1], `{"n":1}`)
	}
	s.finish(t)
	g.Stop(t)
}

// TestRowLocked: a transaction of somebody else holds the lock of a row, as an operator's may. Writes to that record are
// answered in time and in words, all others go on, and it can be written again afterwards.
func TestRowLocked(t *testing.T) {
	t.Parallel()
	s := newSite(t, plan{})
	db := gateway.OpenSQL(t, s.direct.Nodes[0].DSN)
	id := entriesOf(t, s.direct)[s.canaries[0]]
	s.begin()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.under(t, fault{"a locked row", func() {
		if _, err := tx.Exec("SELECT * FROM records_r00001 WHERE id = ? FOR UPDATE", id); err != nil {
			t.Fatal(err)
		}
		<-time.After(faultLasts / 3)
		a := s.gateways[0].Expect(t, http.StatusServiceUnavailable, "PUT", "/v1/records/"+s.canaries[0], "{}")
		t.Logf("a write of the locked row: %s", a.Code())
	}, func() {
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}, haltedFor})
	s.finish(t)
	s.gateways[0].Stop(t)
}

// TestSmallestPacket: one node takes smaller statements than the others. A document that does not fit it is refused before
// anything is written, whichever node it would go to; one that fits is stored on either.
func TestSmallestPacket(t *testing.T) {
	t.Parallel()
	const packet = 256 << 10
	server := ownMariaDB(t, servers.MariaDBOptions{Args: []string{fmt.Sprintf("--max-allowed-packet=%d", packet)}})
	s := newSite(t, plan{change: func(s *gateway.Stack) { s.Nodes[0].DSN = server.Fresh(t) }})
	g := s.gateways[0]
	for i := range 10 {
		// A quote is two bytes in JSON, and may take four in a statement.
		fits := fmt.Sprintf(`{"key":"fits-%d","v":%q}`, i, strings.Repeat(`"`, packet/5))
		g.Expect(t, http.StatusCreated, "POST", "/v1/records", fits)
		large := fmt.Sprintf(`{"key":"large-%d","v":%q}`, i, strings.Repeat(`"`, packet/2))
		if a := g.Expect(t, http.StatusRequestEntityTooLarge, "POST", "/v1/records", large); a.Code() != "body_too_large" {
			t.Errorf("code: %s", a.Code())
		}
		g.Expect(t, http.StatusRequestEntityTooLarge, "PUT", "/v1/records/"+s.canaries[i%2], fmt.Sprintf(`{"v":%q}`, strings.Repeat(`"`, packet/2)))
	}
	v := s.finish(t)
	for key := range entriesOf(t, s.direct) {
		if strings.HasPrefix(key, "large") {
			t.Errorf("the refused %s left an entry", key)
		}
	}
	for i := range 10 {
		if _, ok := v.live[fmt.Sprintf("fits-%d", i)]; !ok {
			t.Errorf("fits-%d is not stored", i)
		}
	}
	g.Stop(t)
}
