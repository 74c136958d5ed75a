package main

import (
	"time"

	"keyrange/handlers"
)

// program says of a running gateway what the operators' page shows of it. The reloader must have been attached before it is
// asked.
func program(r *reloader, p *parts) func() handlers.Program {
	started := time.Now().UTC()
	return func() handlers.Program {
		return handlers.Program{
			Version: version + revision(), Instance: p.identity.Instance(), StartedAt: started,
			Config: *r.state.Load(), Pools: p.dependencies.list(),
		}
	}
}

// list is the connections to all databases, in no order.
func (d *dependencies) list() (all []handlers.Pool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for of, db := range d.pools {
		now := db.Pool()
		all = append(all, handlers.Pool{Kind: of.kind, Name: of.name, Open: now.OpenConnections, InUse: now.InUse, Max: now.MaxOpenConnections})
	}
	return all
}
