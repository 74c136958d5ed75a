//go:build browser

package browser

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

const (
	// sceneEnv is how long the scene has traffic before it is looked at; sceneShort when it is not set.
	sceneEnv   = "SCENE"
	sceneShort = 15 * time.Second
	// picturesEnv is the folder that the pictures go to; a temporary one when it is not set.
	picturesEnv = "PICTURES"
	// narrow is the width of a phone in pixels, narrowHeight how much of the page a picture of one shows.
	narrow, narrowHeight = 390, 1400
)

// TestMain builds the gateway.
func TestMain(m *testing.M) { os.Exit(gateway.Main(m)) }

// scene is a gateway on four MySQL nodes: node-1 at 80 % and drained, node-2 at 40 %, node-3 at 0 %, and node-4 down.
type scene struct {
	*gateway.Process
	t      *testing.T
	folder string
	stack  gateway.Stack
}

// config is the scene as a config file; drained nodes are named.
func (s *scene) config(size int, drained ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "server: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\"}\nindex: {uri: %q, allow_standalone: true}\n", s.stack.Index)
	fmt.Fprintf(&b, "ids: {issuers: [{dsn: %q}], step: {min: 10, max: 10}}\nranges: {size: %d}\n", s.stack.Issuer, size)
	b.WriteString("collections: [{name: orders, key: order_id}, {name: records, key: key}]\nnodes:\n")
	for i, n := range s.stack.Nodes {
		ranges := fmt.Sprint(i + 1)
		if i == 2 {
			ranges = "3,5-7"
		}
		fmt.Fprintf(&b, "  - {name: %s, dsn: %q, ranges: %q, connections: 8, drain: %t}\n", n.Name, n.DSN, ranges, strings.Contains(strings.Join(drained, " "), n.Name))
	}
	return b.String()
}

// change puts another config in force.
func (s *scene) change(text string, want int) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.folder, gateway.ConfigName), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if a, err := gateway.CallAt(s.Admin, "POST", "/admin/reload", ""); err != nil || a.Status != want {
		s.t.Fatalf("reload: %+v %v", a, err)
	}
}

// fill creates records until so many were made.
func (s *scene) fill(collection, member, prefix string, n int) {
	s.t.Helper()
	for from := 0; from < n; from += 50 {
		var items []string
		for i := from; i < min(n, from+50); i++ {
			items = append(items, fmt.Sprintf(`{%q: "%s-%d", "total": %d.50, "note": %q}`, member, prefix, i, i, strings.Repeat("a note ", 1+i%9)))
		}
		s.Expect(s.t, 200, "POST", "/v1/"+collection, "["+strings.Join(items, ",")+"]")
	}
}

// newScene sets the scene.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, stack: gateway.NewStack(t, servers.MySQLKind, 4, 1000)}
	proxy, through := servers.NewProxyFor(t, s.stack.Nodes[3].DSN)
	s.stack.Nodes[3].DSN = through
	s.folder = gateway.WriteConfig(t, s.config(1000, "node-1", "node-2", "node-3"))
	s.Process = gateway.StartIn(t, s.folder)
	s.fill("records", "key", "lost", 20)
	s.change(s.config(1000, "node-4"), 200)
	s.fill("records", "key", "order", 800)
	s.change(s.config(1000, "node-1", "node-4"), 200)
	s.fill("records", "key", "late", 385)
	s.fill("orders", "order_id", "o", 110)
	s.change(s.config(1000, "node-1"), 200)
	proxy.Refuse(true)
	proxy.Reset()
	s.traffic()
	return s
}

