package index

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"keyrange/test/servers"
)

// Names of MongoDB commands as they begin a message.
var (
	insertCommand = []byte("\x02insert\x00")
	updateCommand = []byte("\x02update\x00")
	deleteCommand = []byte("\x02delete\x00")
)

// eventually calls ok until it is true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// openThrough opens an index through a proxy, and the same database past it.
func openThrough(t *testing.T, opts Options) (*servers.Proxy, Index, Index) {
	t.Helper()
	uri := servers.FreshMongo(t)
	proxy, through := servers.NewProxyFor(t, uri)
	return proxy, open(t, through, opts), open(t, uri, Options{})
}

// TestMongoReplyLost: the server ran the write and its answer never came, so the outcome is unknown (and was a success).
func TestMongoReplyLost(t *testing.T) {
	proxy, x, direct := openThrough(t, Options{})

	lost := proxy.SwallowReply(insertCommand)
	for i, err := range x.Insert(testContext(t), orders, []Entry{{"a", 1}, {"b", 2}}) {
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("insert %d: %v, want ErrUnknown", i, err)
		}
	}
	expectHappened(t, lost, "insert")
	expect(t, direct, map[string]int64{"a": 1, "b": 2})
	// The index works on, and a second attempt is told the truth.
	eventually(t, "the index works again", func() bool { return errors.Is(insertOne(t, x, "a", 3), ErrExists) })

	lost = proxy.SwallowReply(updateCommand)
	if ok, err := x.Replace(testContext(t), orders, "a", 1, 5); ok || !errors.Is(err, ErrUnknown) {
		t.Errorf("replace: %v, %v, want ErrUnknown", ok, err)
	}
	expectHappened(t, lost, "update")
	expect(t, direct, map[string]int64{"a": 5})

	eventually(t, "the index works again", func() bool { return x.Ping(testContext(t)) == nil })
	lost = proxy.SwallowReply(deleteCommand)
	if err := x.Remove(testContext(t), orders, []Entry{{"a", 5}}); !errors.Is(err, ErrUnknown) {
		t.Errorf("remove: %v, want ErrUnknown", err)
	}
	expectHappened(t, lost, "delete")
	expect(t, direct, map[string]int64{"a": 0})
}

// TestMongoCutBefore: a connection that breaks before the server has the request looks the same to the client.
func TestMongoCutBefore(t *testing.T) {
	proxy, x, direct := openThrough(t, Options{})
	cut := proxy.CutBefore(insertCommand)
	if err := insertOne(t, x, "a", 1); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v, want ErrUnknown", err)
	}
	expectHappened(t, cut, "insert")
	expect(t, direct, map[string]int64{"a": 0})
}

// TestMongoStalled: nobody answers and nobody closes. Each call ends with its deadline; the one that was sent may land
// later, and those that waited for its connection certainly do not.
func TestMongoStalled(t *testing.T) {
	proxy, x, direct := openThrough(t, Options{Connections: 1})
	mustInsert(t, x, "first", 1)
	proxy.Stall()
	keys := []string{"a", "b", "c", "d"}
	results := make([]error, len(keys))
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	for i, key := range keys {
		all.Go(func() { results[i] = x.Insert(ctx, orders, []Entry{{key, 2}})[0] })
	}
	all.Wait()
	var sent []string
	for i, err := range results {
		switch {
		case !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("insert %s: %v, want context.DeadlineExceeded", keys[i], err)
		case errors.Is(err, ErrUnknown):
			sent = append(sent, keys[i])
		case !errors.Is(err, ErrUnavailable):
			t.Errorf("insert %s: %v, want ErrUnknown or ErrUnavailable", keys[i], err)
		}
	}
	if len(sent) != 1 {
		t.Errorf("sent over one connection: %v", sent)
	}
	proxy.Resume()
	eventually(t, "the index works again", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return x.Ping(ctx) == nil
	})
	found, err := direct.Find(testContext(t), orders, keys)
	if err != nil {
		t.Fatal(err)
	}
	for key := range found {
		if len(sent) != 1 || key != sent[0] {
			t.Errorf("%s was ErrUnavailable, and it is there", key)
		}
	}
}

// TestMongoAway: a server that goes away and comes back needs no restart, and no call waits for longer than it takes to
// find out.
func TestMongoAway(t *testing.T) {
	proxy, x, _ := openThrough(t, Options{})
	mustInsert(t, x, "a", 1)
	proxy.Refuse(true)
	eventually(t, "certain that the server is away", func() bool { return errors.Is(insertOne(t, x, "b", 2), ErrUnavailable) })
	_, err := x.Find(testContext(t), orders, []string{"a"})
	if !errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("find: %v, want ErrUnavailable before the deadline", err)
	}
	proxy.Refuse(false)
	eventually(t, "the index works again", func() bool { return x.Ping(testContext(t)) == nil })
	expect(t, x, map[string]int64{"a": 1, "b": 0})
}
