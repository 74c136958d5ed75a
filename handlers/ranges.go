package handlers

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"keyrange/store"
)

// Ranges is the answer of GET /admin/ranges: how full the ranges are and how long they last. What is unknown is null.
type Ranges struct {
	At          time.Time          `json:"at"`
	Collections []CollectionRanges `json:"collections"`
	// Ranges are those that a gateway has opened, by collection and number.
	Ranges []RangeLevel `json:"ranges"`
}

// CollectionRanges is all ranges of one collection together; see store.Outlook.
type CollectionRanges struct {
	Collection      string   `json:"collection"`
	State           string   `json:"state"`
	OwnedIDs        int64    `json:"owned_ids"`
	IssuedIDs       int64    `json:"issued_ids"`
	LeftIDs         int64    `json:"left_ids"`
	GrowthIDsPerDay *float64 `json:"growth_ids_per_day"`
	DaysLeft        *float64 `json:"days_left"`
	Complete        bool     `json:"complete"`
}

// RangeLevel is one range of one collection; see store.Level.
type RangeLevel struct {
	Collection string `json:"collection"`
	Range      int64  `json:"range"`
	Node       string `json:"node"`
	FirstID    int64  `json:"first_id"`
	LastID     int64  `json:"last_id"`
	IssuedIDs  int64  `json:"issued_ids"`
	Complete   bool   `json:"complete"`
	LiveRows   *int64 `json:"live_rows"`
	Bytes      *int64 `json:"bytes"`
	Exact      bool   `json:"exact"`
	Drained    bool   `json:"drained"`
	Open       bool   `json:"open"`
}

// NewRanges puts what the store says into the form of the answer.
func NewRanges(levels store.Levels) Ranges {
	answer := Ranges{At: levels.At.UTC(), Collections: []CollectionRanges{}, Ranges: []RangeLevel{}}
	for _, o := range levels.Collections {
		answer.Collections = append(answer.Collections, CollectionRanges{
			Collection: o.Collection, State: o.State, OwnedIDs: o.Owned, IssuedIDs: o.Issued, LeftIDs: o.Left,
			GrowthIDsPerDay: o.PerDay, DaysLeft: o.DaysLeft, Complete: o.Complete,
		})
	}
	for _, l := range levels.Ranges {
		r := RangeLevel{
			Collection: l.Collection, Range: l.Range, Node: l.Node, FirstID: l.Lo, LastID: l.Hi - 1, IssuedIDs: l.Issued,
			Complete: l.Complete, Exact: l.Exact, Drained: l.Drained, Open: l.Open,
		}
		if l.Live >= 0 {
			r.LiveRows, r.Bytes = &l.Live, &l.Bytes
		}
		answer.Ranges = append(answer.Ranges, r)
	}
	return answer
}

// ranges says how full the ranges are. It waits as long as its client does rather than for the request timeout, because
// counting every record (exact=true) takes its time.
func (s *Server) ranges(_ context.Context, x *exchange) error {
	exact, err := exactParameter(x.Request().URL.RawQuery)
	if err != nil {
		return err
	}
	levels, err := s.records.Levels(x.ctx, exact)
	if err != nil {
		return fmt.Errorf("survey the ranges: %w", err)
	}
	body, err := json.Marshal(NewRanges(levels))
	if err != nil {
		return err
	}
	return x.sendJSON(http.StatusOK, append(body, '\n'))
}

// exactParameter reads a query that may have nothing but one exact=true or exact=false.
func exactParameter(query string) (exact bool, err error) {
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return false, refuse(errParameter, "The query is not a list of name=value pairs.")
	}
	for name, values := range parameters {
		switch {
		case name != "exact":
			return false, refuse(errParameter, "There is no parameter %q; known here: exact.", name)
		case len(values) > 1:
			return false, refuse(errParameter, "exact is given %d times.", len(values))
		case values[0] != "true" && values[0] != "false":
			return false, refuse(errParameter, "exact must be true or false (got %q).", values[0])
		}
		exact = values[0] == "true"
	}
	return exact, nil
}
