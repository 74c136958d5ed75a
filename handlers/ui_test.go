package handlers

import (
	"errors"
	"io/fs"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"keyrange/store"
)

// uiContents are the files of the page by name.
func uiContents(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(uiFiles, "ui", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			content, err := uiFiles.ReadFile(name)
			files[strings.TrimPrefix(name, "ui/")] = string(content)
			return err
		}
		return err
	})
	if err != nil || len(files) < 5 {
		t.Fatal(err, len(files))
	}
	return files
}

// TestUIFiles: every file of the page is served as what it is, with a policy that lets it load nothing from elsewhere, and is
// not sent again to who has it; there is nothing beside them.
func TestUIFiles(t *testing.T) {
	r := newRig(t)
	for name, content := range uiContents(t) {
		answer := r.askAdmin("/ui/" + name)
		header := answer.Header()
		if answer.Code != 200 || answer.Body.String() != content || header.Get("Content-Type") != uiTypes[path.Ext(name)] || header.Get("Content-Type") == "" {
			t.Errorf("%s: %d %v", name, answer.Code, header)
		}
		policy := header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", name, header)
		}
		request := httptest.NewRequest("GET", "/ui/"+name, nil)
		request.Header.Set("If-None-Match", header.Get("ETag"))
		again := httptest.NewRecorder()
		r.Admin().ServeHTTP(again, request)
		if again.Code != 304 || again.Body.Len() > 0 {
			t.Errorf("%s again: %d", name, again.Code)
		}
	}
	if answer := r.askAdmin("/ui/"); answer.Body.String() != uiContents(t)["index.html"] || !strings.HasPrefix(answer.Header().Get("Content-Type"), "text/html") {
		t.Errorf("/ui/: %d %v", answer.Code, answer.Header())
	}
	if answer := r.askAdmin("/ui"); answer.Code != 308 || answer.Header().Get("Location") != "ui/" {
		t.Errorf("/ui: %d %v", answer.Code, answer.Header())
	}
	for _, target := range []string{"/ui/none.js", "/ui/../ui.go", "/ui/%2e%2e/ui.go", "/ui//", "/ui/index.html/"} {
		if answer := r.askAdmin(target); answer.Code != 404 {
			t.Errorf("%s: %d", target, answer.Code)
		}
	}
	r.expect(404, "not_found", "GET", "/ui/", "")
}

// TestUIStaysHome: the files name no other host, have no code or style in attributes, and make no markup of text.
func TestUIStaysHome(t *testing.T) {
	const namespace = `xmlns="http://www.w3.org/2000/svg"` // a name, which nobody fetches
	foreign := regexp.MustCompile(`(?i)https?:|wss?://|["'(]//|@import|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|\sstyle=|\son[a-z]+=|javascript:`)
	for name, content := range uiContents(t) {
		if found := foreign.FindString(strings.ReplaceAll(content, namespace, "")); found != "" {
			t.Errorf("%s has %q", name, found)
		}
	}
}

// TestUIEndpoints: everything that the page fetches and loads is there.
func TestUIEndpoints(t *testing.T) {
	r := newRig(t)
	files := uiContents(t)
	fetched := map[string]bool{}
	for _, match := range regexp.MustCompile(`"\.\.(/admin/[a-z]+)`).FindAllStringSubmatch(files["page.js"], -1) {
		fetched[match[1]] = true
		target := match[1]
		if target == patternLookup {
			target += "?collection=records&key=a"
		}
		if answer := r.askAdmin(target); answer.Code != 200 || answer.Header().Get("Content-Type") != mediaJSON {
			t.Errorf("%s: %d %v", target, answer.Code, answer.Header())
		}
	}
	for _, want := range []string{patternStatus, patternRanges, patternSweeper, patternHistory, patternLookup} {
		if !fetched[want] {
			t.Errorf("the page does not ask for %s", want)
		}
	}
	loads := regexp.MustCompile(`(?:from "\./|(?:src|href)=")([a-z]+\.[a-z]+)"`)
	for name, content := range files {
		for _, match := range loads.FindAllStringSubmatch(content, -1) {
			if _, ok := files[match[1]]; !ok {
				t.Errorf("%s loads %s, which is not there", name, match[1])
			}
		}
	}
}

// TestStatus: one document says what the program, its config and its databases are up to. What is unknown is null.
func TestStatus(t *testing.T) {
	r := newRig(t)
	r.fake.health = []store.Health{
		{Kind: "index", Name: "index", Took: 1500 * time.Microsecond},
		{Kind: "issuer", Name: "issuer", Took: time.Millisecond},
		{Kind: "node", Name: "node-1", Took: time.Millisecond},
		{Kind: "node", Name: "node-2", Took: time.Millisecond, Err: errors.New("ping: no route to host")},
	}
	r.fake.over = store.Overview{
		RangeSize: 1000, Levels: store.AlarmLevels{Warn: .75, Alarm: .9},
		Nodes:    []store.NodeOverview{{Name: "node-1", Ranges: "1-2,5"}, {Name: "node-2", Ranges: "3-4", Drained: true}},
		Circuits: []store.Circuit{{Kind: "index", Name: "index"}, {Kind: "node", Name: "node-1"}, {Kind: "node", Name: "node-2", ReadsOpen: true}},
	}
	at := regexp.MustCompile(`"at":"2[0-9T:.-]+Z","status"`)
	look := func(name string) {
		t.Helper()
		text := transcript(r.askAdmin(patternStatus))
		text = regexp.MustCompile(`Content-Length: \d+`).ReplaceAllString(text, "Content-Length: ...")
		golden(t, name, at.ReplaceAllString(text, `"at":"...","status"`))
	}
	look("status_alone")
	r.options.Program = func() Program {
		return Program{
			Version: "v1.2.3", Instance: "one", StartedAt: fakeNow,
			Config: ConfigState{Path: "config.yaml", Result: "refused", At: fakeNow.Add(time.Hour), Changes: []string{}, Reason: "nodes[0].dsn: ***"},
			Pools:  []Pool{{Kind: "node", Name: "node-2", Max: 32}, {Kind: "issuer", Name: "issuer", Open: 3, InUse: 1, Max: 8}, {Kind: "node", Name: "node-1", Open: 2, Max: 32}},
		}
	}
	look("status")
	if answer := r.askAdmin(patternStatus + "?all"); answer.Code != 400 {
		t.Errorf("an unknown parameter: %d", answer.Code)
	}
	r.expect(404, "not_found", "GET", patternStatus, "")
}
