package idsegment

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"keyrange/test/servers"
)

// onFresh runs a test on every engine with two issuers on one database.
func onFresh(t *testing.T, test func(t *testing.T, a, b *Issuer)) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			url := engine.Fresh(t)
			test(t, unjoined(t, url, class{1, 1}), unjoined(t, url, class{1, 1}))
		})
	}
}

// TestTurn: one gateway has the turn until it ends it or stops keeping it, and the next one finds the progress.
func TestTurn(t *testing.T) {
	onFresh(t, func(t *testing.T, a, b *Issuer) {
		ctx := t.Context()
		if turn, err := a.LookTurn(ctx); turn.Holder != "" || turn.Left != 0 || err != nil {
			t.Errorf("before anybody: %+v, %v", turn, err)
		}
		take := func(issuer *Issuer, holder string, life time.Duration, want bool, progress string) {
			t.Helper()
			turn, mine, err := issuer.TakeTurn(ctx, holder, life)
			if mine != want || err != nil || string(turn.Progress) != progress || mine != (turn.Holder == holder) {
				t.Errorf("%s takes the turn: %v, %+v with progress %q, %v", holder, mine, turn, turn.Progress, err)
			}
			if mine && (turn.Left <= life-time.Minute || turn.Left > life) {
				t.Errorf("%s has %s of %s left", holder, turn.Left, life)
			}
		}
		keep := func(issuer *Issuer, holder string, life time.Duration, progress string, want bool) {
			t.Helper()
			if mine, err := issuer.KeepTurn(ctx, holder, life, []byte(progress)); mine != want || err != nil {
				t.Errorf("%s keeps the turn: %v, %v", holder, mine, err)
			}
		}
		take(a, "a", time.Hour, true, "")
		take(a, "a", time.Hour, true, "")
		take(b, "b", time.Hour, false, "")
		keep(a, "a", time.Hour, "one", true)
		keep(b, "b", time.Hour, "two", false)
		take(b, "b", time.Hour, false, "one")
		keep(a, "a", -time.Hour, "three", true) // over, as if it had not been kept
		keep(a, "a", -time.Hour, "four", true)  // but nobody has taken it
		take(b, "b", time.Hour, true, "four")
		keep(a, "a", time.Hour, "five", false)
		if err := a.EndTurn(ctx, "a", nil); err != nil {
			t.Error(err)
		}
		take(a, "a", time.Hour, false, "four")
		if err := b.EndTurn(ctx, "b", []byte("six")); err != nil {
			t.Error(err)
		}
		if turn, err := a.LookTurn(ctx); turn.Left > 0 || string(turn.Progress) != "six" || err != nil {
			t.Errorf("ended: %+v, %v", turn, err)
		}
		take(a, "a", time.Hour, true, "six")
	})
}

// TestTurnRace: of many gateways that want the turn at once, on a fresh database, one gets it.
func TestTurnRace(t *testing.T) {
	onFresh(t, func(t *testing.T, a, b *Issuer) {
		var winners atomic.Int32
		var all sync.WaitGroup
		for i := range 8 {
			issuer := []*Issuer{a, b}[i%2]
			all.Go(func() {
				_, mine, err := issuer.TakeTurn(t.Context(), string(rune('a'+i)), time.Hour)
				if err != nil {
					t.Error(err)
				}
				if mine {
					winners.Add(1)
				}
			})
		}
		all.Wait()
		if winners.Load() != 1 {
			t.Errorf("%d have the turn", winners.Load())
		}
	})
}

// TestTurnUnavailable: a database that is gone is unavailable.
func TestTurnUnavailable(t *testing.T) {
	onFresh(t, func(t *testing.T, a, _ *Issuer) {
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		_, _, take := a.TakeTurn(t.Context(), "a", time.Hour)
		_, keep := a.KeepTurn(t.Context(), "a", time.Hour, nil)
		_, look := a.LookTurn(t.Context())
		for _, err := range []error{take, keep, look, a.EndTurn(t.Context(), "a", nil)} {
			if !errors.Is(err, ErrUnavailable) {
				t.Errorf("%v, want %v", err, ErrUnavailable)
			}
		}
	})
}
