package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"keyrange/test/servers"
)

// proxied puts a proxy on each link of the deployment and returns those to the index and to the first node.
func (d deployment) proxied(t *testing.T) (through deployment, toIndex, toNode *servers.Proxy) {
	t.Helper()
	through = d
	through.Direct = d.Nodes
	through.Nodes = append([]string(nil), d.Nodes...)
	toIndex, through.Index = servers.NewProxyFor(t, d.Index)
	toNode, through.Nodes[0] = servers.NewProxyFor(t, d.Nodes[0])
	return through, toIndex, toNode
}

// networked runs a test on the engines that are reached over a network.
func networked(t *testing.T, run func(t *testing.T, d deployment)) {
	engines(t, func(t *testing.T, d deployment) {
		if t.Name()[len(t.Name())-6:] != "sqlite" {
			run(t, d)
		}
	})
}

// TestStoreReplyLost lets the reply to each write get lost, after the server has executed it, and then the request itself
// before it. The answer says what is stored, or that it is not known, and the key works on afterwards (I3, I6).
func TestStoreReplyLost(t *testing.T) {
	const insertRow, updateRow, deleteRow = "INSERT INTO `records", "UPDATE `records", "DELETE FROM `records"
	// In the MongoDB protocol a command is the first element of a BSON document: type 2 (string), then its name.
	const insertEntry, removeEntry, replaceEntry = "\x02insert\x00", "\x02delete\x00", "\x02update\x00"
	create := func(t *testing.T, d deployment, s *opened) { mustCreate(t, s, "k", "before") }
	dangle := func(t *testing.T, d deployment, s *opened) { dangling(t, s, "k") }
	expire := func(t *testing.T, d deployment, s *opened) { mustExpire(t, s, "k", time.Second) }
	tests := []struct {
		name, operation, match string
		atIndex                bool
		before                 func(t *testing.T, d deployment, s *opened)
		// lost and cut are the errors allowed when the reply or the request was lost; nil stands for success.
		lost, cut []error
	}{
		// The driver or the store finds its own entry again.
		{"Create/Entry", "create", insertEntry, true, nil, []error{nil, ErrUnavailable}, []error{nil, ErrUnavailable}},
		// The fence finds the row that came through.
		{"Create/Row", "create", insertRow, false, nil, []error{nil}, []error{ErrUnknown}},
		{"TakeOver/Fence", "create", insertRow, false, dangle, []error{ErrUnavailable}, []error{ErrUnavailable}},
		{"TakeOver/Entry", "create", replaceEntry, true, dangle, []error{nil, ErrUnavailable}, []error{nil, ErrUnavailable}},
		// An expired row may be removed twice.
		{"TakeOver/Expired", "create", deleteRow, false, expire, []error{nil}, []error{nil}},
		{"TakeOver/ExpiredByPut", "put", deleteRow, false, expire, []error{nil}, []error{nil}},
		{"Update", "put", updateRow, false, create, []error{nil}, []error{ErrUnknown}},
		{"Delete/Row", "delete", deleteRow, false, create, []error{ErrUnknown}, []error{nil}},
		{"Delete/Entry", "delete", removeEntry, true, create, []error{nil}, []error{nil}},
	}
	for _, test := range tests {
		for _, kind := range []string{"Reply", "Request"} {
			t.Run(test.name+"/"+kind, func(t *testing.T) {
				networked(t, func(t *testing.T, d deployment) {
					through, toIndex, toNode := d.proxied(t)
					s := through.open(t)
					mustCreate(t, s, "bystander", "untouched")
					if test.before != nil {
						test.before(t, through, s)
					}
					proxy, allowed := toNode, test.lost
					if test.atIndex {
						proxy = toIndex
					}
					arm := proxy.SwallowReply
					if kind == "Request" {
						arm, allowed = proxy.CutBefore, test.cut
					}
					happened := arm([]byte(test.match))
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					err := operations[test.operation](ctx, s.Store)
					select {
					case <-happened:
					default:
						t.Fatal("the fault did not happen")
					}
					checkOutcome(t, s, test.operation, err, allowed)
					wantDocument(t, s, "bystander", doc("untouched").Document)
					through.checkInvariants(t, s)
					if _, _, err := s.Put(t.Context(), testCollection, "k", doc("again"), Condition{}); err != nil {
						t.Errorf("put afterwards: %v", err)
					}
					wantDocument(t, s, "k", doc("again").Document)
					through.checkInvariants(t, s)
				})
			})
		}
	}
}

