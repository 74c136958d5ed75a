package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keyrange/handlers"
)

// What asks for a reload, as the log names it.
const (
	// triggerFile is an event in a folder of the config file.
	triggerFile = "file"
	// triggerInterval is the periodic look at the file.
	triggerInterval = "interval"
	triggerSignal   = "SIGHUP"
	triggerAdmin    = "admin"
)

// Results of a reload, in answers and as labels.
const (
	resultLoaded    = "loaded" // at start; no label
	resultApplied   = "applied"
	resultUnchanged = "unchanged"
	resultRefused   = "refused"
)

const (
	// reloadTimeout bounds one reload: the file coming to rest, and the databases of new nodes answering.
	reloadTimeout = 30 * time.Second
	// settlePause is between two reads of the file that must find the same, so that no half of one is put in force.
	settlePause = 250 * time.Millisecond
)

// errStopping refuses a reload of a gateway that is closing its databases.
var errStopping = errors.New("the gateway is stopping")

// reloader owns the config of a gateway: it loads it, and later puts what the file says in force while requests run, all
// of it or nothing. Its methods are safe for concurrent use once attach was called.
type reloader struct {
	source configSource
	// level is log.level of the running config.
	level slog.LevelVar
	// pause is settlePause, but in tests.
	pause time.Duration

	// gates are the clients and certificates.
	gates   *gates
	parts   *parts
	server  *handlers.Server
	log     *slog.Logger
	results *prometheus.CounterVec
	ok      prometheus.Gauge
	// state is what became of the file, for people who do not want to wait for mu.
	state atomic.Pointer[handlers.ConfigState]

	// mu lets one reload run at a time, and guards what follows.
	mu sync.Mutex
	// running is the config in force; it is never changed, only replaced.
	running *Config
	// judged is the sum of the content that the last reload judged.
	judged [sha256.Size]byte
	// refusal is why the content judged last is not in force; empty when it is.
	refusal string
	closed  bool
}

// newReloader loads the config that a gateway starts with; for its error see LoadConfig.
func newReloader(source configSource) (*reloader, error) {
	now := source.read()
	cfg, err := source.parse(now)
	if err != nil {
		return nil, err
	}
	r := &reloader{source: source, pause: settlePause, running: cfg}
	now.beside = sumOfFiles(r.followed())
	r.judged = now.sum()
	if r.gates, err = openGates(cfg, folderOf(source.path)); err != nil {
		return nil, err
	}
	r.setLevel(cfg)
	return r, nil
}

// attach gives the reloader the running gateway, before the first reload.
func (r *reloader) attach(p *parts, server *handlers.Server, logger *slog.Logger) {
	r.parts, r.server, r.log = p, server, logger
	r.results = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gateway_config_reloads_total",
		Help: "Reloads of the config file, by result. A refusal that only repeats itself is counted once.",
	}, []string{"result"})
	for _, result := range []string{resultApplied, resultUnchanged, resultRefused} {
		r.results.WithLabelValues(result)
	}
	r.ok = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gateway_config_last_reload_ok",
		Help: "1 when the config file is in force, 0 when its last content was refused.",
	})
	r.ok.Set(1)
	r.note(resultLoaded, nil, "")
	p.metrics.MustRegister(r.results, r.ok)
}

// followed are the files that are followed beside the config file.
func (r *reloader) followed() []gateFile { return gateFilesOf(r.running, folderOf(r.source.path)) }

// look reads the config file and what is beside it as they are now.
func (r *reloader) look() content {
	now := r.source.read()
	now.beside = sumOfFiles(r.followed())
	return now
}

// close waits for a reload under way and refuses those that follow.
func (r *reloader) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// reload reads the config file once it has come to rest and puts it in force. The error lists all that stands in its way;
// the running config then stays as it is, whole. When ctx ends first nothing has changed either, and nothing is judged.
func (r *reloader) reload(ctx context.Context, trigger string) (handlers.Reloaded, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return handlers.Reloaded{}, errStopping
	}
	if r.isIdle(trigger, r.look()) {
		return handlers.Reloaded{Result: resultUnchanged}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	now, err := r.settled(bounded)
	var changes []string
	if err == nil {
		changes, err = r.apply(bounded, now)
	}
	if err != nil && ctx.Err() != nil {
		return handlers.Reloaded{}, err
	}
	again := trigger == triggerInterval && now.sum() == r.judged
	r.judged = now.sum()
	if err != nil {
		r.refused(trigger, err, again)
		return handlers.Reloaded{}, err
	}
	return r.accepted(trigger, changes), nil
}

