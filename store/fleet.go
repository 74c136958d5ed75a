package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"keyrange/idsegment"
	"keyrange/rangeshard"
	"keyrange/store/sqldb"
)

const (
	// verifyTimeout bounds the look at one database, so that one that stalls does not hold up the others.
	verifyTimeout = 5 * time.Second
	// verifyAtOnce bounds how many databases are looked at at a time.
	verifyAtOnce = 64
)

// Fleet is the databases that a map of ranges stands on. They need not have been connected to.
type Fleet struct {
	Map *rangeshard.Map
	// Nodes are the databases of the map's nodes, in its order.
	Nodes []*sqldb.DB
	// Issuers are in the order of their numbers.
	Issuers []*idsegment.Issuer
	// cluster is its id, when that is known already.
	cluster string
}

// Finding is what was found out about one database of a fleet. The database is the one that config says it is, and ready
// for use, when Err is nil and Unclaimed is false.
type Finding struct {
	// Err is a fault, or why nothing is known when Away is set.
	Err error
	// Away: the database does not answer, or cannot be claimed before another one answers.
	Away bool
	// Unclaimed: it may become what config says it is, but no gateway has stamped it so yet.
	Unclaimed bool
	stamp     rangeshard.Stamp
	stamped   bool
	identity  idsegment.Identity
	issued    []idsegment.Issued
}

// Stamped tells nodes with a stamp from fresh databases.
func (f Finding) Stamped() bool { return f.stamped }

// usable reports whether the database can be used as it is.
func (f Finding) usable() bool { return f.Err == nil && !f.Away && !f.Unclaimed }

// Verdict is what the stamps and the issuers say of a fleet.
type Verdict struct {
	Issuers, Nodes []Finding
	// cluster is the stored id, "" on a fleet without any.
	cluster string
}

// Err joins all faults, each with the node or the issuer that it is about. A database that is away is none.
func (v Verdict) Err() error { return v.join(func(f Finding) bool { return !f.Away }) }

// away joins why databases are away.
func (v Verdict) away() error { return v.join(func(f Finding) bool { return f.Away }) }

func (v Verdict) join(which func(Finding) bool) error {
	var errs []error
	for _, list := range [][]Finding{v.Issuers, v.Nodes} {
		for _, f := range list {
			if which(f) {
				errs = append(errs, f.Err)
			}
		}
	}
	return errors.Join(errs...)
}

// used reports whether an issuer that answered has ever leased an ID.
func (v Verdict) used() bool {
	for _, found := range v.Issuers {
		for _, seq := range found.issued {
			if seq.Next != seq.Lo {
				return true
			}
		}
	}
	return false
}

// JudgeIndex says why the index at a location, which has a stamp or none (""), is not that of the fleet: another one, or an
// empty one, would lack the entries of all records and let their keys be used a second time (I4). Away: that cannot be
// told before every issuer answers.
func (v Verdict) JudgeIndex(stamp, location string) Finding {
	fault := func(format string, args ...any) Finding {
		return Finding{Err: fmt.Errorf("index at %s: %s: is it the right database?", location, fmt.Sprintf(format, args...))}
	}
	switch missing := v.issuersAway(); {
	case stamp == v.cluster:
		return Finding{}
	case stamp != "" && v.cluster == "":
		return fault("it belongs to the cluster %s, but the issuers and nodes are empty", stamp)
	case stamp != "":
		return fault("it belongs to the cluster %s, the nodes to %s", stamp, v.cluster)
	case v.used():
		return fault("it has never been used, but the cluster %s has records (a lost index is made anew by gateway fsck --repair)", v.cluster)
	case missing != nil:
		return Finding{Away: true, Err: fmt.Errorf("index at %s: it has never been used, and whether there are records cannot be told before every issuer answers: %w", location, missing)}
	}
	return Finding{Unclaimed: true}
}

// issuersAway joins why issuers are away.
func (v Verdict) issuersAway() error { return Verdict{Issuers: v.Issuers}.away() }

// Verify connects to the databases, compares the map with the stamps of the nodes and with the IDs that were issued, and
// writes nothing (I5, I7). A nil node or issuer is left out.
func (f Fleet) Verify(ctx context.Context) Verdict {
	v := f.look(ctx)
	if v.Err() != nil {
		// Another gateway may be making its first start, and has got further with one database than with the other.
		v = f.look(ctx)
	}
	return v
}

