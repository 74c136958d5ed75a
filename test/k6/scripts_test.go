package k6

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const folder = "../../scripts/k6"

// small are the settings with which each script has a short run that does all of its work. The machine may be slow: how long
// requests take is not what is tested.
var small = map[string]map[string]string{
	"smoke":  {},
	"crud":   {"DURATION": "2s", "RATE": "100", "VUS": "6"},
	"ramp":   {"START_RATE": "20", "STEP_RATE": "40", "STEPS": "3", "STEP": "1s", "VUS": "6"},
	"soak":   {"DURATION": "3s", "RATE": "10", "VUS": "20", "KEEP": "1"}, // room for the stalls of a busy machine
	"zipf":   {"DURATION": "2s", "RATE": "100", "VUS": "4", "KEYS": "700"},
	"append": {"DURATION": "4s", "RATE": "30", "VUS": "4"},
}

// runOf runs a script against a gateway, with SUMMARY_DIR out.
func runOf(t *testing.T, script string, g gateway, env map[string]string) *Result {
	t.Helper()
	all := map[string]string{"BASE_URL": g.url, "SUMMARY_DIR": "out", "GRACE": "2s", "P95_MS": "10000"}
	maps.Copy(all, env)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	result, err := Run(ctx, script, all)
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return result
}

// TestScripts runs every script: all thresholds hold, the read-back finds every create that was acknowledged, and the summaries
// are there.
func TestScripts(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(small)) {
		t.Run(name, func(t *testing.T) {
			g := start(t, configOf(2))
			env := maps.Clone(small[name])
			if name == "append" {
				g = start(t, configOf(1))
				env["ADMIN_URL"] = g.admin
				appending := time.AfterFunc(500*time.Millisecond, func() { g.reload(t, configOf(2)) })
				defer appending.Stop()
			}
			result := runOf(t, filepath.Join(folder, name+".js"), g, env)
			if !result.Passed || len(result.Errors) > 0 {
				t.Errorf("it did not pass: %q %q\n%s", result.Broken, result.Errors, strings.Join(result.Console, "\n"))
			}
			checkReadBack(t, name, result)
			checkSummaries(t, name, result)
		})
	}
}

// checkReadBack holds what was read back against what was acknowledged, by the engine's own counts.
func checkReadBack(t *testing.T, name string, result *Result) {
	t.Helper()
	created := result.Total("created")
	if name == "zipf" {
		created = 700 // all by setup
	}
	deleted := len(result.metrics.all["delete_duration"].matching(nil))
	if created == 0 || result.Total("read_back_records") != created-deleted {
		t.Errorf("%d records were created and %d deleted, %d were read back", created, deleted, result.Total("read_back_records"))
	}
	if (name == "crud" || name == "soak" || name == "smoke") && deleted == 0 {
		t.Error("nothing was deleted")
	}
}

// checkSummaries looks at the three outputs of a run.
func checkSummaries(t *testing.T, name string, result *Result) {
	t.Helper()
	var summary struct {
		Script     string
		Passed     bool
		Run        string
		Thresholds []struct {
			Metric string
			OK     bool
		}
		Metrics map[string]any
	}
	if err := json.Unmarshal([]byte(result.Outputs["out/"+name+".json"]), &summary); err != nil {
		t.Fatal(err)
	}
	if summary.Script != name || !summary.Passed || summary.Run == "" || len(summary.Thresholds) < 8 || summary.Metrics["http_reqs"] == nil {
		t.Errorf("the JSON summary is not whole: %+v", summary)
	}
	page := result.Outputs["out/"+name+".html"]
	if !strings.HasPrefix(page, "<!DOCTYPE html>") || !strings.HasSuffix(page, "</html>\n") || !strings.Contains(page, name+": passed") {
		t.Errorf("the page is not whole:\n%s", page)
	}
	if found := regexp.MustCompile(`(?i)(src|href)\s*=|url\(|@import|<script|https?:`).FindString(page); found != "" {
		t.Errorf("the page loads something: %s", found)
	}
	if !strings.Contains(result.Outputs["stdout"], name+": passed") || len(result.Outputs) != 3 {
		t.Errorf("the outputs are not those expected: %v", result.Outputs)
	}
}

// TestSharedKeys runs a script whose VUs share keys, which must fail: creates run into each other, and of records that overwrite
// each other not all can be read back.
func TestSharedKeys(t *testing.T) {
	for how, wanted := range map[string][]string{
		"create": {"checks rate>0.99", "failures rate<0.01"},
		"put":    {"lost_records count==0"},
	} {
		result := runOf(t, "testdata/shared_keys.js", start(t, configOf(1)), map[string]string{"HOW": how})
		for _, one := range wanted {
			if result.Passed || !slices.Contains(result.Broken, one) {
				t.Errorf("%s: it did not break %q, only %q", how, one, result.Broken)
			}
		}
		if !strings.Contains(result.Outputs["stdout"], "shared_keys: FAILED") {
			t.Errorf("%s: its summary does not say that it failed:\n%s", how, result.Outputs["stdout"])
		}
	}
}

