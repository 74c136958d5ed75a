package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// sweeperBatch bounds the rows or entries of one step, which keeps its statements short; a slow sweeper takes what it
	// may take in a second, or sweeperLeast.
	sweeperBatch, sweeperLeast = 500, 10
	// sweeperGrace is the least time between the two looks that an entry must be seen dangling in.
	sweeperGrace = 10 * time.Minute
	// fenceLife is how old a fence must be to be purged. What it holds off is one INSERT that was on its way when the fence
	// was made. An INSERT ends with its connection or its statement, within minutes, and waits for a lock for 50 s by
	// default; only an ALTER TABLE that locks the table out for a day would hold one up for so long. Clocks of gateways
	// that are hours apart leave enough of it.
	fenceLife = 24 * time.Hour
	// turnLife is how long a gateway that says nothing keeps the turn; turnKept is how often it says something.
	turnLife, turnKept = time.Minute, 15 * time.Second
	// turnWanted is the pause between two tries to get the turn from another gateway.
	turnWanted = 20 * time.Second
	// sweeperRetry is the pause after a step that failed.
	sweeperRetry = 5 * time.Second
	// stepTimeout bounds one step. It is well below turnLife.
	stepTimeout = 15 * time.Second
	// endTimeout bounds giving the turn back when the store closes.
	endTimeout = time.Second
	// maxOldFences bounds the batches of fences that are remembered for being purged.
	maxOldFences = 100
	// maxAlarms is how much damage of one kind a pass logs piece by piece.
	maxAlarms = 20
)

// Sweeping is how the sweeper works. All of it may change while it runs.
type Sweeping struct {
	// RowsPerSecond bounds the rows and entries that are looked at; 0 turns the sweeper off.
	RowsPerSecond int
	// Interval is the pause between two passes.
	Interval time.Duration
	// Grace is the least time between the two looks that an entry must be seen dangling in, well above what a request may
	// take; 10 minutes when it is less.
	Grace time.Duration
}

func (s Sweeping) withDefaults() *Sweeping {
	s.Grace = max(s.Grace, sweeperGrace)
	return &s
}

// sweeper looks through everything that is stored, again and again, and mends what it can. One gateway of a fleet has the
// turn; another one goes on where it has left off when it is gone.
type sweeper struct {
	*sweep
	store       *Store
	collections []string
	metrics     *sweeperMetrics
	how         atomic.Pointer[Sweeping]
	// woken gets a word when how has changed.
	woken chan struct{}
	// life, kept and most are turnLife, turnKept and sweeperBatch, but in tests.
	life, kept time.Duration
	most       int

	// status guards what follows, which only the sweeper's own goroutine changes.
	status sync.Mutex
	// mine says that this gateway has the turn.
	mine bool
	// waits is the database that the sweeper waits for; "" when it does not.
	waits    string
	progress sweepProgress
	// noted is when the turn was kept last.
	noted time.Time

	// What follows is only in memory: to lose it costs another pass. tables are those of the pass's collection, nil
	// before they are listed; at is the place of the current one.
	tables    []sweptTable
	at        int
	top       int64 // of the current table
	doubtful  []doubt
	oldFences []oldFences
	alarms    map[DamageKind]int
}

// oldFences are fences of one table that were seen to be old.
type oldFences struct {
	sweptTable
	ids  []int64
	seen time.Time
}

// newSweeper makes the sweeper of a store, which does nothing before run.
func newSweeper(s *Store, how Sweeping, collections []string, registry prometheus.Registerer) *sweeper {
	w := &sweeper{
		store: s, collections: collections, woken: make(chan struct{}, 1), life: turnLife, kept: turnKept, most: sweeperBatch,
		sweep: &sweep{index: s.index, identity: s.identity, now: s.now, repair: true, fleet: func() sweptFleet {
			now := s.topology.Load()
			f := sweptFleet{layout: now.layout}
			for _, n := range now.nodes {
				f.nodes = append(f.nodes, &sweptNode{n.name, n.rows})
			}
			return f
		}},
	}
	w.fencesBefore = func() time.Time { return w.now().Add(-fenceLife) }
	w.how.Store(how.withDefaults())
	w.metrics = newSweeperMetrics(registry, w)
	return w
}

