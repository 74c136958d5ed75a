//go:build browser

package browser

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"keyrange/handlers"
	"keyrange/handlers/access"
	"keyrange/store"
)

// crowd is a store of a hundred nodes with ten ranges each, some of them down and some drained. Nothing else works.
type crowd struct{ handlers.Records }

const (
	crowdNodes, crowdRanges = 100, 10
	crowdSize               = 10_000_000
)

func (crowd) Health(context.Context) []store.Health {
	all := []store.Health{{Kind: "index", Name: "index", Took: time.Millisecond}, {Kind: "issuer", Name: "issuer-1"}, {Kind: "issuer", Name: "issuer-2"}}
	for i := range crowdNodes {
		h := store.Health{Kind: "node", Name: fmt.Sprintf("node-%d", i+1), Took: time.Duration(i) * 100 * time.Microsecond}
		if i%37 == 5 {
			h.Err = errors.New("ping: database unavailable: dial tcp 10.0.0.12:3306: connect: connection refused")
		}
		all = append(all, h)
	}
	return all
}

func (crowd) Overview() store.Overview {
	o := store.Overview{RangeSize: crowdSize, Levels: store.AlarmLevels{Warn: .75, Alarm: .9}}
	for i := range crowdNodes {
		name := fmt.Sprintf("node-%d", i+1)
		o.Nodes = append(o.Nodes, store.NodeOverview{Name: name, Ranges: fmt.Sprintf("%d-%d", i*crowdRanges+1, (i+1)*crowdRanges), Drained: i%29 == 3})
		o.Circuits = append(o.Circuits, store.Circuit{Kind: "node", Name: name, ReadsOpen: i%37 == 5, WritesOpen: i%37 == 5})
	}
	return o
}

func (crowd) Levels(context.Context, bool) (store.Levels, error) {
	days, perDay := 23.4, 2_100_000.0
	levels := store.Levels{At: time.Now(), Collections: []store.Outlook{{
		Collection: "records", Owned: crowdNodes * crowdRanges * crowdSize, Issued: 9_310_000_000, Left: 690_000_000, State: store.StateAlarm, Complete: true, PerDay: &perDay, DaysLeft: &days,
	}, {Collection: "orders", Owned: crowdNodes * crowdRanges * crowdSize, Left: crowdNodes * crowdRanges * crowdSize, State: store.StateOK, Complete: true}}}
	for r := range int64(crowdNodes*crowdRanges - 60) {
		l := store.Level{
			Collection: "records", Range: r + 1, Node: fmt.Sprintf("node-%d", r/crowdRanges+1), Lo: r*crowdSize + 1, Hi: (r+1)*crowdSize + 1,
			Issued: crowdSize, Complete: true, Live: crowdSize - 1000*r, Bytes: 4 << 30, Drained: r/crowdRanges%29 == 3,
		}
		if r >= crowdNodes*crowdRanges-64 {
			l.Issued, l.Open = crowdSize/3, true
		}
		levels.Ranges = append(levels.Ranges, l)
	}
	return levels, nil
}

func (crowd) Sweeper(context.Context) (store.SweeperStatus, error) {
	share := .42
	return store.SweeperStatus{State: store.SweeperStandby, Holder: "another7gw", Pass: &store.SweepPass{
		StartedAt: time.Now(), Phase: store.PhaseRows, Collection: "records", Range: 317, Node: "node-32", From: 3_170_000_000, Fraction: &share,
		Counts: store.SweepCounts{Rows: 3_169_000_000, Entries: 0, Strays: 2, Reindexed: 2},
	}}, nil
}

func (crowd) Trace(context.Context, string, string) (store.Trace, error) {
	return store.Trace{EntryErr: errors.New("find entry: unavailable: index is down"), CachedID: 7, ID: 7, Range: 1, Lo: 1, Hi: crowdSize + 1, Node: "node-1", Table: "records_r00001", Row: store.RowFence}, nil
}

// serveCrowd serves the crowd on an operators' listener that asks who is there, if it is told to.
func serveCrowd(t *testing.T, guard *access.Guard) string {
	t.Helper()
	server := httptest.NewServer(handlers.New(crowd{}, handlers.Options{
		Limits:      handlers.Limits{RequestTimeout: time.Second, MaxRequests: 1},
		Collections: []handlers.Collection{{Name: "records", KeyMember: "key"}, {Name: "orders", KeyMember: "key"}}, Guard: guard, GuardAdmin: guard != nil,
	}).Admin())
	t.Cleanup(server.Close)
	return server.URL
}

