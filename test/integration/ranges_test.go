package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"keyrange/test/gateway"
)

// TestRangesCommand: gateway ranges says the same from the databases as a running gateway does, but for embedded ones,
// which belong to the gateway while it runs; then the error says what to do.
func TestRangesCommand(t *testing.T) {
	stacks(t, func(t *testing.T, kind string) {
		s := gateway.NewStack(t, kind, 2, 1000)
		folder := gateway.WriteConfig(t, s.Config())
		g := gateway.StartIn(t, folder)
		for i := range 400 {
			g.Expect(t, http.StatusCreated, "PUT", fmt.Sprintf("/v1/records/key-%03d", i), `{"v":1}`)
		}
		const opened = "node-1, open"
		wantRecords := func(printed string) {
			t.Helper()
			if !strings.Contains(printed, "[############..................]  40.") || !strings.Contains(printed, "%  400      12 KiB  node-1") {
				t.Errorf("printed\n%s", printed)
			}
		}
		for _, flags := range [][]string{{"--server", g.Admin}, {"--exact", "--server", g.Admin}} {
			printed, code := gateway.Run(t, folder, nil, append([]string{"ranges"}, flags...)...)
			if wantRecords(printed); code != 0 || !strings.Contains(printed, opened) {
				t.Errorf("%q: exit code %d\n%s", flags, code, printed)
			}
		}
		printed, code := gateway.Run(t, folder, nil, "ranges")
		if kind == gateway.Embedded {
			if code != 1 || !strings.Contains(printed, "in use by another gateway process") || !strings.Contains(printed, "gateway ranges --server http://127.0.0.1:0") {
				t.Errorf("beside a gateway: exit code %d\n%s", code, printed)
			}
		} else if wantRecords(printed); code != 0 {
			t.Errorf("beside a gateway: exit code %d\n%s", code, printed)
		}
		g.Stop(t)
		stored := func() string {
			if kind == gateway.Embedded { // another test looks at those files
				return ""
			}
			return dump(t, s)
		}
		before := stored()
		for _, flags := range [][]string{nil, {"--exact"}} {
			printed, code = gateway.Run(t, folder, nil, append([]string{"ranges"}, flags...)...)
			if wantRecords(printed); code != 0 || strings.Contains(printed, opened) {
				t.Errorf("%q after the gateway has stopped: exit code %d\n%s", flags, code, printed)
			}
		}
		if after := stored(); after != before {
			t.Errorf("the command has changed what is stored\nbefore: %s\nafter: %s", before, after)
		}
	})
}
