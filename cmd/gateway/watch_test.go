package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// never is an interval that does not come in a test.
	never = time.Hour
	// watchPatience bounds the wait for what a watcher should do within moments.
	watchPatience = 10 * time.Second
)

// watch starts a watcher on the rig, which ends before the rig does. The channel stands for SIGHUP.
func (r *reloadRig) watch(interval time.Duration) chan<- os.Signal {
	r.t.Helper()
	hangups := make(chan os.Signal, 1)
	w := newWatcher(r.reloader, hangups)
	w.interval = interval
	r.t.Cleanup(w.start(r.t.Context()))
	return hangups
}

// waitFor waits until the log has a text so many times.
func (r *reloadRig) waitFor(text string, times int) {
	r.t.Helper()
	for deadline := time.Now().Add(watchPatience); r.log.count(text) < times; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("%q was not logged %d times within %s:\n%s", text, times, watchPatience, r.log)
		}
	}
}

// String is the log so far.
func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// replaceFile puts a whole new file in the place of another, as editors and config management do.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	writeFile(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// bodyLimit is a config line that sets a limit, by which the tests tell contents apart.
func bodyLimit(kib string) string { return "server: {max_body_bytes: " + kib + "KiB}\n" }

// applied is how the log says that a limit has come into force, by whatever trigger.
func applied(from, to string) string { return "server.max_body_bytes: " + from + " -> " + to + "KiB" }

// TestWatchRename: a file that takes the place of the old one is seen, and so is the next.
func TestWatchRename(t *testing.T) {
	r, folder := newEmbeddedRig(t)
	r.watch(never)
	for i, kib := range []string{"2", "3"} {
		replaceFile(t, r.path, embeddedConfig(folder, 2)+bodyLimit(kib))
		r.waitFor(`"config applied","trigger":"file"`, i+1)
	}
	r.wantResults(2, 0, 0, 1)
}