func (f Fleet) look(ctx context.Context) Verdict {
	v := Verdict{Issuers: make([]Finding, len(f.Issuers)), Nodes: make([]Finding, len(f.Nodes)), cluster: f.cluster}
	f.ask(ctx, &v)
	stampedNode := ""
	for _, found := range v.Issuers {
		v.cluster = cmp.Or(v.cluster, found.identity.Cluster)
	}
	for i, found := range v.Nodes {
		if found.stamped {
			stampedNode = cmp.Or(stampedNode, f.Map.Nodes()[i].Name)
			v.cluster = cmp.Or(v.cluster, found.stamp.Cluster)
		}
	}
	for i := range v.Issuers {
		if found := &v.Issuers[i]; found.Err == nil && !found.Away {
			found.Err = f.judgeIssuer(i, *found, v.cluster, stampedNode)
			found.Unclaimed = found.Err == nil && found.identity == idsegment.Identity{}
		}
	}
	for i := range v.Nodes {
		if found := &v.Nodes[i]; found.Err == nil && !found.Away {
			want := f.stamp(i, v.cluster)
			if found.stamped {
				found.Err = f.located(i, found.stamp.Accept(want))
			}
			found.Unclaimed = !found.stamped || !found.stamp.Ranges.Equal(want.Ranges)
		}
	}
	f.compareIssued(&v)
	return v
}

// ask reads what each database says of itself, many at a time.
func (f Fleet) ask(ctx context.Context, v *Verdict) {
	var group errgroup.Group
	group.SetLimit(verifyAtOnce)
	look := func(found *Finding, ask func(ctx context.Context) error) {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
			defer cancel()
			found.Err = ask(ctx)
			return nil
		})
	}
	for i, issuer := range f.Issuers {
		found := &v.Issuers[i]
		if found.Away = issuer == nil; found.Away {
			continue
		}
		look(found, func(ctx context.Context) error {
			err := issuer.Ping(ctx)
			if err == nil {
				found.identity, err = issuer.Identity(ctx)
			}
			if err == nil {
				found.issued, err = issuer.List(ctx)
			}
			if err != nil {
				found.Away = errors.Is(err, idsegment.ErrUnavailable)
				err = fmt.Errorf("ids.issuers[%d]: %w", i, err)
			}
			return err
		})
	}
	for i, db := range f.Nodes {
		found := &v.Nodes[i]
		if found.Away = db == nil; found.Away {
			continue
		}
		look(found, func(ctx context.Context) error {
			err := db.Connect(ctx)
			if err == nil {
				found.stamp, found.stamped, err = rangeshard.ReadStamp(ctx, db)
			}
			found.Away = errors.Is(err, sqldb.ErrUnavailable)
			return f.located(i, err)
		})
	}
	_ = group.Wait() // each finding has its own error
}

// judgeIssuer says why an issuer that answered is not the one that config says it is. stampedNode is a node of the
// cluster that has a stamp, "" when there is none.
func (f Fleet) judgeIssuer(i int, found Finding, cluster, stampedNode string) error {
	want := idsegment.Identity{Cluster: cluster, Number: i + 1, Of: len(f.Issuers)}
	has := found.identity
	fault := func(format string, args ...any) error {
		return fmt.Errorf("ids.issuers[%d] at %s: %s", i, f.Issuers[i].Describe(), fmt.Sprintf(format, args...))
	}
	switch {
	case has == want:
		return nil
	case has == idsegment.Identity{} && stampedNode == "":
		return nil
	case has == idsegment.Identity{}:
		return fault("the issuer is empty, but %s belongs to the cluster %s already: is it the right database? (A lost issuer is made anew by gateway issuers rebuild.)",
			stampedNode, cluster)
	case has.Cluster != want.Cluster:
		return fault("it belongs to the cluster %s, the others to %s: is it the right database?", has.Cluster, want.Cluster)
	case has.Of != want.Of:
		return fault("it is issuer %d of %d, but config lists %d: the number of issuers decides which IDs each may give, and changes only by gateway issuers rebuild",
			has.Number, has.Of, want.Of)
	}
	return fault("it is issuer %d, but config lists it as number %d: are two DSNs swapped, or is one database listed twice?", has.Number, want.Number)
}

