package handlers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"keyrange/store"
)

// TestLookup: the path to a row is told step by step, without the document; what is wrong with a question is said.
func TestLookup(t *testing.T) {
	unavailable := fmt.Errorf("find entry: %w: index is down", store.ErrUnavailable)
	live := store.Trace{
		EntryID: 1001, CachedID: 1001, ID: 1001, Range: 2, Lo: 1001, Hi: 2001, Node: "node-2", Table: "records_r00002",
		Row: store.RowLive, Version: 3, CreatedAt: fakeNow, UpdatedAt: fakeNow.Add(time.Hour), Bytes: 17,
	}
	for name, trace := range map[string]store.Trace{
		"live":     live,
		"none":     {},
		"fence":    {EntryID: 7, ID: 7, Range: 1, Lo: 1, Hi: 1001, Node: "node-1", Table: "records_r00001", Row: store.RowFence},
		"beyond":   {EntryID: 7001, ID: 7001},
		"no_index": {EntryErr: unavailable, CachedID: 7, ID: 7, Range: 1, Lo: 1, Hi: 1001, Node: "node-1", Table: "records_r00001", RowErr: store.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.fake.trace = trace
			golden(t, "lookup_"+name, transcript(r.askAdmin(patternLookup+"?collection=records&key=a%2Fb")))
		})
	}
	for query, want := range map[string]string{
		"":                                       "invalid_parameter",
		"?collection=records":                    "invalid_key",
		"?key=a":                                 "invalid_parameter",
		"?collection=nowhere&key=a":              "collection_not_found",
		"?collection=records&key=a&key=b":        "invalid_parameter",
		"?collection=records&key=a&document=yes": "invalid_parameter",
		"?collection=records&key=%00":            "invalid_key",
	} {
		if answer := newRig(t).askAdmin(patternLookup + query); answer.Code/100 != 4 || !strings.Contains(answer.Body.String(), `"code":"`+want+`"`) {
			t.Errorf("%s: %d %s", query, answer.Code, answer.Body)
		}
	}
	newRig(t).expect(404, "not_found", "GET", patternLookup+"?collection=records&key=a", "")
}
