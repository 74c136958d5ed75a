package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// checkInterval is how often the content of the config file is compared, because not every file system tells of changes.
const checkInterval = 30 * time.Second

// watcher asks for a reload when the config file may have changed, at an interval, and on a signal.
type watcher struct {
	// paths are the config file and the files beside it.
	paths    []string
	interval time.Duration
	// pause is how long events are gathered before the file is read.
	pause   time.Duration
	hangups <-chan os.Signal
	reload  func(ctx context.Context, trigger string)
	log     *slog.Logger

	// events is nil when the system does not give any; the interval has to do then.
	events *fsnotify.Watcher
	// folders are those watched.
	folders []string
}

// newWatcher makes a watcher of the config file of a reloader. hangups asks for a reload.
func newWatcher(r *reloader, hangups <-chan os.Signal) *watcher {
	paths := []string{r.source.path}
	for _, f := range r.followed() {
		paths = append(paths, f.path)
	}
	return &watcher{
		paths: paths, interval: checkInterval, pause: r.pause, hangups: hangups, log: r.log,
		reload: func(ctx context.Context, trigger string) { _, _ = r.reload(ctx, trigger) }, // it has logged its error
	}
}

// start runs the watcher until ctx ends or stop is called, which waits for its end. Changes after start are seen.
func (w *watcher) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var err error
	if w.events, err = fsnotify.NewWatcher(); err != nil {
		w.log.Warn("the config file is only looked at now and then", "interval", w.interval.String(), "cause", err.Error())
	}
	w.watchFolders()
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// run is the loop of the watcher. One reload runs at a time; what happens meanwhile is seen after it.
func (w *watcher) run(ctx context.Context) {
	var events <-chan fsnotify.Event
	var failures <-chan error
	if w.events != nil {
		defer func() { _ = w.events.Close() }() // nothing is left to lose
		events, failures = w.events.Events, w.events.Errors
	}
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	// The file may have changed since it was loaded and before it was watched.
	due := time.After(w.pause)
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			if due == nil {
				due = time.After(w.pause)
			}
		case err := <-failures: // events were lost
			w.log.Warn("events of the config file were lost", "cause", err.Error())
			if due == nil {
				due = time.After(w.pause)
			}
		case <-due:
			due = nil
			w.watchFolders()
			w.reload(ctx, triggerFile)
		case <-ticker.C:
			w.watchFolders() // before the file is read, so that nothing is missed in between
			w.reload(ctx, triggerInterval)
		case <-w.hangups:
			w.reload(ctx, triggerSignal)
		}
	}
}

// watchFolders watches the folder of each file, where files and links are replaced by others, and the folder that its links
// lead to. A folder rather than the file: a file that took its place would not be watched.
func (w *watcher) watchFolders() {
	if w.events == nil {
		return
	}
	var folders []string
	for _, path := range w.paths {
		folders = append(folders, filepath.Dir(path))
		if target, err := filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(target))
		}
	}
	slices.Sort(folders)
	folders = slices.Compact(folders)
	for _, folder := range w.folders {
		if !slices.Contains(folders, folder) {
			_ = w.events.Remove(folder) // it may be gone, and its watch with it
		}
	}
	for _, folder := range folders {
		// Again also for those watched: one that was replaced by another of its name is not watched any more.
		if err := w.events.Add(folder); err != nil && !slices.Contains(w.folders, folder) {
			w.log.Warn("a folder of the config file cannot be watched", "folder", folder, "interval", w.interval.String(), "cause", err.Error())
		}
	}
	w.folders = folders
}
