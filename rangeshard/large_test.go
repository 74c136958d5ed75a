package rangeshard

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// largeMap has 10,000 ranges over 1,000 nodes, dealt out one by one, which is the hardest map to search.
func largeMap(tb testing.TB) *Map {
	tb.Helper()
	const nodes, ranges = 1000, 10_000
	lists := make([]string, nodes)
	for number := range ranges {
		list := &lists[number%nodes]
		if *list != "" {
			*list += ","
		}
		*list += fmt.Sprint(number + 1)
	}
	var all []Node
	for i, list := range lists {
		owned, err := ParseRanges(list)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, Node{Name: fmt.Sprintf("node-%d", i+1), Ranges: owned})
	}
	m, err := NewMap(10_000_000, all)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// TestLocateLargeMap: each ID of a large map is found on the node that owns it (I5).
func TestLocateLargeMap(t *testing.T) {
	m := largeMap(t)
	for number := int64(1); number <= m.LastRange(); number++ {
		for _, id := range []int64{(number-1)*m.Size() + 1, number * m.Size()} {
			r, node, ok := m.Locate(id)
			if !ok || r.Number != number || !r.Contains(id) || node != int((number-1)%1000) {
				t.Fatalf("ID %d: range %+v on node %d, %v", id, r, node, ok)
			}
		}
	}
}

// TestRangeOfUnevenMaps: whatever the lengths of the runs, each end of each run is found on its node.
func TestRangeOfUnevenMaps(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		runs := 1 + random.IntN(40)
		nodes, firsts, next := []Node{}, []int64{}, int64(1)
		for i := range runs {
			length := int64(1)
			if random.IntN(3) == 0 {
				length = 1 + random.Int64N(1<<uint(random.IntN(17)))
			}
			owned, err := ParseRanges(fmt.Sprintf("%d-%d", next, next+length-1))
			if err != nil {
				t.Fatal(err)
			}
			nodes, firsts, next = append(nodes, Node{Name: fmt.Sprint(i), Ranges: owned}), append(firsts, next), next+length
		}
		m, err := NewMap(10, nodes)
		if err != nil {
			t.Fatal(err)
		}
		for i, first := range append(firsts, next) {
			if _, node, ok := m.Range(first - 1); ok != (i > 0) || ok && node != i-1 {
				t.Fatalf("runs from %v: range %d is on node %d, %v", firsts, first-1, node, ok)
			}
			if _, node, ok := m.Range(first); ok != (i < runs) || ok && node != i {
				t.Fatalf("runs from %v: range %d is on node %d, %v", firsts, first, node, ok)
			}
		}
	}
}

func BenchmarkLocate(b *testing.B) {
	m := largeMap(b)
	last := m.LastRange() * m.Size()
	ids := make([]int64, 1<<16)
	for i := range ids {
		ids[i] = 1 + rand.Int64N(last)
	}
	i := 0
	for b.Loop() {
		if _, _, ok := m.Locate(ids[i&(len(ids)-1)]); !ok {
			b.Fatal("no owner")
		}
		i++
	}
}
