package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"keyrange/idsegment"
	"keyrange/rangeshard"
)

// openMore opens ranges as far as there are any to open. It needs filling.
func (p *placement) openMore(ctx context.Context) error {
	now := p.store.topology.Load()
	if p.how.Load().Spread == 1 && len(*p.open.Load()) > 0 {
		return fmt.Errorf("take an ID for %s: %w: %s is down", p.collection, ErrUnavailable, (*p.open.Load())[0].node.name)
	}
	issued, err := p.store.listIssued(ctx)
	if issued == nil {
		return fmt.Errorf("open a range of %s: %w: %w", p.collection, ErrUnavailable, err)
	}
	all := p.candidates(now, issued)
	if len(all) == 0 && len(*p.open.Load()) == 0 {
		if err != nil { // an issuer that is away may have some left
			return fmt.Errorf("open a range of %s: %w: %w", p.collection, ErrUnavailable, err)
		}
		return fmt.Errorf("all ranges of %s up to %d are full: %w: append a node to the config", p.collection, now.layout.LastRange(), ErrExhausted)
	}
	var errs []error
	for _, c := range p.choose(all) {
		r, err := p.openRange(ctx, c)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		open := append(slices.Clone(*p.open.Load()), r)
		p.open.Store(&open)
		p.store.log.Info("range opened", "collection", p.collection, "range", r.Number, "node", r.node.name, "first_id", r.Lo, "last_id", r.Hi-1)
	}
	return errors.Join(errs...)
}

// candidate is a range that is not open and has IDs left.
type candidate struct {
	rangeshard.Range
	node *node
	// issued is how many of its IDs are leased, as far as the issuers that answer know.
	issued int64
}

// candidates lists the ranges that could be opened, in order, without those on nodes that are drained and those of which
// the issuers that answer have no IDs left.
func (p *placement) candidates(now *topology, issued issuedRanges) []candidate {
	var all []candidate
	for number := int64(1); number <= now.layout.LastRange(); number++ {
		r, n, _ := now.layout.Range(number) // every number up to the last is owned
		if p.openAt(r.Lo) != nil || now.layout.Nodes()[n].Drain {
			continue
		}
		if known := issued.of(p.collection, number); known.left {
			all = append(all, candidate{Range: r, node: now.nodes[n], issued: known.issued})
		}
	}
	return all
}

// choose picks the candidates to open. Filling range after range that is the first one, whatever the state of its node.
// Spreading, it is one range on each node that is up and has none below the high level open. Only when no range anywhere
// is below that level, those above are used.
func (p *placement) choose(all []candidate) []candidate {
	if p.how.Load().Spread == 1 {
		return all[:min(1, len(all))]
	}
	low, high := p.usable()
	hasLow, hasAny := map[*node]bool{}, map[*node]bool{}
	for _, r := range low {
		hasLow[r.node], hasAny[r.node] = true, true
	}
	for _, r := range high {
		hasAny[r.node] = true
	}
	var chosen, full []candidate
	for _, c := range all {
		switch {
		case c.node.down():
		case !p.isHigh(c.Range, c.issued) && !hasLow[c.node]:
			hasLow[c.node] = true
			chosen = append(chosen, c)
		case !hasAny[c.node]:
			hasAny[c.node] = true
			full = append(full, c)
		}
	}
	if len(chosen)+len(low) == 0 {
		return full[:min(len(full), max(0, p.how.Load().Spread-len(high)))]
	}
	return chosen[:min(len(chosen), p.how.Load().Spread-len(low))]
}

// openRange opens one range, with the IDs of all issuers that answer, of one at least.
func (p *placement) openRange(ctx context.Context, c candidate) (*openRange, error) {
	r := &openRange{c.Range, c.node, idsegment.NewRotation(len(p.store.issuers))}
	if err := c.node.rows.prepare(ctx, tableName(p.collection, c.Number)); err != nil {
		return nil, fmt.Errorf("open range %d of %s on %s: %w: %w", c.Number, p.collection, c.node.name, ErrUnavailable, err)
	}
	var errs []error
	for _, i := range r.ids.Missing() {
		if err := p.join(ctx, r, i); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == len(p.store.issuers) {
		return nil, fmt.Errorf("open range %d of %s on %s: %w: %w", c.Number, p.collection, c.node.name, ErrUnavailable, errors.Join(errs...))
	}
	return r, nil
}

// join lets an issuer give IDs of a range, once the node's ledger has nothing against it.
func (p *placement) join(ctx context.Context, r *openRange, i int) error {
	issuer, table := p.store.issuers[i], tableName(p.collection, r.Number)
	if why := issuer.barred(); why != nil {
		return fmt.Errorf("%s is not used: %w", IssuerName(i, len(p.store.issuers)), why)
	}
	name := idsegment.Name{Collection: p.collection, Range: r.Number}
	if err := p.compareLedger(ctx, issuer, r.node, name, table); err != nil {
		return err
	}
	if err := issuer.Register(ctx, name, r.Lo, r.Hi); err != nil {
		return err
	}
	bounds := issuer.Bounds(r.Lo, r.Hi)
	r.ids.Set(i, idsegment.NewSequence(ledgered{issuer, r.node, table, p.store.now}, name, bounds, bounds.Lo, p.options))
	return nil
}

// ledgerLooks bounds how often an issuer that seems to be behind a ledger is looked at: another gateway may be handing
// IDs back at that moment.
const ledgerLooks = 3

// compareLedger refuses an issuer that is behind what stands in the ledger of the node: it was set back, or has lost the
// range.
func (p *placement) compareLedger(ctx context.Context, issuer *issuer, on *node, name idsegment.Name, table string) error {
	for range ledgerLooks {
		end, err := on.rows.entered(ctx, table, issuer.Number())
		if err != nil || end == 0 {
			return err
		}
		known, found, err := issuer.Look(ctx, name)
		if err != nil || found && known.Next >= end {
			return err
		}
	}
	p.store.alarm("an issuer was set back or has lost a range, and gives no IDs of it: see gateway issuers", "collection", p.collection, "range", name.Range,
		"location", issuer.Describe())
	return fmt.Errorf("%s at %s: %w: it is behind the ledger of %s", name, issuer.Describe(), idsegment.ErrRewound, on.name)
}
