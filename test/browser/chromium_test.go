//go:build browser

// Package browser looks at the operators' page as a person does, in a headless Chromium, and keeps the pictures that the docs
// show. scripts/screenshots.sh runs it, with a build tag, because it needs a browser.
package browser

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait for the browser.
const patience = 30 * time.Second

// chromium is a headless browser, driven over a pair of pipes by its DevTools protocol.
type chromium struct {
	t    *testing.T
	to   io.Writer
	mu   sync.Mutex
	last int
	// waiting are the calls that have no answer yet, by id.
	waiting map[int]chan message
	// requested are the URLs that pages asked for; wrong is what they complained of: exceptions, and breaches of their policy.
	requested, wrong []string
}

// message is one message of the protocol, in either direction.
type message struct {
	ID        int                       `json:"id,omitempty"`
	Method    string                    `json:"method,omitempty"`
	Params    any                       `json:"params,omitempty"`
	SessionID string                    `json:"sessionId,omitempty"`
	Result    json.RawMessage           `json:"result,omitempty"`
	Error     *struct{ Message string } `json:"error,omitempty"`
}

// startChromium runs the browser until the test ends.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	theirs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, theirsToo, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-quic", "--force-color-profile=srgb", "--lang=en-GB",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	command.ExtraFiles = []*os.File{theirs, theirsToo}
	if err := command.Start(); err != nil {
		t.Fatalf("start chromium (apt-get install chromium): %v", err)
	}
	_, _ = theirs.Close(), theirsToo.Close()
	b := &chromium{t: t, to: to, waiting: map[int]chan message{}}
	over := make(chan struct{})
	go func() { defer close(over); b.listen(from) }()
	t.Cleanup(func() {
		_ = to.Close() // which ends it
		ended := time.AfterFunc(patience, func() { _ = command.Process.Kill() })
		_ = command.Wait()
		ended.Stop()
		_ = from.Close()
		<-over
	})
	return b
}

// listen takes what the browser says until it ends.
func (b *chromium) listen(from io.Reader) {
	in := bufio.NewReaderSize(from, 1<<20)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		answered := b.waiting[m.ID]
		delete(b.waiting, m.ID)
		b.note(m)
		b.mu.Unlock()
		if answered != nil {
			answered <- m
		}
	}
}

// note keeps what a test wants to know of an event. It needs mu.
func (b *chromium) note(m message) {
	switch text, _ := json.Marshal(m.Params); m.Method {
	case "Network.requestWillBeSent":
		var p struct{ Request struct{ URL string } }
		_ = json.Unmarshal(text, &p)
		b.requested = append(b.requested, p.Request.URL)
	case "Runtime.exceptionThrown":
		b.wrong = append(b.wrong, string(text))
	case "Log.entryAdded":
		if strings.Contains(string(text), `"security"`) || strings.Contains(string(text), `"violation"`) {
			b.wrong = append(b.wrong, string(text))
		}
	}
}

// call sends a command and waits for its result.
func (b *chromium) call(session, method string, params, result any) {
	b.t.Helper()
	b.mu.Lock()
	b.last++
	id, answered := b.last, make(chan message, 1)
	b.waiting[id] = answered
	text, err := json.Marshal(message{ID: id, Method: method, Params: params, SessionID: session})
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	select {
	case m := <-answered:
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
	case <-time.After(patience):
		b.t.Fatalf("%s: no answer within %s", method, patience)
	}
}

// tab is a page.
type tab struct {
	*chromium
	session string
}

// look is how a page is looked at.
type look struct {
	width int
	dark  bool
}

// open shows a URL in a tab of its own.
func (b *chromium) open(url string, how look) *tab {
	b.t.Helper()
	var target struct{ TargetID string }
	b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p := &tab{b, attached.SessionID}
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		p.call(p.session, domain+".enable", nil, nil)
	}
	p.resize(how)
	p.call(p.session, "Page.navigate", map[string]any{"url": url}, nil)
	return p
}

// resize changes how the page is looked at.
func (p *tab) resize(how look) {
	p.t.Helper()
	p.call(p.session, "Emulation.setDeviceMetricsOverride", map[string]any{
		"width": how.width, "height": 900, "deviceScaleFactor": 1, "mobile": how.width < 600,
	}, nil)
	scheme := "light"
	if how.dark {
		scheme = "dark"
	}
	p.call(p.session, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"},
	}}, nil)
}

// value is what an expression comes to in the page, as text.
func (p *tab) value(expression string) string {
	p.t.Helper()
	var done struct {
		Result struct{ Value any }
		Failed *struct{ Text string } `json:"exceptionDetails"`
	}
	p.call(p.session, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &done)
	if done.Failed != nil {
		p.t.Fatalf("%s: %s", expression, done.Failed.Text)
	}
	return fmt.Sprint(done.Result.Value)
}

// await waits until an expression is true in the page, whatever it throws meanwhile.
func (p *tab) await(what, expression string) {
	p.t.Helper()
	expression = "(() => { try { return " + expression + " } catch { return false } })()"
	for end := time.Now().Add(patience); p.value(expression) != "true"; {
		if time.Now().After(end) {
			p.t.Fatalf("not within %s: %s; the page says:\n%s", patience, what, p.value("document.body.innerText"))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// press sends a key, with its name and the text that it types.
func (p *tab) press(key, text string, code int) {
	p.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
		if kind == "keyDown" && text != "" {
			params["text"] = text
		}
		p.call(p.session, "Input.dispatchKeyEvent", params, nil)
	}
}

// write types text into what has the focus.
func (p *tab) write(text string) {
	p.t.Helper()
	p.call(p.session, "Input.insertText", map[string]any{"text": text}, nil)
}

// picture is the page as a PNG, from a line on and of a height in pixels, or as high as it is for 0.
func (p *tab) picture(from, height int) []byte {
	p.t.Helper()
	var layout struct {
		CSSContentSize struct{ Width, Height float64 }
	}
	p.call(p.session, "Page.getLayoutMetrics", nil, &layout)
	all := layout.CSSContentSize
	if height == 0 {
		height = int(all.Height)
	}
	clip := map[string]any{"x": 0, "y": from, "width": all.Width, "height": min(float64(height), all.Height-float64(from)), "scale": 1}
	var shot struct{ Data string }
	p.call(p.session, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true, "clip": clip}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	return png
}
