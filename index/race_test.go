package index

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// testInsertRace: of many inserts of one key at once, exactly one wins and the others know it.
func testInsertRace(t *testing.T, x Index) {
	const racers = 32
	for round := range 5 {
		key := fmt.Sprintf("key-%d", round)
		var winner atomic.Int64
		var all sync.WaitGroup
		for id := int64(1); id <= racers; id++ {
			all.Go(func() {
				err := x.Insert(testContext(t), orders, []Entry{{key, id}})[0]
				switch {
				case err == nil && !winner.CompareAndSwap(0, id):
					t.Errorf("two winners, %d and %d", winner.Load(), id)
				case err != nil && !errors.Is(err, ErrExists):
					t.Error(err)
				}
			})
		}
		all.Wait()
		if winner.Load() == 0 {
			t.Error("no winner")
		}
		expect(t, x, map[string]int64{key: winner.Load()})
	}
}

// testReplaceRace: of many replacements of one entry at once, exactly one wins.
func testReplaceRace(t *testing.T, x Index) {
	const racers = 32
	mustInsert(t, x, "a", 1)
	old := int64(1)
	for round := range 5 {
		var winner atomic.Int64
		var all sync.WaitGroup
		for i := range racers {
			id := int64(1000*(round+1) + i)
			all.Go(func() {
				ok, err := x.Replace(testContext(t), orders, "a", old, id)
				switch {
				case err != nil:
					t.Error(err)
				case ok && !winner.CompareAndSwap(0, id):
					t.Errorf("two winners, %d and %d", winner.Load(), id)
				}
			})
		}
		all.Wait()
		if winner.Load() == 0 {
			t.Fatal("no winner")
		}
		expect(t, x, map[string]int64{"a": winner.Load()})
		old = winner.Load()
	}
}
