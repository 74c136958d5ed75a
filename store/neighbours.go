package store

import (
	"context"
	"slices"
	"sync"
)

const (
	// mostNeighbours bounds the IDs that are set aside for a group at a time. It is doubled up to there, so that a group of
	// a few records sets few aside.
	mostNeighbours = 256
	// mostPieces bounds the groups that IDs are set aside for at a time.
	mostPieces = 64
)

// neighbours sets IDs aside for the groups of records that are created together, so that the records of a group get
// neighbouring IDs: they are read with few pages, also beside many other creates. It is safe for concurrent use.
type neighbours struct {
	mu     sync.Mutex
	closed bool
	// pieces are in the order of their last use.
	pieces []*groupPlan
}

// groupPlan is what is set aside for a group.
type groupPlan struct {
	from  *placement
	group string
	// mu lets one caller at a time set IDs aside.
	mu sync.Mutex
	// in is the range that the IDs are of; nil before the first.
	in   *openRange
	ids  []int64
	size int
	gone bool
}

// neighboursKey finds neighbours in a context.
type neighboursKey struct{}

// Together makes records that are created under the context it returns get neighbouring IDs, group by group. done gives
// IDs back that were set aside in vain; it must be called when all creates have ended.
func Together(ctx context.Context) (together context.Context, done func()) {
	n := &neighbours{}
	return context.WithValue(ctx, neighboursKey{}, n), n.close
}

// nextFor takes an ID for a new record of a group, "" for none.
func (p *placement) nextFor(ctx context.Context, group string) (int64, error) {
	n, ok := ctx.Value(neighboursKey{}).(*neighbours)
	if !ok || group == "" {
		return p.next(ctx)
	}
	plan := n.plan(p, group)
	if plan == nil {
		return p.next(ctx)
	}
	return plan.next(ctx)
}

// plan finds what is set aside for a group; nil when it is too late. Of too many groups the one goes that was used longest
// ago.
func (n *neighbours) plan(p *placement, group string) *groupPlan {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	i := slices.IndexFunc(n.pieces, func(c *groupPlan) bool { return c.group == group && c.from == p })
	var found *groupPlan
	if i >= 0 {
		found = n.pieces[i]
		n.pieces = slices.Delete(n.pieces, i, i+1)
	} else {
		found = &groupPlan{from: p, group: group}
		if len(n.pieces) == mostPieces {
			go n.pieces[0].giveBack() // it may be waiting for an issuer
			n.pieces = slices.Delete(n.pieces, 0, 1)
		}
	}
	n.pieces = append(n.pieces, found)
	return found
}

// next takes an ID out of what is set aside, and sets more aside when there is none: of the same range as before, as long
// as it takes new records.
func (c *groupPlan) next(ctx context.Context) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ids) == 0 && !c.gone {
		c.size = min(max(1, 2*c.size), mostNeighbours)
		if c.in == nil || !c.from.takes(c.in) {
			var err error
			if c.in, err = c.from.pick(ctx); err != nil {
				c.in = nil
				return 0, err
			}
		}
		c.ids = c.in.ids.NextN(ctx, c.size)
		slices.Sort(c.ids)
	}
	if len(c.ids) == 0 {
		c.in = nil
		return c.from.next(ctx) // which knows what to do with a range that gives none
	}
	id := c.ids[0]
	c.ids = c.ids[1:]
	return id, nil
}

// takes reports whether a range is open and would be picked.
func (p *placement) takes(r *openRange) bool {
	low, high := p.usable()
	return slices.Contains(low, r) || len(low) == 0 && slices.Contains(high, r)
}

// giveBack ends the plan.
func (c *groupPlan) giveBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	for _, id := range slices.Backward(c.ids) { // the last one that is given back is issued first
		c.from.reuse(id)
	}
	c.ids = nil
}

func (n *neighbours) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, c := range n.pieces {
		c.giveBack()
	}
	n.pieces = nil
}