// TestWatchInPlace: a file that is truncated and written in two parts is judged as a whole.
func TestWatchInPlace(t *testing.T) {
	r, folder := newEmbeddedRig(t)
	r.pause = 500 * time.Millisecond
	r.watch(never)
	text := embeddedConfig(folder, 3) + bodyLimit("2")
	file, err := os.OpenFile(r.path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{text[:len(text)/2], text[len(text)/2:]} {
		time.Sleep(r.pause / 5) // a slow writer, but not slower than the pause
		if _, err := file.WriteString(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	r.waitFor(applied("1MiB", "2"), 1)
	r.wantResults(1, 0, 0, 1)
}

// mountConfigMap lays out a folder as Kubernetes mounts a ConfigMap, with a first content.
func mountConfigMap(t *testing.T, folder, text string) (path string) {
	t.Helper()
	path = filepath.Join(folder, "config.yaml")
	swapConfigMap(t, folder, "..1", text)
	if err := os.Symlink(filepath.Join("..data", "config.yaml"), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// swapConfigMap puts a content in force as Kubernetes does: a new folder, one rename of a link, the old folder removed.
func swapConfigMap(t *testing.T, folder, version, text string) {
	t.Helper()
	data, next := filepath.Join(folder, "..data"), filepath.Join(folder, "..data_tmp")
	before, _ := os.Readlink(data) // none the first time
	writeFile(t, filepath.Join(folder, version, "config.yaml"), text)
	if err := os.Symlink(version, next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, data); err != nil {
		t.Fatal(err)
	}
	if before != "" {
		if err := os.RemoveAll(filepath.Join(folder, before)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWatchConfigMap: the swap of a ConfigMap's ..data link is seen, again and again (CASES 39).
func TestWatchConfigMap(t *testing.T) {
	folder, mount := t.TempDir(), t.TempDir()
	r := newReloadRig(t, mountConfigMap(t, mount, embeddedConfig(folder, 2)))
	r.watch(never)
	for i, version := range []string{"..2", "..3", "..4"} {
		swapConfigMap(t, mount, version, embeddedConfig(folder, 2)+bodyLimit(version[2:]))
		r.waitFor("config applied", i+1)
	}
	r.wantResults(3, 0, 0, 1)
}

// TestWatchLinkTarget: a file that is changed where a link leads to is seen.
func TestWatchLinkTarget(t *testing.T) {
	folder, elsewhere := t.TempDir(), t.TempDir()
	target, path := filepath.Join(elsewhere, "gateway.yaml"), filepath.Join(folder, "config.yaml")
	writeFile(t, target, embeddedConfig(folder, 2))
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	r := newReloadRig(t, path)
	r.watch(never)
	replaceFile(t, target, embeddedConfig(folder, 2)+bodyLimit("2"))
	r.waitFor("config applied", 1)
}

// TestWatchInterval: a change that no event tells of, here because a link in between was swapped, is found at the interval.
func TestWatchInterval(t *testing.T) {
	folder, between, targets := t.TempDir(), t.TempDir(), t.TempDir()
	path, link := filepath.Join(folder, "config.yaml"), filepath.Join(between, "link")
	lead := func(kib string) {
		t.Helper()
		target := filepath.Join(targets, kib, "config.yaml")
		writeFile(t, target, embeddedConfig(folder, 2)+bodyLimit(kib))
		if err := os.Symlink(target, link+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link+".new", link); err != nil {
			t.Fatal(err)
		}
	}
	lead("2")
	if err := os.Symlink(link, path); err != nil {
		t.Fatal(err)
	}
	r := newReloadRig(t, path)
	r.watch(2 * testPause)
	lead("3") // may be found by the first look
	r.waitFor(applied("2KiB", "3"), 1)
	lead("4")
	r.waitFor(`"config applied","trigger":"interval","changes":["`+applied("3KiB", "4"), 1)
	r.wantResults(2, 0, 0, 1)
}

// TestWatchBroken: broken YAML is reported and changes nothing, what is good again is put in force (CASES 38).
func TestWatchBroken(t *testing.T) {
	r, folder := newEmbeddedRig(t)
	r.watch(never)
	good := embeddedConfig(folder, 2) + bodyLimit("2")
	for i, broken := range []string{"", good[:len(good)-3], strings.Replace(good, "sqlite://", "sqlite:/", 1)} {
		replaceFile(t, r.path, broken)
		r.waitFor("config refused", i+1)
	}
	if r.running.Server.MaxBodyBytes != mebibyte {
		t.Errorf("the running limit is %s", r.running.Server.MaxBodyBytes)
	}
	replaceFile(t, r.path, good)
	r.waitFor(applied("1MiB", "2"), 1)
	r.wantResults(1, 0, 3, 1)
}

// TestWatchGone: a file that is taken away is reported once, and seen when it is back.
func TestWatchGone(t *testing.T) {
	r, folder := newEmbeddedRig(t)
	r.watch(2 * testPause)
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	r.waitFor("cannot read the config file", 1)
	replaceFile(t, r.path, embeddedConfig(folder, 2))
	r.waitFor("config unchanged", 1)
	r.wantResults(0, 1, 1, 1)
}

// TestWatchSignal: SIGHUP asks for a reload, and is answered even when nothing has changed.
func TestWatchSignal(t *testing.T) {
	r, _ := newEmbeddedRig(t)
	hangups := r.watch(never)
	hangups <- syscall.SIGHUP
	r.waitFor(`"config unchanged","trigger":"SIGHUP"`, 1)
	r.wantResults(0, 1, 0, 1)
}

// TestWatchFirstLook: a change between the load of the file and the start of the watcher is not missed.
func TestWatchFirstLook(t *testing.T) {
	r, folder := newEmbeddedRig(t)
	writeFile(t, r.path, embeddedConfig(folder, 2)+bodyLimit("2"))
	r.watch(never)
	r.waitFor(applied("1MiB", "2"), 1)
}
