package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"keyrange/test/gateway"
)

// groupedConfig is a stack whose records are grouped by the member customer.
func groupedConfig(s gateway.Stack) string {
	return s.Config() + "collections: [{name: records, group: customer}]\n"
}

// fillGroup creates records of a group in one bulk request.
func fillGroup(t *testing.T, g *gateway.Process, group string, count int) {
	t.Helper()
	var body strings.Builder
	for i := range count {
		fmt.Fprintf(&body, "{\"key\":\"%s-%d\",\"customer\":%q}\n", group, i, group)
	}
	a := g.Expect(t, http.StatusOK, "POST", "/v1/records", body.String(), "Content-Type: application/x-ndjson")
	if n := strings.Count(a.Body, `"status":201`); n != count {
		t.Fatalf("created %d of %d: %.300s", n, count, a.Body)
	}
}

// groupPage is a page of a list.
type groupPage struct {
	Items []struct{ Key, Customer string }
	Next  string
	Count *int
}

// wantGroup walks through a group in pages, and checks that it has so many records, each once.
func wantGroup(t *testing.T, g *gateway.Process, group string, count int) {
	t.Helper()
	seen := map[string]bool{}
	for query := ""; ; {
		a := g.Expect(t, http.StatusOK, "GET", "/v1/records?count=true&limit=1000&group="+group+query, "")
		var page groupPage
		if err := json.Unmarshal([]byte(a.Body), &page); err != nil || page.Count == nil || *page.Count != count {
			t.Fatalf("group %s: %v, %.200s; want %d", group, err, a.Body, count)
		}
		for _, item := range page.Items {
			if seen[item.Key] || item.Customer != group {
				t.Fatalf("group %s: record %s of %s comes again, or should not", group, item.Key, item.Customer)
			}
			seen[item.Key] = true
		}
		if page.Next == "" {
			break
		}
		query = "&cursor=" + url.QueryEscape(page.Next)
	}
	if len(seen) != count {
		t.Errorf("group %s: %d records listed, want %d", group, len(seen), count)
	}
}

// TestGroupsOutliveGateways: a group that is spread over three nodes is listed, and deleted although the gateway that has
// taken that on is killed; the others stay. A lost index is made again with the groups.
func TestGroupsOutliveGateways(t *testing.T) {
	stacks(t, func(t *testing.T, kind string) {
		s := gateway.NewStack(t, kind, 3, 2500)
		folder := gateway.WriteConfig(t, groupedConfig(s))
		g := gateway.StartIn(t, folder)
		fillGroup(t, g, "doomed", 3000)
		fillGroup(t, g, "stays", 1500)
		fillGroup(t, g, "doomed-too", 1)
		g.Expect(t, http.StatusUnprocessableEntity, "PUT", "/v1/records/stays-0", `{"customer":"doomed"}`)
		g.Expect(t, http.StatusUnprocessableEntity, "PATCH", "/v1/records/stays-0", `{"customer":null}`)
		wantGroup(t, g, "doomed", 3000)
		taken := g.Expect(t, http.StatusAccepted, "DELETE", "/v1/records?group=doomed", "")
		again := g.Expect(t, http.StatusAccepted, "DELETE", "/v1/records?group=doomed", "")
		at := taken.Header.Get("Location")
		if at == "" || again.Header.Get("Location") != at {
			t.Errorf("deletions at %q and %q", at, again.Header.Get("Location"))
		}
		g.Kill(t)
		folder = gateway.WriteConfig(t, groupedConfig(s))
		g = gateway.StartIn(t, folder)
		began := time.Now()
		gateway.Poll(t, "the deletion is done", func() bool {
			return strings.Contains(g.Expect(t, http.StatusOK, "GET", at, "").Body, `"state":"done"`)
		})
		t.Logf("done %s after the next start", time.Since(began).Round(time.Millisecond))
		wantGroup(t, g, "doomed", 0)
		wantGroup(t, g, "stays", 1500)
		g.Expect(t, http.StatusNotFound, "GET", "/v1/records/doomed-7", "")
		g.Stop(t)

		s = loseIndex(t, s, kind)
		folder = gateway.WriteConfig(t, groupedConfig(s))
		wantFsck(t, folder, 1, nil, "1,501 stray records\n", "ranges not listed for a group")
		wantFsck(t, folder, 0, []string{"--repair"}, "1,501 have their entries again", "are listed again", "no damage is left")
		g = gateway.StartIn(t, folder)
		wantGroup(t, g, "stays", 1500)
		wantGroup(t, g, "doomed-too", 1)
		g.Expect(t, http.StatusConflict, "POST", "/v1/records", `{"key":"stays-3","customer":"stays"}`)
		g.Stop(t)

		// Without the group in the config, records would be made that belong to none.
		folder = gateway.WriteConfig(t, s.Config())
		for _, command := range []string{"check", "serve", "fsck"} {
			printed, code := gateway.Run(t, folder, nil, command)
			if code == 0 || !strings.Contains(printed, "can never change") || !strings.Contains(printed, "customer") {
				t.Errorf("gateway %s without the group: exit code %d\n%s", command, code, printed)
			}
		}
	})
}

// TestGroupTogether: records of a group that are posted in one array get IDs without a gap, beside other groups in it.
func TestGroupTogether(t *testing.T) {
	stacks(t, func(t *testing.T, kind string) {
		s := gateway.NewStack(t, kind, 2, 10_000_000)
		s.IDs = ", order: spread"
		g := gateway.Start(t, groupedConfig(s))
		const count = 6000
		var body strings.Builder
		for i := range count {
			fmt.Fprintf(&body, ",{\"key\":\"k%d\",\"customer\":\"large\"}", i)
		}
		a := g.Expect(t, http.StatusOK, "POST", "/v1/records", "["+body.String()[1:]+"]")
		var results struct{ Results []struct{ ETag string } }
		if err := json.Unmarshal([]byte(a.Body), &results); err != nil || len(results.Results) != count {
			t.Fatalf("%v, %.200s", err, a.Body)
		}
		lowest, highest := int64(1<<62), int64(0)
		for _, r := range results.Results {
			var id, version int64
			if _, err := fmt.Sscanf(r.ETag, `"%d-%d"`, &id, &version); err != nil {
				t.Fatal(err)
			}
			lowest, highest = min(lowest, id), max(highest, id)
		}
		if highest-lowest != count-1 {
			t.Errorf("%d records have IDs from %d to %d", count, lowest, highest)
		}
		wantGroup(t, g, "large", count)
	})
}
