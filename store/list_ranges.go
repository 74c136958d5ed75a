package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"keyrange/store/sqldb"
)

const (
	// listAtOnce bounds the nodes that one list asks for their tables at the same time.
	listAtOnce = 32
	// beyondTimeout is what a list waits for issuers that do not answer.
	beyondTimeout = patience
)

// shared makes a question that callers may ask at the same time: they share the answer, if it was asked for after each of
// them came.
func shared[A any](question func(ctx context.Context) (A, error)) *lane[struct{}, A] {
	return &lane[struct{}, A]{
		run: func(ctx context.Context, callers []struct{}) []answer[A] {
			value, err := question(ctx)
			answers := make([]answer[A], len(callers))
			for i := range answers {
				answers[i] = answer[A]{value, err}
			}
			return answers
		},
		limit: maxReads, parallel: 1, unsent: sqldb.ErrUnavailable, unknown: sqldb.ErrUnavailable,
	}
}

// rangeNumber is the number of the range that a table of a collection is for; not ok for other tables. Some servers fold
// the case of table names; collections differ by more than case.
func rangeNumber(collection, table string) (number int64, ok bool) {
	prefix := len(collection) + len("_r")
	if len(table) <= prefix || !strings.EqualFold(table[:prefix], collection+"_r") {
		return 0, false
	}
	number, err := strconv.ParseInt(table[prefix:], 10, 64)
	return number, err == nil && number >= 1 && strings.EqualFold(table, tableName(collection, number))
}

// openedRange is a range that has a table.
type openedRange struct {
	number int64
	node   *node
}

// survey finds the ranges behind one that have a table, in the order of the walk, as far as their nodes have said so now.
// What was known before does not count: another gateway may have opened a range since. end is why the walk cannot go on
// behind them; nil at the end of the collection.
func (w *walker) survey(ctx context.Context, behind int64) (ranges []openedRange, end error) {
	ctx, looking := beginStep(ctx, stepListRanges)
	defer func() { looking.end(end) }()
	var beyond error
	var asking sync.WaitGroup
	asking.Go(func() { beyond = w.beyond(ctx) })
	errs := make([]error, len(w.now.nodes))
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(listAtOnce)
	for i, n := range w.now.nodes {
		if !w.ownsBehind(i, behind) {
			continue
		}
		group.Go(func() error {
			names, err := n.tables.ask(ctx, struct{}{})
			if err != nil {
				errs[i] = fmt.Errorf("list the tables of %s: %w: %w", n.name, ErrUnavailable, err)
				return nil // the ranges of the others may be all that is needed
			}
			mu.Lock()
			defer mu.Unlock()
			for _, name := range names {
				number, ok := rangeNumber(w.collection, name)
				if _, owner, owned := w.now.layout.Range(number); ok && owned && owner == i && w.isBehind(number, behind) {
					ranges = append(ranges, openedRange{number, n})
				}
			}
			return nil
		})
	}
	_ = group.Wait() // each node has its own error
	asking.Wait()
	slices.SortFunc(ranges, func(a, b openedRange) int {
		if w.walk.Descending {
			a, b = b, a
		}
		return int(a.number - b.number)
	})
	return w.known(ranges, behind, errs, beyond)
}

// isBehind reports whether a range comes behind another one in the walk.
func (w *walker) isBehind(number, other int64) bool {
	if w.walk.Descending {
		return number < other
	}
	return number > other
}

// ownsBehind reports whether a node owns ranges behind one.
func (w *walker) ownsBehind(n int, behind int64) bool {
	first, last := w.now.layout.Nodes()[n].Ranges.Bounds()
	return w.isBehind(first, behind) || w.isBehind(last, behind)
}

// known cuts the ranges off where a node has not said which it has, and says why. beyond is what is wrong above the last
// range.
func (w *walker) known(ranges []openedRange, behind int64, errs []error, beyond error) ([]openedRange, error) {
	last := w.now.layout.LastRange()
	if w.walk.Descending && behind > last && beyond != nil {
		return nil, beyond
	}
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		if w.walk.Descending {
			beyond = nil
		}
		return ranges, beyond
	}
	// Step by step: a number that no node has named belongs to one that has not answered, or was never opened.
	step, at := int64(1), 0
	if w.walk.Descending {
		step = -1
	}
	for number := behind + step; number >= 1 && number <= last; number += step {
		if at < len(ranges) && ranges[at].number == number {
			at++
		} else if _, n, _ := w.now.layout.Range(number); errs[n] != nil {
			return ranges[:at], errs[n]
		}
	}
	return ranges, beyond
}

// beyond reports that a gateway with a larger config has opened a range of which this one does not know the node. While
// no issuer answers nobody can tell, and a list does without.
func (w *walker) beyond(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beyondTimeout)
	defer cancel()
	issued, _ := w.store.issued.ask(ctx, struct{}{})
	last := w.now.layout.LastRange()
	for name, known := range issued {
		if name.Collection == w.collection && name.Range > last && known.issued > 0 {
			return fmt.Errorf("list %s: %w: range %d is in use, and the nodes of this gateway's config end at range %d", w.collection, ErrUnavailable, name.Range, last)
		}
	}
	return nil
}

// vacant finds ranges that have no live row. A node that does not say so has none of them: looking at them tells more.
func (w *walker) vacant(ctx context.Context, ranges []openedRange) map[int64]bool {
	vacant := map[int64]bool{}
	if len(ranges) == 1 {
		return vacant
	}
	byNode := map[*node][]int64{}
	for _, r := range ranges {
		byNode[r.node] = append(byNode[r.node], r.number)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for n, numbers := range byNode {
		wg.Go(func() {
			tables := make([]string, len(numbers))
			for i, number := range numbers {
				tables[i] = tableName(w.collection, number)
			}
			has, err := n.rows.occupied(ctx, tables)
			mu.Lock()
			defer mu.Unlock()
			for i, number := range numbers {
				vacant[number] = err == nil && !has[i]
			}
		})
	}
	wg.Wait()
	return vacant
}