// isIdle reports whether the watcher need not look any closer, which most events in a folder do not ask for. A refused
// content is tried again now and then, because what it lacked may have come: a server, or the file of a secret.
func (r *reloader) isIdle(trigger string, now content) bool {
	switch trigger {
	case triggerFile:
		return now.sum() == r.judged
	case triggerInterval:
		return now.sum() == r.judged && r.refusal == ""
	}
	return false
}

// settled returns the content of the file once two reads in a row have found the same.
func (r *reloader) settled(ctx context.Context) (content, error) {
	last := r.look()
	for {
		select {
		case <-time.After(r.pause):
		case <-ctx.Done():
			return last, fmt.Errorf("%s: the file did not come to rest: %w", r.source.path, ctx.Err())
		}
		now := r.look()
		if now.sum() == last.sum() {
			return now, nil
		}
		last = now
	}
}

// apply puts a content in force and returns a line for each change. What can fail comes before anything is changed.
func (r *reloader) apply(ctx context.Context, now content) ([]string, error) {
	next, err := r.source.parse(now)
	if err != nil {
		return nil, err
	}
	d := compareConfigs(r.running, next)
	if len(d.refusals) > 0 {
		return nil, errors.New(strings.Join(d.refusals, "\n"))
	}
	files, err := loadGates(next, folderOf(r.source.path))
	if err != nil {
		return nil, err
	}
	d.changes = append(d.changes, r.gates.changes(files)...)
	if d.grows {
		if err := r.parts.grow(ctx, next); err != nil {
			return nil, err
		}
	}
	for _, n := range next.Nodes {
		r.parts.nodes[n.Name].SetMaxConnections(n.Connections)
	}
	r.parts.store.SetPlacement(ctx, placementOf(next))
	r.parts.store.SetAlarmLevels(alarmLevelsOf(next))
	r.parts.store.SetSweeping(sweepingOf(next))
	r.server.SetLimits(limitsOf(next))
	r.gates.apply(files)
	r.setLevel(next)
	r.running = next
	return d.changes, nil
}

// note keeps what became of the file for people.
func (r *reloader) note(result string, changes []string, reason string) {
	if changes == nil {
		changes = []string{}
	}
	r.state.Store(&handlers.ConfigState{Path: r.source.path, Result: result, At: time.Now().UTC(), Changes: changes, Reason: reason})
}

// setLevel puts log.level in force.
func (r *reloader) setLevel(cfg *Config) {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Log.Level)) // the config was validated
	r.level.Set(level)
}

// refused notes and reports a refusal, unless it is one that was reported before.
func (r *reloader) refused(trigger string, cause error, again bool) {
	reported := again && r.refusal == cause.Error()
	r.refusal = cause.Error()
	r.ok.Set(0)
	if !reported {
		r.note(resultRefused, nil, r.refusal)
		r.results.WithLabelValues(resultRefused).Inc()
		r.log.Error("config refused", "trigger", trigger, "cause", r.refusal)
	}
}

// accepted notes and reports that the file is in force.
func (r *reloader) accepted(trigger string, changes []string) handlers.Reloaded {
	wasRefused := r.refusal != ""
	r.refusal = ""
	r.ok.Set(1)
	if len(changes) > 0 || wasRefused {
		r.note(resultApplied, changes, "")
	}
	if len(changes) == 0 {
		r.results.WithLabelValues(resultUnchanged).Inc()
		r.log.Info("config unchanged", "trigger", trigger)
		return handlers.Reloaded{Result: resultUnchanged}
	}
	r.results.WithLabelValues(resultApplied).Inc()
	r.log.Info("config applied", "trigger", trigger, "changes", changes)
	return handlers.Reloaded{Result: resultApplied, Changes: changes}
}

// sum tells contents apart.
func (c content) sum() [sha256.Size]byte {
	text := c.text
	if c.err != nil {
		text = []byte("\x00" + c.err.Error()) // no text begins like this: YAML has no NUL
	}
	return sha256.Sum256(append(c.beside[:], text...))
}
