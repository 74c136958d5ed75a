// Package store keeps records: it is the promise of the product. An entry in the index reserves a key and points at an
// ID; the row at that ID, on the node that owns its range, is the truth. Two stores take part in every write and none
// of them knows of the other, so every step here is ordered such that a crash or a lost reply after any of them leaves
// nothing worse than an entry that points at nothing, which the next create of the key heals.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keyrange/idsegment"
	"keyrange/index"
	"keyrange/store/sqldb"
	"keyrange/store/typed"
)

// Config is what a Store is made of. Everything is open already, and whoever opened it closes it after Close.
type Config struct {
	// Fleet is claimed by New.
	Fleet
	Index       index.Index
	Collections []Collection
	Placement   Placement
	AlarmLevels AlarmLevels
	// Sequences tunes how IDs are leased.
	Sequences idsegment.Options
	Identity  *Identity
	// CacheBytes bounds the memory for remembering the IDs of keys; 0 turns that off.
	CacheBytes int64
	// Sweeping is how the sweeper works; zero turns it off.
	Sweeping Sweeping
	// Now is the clock of created_at and updated_at.
	Now    func() time.Time
	Logger *slog.Logger
	// Metrics is where the store registers its metrics; nil for nowhere.
	Metrics prometheus.Registerer
}

// Collection is a collection of records.
type Collection struct {
	// Name is made of letters, digits and underscores.
	Name string
	// Group is the member of a document that holds the group of its record; "" when the records have none.
	Group string
	// KeyMember is the JSON member of a document that holds its key. It is only looked at with Columns.
	KeyMember string
	// Columns keep members of documents apart, so that other tools can query them; none keeps documents whole. Their names
	// differ, also when case is ignored, and OwnColumn knows none of them.
	Columns []typed.Column
	// KeepUnknown keeps members without a column beside the columns, instead of refusing them.
	KeepUnknown bool
}

// Store does the record protocol. It is safe for concurrent use.
type Store struct {
	topology atomic.Pointer[topology]
	// changing lets one change of the topology run at a time, and guards cluster, the id of the cluster.
	changing   sync.Mutex
	cluster    string
	index      index.Index
	gate       *gatedIndex // index, but for what a test puts around it
	issuers    []*issuer
	placements map[string]*placement
	entries    map[string]*entries
	// directories are those of the collections with groups; places is what all of them remember.
	directories map[string]*directory
	places      *placeCache
	deleter     *deleter
	shapes      schema
	tables      sync.Map // tableKey to *table, made on first use
	issued      *lane[struct{}, issuedRanges]
	cache       *keyCache
	metrics     *metrics
	gauge       gauge
	sweeper     *sweeper
	// background is the context of what runs on its own; tasks counts it. Both end with Close.
	background context.Context
	stop       context.CancelFunc
	tasks      sync.WaitGroup
	identity   *Identity
	now        func() time.Time
	log        *slog.Logger
}

// New verifies and claims the fleet and builds a store on it. It fails when a database is not what config says it is. One
// that is out of reach is kept out and looked at again and again, except that the first start of all needs every one.
func New(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{
		identity: cfg.Identity, now: cfg.Now, log: cfg.Logger,
		placements: map[string]*placement{}, entries: map[string]*entries{}, shapes: schema{}, directories: map[string]*directory{},
	}
	cacheBytes, placeBytes := shareCache(cfg.CacheBytes, cfg.Collections)
	s.cache, s.places = newKeyCache(cacheBytes), newPlaceCache(placeBytes)
	var names []string
	for _, c := range cfg.Collections {
		names = append(names, c.Name)
		s.shapes[c.Name] = shapeOf(c)
	}
	s.gate = s.openGate(cfg.Index, names)
	s.index = s.gate
	s.issued = shared(s.listIssued)
	s.background, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.metrics = newMetrics(cfg.Metrics, s.cache)
	for _, i := range cfg.Issuers {
		s.issuers = append(s.issuers, &issuer{Issuer: i})
	}
	s.gauge.surveyor, s.gauge.states = newSurveyor(names, s.issuers, cfg.Now, cfg.AlarmLevels), map[string]string{}
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(levelsCollector{&s.gauge.latest}, segmentsCollector{s}, circuitsCollector{s})
	}
	s.topology.Store(s.newTopology(cfg.Fleet, nil))
	for _, collection := range names {
		s.placements[collection] = newPlacement(s, collection, cfg.Sequences, cfg.Placement)
		s.entries[collection] = newEntries(s, collection)
		if s.shapes[collection].grouped() {
			s.directories[collection] = newDirectory(s, collection)
		}
	}
	s.deleter = newDeleter(s)
	s.sweeper = newSweeper(s, cfg.Sweeping, names, cfg.Metrics)
	if err := s.admitFirst(ctx); err != nil {
		return nil, err
	}
	s.tasks.Go(s.watchDatabases)
	s.tasks.Go(s.watchLevels)
	s.tasks.Go(s.sweeper.run)
	if len(s.directories) > 0 {
		s.tasks.Go(s.deleter.run)
	}
	return s, nil
}

// Warm opens the range that takes each collection's next record, so that the first create does not wait for it. A
// failure is only worth a warning: the first create tries again.
func (s *Store) Warm(ctx context.Context) {
	for collection, p := range s.placements {
		if err := p.warm(ctx); err != nil {
			s.log.Warn("no range is open for new records", "collection", collection, "cause", err.Error())
		}
	}
}

