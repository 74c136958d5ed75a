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

const (
	// admitEvery is the pause between two looks at databases that have not been admitted.
	admitEvery = time.Second
	// indexLooks is how many of those pauses there are between two looks at the stamp of the index.
	indexLooks = 5
)

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

// askIndex compares the stamp of the index with a verdict on the fleet.
func (s *Store) askIndex(ctx context.Context, v Verdict) Finding {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	stamp, err := s.gate.Stamp(ctx)
	if err != nil {
		return Finding{Away: errors.Is(err, index.ErrUnavailable), Err: fmt.Errorf("index: %w", err)}
	}
	return v.JudgeIndex(stamp, s.gate.Describe())
}

// prepareIndex makes the index ready for all collections, stamps it, and says whether it is ready for use.
func (s *Store) prepareIndex(ctx context.Context, cluster string) Finding {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	for collection := range s.placements {
		if err := s.gate.Prepare(ctx, collection); err != nil {
			return Finding{Away: errors.Is(err, index.ErrUnavailable), Err: fmt.Errorf("prepare the index of %s: %w", collection, err)}
		}
	}
	for collection := range s.directories {
		if err := s.gate.Prepare(ctx, directoryOf(collection)); err != nil {
			return Finding{Away: errors.Is(err, index.ErrUnavailable), Err: fmt.Errorf("prepare the groups of %s: %w", collection, err)}
		}
	}
	stamp, err := s.gate.SetStamp(ctx, cluster)
	if err == nil && stamp != cluster {
		err = fmt.Errorf("it belongs to the cluster %s since a moment ago, the nodes to %s", stamp, cluster)
	}
	if err != nil {
		return Finding{Away: !errors.Is(err, index.ErrExists), Err: fmt.Errorf("stamp the index: %w", err)}
	}
	return Finding{}
}

// admitFirst looks at all databases of a fleet at start. Any fault fails it. Those that are merely away are kept out for
// the time being, but at the first start of all, when the likely cause is a slip in the config.
func (s *Store) admitFirst(ctx context.Context) error {
	fleet := s.fleet()
	v := fleet.Verify(ctx)
	s.judgeNodes(ctx, fleet.Nodes, &v)
	ix := s.askIndex(ctx, v)
	if err := errors.Join(v.Err(), Verdict{Issuers: []Finding{ix}}.Err()); err != nil {
		return err
	}
	if ix.Away && v.cluster == "" {
		return ix.Err
	}
	if err := fleet.claim(ctx, &v, s.identity.Instance(), s.timestamp()); err != nil {
		return err
	}
	if s.adaptNodes(ctx, fleet.Nodes, &v); v.Err() != nil {
		return v.Err()
	}
	if !ix.Away {
		ix = s.prepareIndex(ctx, v.cluster)
	}
	if ix.Err != nil && !ix.Away {
		return ix.Err
	}
	s.settle(v, ix)
	return nil
}

// admitMore looks again at those that were kept out, and reports whether all are in now.
func (s *Store) admitMore(ctx context.Context) bool {
	s.changing.Lock()
	defer s.changing.Unlock()
	fleet := s.fleet()
	for i, n := range s.topology.Load().nodes {
		if n.barred() == nil {
			fleet.Nodes[i] = nil // has been verified
		}
	}
	v := fleet.Verify(ctx)
	s.judgeNodes(ctx, fleet.Nodes, &v)
	if v.Err() == nil {
		if err := fleet.claim(ctx, &v, s.cluster, s.timestamp()); err != nil {
			s.log.Warn("databases cannot be claimed", "cause", err.Error())
		}
	}
	s.adaptNodes(ctx, fleet.Nodes, &v)
	ix := Finding{}
	if s.gate.barred() != nil {
		if ix = s.askIndex(ctx, v); ix.Err == nil {
			ix = s.prepareIndex(ctx, v.cluster)
		}
	}
	s.settle(v, ix)
	return !s.anyoneOut()
}

// lookAtIndex checks that the index which is in use is still the one that was stamped. One that was dropped and is being
// filled anew would let keys of records be used a second time, so it is kept out (I4).
func (s *Store) lookAtIndex(ctx context.Context) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.gate.reads.refusal() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	if stamp, err := s.gate.Stamp(ctx); err == nil && stamp != s.cluster {
		s.gate.admitted.Store(false)
		s.places.forget()
		s.conclude(&s.gate.admission, "index", Finding{Err: fmt.Errorf("index at %s: it has lost its stamp: was it dropped? gateway fsck --repair makes it anew from the nodes", s.gate.Describe())})
	}
}

// anyoneOut reports whether a database is kept out.
func (s *Store) anyoneOut() bool {
	if s.gate.barred() != nil {
		return true
	}
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

// settle admits the databases that a verdict, and a finding on the index, found usable, and says why the others are kept
// out. Those that were admitted before stay. It needs changing.
func (s *Store) settle(v Verdict, ix Finding) {
	s.cluster = v.cluster
	admitted := s.conclude(&s.gate.admission, "index", ix)
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

// watchDatabases looks after databases that are kept out, and now and then at the stamp of the index.
func (s *Store) watchDatabases() {
	ticker := time.NewTicker(admitEvery)
	defer ticker.Stop()
	for looks := 1; ; looks++ {
		select {
		case <-ticker.C:
		case <-s.background.Done():
			return
		}
		if looks%indexLooks == 0 {
			s.lookAtIndex(s.background)
		}
		if s.anyoneOut() && s.admitMore(s.background) {
			s.log.Info("all databases are in reach")
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
