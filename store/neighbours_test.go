package store

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// idsOfGroup lists the IDs of a group.
func idsOfGroup(t *testing.T, s *opened, group string) (ids []int64) {
	t.Helper()
	for walk := (Walk{Group: group, Limit: 1000, MaxBytes: 1 << 20}); ; {
		page, err := s.List(t.Context(), testCollection, walk)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range page.Records {
			ids = append(ids, rec.Tag.ID)
		}
		if walk.After = page.Next; !page.More {
			return ids
		}
	}
}

// TestTogetherAlone: records of one group that are created together, and nothing beside them, have IDs without a gap, and
// what was set aside in vain is used by the next record.
func TestTogetherAlone(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d = d.grouped()
		d.Size = 10_000
		s := d.open(t)
		const count = 600
		together(t, s, count, func(int) string { return "g" })
		ids := idsOfGroup(t, s, "g")
		if len(ids) != count || ids[count-1]-ids[0] != count-1 {
			t.Errorf("%d IDs from %d to %d", len(ids), ids[0], ids[len(ids)-1])
		}
		if next := join(t, s, "next", "g").Tag.ID; next != ids[count-1]+1 {
			t.Errorf("the next record has ID %d after %d", next, ids[count-1])
		}
	})
}

// together creates records in one go, as a bulk request does.
func together(t *testing.T, s *opened, count int, groupOf func(i int) string) {
	t.Helper()
	ctx, done := Together(t.Context())
	defer done()
	var wg sync.WaitGroup
	for w := range 32 {
		wg.Go(func() {
			for i := w; i < count; i += 32 {
				if _, err := s.Create(ctx, testCollection, fmt.Sprintf("%s-%d", groupOf(i), i), member(groupOf(i), "v")); err != nil {
					t.Errorf("create: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// TestTogetherSpread: where new records are spread over nodes, those of a group that are created together are in one range,
// in a few runs, although others are created at the same time and more groups than can be remembered are among them.
func TestTogetherSpread(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d = d.grouped()
		d.Size, d.Placement = 10_000, Placement{Spread: 2}
		s := d.open(t)
		var beside sync.WaitGroup
		stop := make(chan struct{})
		beside.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					join(t, s, fmt.Sprint("beside ", i), fmt.Sprint("beside ", i%3))
				}
			}
		})
		together(t, s, 1000, func(i int) string {
			if i%5 == 0 {
				return fmt.Sprint("small ", i%500)
			}
			return "large"
		})
		close(stop)
		beside.Wait()
		ids := idsOfGroup(t, s, "large")
		runs, ranges := 1, []int64{}
		for i, id := range ids {
			if i > 0 && id != ids[i-1]+1 {
				runs++
			}
			if r, _, _ := s.topology.Load().layout.Locate(id); !slices.Contains(ranges, r.Number) {
				ranges = append(ranges, r.Number)
			}
		}
		if len(ids) != 800 || len(ranges) != 1 || runs > 40 {
			t.Errorf("%d records in ranges %v, in %d runs", len(ids), ranges, runs)
		}
		d.checkInvariants(t, s)
	})
}
