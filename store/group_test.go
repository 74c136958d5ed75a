package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"keyrange/index"
)

// grouped is a deployment whose records have groups, with two ranges of 40 IDs on each node.
func (d deployment) grouped() deployment {
	d.Group, d.Size, d.Ranges = "customer", 40, []string{"1,3", "2,4"}
	return d
}

// member is a content in a group.
func member(group, text string) Content {
	content := doc(text)
	content.Group = group
	return content
}

// join creates a record in a group.
func join(t *testing.T, s *opened, key, group string) Record {
	t.Helper()
	rec, err := s.Create(t.Context(), testCollection, key, member(group, key))
	if err != nil {
		t.Fatalf("create %q in %q: %v", key, group, err)
	}
	return rec
}

// wantGroup lists a group in pages, both ways, counts it, and compares its keys, in the order of their IDs.
func wantGroup(t *testing.T, s *opened, group string, want []string) {
	t.Helper()
	for _, backwards := range []bool{false, true} {
		for _, limit := range []int{3, 1000} {
			var got []string
			for walk := (Walk{Group: group, Descending: backwards, Limit: limit, MaxBytes: 1 << 20}); ; {
				page, err := s.List(t.Context(), testCollection, walk)
				if err != nil {
					t.Fatalf("list %q: %v", group, err)
				}
				for _, rec := range page.Records {
					if rec.Group != group {
						t.Errorf("a list of %q has a record of %q", group, rec.Group)
					}
					got = append(got, rec.Key)
				}
				if walk.After = page.Next; !page.More {
					break
				}
			}
			if backwards {
				slices.Reverse(got)
			}
			if !slices.Equal(got, want) {
				t.Errorf("list of %q, backwards %v, in pages of %d: %v, want %v", group, backwards, limit, got, want)
			}
		}
	}
	if n, err := s.CountGroup(t.Context(), testCollection, group); err != nil || n != int64(len(want)) {
		t.Errorf("count of %q: %d, %v; want %d", group, n, err, len(want))
	}
}

// oddGroups are none of each other's prefixes by accident, and need no escape anywhere.
var oddGroups = []string{"a", "ab", "A", "a ", "😀", "$ne", "a.b", "\x01", "\U0010FFFF", "0", strings.Repeat("g", MaxGroupBytes), "%"}

// TestGroupSpreadOverRanges: records of a group over four ranges on two nodes are listed in the order of their IDs, and no
// record of another group, or of none, is among them.
func TestGroupSpreadOverRanges(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d = d.grouped()
		s := d.open(t)
		want := map[string][]string{}
		for i := range 130 {
			group := ""
			if i%3 > 0 {
				group = oddGroups[0]
			}
			if i%10 == 9 {
				group = oddGroups[i/10%len(oddGroups)]
			}
			key := fmt.Sprintf("k%d", i)
			rec := join(t, s, key, group)
			if rec.Group != group {
				t.Errorf("created in %q, but is in %q", group, rec.Group)
			}
			if group != "" {
				want[group] = append(want[group], key)
			}
		}
		for _, group := range oddGroups {
			wantGroup(t, s, group, want[group])
		}
		wantGroup(t, s, "nobody", nil)
		// The list follows updates, deletes and other gateways.
		if _, _, err := s.Put(t.Context(), testCollection, want["a"][0], member("a", "new"), Condition{}); err != nil {
			t.Error(err)
		}
		if err := s.Delete(t.Context(), testCollection, want["a"][1], Condition{}); err != nil {
			t.Error(err)
		}
		want["a"] = slices.Delete(want["a"], 1, 2)
		wantGroup(t, s, "a", want["a"])
		s.shut(t)
		wantGroup(t, d.open(t), "a", want["a"])
	})
}

// TestGroupRefused: what is no group, and a group where there are none, is refused before anything is written.
func TestGroupRefused(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s := d.grouped().open(t)
		for _, group := range []string{strings.Repeat("g", MaxGroupBytes+1), "a\x00b", "\xff"} {
			_, err := s.Create(t.Context(), testCollection, "k", member(group, "v"))
			wantError(t, fmt.Sprintf("create in %.10q", group), err, ErrGroup)
			_, err = s.List(t.Context(), testCollection, Walk{Group: group, Limit: 1, MaxBytes: 1})
			wantError(t, fmt.Sprintf("list %.10q", group), err, ErrGroup)
		}
		_, err := s.CountGroup(t.Context(), testCollection, "")
		wantError(t, "count no group", err, ErrGroup)
		plain := d.renew(t).open(t)
		_, err = plain.Create(t.Context(), testCollection, "k", member("g", "v"))
		wantError(t, "create in a collection without groups", err, ErrGroup)
		_, err = plain.DeleteGroup(t.Context(), testCollection, "g")
		wantError(t, "delete in a collection without groups", err, ErrGroup)
	})
}

