package rangeshard_test

import (
	"math"
	"strings"
	"testing"

	"keyrange/rangeshard"
)

func nodes(t *testing.T, ranges ...string) []rangeshard.Node {
	t.Helper()
	var list []rangeshard.Node
	for i, text := range ranges {
		r, err := rangeshard.ParseRanges(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, rangeshard.Node{Name: "node-" + string(rune('1'+i)), Ranges: r})
	}
	return list
}

func TestParseRanges(t *testing.T) {
	for text, want := range map[string]string{
		"1": "1", "2-5": "2-5", "1,4-5": "1,4-5", "4-5,1": "1,4-5", "1, 2,3": "1-3", "1-2,3-9": "1-9", "9999999": "9999999",
	} {
		r, err := rangeshard.ParseRanges(text)
		if err != nil || r.String() != want {
			t.Errorf("%q: %q, %v; want %q", text, r, err, want)
		}
	}
	for _, text := range []string{"", "0", "01", "-1", "1-", "-", "5-2", "1,1", "1-3,2", "a", "1..3", "10000000", "1-99999999999999999999", "+1", "1;2"} {
		if r, err := rangeshard.ParseRanges(text); err == nil {
			t.Errorf("%q was taken as %q", text, r)
		}
	}
}

// TestMapOneOwnerPerID is I5: each ID is in exactly one range, and each range on exactly one node.
func TestMapOneOwnerPerID(t *testing.T) {
	m, err := rangeshard.NewMap(10, nodes(t, "1,4", "2-3", "5-6"))
	if err != nil {
		t.Fatal(err)
	}
	owners := map[int64]int{1: 0, 2: 1, 3: 1, 4: 0, 5: 2, 6: 2}
	for id := int64(1); id <= 60; id++ {
		number := (id + 9) / 10
		r, node, ok := m.Locate(id)
		if !ok || r.Number != number || !r.Contains(id) || r.Hi-r.Lo != 10 || node != owners[number] {
			t.Fatalf("ID %d: range %+v on node %d, ok %v", id, r, node, ok)
		}
	}
	for _, id := range []int64{-1, 0, 61, math.MaxInt64, math.MinInt64} {
		if r, _, ok := m.Locate(id); ok {
			t.Errorf("ID %d is in no range, but was placed in %+v", id, r)
		}
	}
}

// TestMapBoundaries is the case of IDs around the ends of ranges of the default size and beyond 32 bits.
func TestMapBoundaries(t *testing.T) {
	m, err := rangeshard.NewMap(10_000_000, nodes(t, "1", "2-300"))
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int64]int64{1: 1, 10_000_000: 1, 10_000_001: 2, 20_000_000: 2, 1 << 31: 215, 1<<31 + 1: 215} {
		if r, _, ok := m.Locate(id); !ok || r.Number != want {
			t.Errorf("ID %d: range %d, want %d", id, r.Number, want)
		}
	}
}

func TestMapRefuses(t *testing.T) {
	tests := []struct {
		name  string
		size  int64
		nodes []rangeshard.Node
		want  []string
	}{
		{"no node", 10, nil, []string{"no node"}},
		{"no ID", 0, nodes(t, "1"), []string{"at least 1 ID"}},
		{"does not begin at 1", 10, nodes(t, "2"), []string{"range 1 is missing"}},
		{"gap", 10, nodes(t, "1", "4"), []string{"range 2-3 is missing", "node-2"}},
		{"overlap", 10, nodes(t, "1-3", "3-5"), []string{"range 3 of node-2 overlaps node-1"}},
		{"same range", 10, nodes(t, "1", "1"), []string{"range 1 of node-2 overlaps node-1"}},
		{"inside another", 10, nodes(t, "1-9", "2-3"), []string{"range 2-3 of node-2 overlaps node-1"}},
		{"all faults at once", 10, nodes(t, "2", "2", "5"), []string{"range 1 is missing", "overlaps", "range 3-4 is missing"}},
		{"beyond 2^63", math.MaxInt64 / 2, nodes(t, "1-3"), []string{"largest ID"}},
		{"same name", 10, append(nodes(t, "1"), rangeshard.Node{Name: "node-1"}), []string{"already"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := rangeshard.NewMap(test.size, test.nodes)
			if err == nil {
				t.Fatal("was taken")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// TestMapExtends is I7: a map may only grow.
func TestMapExtends(t *testing.T) {
	build := func(size int64, list []rangeshard.Node) *rangeshard.Map {
		m, err := rangeshard.NewMap(size, list)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	running := build(10, nodes(t, "1", "2-3"))
	reordered := nodes(t, "1", "2-3")
	reordered[0], reordered[1] = reordered[1], reordered[0]
	for name, grown := range map[string][]rangeshard.Node{
		"the same": nodes(t, "1", "2-3"), "a node appended": nodes(t, "1", "2-3", "4"), "ranges appended": nodes(t, "1,4", "2-3,5"), "listed in another order": reordered,
	} {
		if err := build(10, grown).Extends(running); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	renamed := nodes(t, "1", "2-3")
	renamed[1].Name = "other"
	for name, other := range map[string]struct {
		m    *rangeshard.Map
		want string
	}{
		"a node dropped": {build(10, nodes(t, "1-3")), "node node-2 with ranges 2-3 is missing"},
		"a node renamed": {build(10, renamed), "node node-2 with ranges 2-3 is missing"},
		"ranges shrunk":  {build(10, nodes(t, "1", "2")), "node node-2 has ranges 2-3, but 2 here"},
		"a range moved":  {build(10, nodes(t, "1-2", "3")), "node node-2 has ranges 2-3, but 3 here"},
		"another size":   {build(20, nodes(t, "1", "2-3")), "range size can never change"},
	} {
		if err := other.m.Extends(running); err == nil || !strings.Contains(err.Error(), other.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzMap: whatever text config holds, a map that is built owns each of its IDs exactly once.
func FuzzMap(f *testing.F) {
	f.Add("1", "2-5", int64(3))
	f.Add("1,3", "2", int64(1))
	f.Fuzz(func(t *testing.T, a, b string, size int64) {
		ra, errA := rangeshard.ParseRanges(a)
		rb, errB := rangeshard.ParseRanges(b)
		if errA != nil || errB != nil {
			return
		}
		m, err := rangeshard.NewMap(size, []rangeshard.Node{{Name: "a", Ranges: ra}, {Name: "b", Ranges: rb}})
		if err != nil {
			return
		}
		next := int64(1)
		for number := int64(1); number <= min(m.LastRange(), 100); number++ {
			r, _, ok := m.Range(number)
			if !ok || r.Lo != next || r.Hi != r.Lo+size {
				t.Fatalf("range %d is %+v, want it at %d", number, r, next)
			}
			if got, _, ok := m.Locate(r.Hi - 1); !ok || got != r {
				t.Fatalf("the last ID of %+v is in %+v", r, got)
			}
			next = r.Hi
		}
	})
}
