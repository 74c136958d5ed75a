package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// TestCreateOnce: a create that is repeated makes one record and answers the same each time; with another document, or for
// another record, it does not.
func TestCreateOnce(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s, ctx := d.open(t), t.Context()
		once := NewOnce("attempt-1", testCollection, "k", doc("x").Document)
		first, replayed, err := s.CreateOnce(ctx, testCollection, "k", doc("x"), once)
		if err != nil || replayed {
			t.Fatalf("the first time: replayed %v, %v", replayed, err)
		}
		again, replayed, err := s.CreateOnce(ctx, testCollection, "k", doc("x"), once)
		if err != nil || !replayed || again.Tag != first.Tag || string(again.Document) != string(doc("x").Document) || !again.CreatedAt.Equal(first.CreatedAt) {
			t.Errorf("the second time: %+v, replayed %v, %v; want %+v", again, replayed, err, first)
		}
		_, _, err = s.CreateOnce(ctx, testCollection, "k", doc("y"), NewOnce("attempt-1", testCollection, "k", doc("y").Document))
		wantError(t, "another document", err, ErrReused)
		for name, mark := range map[string]Once{"another key": NewOnce("attempt-2", testCollection, "k", doc("x").Document), "none": {}} {
			_, _, err = s.CreateOnce(ctx, testCollection, "k", doc("x"), mark)
			var conflict *ConflictError
			if !errors.As(err, &conflict) || conflict.Existing != first.Tag {
				t.Errorf("%s: %v, want a conflict with %s", name, err, first.Tag)
			}
		}
		if _, _, err := s.Put(ctx, testCollection, "k", doc("z"), Condition{}); err != nil {
			t.Fatal(err)
		}
		_, _, err = s.CreateOnce(ctx, testCollection, "k", doc("x"), once)
		wantError(t, "after a change", err, ErrConflict)
		d.checkInvariants(t, s)
	})
}

// TestCreateOnceTogether: repetitions that overtake each other make one record, and all answer with it (I4).
func TestCreateOnceTogether(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		stores, ctx := []*opened{d.open(t), d.open(t)}, t.Context()
		for round := range 20 {
			key := fmt.Sprintf("k%d", round)
			once := NewOnce("attempt", testCollection, key, doc(key).Document)
			tags := make([]Tag, 16)
			var made atomic.Int64
			var wg sync.WaitGroup
			for i := range tags {
				wg.Go(func() {
					rec, replayed, err := stores[i%2].CreateOnce(ctx, testCollection, key, doc(key), once)
					if err != nil {
						t.Error(err)
					}
					if !replayed {
						made.Add(1)
					}
					tags[i] = rec.Tag
				})
			}
			wg.Wait()
			for _, tag := range tags {
				if tag != tags[0] {
					t.Errorf("%s: answered with %s and with %s", key, tag, tags[0])
				}
			}
			if made.Load() != 1 {
				t.Errorf("%s: made %d times", key, made.Load())
			}
		}
		d.checkInvariants(t, stores[0])
	})
}

// TestCreateOnceFence: the fence of a repetition is not taken for the row of another one, although both have one mark.
func TestCreateOnceFence(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s, ctx := d.open(t), t.Context()
		p, err := s.placement(testCollection)
		if err != nil {
			t.Fatal(err)
		}
		b, cancel := newBudget(ctx)
		defer cancel()
		slow := &creation{store: s.Store, budget: b, ids: p, key: "k", content: doc("x"), once: NewOnce("attempt", testCollection, "k", doc("x").Document)}
		id, err := p.next(b)
		if err == nil {
			err = slow.reserve(id)
		}
		if err != nil {
			t.Fatal(err)
		}
		// The repetition takes the entry over before the row of the slow one comes.
		rec, replayed, err := s.CreateOnce(ctx, testCollection, "k", doc("x"), slow.once)
		if err != nil || replayed || rec.Tag.ID == id {
			t.Fatalf("the repetition: %+v, replayed %v, %v", rec, replayed, err)
		}
		mine := slow.newRow(id)
		if _, err := slow.insert(id); !errors.Is(err, errLost) {
			t.Errorf("the slow one inserted: %v", err)
		}
		if _, err := slow.resolve(&mine); !errors.Is(err, ErrUnknown) {
			t.Errorf("the slow one took a fence for its row: %v", err)
		}
		d.checkInvariants(t, s)
	})
}