// compareIssued looks for IDs that were issued where the map, or the database that it leads to, does not have them.
func (f Fleet) compareIssued(v *Verdict) {
	for i := range v.Issuers {
		issuer := &v.Issuers[i]
		for _, seq := range issuer.issued {
			r, node, ok := f.Map.Range(seq.Range)
			blame := func(format string, args ...any) {
				issuer.Err = errors.Join(issuer.Err, fmt.Errorf("range %d of %s "+format, append([]any{seq.Range, seq.Collection}, args...)...))
			}
			switch {
			case ok && r.Hi != seq.Hi:
				blame("was opened to end at %d, but config makes it end at %d: the range size can never change", seq.Hi-1, r.Hi-1)
			case seq.Next == seq.Lo: // registered, but no ID was ever taken from it
			case !ok:
				blame("has issued IDs, but no node owns it: was a node dropped from the config?")
			default:
				f.compareNode(node, seq, &v.Nodes[node])
			}
		}
	}
}

// compareNode checks that the database of a range that has issued IDs has held that range.
func (f Fleet) compareNode(node int, seq idsegment.Issued, found *Finding) {
	switch {
	case found.Away || found.Err != nil: // nothing to compare, or at fault already
	case !found.stamped:
		found.Err = f.located(node, fmt.Errorf("%w: range %d of %s has issued IDs, but this database has never held it (it has no stamp): is it the right one?",
			rangeshard.ErrStamp, seq.Range, seq.Collection))
	case !found.stamp.Ranges.Contains(seq.Range):
		found.Err = f.located(node, fmt.Errorf("%w: range %d of %s has issued IDs, but this database has never held it (it says: %s): does it belong to another node?",
			rangeshard.ErrStamp, seq.Range, seq.Collection, found.stamp))
	}
}

// located says which node of the config an error is about.
func (f Fleet) located(node int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("nodes[%d] (%s) at %s: %w", node, f.Map.Nodes()[node].Name, f.Nodes[node].Location(), err)
}

func (f Fleet) stamp(node int, cluster string) rangeshard.Stamp {
	n := f.Map.Nodes()[node]
	return rangeshard.Stamp{Cluster: cluster, Node: n.Name, RangeSize: f.Map.Size(), Ranges: n.Ranges}
}

// claim makes the databases of a fleet without faults what the map says they are: it stamps fresh ones and extends the
// stamps of nodes that were given more ranges. A cluster without an id gets newCluster, which needs every database,
// because one that is away might have another. Stamping a node needs every issuer, because one that is away might know
// that the node's ranges are in use elsewhere; until then the node is away too.
func (f Fleet) claim(ctx context.Context, v *Verdict, newCluster string, now time.Time) error {
	missing := v.issuersAway()
	if v.cluster == "" {
		if missing = v.away(); missing != nil {
			return fmt.Errorf("the first start needs all databases: %w", missing)
		}
		v.cluster = newCluster
	}
	wait := func(found *Finding, what string) {
		if found.Unclaimed && !found.Away {
			found.Away, found.Err = true, fmt.Errorf("%s waits for every issuer to answer: %w", what, missing)
		}
	}
	for i, issuer := range f.Issuers {
		found := &v.Issuers[i]
		if missing != nil {
			wait(found, fmt.Sprintf("issuer %d", i+1))
		}
		if found.Away || !found.Unclaimed {
			continue
		}
		cluster, err := issuer.JoinCluster(ctx, v.cluster)
		if err != nil {
			return err
		}
		v.cluster, found.Unclaimed = cluster, false
	}
	for i, db := range f.Nodes {
		found := &v.Nodes[i]
		if missing != nil {
			wait(found, f.Map.Nodes()[i].Name)
		}
		if found.Away || !found.Unclaimed {
			continue
		}
		if err := rangeshard.ClaimNode(ctx, db, f.stamp(i, v.cluster), now); err != nil {
			return f.located(i, err)
		}
		found.Unclaimed = false
	}
	return nil
}