// TestGroupNeverChanges: an update whose document is in another group, or in none, is refused by the statement that would
// write it, also when many compete.
func TestGroupNeverChanges(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s, ctx := d.grouped().open(t), t.Context()
		tag := join(t, s, "in a", "a").Tag
		join(t, s, "in none", "")
		for _, c := range []struct{ key, group string }{{"in a", "b"}, {"in a", ""}, {"in a", "A"}, {"in a", "a "}, {"in none", "a"}} {
			_, _, err := s.Put(ctx, testCollection, c.key, member(c.group, "moved"), Condition{})
			wantError(t, fmt.Sprintf("put %s into %q", c.key, c.group), err, ErrGroupMismatch)
			wantDocument(t, s, c.key, doc(c.key).Document)
		}
		_, _, err := s.Put(ctx, testCollection, "in a", member("b", "moved"), Condition{Tags: []Tag{{tag.ID, 7}}})
		wantError(t, "put on another version", err, ErrPrecondition)
		_, _, err = s.Put(ctx, testCollection, "in a", member("b", "moved"), Condition{Tags: []Tag{tag}})
		wantError(t, "put on this version", err, ErrGroupMismatch)
		for _, key := range []string{"in a", "in none"} {
			group := strings.TrimPrefix(strings.TrimPrefix(key, "in "), "none")
			if rec, _, err := s.Put(ctx, testCollection, key, member(group, "stays"), Condition{}); err != nil || rec.Group != group {
				t.Errorf("put %s: %+v, %v", key, rec, err)
			}
		}
		for round := range 10 {
			key, errs := fmt.Sprintf("race %d", round), make([]error, 12)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() {
					_, _, errs[i] = s.Put(ctx, testCollection, key, member(fmt.Sprint("g", i%3), fmt.Sprint(i)), Condition{})
				})
			}
			wg.Wait()
			rec, err := s.Get(ctx, testCollection, key)
			if err != nil {
				t.Fatal(err)
			}
			for i, err := range errs {
				mine := rec.Group == fmt.Sprint("g", i%3)
				if mine && err != nil && !errors.Is(err, ErrBusy) || !mine && !errors.Is(err, ErrGroupMismatch) && !errors.Is(err, ErrBusy) {
					t.Errorf("round %d: the record is in %s, a put into g%d says %v", round, rec.Group, i%3, err)
				}
			}
			wantGroup(t, s, rec.Group, s.keysOf(t, rec.Group))
		}
	})
}

// keysOf lists the keys of a group as the rows have them, in the order of their IDs.
func (o *opened) keysOf(t *testing.T, group string) (keys []string) {
	t.Helper()
	now := o.topology.Load()
	for number := int64(1); number <= now.layout.LastRange(); number++ {
		r, n, _ := now.layout.Range(number)
		names, err := now.nodes[n].rows.tables(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(names, tableName(testCollection, number)) {
			continue
		}
		found, err := now.nodes[n].rows.scan(t.Context(), tableName(testCollection, number), span{r.Lo, r.Hi}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range found {
			if b.group == group {
				keys = append(keys, b.key)
			}
		}
	}
	return keys
}

// failingDirectory is an index whose inserts into directories fail, having taken effect or not.
type failingDirectory struct {
	index.Index
	mu      sync.Mutex
	failing bool
	lands   bool
	asked   int
}

// Insert implements index.Index.
func (f *failingDirectory) Insert(ctx context.Context, collection string, entries []index.Entry) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !strings.HasSuffix(collection, ".groups") {
		return f.Index.Insert(ctx, collection, entries)
	}
	f.asked++
	if !f.failing {
		return f.Index.Insert(ctx, collection, entries)
	}
	if f.lands {
		f.Index.Insert(ctx, collection, entries)
	}
	return repeat(fmt.Errorf("insert: %w", index.ErrUnknown), len(entries))
}

// TestGroupDirectoryUnsure: without a clear yes from the directory no row follows, and the key can be used afterwards.
func TestGroupDirectoryUnsure(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d = d.grouped()
		s := d.open(t)
		faulty := &failingDirectory{Index: s.index, failing: true}
		s.index = faulty
		for _, lands := range []bool{false, true} {
			faulty.lands = lands
			_, err := s.Create(t.Context(), testCollection, "k", member(fmt.Sprint("g", lands), "v"))
			wantError(t, "create", err, ErrUnavailable)
			_, err = s.Get(t.Context(), testCollection, "k")
			wantError(t, "get", err, ErrNotFound)
		}
		if rows := d.allRows(t); len(rows) > 0 {
			t.Errorf("rows were inserted: %v", rows)
		}
		faulty.failing = false
		join(t, s, "k", "gtrue")
		wantGroup(t, s, "gtrue", []string{"k"})
		asked := faulty.asked
		for i := range 10 {
			join(t, s, fmt.Sprint("more ", i), "gtrue")
		}
		if faulty.asked != asked {
			t.Errorf("the directory was asked %d times for a pair that is known", faulty.asked-asked)
		}
		d.checkInvariants(t, s)
	})
}

// TestGroupDirectoryLost loses replies of the real index, stalls it and cuts it off while records are created: lists have
// each record that was acknowledged, and each row.
func TestGroupDirectoryLost(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		d = d.grouped()
		d.Size = 1000
		through, toIndex, _ := d.proxied(t)
		s := through.open(t)
		join(t, s, "first", "first")
		for round, fault := range []func(){
			func() { toIndex.SwallowReply([]byte("records.groups")) },
			func() { toIndex.CutBefore([]byte("records.groups")) },
			func() { toIndex.Stall(); time.AfterFunc(700*time.Millisecond, toIndex.Resume) },
		} {
			fault()
			group, acked := fmt.Sprint("g", round), make([]bool, 24)
			var wg sync.WaitGroup
			for i := range acked {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+i%3)*500*time.Millisecond)
					defer cancel()
					_, err := s.Create(ctx, testCollection, fmt.Sprintf("%s-%d", group, i), member(group, "v"))
					acked[i] = err == nil
					if err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknown) {
						t.Errorf("create: %v", err)
					}
				})
			}
			wg.Wait()
			eventually(t, "the index answers", func() bool { return s.index.Ping(t.Context()) == nil })
			stored := s.keysOf(t, group)
			wantGroup(t, s, group, stored)
			for i, ok := range acked {
				if ok && !slices.Contains(stored, fmt.Sprintf("%s-%d", group, i)) {
					t.Errorf("round %d: record %d was acknowledged and is not there", round, i)
				}
			}
		}
		through.checkInvariants(t, s)
	})
}
