package rangeshard

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Node is one database that owns ranges, as config names it.
type Node struct {
	Name   string
	Ranges Ranges
	// Drain keeps new records off the node. Those that it has are read, updated and deleted as ever.
	Drain bool
}

// Fault is one reason why nodes do not make a map.
type Fault struct {
	// Node is the position of the node at fault in the list given to NewMap, or -1.
	Node    int
	Message string
}

func (f *Fault) Error() string { return f.Message }

// Map says which node owns an ID. It is immutable and proved when built: its ranges are contiguous from 1 and each
// belongs to exactly one node (I5). Safe for concurrent use.
type Map struct {
	size  int64
	nodes []Node
	runs  []run // ordered, contiguous from range 1
	// buckets narrow a search down, mostly to one or two runs: buckets[n>>shift] is the first run that ends at or after the
	// first number of that bucket. There are about as many as runs, and one more.
	buckets []int32
	shift   uint
}

// run is a span of ranges that one node owns.
type run struct {
	span
	node int
}

// NewMap proves a map from its nodes and the number of IDs in a range. The error joins a *Fault for each thing that is
// wrong, so that all can be mended at once.
func NewMap(size int64, nodes []Node) (*Map, error) {
	var faults []error
	fault := func(node int, format string, args ...any) {
		faults = append(faults, &Fault{Node: node, Message: fmt.Sprintf(format, args...)})
	}
	if size < 1 {
		fault(-1, "a range needs at least 1 ID, not %d", size)
	}
	if len(nodes) == 0 {
		fault(-1, "there is no node")
	}
	m := &Map{size: size, nodes: slices.Clone(nodes)}
	names := map[string]int{}
	for i, node := range nodes {
		if first, repeated := names[node.Name]; repeated {
			fault(i, "the name %s is already that of node %d of the list", node.Name, first+1)
		}
		names[node.Name] = i
		for _, s := range node.Ranges.spans {
			m.runs = append(m.runs, run{s, i})
		}
	}
	slices.SortStableFunc(m.runs, func(a, b run) int { return cmp.Compare(a.first, b.first) })
	m.proveContiguous(fault)
	if last := m.LastRange(); size > 0 && last > (math.MaxInt64-1)/size {
		fault(-1, "range %d would end beyond the largest ID (2^63-1)", last)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	m.fillBuckets()
	return m, nil
}

func (m *Map) fillBuckets() {
	last := m.LastRange()
	for last>>m.shift > int64(len(m.runs)) {
		m.shift++
	}
	i := 0
	for b := int64(0); b <= last>>m.shift+1; b++ {
		for i < len(m.runs)-1 && m.runs[i].last < b<<m.shift {
			i++
		}
		m.buckets = append(m.buckets, int32(i))
	}
}

// proveContiguous reports each gap and each overlap between neighbouring runs.
func (m *Map) proveContiguous(fault func(node int, format string, args ...any)) {
	next := int64(1) // the lowest range not owned yet
	for i, r := range m.runs {
		switch {
		case r.first > next:
			missing := span{next, r.first - 1}
			fault(r.node, "range %s is missing: no node owns it, and %s goes on at %d", missing, m.nodes[r.node].Name, r.first)
		case r.first < next:
			before := m.nodes[m.runs[i-1].node].Name
			shared := span{r.first, min(r.last, next-1)}
			fault(r.node, "range %s of %s overlaps %s, which owns it too", shared, m.nodes[r.node].Name, before)
		}
		next = max(next, r.last+1)
	}
}

// Size is the number of IDs in each range.
func (m *Map) Size() int64 { return m.size }

// Nodes lists the nodes in the order of config. The caller must not change it.
func (m *Map) Nodes() []Node { return m.nodes }

// LastRange is the highest range number that a node owns; 0 without nodes.
func (m *Map) LastRange() int64 {
	if len(m.runs) == 0 {
		return 0
	}
	return m.runs[len(m.runs)-1].last
}

// Range returns the range with a number from 1 to LastRange and the position of its node.
func (m *Map) Range(number int64) (r Range, node int, ok bool) {
	if number < 1 || number > m.LastRange() {
		return Range{}, 0, false
	}
	b := number >> m.shift
	i, end := m.buckets[b], m.buckets[b+1]
	for i < end {
		if middle := (i + end) / 2; m.runs[middle].last < number {
			i = middle + 1
		} else {
			end = middle
		}
	}
	lo := (number-1)*m.size + 1
	return Range{Number: number, Lo: lo, Hi: lo + m.size}, m.runs[i].node, true
}

// Locate returns the range that owns an ID and the position of its node; not ok for an ID that no node owns.
func (m *Map) Locate(id int64) (r Range, node int, ok bool) {
	if id < 1 {
		return Range{}, 0, false
	}
	return m.Range((id-1)/m.size + 1)
}

// Extends reports why the map could not take the place of a running one (I7): every node of that must be here, under its
// name and with at least its ranges. The error joins all reasons.
func (m *Map) Extends(running *Map) error {
	var faults []error
	if m.size != running.size {
		faults = append(faults, fmt.Errorf("the range size can never change: it is %d, not %d", running.size, m.size))
	}
	for _, old := range running.nodes {
		i := slices.IndexFunc(m.nodes, func(n Node) bool { return n.Name == old.Name })
		switch {
		case i < 0:
			faults = append(faults, fmt.Errorf("node %s with ranges %s is missing: a node can not be dropped or renamed, its rows are stored on it", old.Name, old.Ranges))
		case !m.nodes[i].Ranges.Covers(old.Ranges):
			faults = append(faults, fmt.Errorf("node %s has ranges %s, but %s here: a node never gives ranges away, their rows are stored on it",
				old.Name, old.Ranges, m.nodes[i].Ranges))
		}
	}
	return errors.Join(faults...)
}