// SetSweeping changes how the sweeper works, from its next step on.
func (s *Store) SetSweeping(how Sweeping) {
	s.sweeper.how.Store(how.withDefaults())
	select {
	case s.sweeper.woken <- struct{}{}:
	default: // it has been told to look
	}
}

// run sweeps until the store closes, and then gives the turn back.
func (w *sweeper) run() {
	ctx := w.store.background
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		w.letGo(ctx)
	}()
	for {
		timer := time.NewTimer(w.step(ctx))
		select {
		case <-timer.C:
		case <-w.woken:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// step does what there is to do, a batch of it at most, and returns how long to pause.
func (w *sweeper) step(ctx context.Context) time.Duration {
	how := w.how.Load()
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if how.RowsPerSecond == 0 {
		w.letGo(ctx)
		return w.kept
	}
	if held, err := w.hold(ctx); err != nil || !held {
		w.settle(ctx, err)
		return turnWanted
	}
	w.batch = min(max(sweeperLeast, how.RowsPerSecond), w.most)
	looked, pause, err := w.work(ctx, how)
	w.settle(ctx, err)
	if err != nil {
		w.tables = nil // a node may have moved to another database
		w.forget()
		return sweeperRetry
	}
	return min(w.kept, pause+time.Duration(looked)*time.Second/time.Duration(how.RowsPerSecond))
}

// settle notes what became of a step, and tells when the sweeper begins to wait for a database, and when it goes on.
func (w *sweeper) settle(ctx context.Context, err error) {
	waits := ""
	if err != nil {
		waits = "issuer"
		var at *sweepError
		if errors.As(err, &at) {
			waits = at.where
		}
	}
	w.status.Lock()
	was := w.waits
	w.waits = waits
	w.status.Unlock()
	switch {
	case errors.Is(ctx.Err(), context.Canceled) || was == waits:
	case waits == "":
		w.store.log.Info("the sweeper goes on")
	default:
		w.store.log.Warn("the sweeper waits for a database", "name", waits, "cause", err.Error())
	}
}

// hold takes the turn or keeps it, and reports whether this gateway has it.
func (w *sweeper) hold(ctx context.Context) (bool, error) {
	turns := w.store.issuers[0]
	if why := turns.barred(); why != nil {
		return false, fmt.Errorf("%w: %s", ErrUnavailable, why.Error())
	}
	holder := w.identity.Instance()
	if !w.mine {
		turn, mine, err := turns.TakeTurn(ctx, holder, w.life)
		if err != nil || !mine {
			return false, err
		}
		w.begin(turn.Progress)
		w.store.log.Info("this gateway sweeps from now on")
		return true, nil
	}
	if w.now().Sub(w.noted) < w.kept {
		return true, nil
	}
	mine, err := turns.KeepTurn(ctx, holder, w.life, w.progress.encode())
	if err != nil {
		return false, err
	}
	if !mine {
		w.end()
		w.store.log.Info("another gateway sweeps from now on")
		return false, nil
	}
	w.noted = w.now()
	return true, nil
}

// begin goes on where another gateway, or an earlier process, has left off.
func (w *sweeper) begin(progress []byte) {
	w.status.Lock()
	defer w.status.Unlock()
	w.mine, w.progress, w.noted = true, decodeProgress(progress, w.collections), w.now()
	w.tables, w.doubtful, w.oldFences, w.alarms = nil, nil, nil, map[DamageKind]int{}
}

// end forgets the turn.
func (w *sweeper) end() {
	w.status.Lock()
	defer w.status.Unlock()
	w.mine, w.progress = false, sweepProgress{}
}

// letGo gives the turn back, if this gateway has it. When it cannot, the turn ends by itself.
func (w *sweeper) letGo(ctx context.Context) {
	if !w.mine {
		return
	}
	if err := w.store.issuers[0].EndTurn(ctx, w.identity.Instance(), w.progress.encode()); err != nil {
		w.store.log.Debug("the sweeper's turn ends by itself", "cause", err.Error())
	}
	w.end()
}