// checkOutcome compares what a request was told with what is stored.
func checkOutcome(t *testing.T, s *opened, operation string, err error, allowed []error) {
	t.Helper()
	ok := false
	for _, want := range allowed {
		ok = ok || errors.Is(err, want)
	}
	if !ok {
		t.Errorf("%s: %v, want one of %v", operation, err, allowed)
	}
	if errors.Is(err, ErrUnknown) {
		return
	}
	rec, getErr := s.Get(t.Context(), testCollection, "k")
	written := getErr == nil && string(rec.Document) == string(doc("crashed").Document)
	if operation == "delete" {
		written = errors.Is(getErr, ErrNotFound)
	}
	if written != (err == nil) {
		t.Errorf("%s said %v, but get says %s, %v", operation, err, rec.Document, getErr)
	}
}

// dangling leaves an entry without a row, as a create that died does.
func dangling(t *testing.T, s *opened, key string) {
	t.Helper()
	c := &creation{store: s.Store, ids: s.placements[testCollection], key: key}
	var cancel func()
	c.budget, cancel = newBudget(t.Context())
	defer cancel()
	id, err := c.ids.next(t.Context())
	if err == nil {
		err = c.reserve(id)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestStoreStalled is I8: a server that neither answers nor closes costs a request its deadline and no more, and what the
// request was told holds when the server goes on.
func TestStoreStalled(t *testing.T) {
	for _, where := range []string{"Index", "Node"} {
		for name, operation := range operations {
			t.Run(where+"/"+name, func(t *testing.T) {
				networked(t, func(t *testing.T, d deployment) {
					through, toIndex, toNode := d.proxied(t)
					through.CacheBytes = 0 // a key whose ID is known needs no index
					s := through.open(t)
					if name != "create" {
						mustCreate(t, s, "k", "before")
					}
					mustCreate(t, s, "bystander", "untouched")
					proxy := toNode
					if where == "Index" {
						proxy = toIndex
					}
					proxy.Stall()
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					start := time.Now()
					err := operation(ctx, s.Store)
					if took := time.Since(start); took > 2*time.Second {
						t.Errorf("took %v with a deadline of 1 s", took)
					}
					if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknown) {
						t.Errorf("%s: %v", name, err)
					}
					proxy.Resume()
					_, _, err = s.Put(t.Context(), testCollection, "k", doc("again"), Condition{})
					if err != nil {
						t.Errorf("put afterwards: %v", err)
					}
					through.checkInvariants(t, s)
				})
			})
		}
	}
}

// TestStoreBatchReplyLost loses the reply to statements that many requests share: each of them still learns what became of
// its own record (I3, I6).
func TestStoreBatchReplyLost(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		through, toIndex, toNode := d.proxied(t)
		s := through.open(t)
		mustCreate(t, s, "bystander", "untouched")
		for round, arm := range []func([]byte) <-chan struct{}{toNode.SwallowReply, toNode.CutBefore, toIndex.SwallowReply, toIndex.CutBefore} {
			match := "),(" // in the text of an INSERT of several rows
			if round >= 2 {
				match = "\x02insert\x00"
			}
			happened := arm([]byte(match))
			errs := make([]error, 64)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() {
					_, errs[i] = s.Create(t.Context(), testCollection, fmt.Sprintf("k%d-%d", round, i), doc("crashed"))
				})
			}
			wg.Wait()
			select {
			case <-happened:
			default:
				t.Errorf("round %d: the fault did not happen", round)
			}
			for i, err := range errs {
				_, getErr := s.Get(t.Context(), testCollection, fmt.Sprintf("k%d-%d", round, i))
				switch {
				case err == nil && getErr != nil:
					t.Errorf("round %d: acknowledged, but get says %v", round, getErr)
				case errors.Is(err, ErrUnavailable) && !errors.Is(getErr, ErrNotFound):
					t.Errorf("round %d: refused, but get says %v", round, getErr)
				case err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknown):
					t.Errorf("round %d: %v", round, err)
				}
			}
			through.checkInvariants(t, s)
		}
	})
}
