package index

import (
	"fmt"
	"sync"
	"testing"

	"keyrange/test/servers"
)

// TestPool: connections are counted from when they are opened until they are closed or lost, and calls that find all of them
// in use count as waits.
func TestPool(t *testing.T) {
	proxy, x, _ := openThrough(t, Options{Connections: 2})
	work := func() {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() { _, _ = x.Find(testContext(t), orders, []string{fmt.Sprint(i)}) })
		}
		wg.Wait()
	}
	work()
	if p := x.Pool(); p.MaxOpenConnections != 2 || p.OpenConnections < 1 || p.OpenConnections > 2 || p.InUse != 0 {
		t.Errorf("after calls: %+v", p)
	}
	before := x.Pool()
	proxy.Stall()
	done := make(chan struct{})
	go func() { defer close(done); work() }()
	eventually(t, "both connections are in use and others wait", func() bool {
		p := x.Pool()
		return p.InUse == 2 && p.WaitCount > before.WaitCount
	})
	proxy.Resume()
	<-done
	if p := x.Pool(); p.InUse != 0 || p.WaitDuration <= before.WaitDuration {
		t.Errorf("after the stall: %+v, before: %+v", p, before)
	}
	proxy.Refuse(true)
	eventually(t, "lost connections are gone", func() bool { work(); p := x.Pool(); return p.OpenConnections == 0 && p.InUse == 0 })
	proxy.Refuse(false)
	eventually(t, "the index works again", func() bool { return x.Ping(testContext(t)) == nil })
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if p := x.Pool(); p.OpenConnections != 0 || p.InUse != 0 {
		t.Errorf("after Close: %+v", p)
	}
}

// TestPoolEmbedded: a file has connections too.
func TestPoolEmbedded(t *testing.T) {
	x := open(t, servers.FreshSQLite(t), Options{})
	if p := x.Pool(); p.OpenConnections < 1 || p.MaxOpenConnections < 1 {
		t.Errorf("%+v", p)
	}
}
