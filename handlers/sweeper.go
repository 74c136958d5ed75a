package handlers

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"keyrange/store"
)

// Sweeper is the answer of GET /admin/sweeper. What there is none of is null. It never shows a key.
type Sweeper struct {
	// State is that of the gateway that was asked: active, standby or off.
	State string `json:"state"`
	// Holder is the instance name of the gateway that sweeps.
	Holder *string `json:"holder"`
	// WaitsFor is the database that the sweeper of the gateway that was asked waits for.
	WaitsFor *string    `json:"waits_for"`
	Pass     *SweepPass `json:"pass"`
	LastPass *SweepPass `json:"last_pass"`
}

// SweepPass is one pass of the sweeper; see store.SweepPass.
type SweepPass struct {
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
	// Phase is rows, entries or second_look; null when the pass has ended.
	Phase      *string `json:"phase"`
	Collection *string `json:"collection"`
	// Range, Node, NextID and Fraction say how far it has come in the phase rows; null in the others. Fraction is of the
	// collection's rows, 0 to 1.
	Range    *int64            `json:"range"`
	Node     *string           `json:"node"`
	NextID   *int64            `json:"next_id"`
	Fraction *float64          `json:"fraction"`
	Counts   store.SweepCounts `json:"counts"`
}

// NewSweeper puts what the store says into the form of the answer.
func NewSweeper(status store.SweeperStatus) Sweeper {
	return Sweeper{
		State: status.State, Holder: unlessZero(status.Holder), WaitsFor: unlessZero(status.WaitsFor),
		Pass: newSweepPass(status.Pass), LastPass: newSweepPass(status.Last),
	}
}

func newSweepPass(p *store.SweepPass) *SweepPass {
	if p == nil {
		return nil
	}
	return &SweepPass{
		StartedAt: p.StartedAt, FinishedAt: p.FinishedAt, Phase: unlessZero(p.Phase), Collection: unlessZero(p.Collection),
		Range: unlessZero(p.Range), Node: unlessZero(p.Node), NextID: unlessZero(max(p.From, 0)), Fraction: p.Fraction, Counts: p.Counts,
	}
}

// unlessZero is nil for a zero, which stands for none.
func unlessZero[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// sweeper says what the sweeper does.
func (s *Server) sweeper(ctx context.Context, x *exchange) error {
	status, err := s.records.Sweeper(ctx)
	if err != nil {
		return fmt.Errorf("ask for the sweeper: %w", err)
	}
	body, err := json.Marshal(NewSweeper(status))
	if err != nil {
		return err
	}
	return x.sendJSON(http.StatusOK, append(body, '\n'))
}