// Close hands unused IDs back to the issuer. No other call may run or follow. It may be called twice.
func (s *Store) Close(ctx context.Context) error {
	s.stop()
	s.tasks.Wait()
	var errs []error
	for _, p := range s.placements {
		errs = append(errs, p.close(ctx))
	}
	return errors.Join(errs...)
}

// MaxDocumentBytes is the size of the largest document that every node takes.
func (s *Store) MaxDocumentBytes() int64 { return s.topology.Load().maxDocument }

// Health is the state of one dependency.
type Health struct {
	// Kind is "index", "issuer" or "node".
	Kind string
	// Name tells nodes apart, and issuers when there are several; otherwise it repeats the kind.
	Name     string
	Location string
	// Err is nil when the dependency answered and is in use.
	Err error
	// ReadsGoOn: in spite of Err it answers reads.
	ReadsGoOn bool
	Took      time.Duration
}

// Health asks every dependency at once, within the deadline of ctx.
func (s *Store) Health(ctx context.Context) []Health {
	checks := []func() Health{
		func() Health {
			h := check(ctx, "index", "index", s.index.Describe(), s.gate.reads.refusal, s.index.Ping)
			if h.Err == nil {
				h.Err = s.gate.writes.refusal()
				h.ReadsGoOn = h.Err != nil
			}
			return h
		},
	}
	for k, i := range s.issuers {
		checks = append(checks, func() Health {
			return check(ctx, "issuer", IssuerName(k, len(s.issuers)), i.Describe(), i.barred, i.Ping)
		})
	}
	for _, n := range s.topology.Load().nodes {
		checks = append(checks, func() Health { return check(ctx, "node", n.name, n.db.Location(), n.barred, n.db.Ping) })
	}
	results := make([]Health, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { results[i] = c() })
	}
	wg.Wait()
	return results
}

func check(ctx context.Context, kind, name, location string, refusal func() error, ping func(context.Context) error) Health {
	start := time.Now()
	err := refusal()
	if err == nil {
		err = ping(ctx)
	}
	return Health{Kind: kind, Name: name, Location: location, Err: err, Took: time.Since(start)}
}

// readRow reads the row at an ID from the primary; nil when there is none. The row may be shared: it must not be changed.
//
// Requests that read the same row at the same time share one read, which stays linearizable because a read that was sent
// before a request arrived is never shared with it: the request waits for the next one.
func (s *Store) readRow(ctx context.Context, collection string, id int64) (*row, error) {
	t, err := s.tableOf(collection, id)
	if err != nil {
		return nil, err
	}
	r, err := t.reads.ask(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read row %d: %w: %w", id, ErrUnavailable, err)
	}
	return r, nil
}

// insertRow adds one row; errors match the outcomes of package sqldb.
func (s *Store) insertRow(ctx context.Context, collection string, r row) error {
	t, err := s.tableOf(collection, r.id)
	if err != nil {
		return fmt.Errorf("%w: %w", sqldb.ErrUnavailable, err)
	}
	if err := s.toColumns(collection, r.state, r.key, &r.Content, &r.cells); err != nil {
		return err
	}
	_, err = t.inserts.ask(ctx, r)
	return err
}

// changeRow runs one conditional write; errors match the outcomes of package sqldb.
func (s *Store) changeRow(ctx context.Context, collection string, c rowChange) (changed, error) {
	t, err := s.tableOf(collection, c.id)
	if err != nil {
		return changed{}, fmt.Errorf("%w: %w", sqldb.ErrUnavailable, err)
	}
	if !c.removes() {
		if err := s.toColumns(collection, live, c.key, &c.Content, &c.cells); err != nil {
			return changed{}, err
		}
	}
	return t.changes.ask(ctx, c)
}

// find reads the entry of a key from the index primary. Requests share a look-up as they share the read of a row.
func (s *Store) find(ctx context.Context, collection, key string) (id int64, ok bool, err error) {
	id, err = s.entries[collection].finds.ask(ctx, key)
	if err != nil {
		return 0, false, fmt.Errorf("find entry: %w: %w", ErrUnavailable, err)
	}
	return id, id != 0, nil
}

// locate returns the ID of a key, or ErrNotFound. A cached one may be stale: whoever finds no live row of the key there
// must forget it and locate again.
func (s *Store) locate(ctx context.Context, collection, key string) (id int64, cached bool, err error) {
	if id, ok := s.cache.get(collection, key); ok {
		return id, true, nil
	}
	id, ok, err := s.find(ctx, collection, key)
	if err == nil && !ok {
		err = ErrNotFound
	}
	return id, false, err
}

// placement returns the ID source of a collection.
func (s *Store) placement(collection string) (*placement, error) {
	p, ok := s.placements[collection]
	if !ok {
		return nil, fmt.Errorf("%w: there is no collection %s", ErrInvalid, collection)
	}
	return p, nil
}

// alarm logs what must never happen and needs a person.
func (s *Store) alarm(what string, attrs ...any) {
	s.log.Error(what, append([]any{"alarm", true}, attrs...)...)
}

// timestamp is the clock in the precision that rows keep.
func (s *Store) timestamp() time.Time { return s.now().UTC().Truncate(time.Microsecond) }
