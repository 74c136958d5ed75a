package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"keyrange/store"
)

// TestFsckReport: how each kind of damage is printed, and keys only when asked for.
func TestFsckReport(t *testing.T) {
	damage := []store.Damage{
		{Kind: store.Stray, Collection: "orders", Key: "k1", ID: 5, Table: "orders_r00001", Node: "node-1", Repaired: true},
		{Kind: store.Stray, Collection: "orders", Key: "k2", ID: 6, Entry: 99, Table: "orders_r00001", Node: "node-1"},
		{Kind: store.Double, Collection: "orders", Key: "k3", ID: 7, Entry: 8, Table: "orders_r00001", Node: "node-1"},
		{Kind: store.Misplaced, Collection: "orders", Key: "k4", ID: 1007, Table: "orders_r00001", Node: "node-2"},
		{Kind: store.Beyond, Collection: "orders", Key: "k5", ID: 5000},
		{Kind: store.Beyond, Collection: "orders", Key: "k6", ID: 1500, Table: "orders_r00002", Node: "node-2"},
	}
	for range 25 {
		damage = append(damage, store.Damage{Kind: store.Dangling, Collection: "orders", Key: "k7", ID: 9, Table: "orders_r00001", Node: "node-1", Repaired: true})
	}
	counts := store.SweepCounts{Entries: 1234, Rows: 1200, Fences: 3, Strays: 2, Reindexed: 1, Doubles: 1, Misplaced: 1, Beyond: 2, Dangling: 25, Removed: 25}
	var out bytes.Buffer
	r := newFsckReport(&out, false)
	for _, d := range damage {
		r.found(d)
	}
	r.print(counts, true, 1500*time.Millisecond)
	want := `looked at 1,234 entries, 1,200 records and 3 fences in 1.5 s
2 stray records, 1 have their entries again
  ID 5 in orders_r00001 on node-1, mended
  ID 6 in orders_r00001 on node-1, its entry points at ID 99
1 double records
  ID 7 in orders_r00001 on node-1, the other one is ID 8
1 misplaced rows
  ID 1007 in orders_r00001 on node-2
2 entries beyond the ranges
  ID 5000 of orders, which no range has
  ID 1500 in orders_r00002 on node-2, which is not there
25 dangling entries (harmless), 25 are gone
` + strings.Repeat("  ID 9 in orders_r00001 on node-1, mended\n", fsckExamples) + "  and 5 more\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	r = newFsckReport(&out, true)
	r.found(damage[0])
	r.print(store.SweepCounts{Strays: 1}, false, time.Second)
	if want := "looked at 0 entries, 0 records and 0 fences in 1.0 s\n1 stray records\n  ID 5 in orders_r00001 on node-1, mended, key \"k1\"\n"; out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// TestFsckProgress: where progress is a log, it is a line every few seconds.
func TestFsckProgress(t *testing.T) {
	var notes bytes.Buffer
	p := newFsckProgress(&notes)
	counts := store.SweepCounts{Rows: 1000, Fences: 1, Entries: 200}
	p.show(100, 400, counts)
	if notes.Len() != 0 {
		t.Errorf("too early: %s", notes.String())
	}
	p.began, p.last = time.Now().Add(-fsckLineTick), time.Now().Add(-fsckLineTick)
	p.show(100, 400, counts)
	p.show(400, 400, counts)
	p.finish()
	if line := notes.String(); !strings.HasPrefix(line, "fsck: 1,001 rows, 200 entries, 2") || !strings.HasSuffix(line, "/s, about 25 %\n") || strings.Count(line, "\n") != 1 {
		t.Errorf("got %q", line)
	}
}

// TestFsckGrace: the two looks are further apart than any request may last, unless nobody else can be there.
func TestFsckGrace(t *testing.T) {
	const servers = "index: {uri: mongodb://h/d}\nids: {issuers: [{dsn: mysql://u@h/i}]}\nnodes: [{name: a, dsn: mysql://u@h/a, ranges: \"1\"}]\n"
	for _, test := range []struct {
		config string
		flags  fsckOptions
		want   time.Duration
	}{
		{"log: {level: info}", fsckOptions{}, 0},
		{servers, fsckOptions{}, 10 * time.Second},
		{servers + "server: {request_timeout: 1m}", fsckOptions{}, 65 * time.Second},
		{servers, fsckOptions{graceGiven: true, grace: time.Second}, time.Second},
		{servers, fsckOptions{graceGiven: true}, 0},
	} {
		if got := test.flags.graceOf(mustLoad(t, test.config)); got != test.want {
			t.Errorf("%s %+v: %s, want %s", test.config, test.flags, got, test.want)
		}
	}
}