// TestLostRecord deletes a record behind a script's back before the read-back, which must say so; so must it of a VU without a
// ledger.
func TestLostRecord(t *testing.T) {
	for name, broken := range map[string]string{"lost": "lost_records count==0", "ledger": "missing_ledgers count==0"} {
		g := start(t, configOf(1))
		result := runOf(t, "testdata/losing.js", g, map[string]string{"LOSE": name})
		if result.Passed || !slices.Equal(result.Broken, []string{broken}) {
			t.Errorf("%s: broken thresholds: got %q, want %q", name, result.Broken, broken)
		}
	}
}

// TestSettings refuses settings that make no sense and a run that was there before, and says why.
func TestSettings(t *testing.T) {
	g := start(t, configOf(1))
	runOf(t, filepath.Join(folder, "smoke.js"), g, map[string]string{"RUN_ID": "again"})
	for _, c := range []struct{ script, name, value, want string }{
		{"crud.js", "RATE", "fast", "RATE: a number above 0 (got fast)"},
		{"crud.js", "DURATION", "5", "DURATION: a duration like 90s, 5m or 1h30m (got 5)"},
		{"crud.js", "MIX", "reads=5", "MIX: like read=60,create=20,update=10 (got reads=5)"},
		{"append.js", "RATE", "5", "ADMIN_URL: where the admin listener is"},
		{"smoke.js", "RUN_ID", "again", "RUN_ID again was used before"},
		{"smoke.js", "RUN_ID", "a/b", "RUN_ID: up to 64 letters"},
		{"smoke.js", "COLLECTION", "none", "collection none: 404"},
		{"smoke.js", "BASE_URL", "http://127.0.0.1:1", "/readyz: "},
	} {
		env := map[string]string{"BASE_URL": g.url, c.name: c.value}
		_, err := Run(t.Context(), filepath.Join(folder, c.script), env)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s=%s: got %v, want %q", c.script, c.name, c.value, err, c.want)
		}
	}
}

// behind puts a proxy in front of a gateway. wrap gets each request and what passes it on.
func behind(t *testing.T, g gateway, wrap func(w http.ResponseWriter, r *http.Request, forward http.Handler)) gateway {
	t.Helper()
	target, err := url.Parse(g.url)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { wrap(w, r, forward) }))
	t.Cleanup(proxy.Close)
	return gateway{url: proxy.URL, admin: g.admin, config: g.config}
}

// TestAPIKey looks for the key of the environment in every request.
func TestAPIKey(t *testing.T) {
	bare := make(chan string, 1000)
	g := behind(t, start(t, configOf(1)), func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if r.Header.Get("Authorization") != "Bearer secret" && r.URL.Path != "/readyz" {
			bare <- r.Method + " " + r.URL.String()
		}
		forward.ServeHTTP(w, r)
	})
	if result := runOf(t, filepath.Join(folder, "smoke.js"), g, map[string]string{"API_KEY": "secret"}); !result.Passed {
		t.Errorf("it did not pass: %q", result.Broken)
	}
	if len(bare) > 0 {
		t.Errorf("%d requests without the key, like %s", len(bare), <-bare)
	}
}

// TestRepliesLost loses the replies of some creates and deletes that took effect. That is a failure of the service, and the
// read-back must not take it for lost or undeleted records.
func TestRepliesLost(t *testing.T) {
	var creates, deletes atomic.Int64
	g := behind(t, start(t, configOf(1)), func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		create := r.Method == http.MethodPost && r.URL.RawQuery == ""
		if (create && creates.Add(1)%5 == 0) || (r.Method == http.MethodDelete && deletes.Add(1)%3 == 0) {
			forward.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, r)
	})
	env := map[string]string{"DURATION": "2s", "RATE": "100", "VUS": "4", "MIX": "delete=20"}
	result := runOf(t, filepath.Join(folder, "crud.js"), g, env)
	if want := []string{"checks rate>0.99", "failures rate<0.01"}; !slices.Equal(result.Broken, want) {
		t.Errorf("broken thresholds: got %q, want %q\n%s", result.Broken, want, strings.Join(result.Console, "\n"))
	}
	if creates.Load() < 5 || deletes.Load() < 3 || result.Total("read_back_records") == 0 {
		t.Errorf("too little happened: %d creates, %d deletes", creates.Load(), deletes.Load())
	}
}

// TestEveryScriptRuns sees to it that no script is left out of TestScripts.
func TestEveryScriptRuns(t *testing.T) {
	shared := []string{"lib", "ledger", "records", "summary"}
	files, err := filepath.Glob(folder + "/*.js")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no scripts", err)
	}
	readme, err := os.ReadFile(folder + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".js")
		if small[name] == nil && !slices.Contains(shared, name) {
			t.Errorf("%s is in no test", name)
		}
		if !strings.Contains(string(readme), "`"+name+".js`") {
			t.Errorf("README.md does not tell of %s.js", name)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, setting := range regexp.MustCompile(`(?:__ENV\.|(?:number|seconds)\(")([A-Z][A-Z0-9_]+)`).FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(string(readme), "`"+setting[1]+"`") {
				t.Errorf("README.md does not tell of %s", setting[1])
			}
		}
		if !strings.HasPrefix(string(text), "// @ts-check\n") {
			t.Errorf("%s.js is not checked by editors", name)
		}
	}
}
