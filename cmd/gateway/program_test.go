package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestProgram: the page is told which gateway this is, what became of its config file, and the connections that it has.
func TestProgram(t *testing.T) {
	r, folder := newEmbeddedRig(t)
	ask := program(r.reloader, r.parts)
	is := ask()
	if is.Instance != r.parts.identity.Instance() || !strings.HasPrefix(is.Version, version) || is.StartedAt.IsZero() {
		t.Errorf("%+v", is)
	}
	if c := is.Config; c.Result != "loaded" || c.Path != r.path || c.At.IsZero() || c.Changes == nil || c.Reason != "" {
		t.Errorf("at start: %+v", c)
	}
	var pools []string
	for _, p := range is.Pools {
		if pools = append(pools, p.Kind+" "+p.Name); p.Max < 1 || p.Open < p.InUse {
			t.Errorf("%+v", p)
		}
	}
	slices.Sort(pools)
	if want := "[index index issuer issuer node node-1 node node-2]"; fmt.Sprint(pools) != want {
		t.Errorf("pools %s, want %s", pools, want)
	}
	wants := func(what, result, reason string, changes int) {
		t.Helper()
		if c := ask().Config; c.Result != result || !strings.Contains(c.Reason, reason) || (reason == "") != (c.Reason == "") || len(c.Changes) != changes {
			t.Errorf("%s: %+v", what, c)
		}
	}
	good := embeddedConfig(folder, 2)
	if _, err := r.write(triggerFile, strings.Replace(good, "size: 10", "size: 20", 1)); err == nil {
		t.Fatal("the size of ranges has changed")
	}
	wants("refused", "refused", "ranges.size", 0)
	if done, err := r.write(triggerFile, good); err != nil || done.Result != resultUnchanged {
		t.Fatal(done, err)
	}
	wants("taken back", "applied", "", 0)
	if _, err := r.write(triggerFile, embeddedConfig(folder, 3)); err != nil {
		t.Fatal(err)
	}
	wants("a node more", "applied", "", 1)
	if _, err := r.reload(t.Context(), triggerAdmin); err != nil {
		t.Fatal(err)
	}
	wants("asked again", "applied", "", 1)
	if n := len(ask().Pools); n != 5 {
		t.Errorf("%d pools after a node more", n)
	}
}
