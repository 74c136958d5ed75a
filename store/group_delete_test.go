package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// heldRows are range tables that take only so many changes of a group, and hold up all others until they may go on.
type heldRows struct {
	rows
	group string
	free  *atomic.Int64
	goOn  <-chan struct{}
}

func (h heldRows) change(ctx context.Context, table string, batch []rowChange) []answer[changed] {
	for i := range batch {
		if batch[i].Group == h.group && h.free.Add(-1) < 0 {
			<-h.goOn
		}
	}
	return h.rows.change(ctx, table, batch)
}

// hold lets a store change so many rows of a group, and no more until it is closed.
func (o *opened) hold(group string, after int64) {
	var free atomic.Int64
	free.Store(after)
	for _, n := range o.topology.Load().nodes {
		n.rows = heldRows{n.rows, group, &free, o.background.Done()}
	}
}

// populate creates records of several groups, side by side, and returns the keys of one of them.
func populate(t *testing.T, s *opened, count int, group string, others ...string) (keys []string) {
	t.Helper()
	all := append([]string{group}, others...)
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := w; i < count; i += 16 {
				key := fmt.Sprintf("%s-%d", all[i%len(all)], i)
				if _, err := s.Create(t.Context(), testCollection, key, member(all[i%len(all)], "v")); err != nil {
					t.Errorf("create %s: %v", key, err)
				}
			}
		})
	}
	wg.Wait()
	for i := 0; i < count; i += len(all) {
		keys = append(keys, fmt.Sprintf("%s-%d", group, i))
	}
	return keys
}

// awaitDeletion waits until a deletion is done.
func awaitDeletion(t *testing.T, s *opened, id string) (d Deletion) {
	t.Helper()
	eventually(t, "the deletion is done", func() bool {
		time.Sleep(time.Millisecond)
		var err error
		if d, err = s.Deletion(t.Context(), testCollection, id); err != nil {
			t.Fatal(err)
		}
		return !d.FinishedAt.IsZero()
	})
	return d
}

// TestGroupDeleted: all records of a group go, row and entry, and nothing else. The deletion outlives the store that has
// taken it on.
func TestGroupDeleted(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d = d.grouped()
		d.Size = 700
		first := d.open(t)
		keys := populate(t, first, 2100, "doomed", "stays", "doomed too")
		first.hold("doomed", 300) // of 700 in three ranges: those of the first one go, those of the last one stay
		deletion, err := first.DeleteGroup(t.Context(), testCollection, "doomed")
		if err != nil || deletion.ID == "" || !deletion.FinishedAt.IsZero() {
			t.Fatalf("%+v, %v", deletion, err)
		}
		eventually(t, "the deletion has begun", func() bool {
			seen, err := first.Deletion(t.Context(), testCollection, deletion.ID)
			if err != nil || !seen.FinishedAt.IsZero() {
				t.Fatalf("%+v, %v", seen, err)
			}
			return seen.Deleted > 0
		})
		again, err := first.DeleteGroup(t.Context(), testCollection, "doomed")
		if err != nil || again.ID != deletion.ID {
			t.Errorf("asked for again: %+v, %v", again, err)
		}
		other, err := first.DeleteGroup(t.Context(), testCollection, "doomed too")
		if err != nil || other.ID == deletion.ID {
			t.Errorf("of another group: %+v, %v", other, err)
		}
		first.shut(t)
		if left := d.groupRows(t, "doomed-"); left == 0 || left == len(keys) {
			t.Fatalf("%d of %d rows are left when the store was closed", left, len(keys))
		}
		second := d.open(t)
		done := awaitDeletion(t, second, deletion.ID)
		if done.Deleted > int64(len(keys)) || done.Deleted < int64(len(keys)-2*deletionBatch) {
			t.Errorf("%d records deleted, there were %d", done.Deleted, len(keys))
		}
		awaitDeletion(t, second, other.ID)
		wantGroup(t, second, "doomed", nil)
		if n, err := second.CountGroup(t.Context(), testCollection, "stays"); err != nil || n != 700 {
			t.Errorf("%d records of another group are left, %v", n, err)
		}
		for _, key := range keys {
			_, err := second.Get(t.Context(), testCollection, key)
			wantError(t, "get "+key, err, ErrNotFound)
		}
		d.checkInvariants(t, second)
		w, clock := newTestSweeper(second)
		w.most = 1000
		// What a process that died had deleted and not cleaned up; this one did not die.
		if counts := w.pass(t, clock); counts.Harmful() > 0 || counts.Dangling > 0 {
			t.Errorf("the sweeper finds %+v", counts)
		}
		// A group can be filled and deleted again, by another deletion.
		join(t, second, keys[0], "doomed")
		next, err := second.DeleteGroup(t.Context(), testCollection, "doomed")
		if err != nil || next.ID == deletion.ID || awaitDeletion(t, second, next.ID).Deleted != 1 {
			t.Errorf("deleted again: %+v, %v", next, err)
		}
		_, err = second.Deletion(t.Context(), testCollection, "none")
		wantError(t, "another deletion", err, ErrNoDeletion)
		empty, err := second.DeleteGroup(t.Context(), testCollection, "never was")
		if err != nil || awaitDeletion(t, second, empty.ID).Deleted != 0 {
			t.Errorf("an empty group: %+v, %v", empty, err)
		}
	})
}

