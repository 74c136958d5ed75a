package store

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"keyrange/index"
)

// TestGroupLarge lists a group of very many records next to many groups of six, in three ranges: the first page, a page in
// the middle and the count. How long they take is printed. GATEWAY_TEST_LONG makes it a million and 20,000.
func TestGroupLarge(t *testing.T) {
	large, small := int64(2000), int64(100)
	if os.Getenv("GATEWAY_TEST_LONG") != "" {
		large, small = 1_000_000, 20_000
	}
	const each = 6
	engines(t, func(t *testing.T, d deployment) {
		d.Group, d.Size, d.Ranges = "customer", (large+each*small)/3+1, []string{"1,3", "2"}
		s := d.open(t)
		// By hand: a million creates would take long and are not what is looked at.
		total, stretch := large+each*small, (large+each*small)/small
		groupOf := func(id int64) string {
			if (id-1)%stretch < each { // together, as those are that come in one bulk
				return fmt.Sprintf("small-%d", (id-1)/stretch)
			}
			return "large"
		}
		for number := int64(1); number <= 3; number++ {
			r, n, _ := s.topology.Load().layout.Range(number)
			rows, table := s.topology.Load().nodes[n].rows, tableName(testCollection, number)
			if err := rows.prepare(t.Context(), table); err != nil {
				t.Fatal(err)
			}
			var batch []row
			listed := map[string]bool{}
			for id := r.Lo; id < r.Hi && id <= total; id++ {
				one := testRow(id, fmt.Sprintf("k%d", id), fmt.Sprintf(`{"key":"k%d","filling":"%0100d"}`, id, id))
				one.Group = groupOf(id)
				listed[one.Group] = true
				if batch = append(batch, one); len(batch) == 1000 || id == r.Hi-1 || id == total {
					for _, err := range rows.insert(t.Context(), table, batch) {
						if err != nil {
							t.Fatal(err)
						}
					}
					batch = batch[:0]
				}
			}
			var entries []index.Entry
			for group := range listed {
				entries = append(entries, groupPlace{testCollection, group, number}.entry())
			}
			for chunk := range slices.Chunk(entries, 1000) {
				for _, err := range s.index.Insert(t.Context(), directoryOf(testCollection), chunk) {
					if err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		measure := func(what string, times int, want int, look func(ctx context.Context, i int) (int, error)) {
			t.Helper()
			took := make([]time.Duration, times)
			for i := range took {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				began := time.Now()
				n, err := look(ctx, i)
				took[i] = time.Since(began)
				cancel()
				if err != nil || n != want {
					t.Fatalf("%s: %d, %v; want %d", what, n, err, want)
				}
			}
			slices.Sort(took)
			t.Logf("%-44s median %10s", what, took[times/2].Round(time.Microsecond))
		}
		page := func(group string, after int64, limit int) (int, error) {
			found, err := s.List(t.Context(), testCollection, Walk{Group: group, After: after, Limit: limit, MaxBytes: 8 << 20})
			return len(found.Records), err
		}
		largest := int(total) - each*int((total+stretch-1)/stretch)
		measure("all of a group of 6", 100, each, func(_ context.Context, i int) (int, error) {
			return page(fmt.Sprintf("small-%d", int64(i)*(small/100)), 0, 100)
		})
		for _, limit := range []int{6, 100} {
			measure(fmt.Sprintf("the first %d of the large group", limit), 100, limit, func(context.Context, int) (int, error) { return page("large", 0, limit) })
		}
		measure("100 in the middle of the large group", 100, 100, func(_ context.Context, i int) (int, error) {
			return page("large", total/2+int64(i), 100)
		})
		measure("the count of a group of 6", 100, each, func(ctx context.Context, i int) (int, error) {
			n, err := s.CountGroup(ctx, testCollection, fmt.Sprintf("small-%d", i))
			return int(n), err
		})
		measure("the count of the large group", 3, largest, func(ctx context.Context, _ int) (int, error) {
			n, err := s.CountGroup(ctx, testCollection, "large")
			return int(n), err
		})
	})
}

// TestMeasureGroupCreates prints what creates cost without a group, in groups that are known, and each in a new group.
func TestMeasureGroupCreates(t *testing.T) {
	count := 256
	if os.Getenv("GATEWAY_TEST_LONG") != "" {
		count = 6400
	}
	engines(t, func(t *testing.T, d deployment) {
		d = d.grouped()
		d.Size = 1_000_000
		s := d.open(t)
		s.Warm(t.Context())
		const workers = 64
		for round := range 3 {
			for what, groupOf := range map[string]func(i int) string{
				"without a group": func(int) string { return "" },
				"known groups":    func(i int) string { return fmt.Sprint("known ", i%40) },
				"new groups":      func(i int) string { return fmt.Sprint("new ", round, i) },
			} {
				began := time.Now()
				var wg sync.WaitGroup
				for w := range workers {
					wg.Go(func() {
						for i := w; i < count; i += workers {
							if _, err := s.Create(t.Context(), testCollection, fmt.Sprintf("%s-%d-%d", what, round, i), member(groupOf(i), "v")); err != nil {
								t.Errorf("create: %v", err)
							}
						}
					})
				}
				wg.Wait()
				t.Logf("round %d, %-16s %8.0f creates/s", round, what, float64(count)/time.Since(began).Seconds())
			}
		}
	})
}