// traffic reads and writes for a while, a few requests at a time, some of them in vain.
func (s *scene) traffic() {
	s.t.Helper()
	lasts := sceneShort
	if text := os.Getenv(sceneEnv); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			s.t.Fatalf("%s: %v", sceneEnv, err)
		}
	}
	end := time.Now().Add(lasts)
	var wg sync.WaitGroup
	for client := range 3 {
		wg.Go(func() {
			for time.Now().Before(end) {
				path, method, body := fmt.Sprintf("/v1/records/order-%d", rand.IntN(900)), "GET", ""
				switch rand.IntN(40) {
				case 0:
					path = fmt.Sprintf("/v1/records/lost-%d", rand.IntN(20))
				case 1, 2, 3, 4:
					path, method, body = fmt.Sprintf("/v1/records/late-%d", rand.IntN(385)), "PUT", `{"total": 9}`
				}
				if _, err := s.Call(method, path, body); err != nil {
					s.t.Error(err)
					return
				}
				time.Sleep(time.Duration(10+client*8+int(8*math.Sin(time.Until(end).Minutes()))) * time.Millisecond)
			}
		})
	}
	wg.Wait()
}

// keep writes a picture and checks that it is worth its bytes.
func keep(t *testing.T, name string, png []byte) {
	t.Helper()
	folder := os.Getenv(picturesEnv)
	if folder == "" {
		folder = t.TempDir()
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPage: the page of a real gateway says at one look what the scene is, in light and dark and on a phone, asks nobody but
// its gateway, shows where a record is and not what it says, and says so when the gateway is gone.
func TestPage(t *testing.T) {
	s := newScene(t)
	b := startChromium(t)
	page := b.open(s.Admin+"/ui", look{width: 1280})
	page.await("the ranges are drawn", `document.querySelectorAll(".range").length > 6 && document.querySelectorAll(".chart").length === 3`)
	page.await("node-4 is down", `document.getElementById("alarms").innerText.includes("node-4 is down")`)
	for _, want := range []string{"80.", "0.0 %", "drained", "Degraded", "takes new records", "ranges 5 to 7", "Last change is in force"} {
		page.await("the page says "+want, fmt.Sprintf("document.body.innerText.includes(%q)", want))
	}
	if share := page.value(`[...document.querySelectorAll(".collection")].pop().querySelectorAll(".range .share")[1].innerText`); share < "38" || share >= "42" {
		t.Errorf("node-2 is at %s", share)
	}
	page.lookUp("order-7")
	page.await("the path is shown", `document.getElementById("path").innerText.includes("live")`)
	path := page.value(`document.getElementById("path").innerText`)
	if !strings.Contains(path, "node-1") || !strings.Contains(path, "records_r00001") || strings.Contains(path, "a note") {
		t.Errorf("the path: %s", path)
	}
	page.value("document.activeElement.blur()")
	for name, how := range map[string]look{"light-1280": {width: 1280}, "dark-1280": {width: 1280, dark: true}, "light-390": {width: narrow}, "dark-390": {width: narrow, dark: true}} {
		page.resize(how)
		if wide := page.value("document.documentElement.scrollWidth"); wide != fmt.Sprint(how.width) {
			t.Errorf("%s: the page is %s wide", name, wide)
		}
		if how.width == narrow {
			keep(t, name+"-below", page.picture(narrowHeight, narrowHeight))
			keep(t, name, page.picture(0, narrowHeight))
			continue
		}
		keep(t, name, page.picture(0, 0))
	}
	page.resize(look{width: 1280})
	s.change(s.config(500, "node-1"), 422)
	page.await("the refusal is shown", `document.getElementById("config").innerText.includes("ranges.size")`)
	keep(t, "refused", page.picture(0, 0))
	s.Kill(t)
	page.await("the gateway does not answer", `document.getElementById("trouble").innerText.includes("does not answer since")`)
	keep(t, "gone", page.picture(0, 0))
	page.check(s.Admin)
}

// lookUp asks for a key, with the keyboard.
func (p *tab) lookUp(key string) {
	p.t.Helper()
	p.value(`document.getElementById("lookup-collection").value = "records"`)
	p.value(`document.getElementById("lookup-key").focus()`)
	p.write(key)
	p.press("Enter", "\r", 13)
}

// check looks at what all pages asked for and complained of.
func (b *chromium) check(own string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, url := range b.requested {
		if !strings.HasPrefix(url, own+"/") && url != "about:blank" {
			b.t.Errorf("the page asked for %s", url)
		}
	}
	for _, what := range b.wrong {
		b.t.Errorf("the page complains: %.600s", what)
	}
}