// groupRows counts the rows whose keys have a prefix.
func (d deployment) groupRows(t *testing.T, prefix string) (n int) {
	t.Helper()
	for _, r := range d.allRows(t) {
		if r.state == live && len(r.key) > len(prefix) && r.key[:len(prefix)] == prefix {
			n++
		}
	}
	return n
}

// TestGroupDeletedWhileWritten: a deletion that is asked for takes everything that was acknowledged before, whichever
// gateway created it and whether or not one was under way already; it ends although records keep coming.
func TestGroupDeletedWhileWritten(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		if d.Index[:6] == "sqlite" {
			return // belongs to one process
		}
		d = d.grouped()
		d.Size = 20_000
		one, two := d.open(t), d.open(t)
		populate(t, one, 600, "busy")
		stop := make(chan struct{})
		var writing sync.WaitGroup
		var mu sync.Mutex
		var acked []string
		for w, s := range []*opened{one, two} {
			writing.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					key := fmt.Sprintf("new-%d-%d", w, i)
					if _, err := s.Create(context.Background(), testCollection, key, member("busy", "v")); err != nil {
						t.Errorf("create: %v", err)
						return
					}
					mu.Lock()
					acked = append(acked, key)
					mu.Unlock()
				}
			})
		}
		for range 3 {
			mu.Lock()
			before := slices.Clone(acked)
			mu.Unlock()
			deletion, err := two.DeleteGroup(t.Context(), testCollection, "busy")
			if err != nil {
				t.Fatal(err)
			}
			awaitDeletion(t, one, deletion.ID)
			for _, key := range before {
				if _, err := one.Get(t.Context(), testCollection, key); !errors.Is(err, ErrNotFound) {
					t.Errorf("%s was there before the deletion and is after it: %v", key, err)
				}
			}
		}
		close(stop)
		writing.Wait()
		d.checkInvariants(t, one)
	})
}

// TestGroupDeletionsWait: deletions that wait for a node that is down, however many, hold up no other, and go on when it is back.
func TestGroupDeletionsWait(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		d = d.grouped()
		d.Size = 10
		d, _, toNode := d.proxied(t)
		s := d.open(t)
		var waiting []string
		for i := range d.Size {
			waiting = append(waiting, fmt.Sprintf("on node 1, %d", i))
			if rec := join(t, s, fmt.Sprint("k", i), waiting[i]); rec.Tag.ID > d.Size {
				t.Fatalf("%s has ID %d", waiting[i], rec.Tag.ID)
			}
		}
		if rec := join(t, s, "elsewhere", "on node 2"); rec.Tag.ID <= d.Size {
			t.Fatalf("the record on node 2 has ID %d", rec.Tag.ID)
		}
		toNode.Refuse(true)
		var ids []string
		for _, group := range append(waiting, "on node 2") {
			deletion, err := s.DeleteGroup(t.Context(), testCollection, group)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, deletion.ID)
		}
		awaitDeletion(t, s, ids[len(waiting)])
		for _, id := range ids[:len(waiting)] {
			if seen, err := s.Deletion(t.Context(), testCollection, id); err != nil || !seen.FinishedAt.IsZero() {
				t.Errorf("deleted on a node that is down: %+v, %v", seen, err)
			}
		}
		toNode.Refuse(false)
		for _, id := range ids {
			if done := awaitDeletion(t, s, id); done.Deleted != 1 {
				t.Errorf("%+v", done)
			}
		}
		d.checkInvariants(t, s)
	})
}
