package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"keyrange/idsegment"
	"keyrange/index"
)

// admitEvery is the pause between two looks at databases that have not been admitted.
const admitEvery = time.Second

// admission says whether a database may be used: not before it has answered and has proved to be the one that config
// says it is. A database that was admitted stays so when it goes down.
type admission struct {
	admitted atomic.Bool
	why      atomic.Pointer[error] // of not being admitted
}

// errNotAsked is why a database is kept out before the first look at it.
var errNotAsked = errors.New("it has not been asked who it is yet")

// admit lets the database be used.
func (a *admission) admit() { a.admitted.Store(true) }

// barred is why the database may not be used; nil when it may.
func (a *admission) barred() error {
	if a.admitted.Load() {
		return nil
	}
	if why := a.why.Load(); why != nil {
		return *why
	}
	return errNotAsked
}

// keepOut says why the database may not be used, and reports whether that is a new reason.
func (a *admission) keepOut(why error) bool {
	was := a.why.Swap(&why)
	return was == nil || (*was).Error() != why.Error()
}

// issuer is an issuer of the fleet. It leases nothing before it is admitted.
type issuer struct {
	*idsegment.Issuer
	admission
}

// gatedIndex is the index, which takes part once it has answered for the first time.
type gatedIndex struct {
	index.Index
	admission
}

// refusal is the answer of an index that may not be used yet.
func (g *gatedIndex) refusal() error {
	if why := g.barred(); why != nil {
		return fmt.Errorf("%w: %s", index.ErrUnavailable, why.Error())
	}
	return nil
}

func (g *gatedIndex) Insert(ctx context.Context, collection string, entries []index.Entry) []error {
	if err := g.refusal(); err != nil {
		return repeat(err, len(entries))
	}
	return g.Index.Insert(ctx, collection, entries)
}

func (g *gatedIndex) Find(ctx context.Context, collection string, keys []string) (map[string]int64, error) {
	if err := g.refusal(); err != nil {
		return nil, err
	}
	return g.Index.Find(ctx, collection, keys)
}

func (g *gatedIndex) Scan(ctx context.Context, collection, after string, limit int) ([]index.Entry, error) {
	if err := g.refusal(); err != nil {
		return nil, err
	}
	return g.Index.Scan(ctx, collection, after, limit)
}

func (g *gatedIndex) Replace(ctx context.Context, collection, key string, old, new int64) (bool, error) {
	if err := g.refusal(); err != nil {
		return false, err
	}
	return g.Index.Replace(ctx, collection, key, old, new)
}

func (g *gatedIndex) Remove(ctx context.Context, collection string, entries []index.Entry) error {
	if err := g.refusal(); err != nil {
		return err
	}
	return g.Index.Remove(ctx, collection, entries)
}

// prepareIndex makes the index ready for all collections and admits it. ErrUnavailable: it is away, or did not answer in
// time.
func (s *Store) prepareIndex(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	for collection := range s.placements {
		if err := s.gate.Prepare(ctx, collection); err != nil {
			return fmt.Errorf("prepare the index of %s: %w", collection, err)
		}
	}
	s.gate.admit()
	return nil
}

// admitFirst looks at all databases of a fleet at start. Any fault fails it. Those that are merely away are kept out for
// the time being, but at the first start of all, when the likely cause is a slip in the config.
func (s *Store) admitFirst(ctx context.Context) error {
	fleet := s.fleet()
	v := fleet.Verify(ctx)
	if err := v.Err(); err != nil {
		return err
	}
	err := s.prepareIndex(ctx)
	switch {
	case errors.Is(err, index.ErrUnavailable) && v.cluster != "":
		s.keepOut(&s.gate.admission, "index", err)
	case err != nil:
		return err
	}
	if err := fleet.claim(ctx, &v, s.identity.Instance(), s.timestamp()); err != nil {
		return err
	}
	s.settle(v)
	return nil
}

// admitMore looks again at those that were kept out, and reports whether all are in now.
func (s *Store) admitMore(ctx context.Context) bool {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.gate.barred() != nil {
		if err := s.prepareIndex(ctx); err != nil {
			s.keepOut(&s.gate.admission, "index", err)
		}
	}
	if !s.anyoneOut() {
		return s.gate.barred() == nil
	}
	fleet := s.fleet()
	for i, n := range s.topology.Load().nodes {
		if n.barred() == nil {
			fleet.Nodes[i] = nil // has been verified
		}
	}
	v := fleet.Verify(ctx)
	if v.Err() == nil {
		if err := fleet.claim(ctx, &v, s.cluster, s.timestamp()); err != nil {
			s.log.Warn("databases cannot be claimed", "cause", err.Error())
		}
	}
	s.settle(v)
	return s.gate.barred() == nil && !s.anyoneOut()
}

// anyoneOut reports whether a node or an issuer is kept out.
func (s *Store) anyoneOut() bool {
	for _, n := range s.topology.Load().nodes {
		if n.barred() != nil {
			return true
		}
	}
	for _, i := range s.issuers {
		if i.barred() != nil {
			return true
		}
	}
	return false
}

// settle admits the databases that a verdict found usable, and says why the others are kept out. Those that were admitted
// before stay. It needs changing.
func (s *Store) settle(v Verdict) {
	s.cluster = v.cluster
	admitted := false
	for i, found := range v.Issuers {
		admitted = s.conclude(&s.issuers[i].admission, IssuerName(i, len(s.issuers)), found) || admitted
	}
	now := s.topology.Load()
	for i, found := range v.Nodes {
		admitted = s.conclude(&now.nodes[i].admission, now.nodes[i].name, found) || admitted
	}
	if !admitted {
		return
	}
	next := *now
	next.maxDocument = largestDocument(next.nodes)
	s.topology.Store(&next)
	for _, p := range s.placements {
		p.lookAgain()
	}
}

// conclude draws the conclusion from what was found out about a database, and reports whether it was admitted just now.
func (s *Store) conclude(a *admission, name string, found Finding) bool {
	switch {
	case a.barred() == nil:
	case found.usable():
		late := a.why.Load() != nil
		a.admit()
		if late {
			s.log.Info("a database is in reach and is used from now on", "name", name)
		}
		return true
	case found.Err != nil && found.Away:
		s.keepOut(a, name, found.Err)
	case found.Err != nil:
		if a.keepOut(found.Err) {
			s.alarm("a database is not the one that config says it is, and is not used", "name", name, "cause", found.Err.Error())
		}
	}
	return false
}

// keepOut keeps a database from being used that is away, and tells the first time.
func (s *Store) keepOut(a *admission, name string, why error) {
	if a.keepOut(why) {
		s.log.Warn("a database is out of reach, the gateway goes on without it", "name", name, "cause", why.Error())
	}
}

// awaitAll looks after databases that are kept out until all are in.
func (s *Store) awaitAll() {
	ticker := time.NewTicker(admitEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.background.Done():
			return
		}
		if s.admitMore(s.background) {
			s.log.Info("all databases are in reach")
			return
		}
	}
}

// IssuerName names an issuer in health reports, logs and metrics.
func IssuerName(i, of int) string {
	if of == 1 {
		return "issuer"
	}
	return fmt.Sprintf("issuer-%d", i+1)
}