// TestPageCrowd: a hundred nodes with a thousand ranges are still a page that can be read, and redrawn in no time.
func TestPageCrowd(t *testing.T) {
	url, b := serveCrowd(t, nil), startChromium(t)
	page := b.open(url+"/ui/", look{width: 1280})
	page.await("the ranges are drawn", `document.querySelectorAll(".range").length > 900`)
	if got := page.value(`document.querySelectorAll("details.node[open]").length`); got != "1" {
		t.Errorf("%s nodes are unfolded, not the one that takes new records", got)
	}
	page.value(`document.querySelectorAll("details.node summary")[1].click(), document.querySelector(".scroll").scrollTop = 40`)
	page.await("three looks", `performance.getEntriesByType("resource").filter((r) => r.name.endsWith("/admin/status")).length >= 3`)
	if got := page.value(`[document.querySelectorAll("details.node")[1].open, document.querySelector(".scroll").scrollTop]`); got != "[true 40]" {
		t.Errorf("a look has folded a node or scrolled: %s", got)
	}
	page.tabs()
	page.lookUp("k")
	page.await("a fence", `document.getElementById("path").innerText.includes("the index does not say") && document.getElementById("path").innerText.includes("fence")`)
	keep(t, "crowd-1280", page.picture(0, 0))
	page.resize(look{width: narrow})
	if wide := page.value("document.documentElement.scrollWidth"); wide != "390" {
		t.Errorf("the page is %s wide", wide)
	}
	keep(t, "crowd-390", page.picture(0, narrowHeight))
	page.check(url)
}

// tabs goes through the page with the keyboard and checks that everything is met once, is seen to have the focus and has a name.
func (p *tab) tabs() {
	p.t.Helper()
	p.value("document.activeElement.blur(), scrollTo(0, 0)")
	met := map[string]int{}
	for range 260 {
		p.press("Tab", "", 9)
		at := p.value(`(() => { const e = document.activeElement; return [e.id || e.className || e.tagName, getComputedStyle(e).outlineStyle,
			Boolean(e.textContent.trim() || e.ariaLabel || (e.labels && e.labels.length))].join(" ") })()`)
		if !strings.HasSuffix(at, " true") || strings.Contains(at, " none ") {
			p.t.Errorf("with the focus: %s", at)
		}
		if met[at]++; strings.HasPrefix(at, "lookup-key") {
			break
		}
	}
	if met["skip auto true"]+met["skip solid true"] != 1 || met["pause auto true"]+met["pause solid true"] != 1 || met["SUMMARY solid true"] != 2*crowdNodes {
		p.t.Errorf("met with the keyboard: %v", met)
	}
}

// TestPageGuarded: the page asks for a key once, says when it is refused, and keeps it in the tab.
func TestPageGuarded(t *testing.T) {
	const right, wrong = "right-key-right-key-right-key-right", "wrong-key-wrong-key-wrong-key-wrong"
	text := fmt.Sprintf("clients:\n  - {name: boss, keys: [%x], roles: {\"*\": admin}}\n", sha256.Sum256([]byte(right)))
	clients, err := access.ParseClients([]byte(text), []string{"records", "orders"})
	if err != nil {
		t.Fatal(err)
	}
	guard := access.NewGuard(clients, nil)
	url, b := serveCrowd(t, guard), startChromium(t)
	page := b.open(url+"/ui/", look{width: 1280})
	page.await("the key is asked for", `document.activeElement?.id === "secret"`)
	page.write(wrong)
	page.press("Enter", "\r", 13)
	page.await("a wrong key is refused", `document.getElementById("ask-why").innerText.includes("refuses this key")`)
	keep(t, "ask-1280", page.picture(0, 0))
	page.write(right)
	page.press("Enter", "\r", 13)
	page.await("the page is drawn", `document.body.dataset.drawn === "true" && document.querySelectorAll(".node").length > 0`)
	page.call(page.session, "Page.reload", nil, nil)
	page.await("it is drawn again without a question", `document.body.dataset.drawn === "true" && document.getElementById("ask").hidden`)
	page.value(`document.getElementById("forget").click()`)
	page.await("a forgotten key is asked for", `!document.getElementById("ask").hidden && document.getElementById("main").hidden`)
	page.check(url)
}
