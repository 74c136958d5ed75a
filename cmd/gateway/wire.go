package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"keyrange/idsegment"
	"keyrange/index"
	"keyrange/rangeshard"
	"keyrange/store"
	"keyrange/store/sqldb"
)

// parts is an open store with everything that it stands on.
type parts struct {
	store    *store.Store
	identity *store.Identity
	metrics  *prometheus.Registry
	// nodes are the open databases of nodes by name; each has its closer.
	nodes map[string]*sqldb.DB
	// closers end what was opened, to be called in reverse order.
	closers []func() error
}

// openParts opens every database that the config names, makes sure that each node is who config says it is, and builds
// the store. It fails when anything is out of reach; nothing stays open then.
func openParts(ctx context.Context, cfg *Config, logger *slog.Logger) (p *parts, err error) {
	p = &parts{metrics: prometheus.NewRegistry(), nodes: map[string]*sqldb.DB{}}
	p.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	defer func() {
		if err != nil {
			p.closeDatabases()
		}
	}()
	if p.identity, err = store.NewIdentity(); err != nil {
		return p, err
	}
	layout, err := layoutOf(cfg)
	if err != nil {
		return p, err
	}
	ix, err := index.Open(ctx, cfg.Index.URI.Reveal(), indexOptions(cfg))
	if err != nil {
		return p, fmt.Errorf("index: %w", err)
	}
	p.closers = append(p.closers, ix.Close)
	issuer, err := sqldb.Open(ctx, cfg.IDs.Issuers[0].DSN.Reveal(), sqldb.Options{})
	if err != nil {
		return p, fmt.Errorf("ids.issuers[0]: %w", err)
	}
	p.closers = append(p.closers, issuer.Close)
	nodes, err := p.openNodes(ctx, cfg)
	if err != nil {
		return p, err
	}
	p.adopt(cfg, nodes)
	p.store, err = store.New(ctx, store.Config{
		Fleet: store.Fleet{Map: layout, Nodes: nodes, Issuer: idsegment.NewIssuer(issuer)}, Index: ix,
		Collections: collectionNames(cfg), Identity: p.identity,
		CacheBytes: int64(cfg.Cache.MaxBytes),
		Placement:  placementOf(cfg),
		Sequences:  idsegment.Options{MinStep: cfg.IDs.Step.Min, MaxStep: cfg.IDs.Step.Max, Logger: logger},
		Now:        time.Now, Logger: logger, Metrics: p.metrics,
	})
	if err != nil {
		return p, err
	}
	p.store.Warm(ctx)
	return p, nil
}

// layoutOf proves the map of ranges. The config was validated, so it does not fail.
func layoutOf(cfg *Config) (*rangeshard.Map, error) {
	var nodes []rangeshard.Node
	for _, n := range cfg.Nodes {
		ranges, err := rangeshard.ParseRanges(n.Ranges)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, rangeshard.Node{Name: n.Name, Ranges: ranges, Drain: n.Drain})
	}
	return rangeshard.NewMap(cfg.Ranges.Size, nodes)
}

func placementOf(cfg *Config) store.Placement {
	if cfg.IDs.Order == orderStrict {
		return store.Placement{}
	}
	return store.Placement{Spread: cfg.IDs.OpenRanges, HighLevel: float64(cfg.IDs.HighLevelPercent) / 100}
}

func indexOptions(cfg *Config) index.Options {
	return index.Options{AllowStandalone: cfg.Index.AllowStandalone, Connections: cfg.Index.Connections}
}

func collectionNames(cfg *Config) (names []string) {
	for _, c := range cfg.Collections {
		names = append(names, c.Name)
	}
	return names
}

// openNodes returns the databases of all nodes, in their order. Those that are not open yet are connected to all at once;
// when that fails, the error says of each why, and none of them stays open. Otherwise they are to be adopted or discarded.
func (p *parts) openNodes(ctx context.Context, cfg *Config) ([]*sqldb.DB, error) {
	nodes, errs := make([]*sqldb.DB, len(cfg.Nodes)), make([]error, len(cfg.Nodes))
	var wg sync.WaitGroup
	for i, n := range cfg.Nodes {
		if nodes[i] = p.nodes[n.Name]; nodes[i] != nil {
			continue
		}
		wg.Go(func() {
			var err error
			if nodes[i], err = sqldb.Open(ctx, n.DSN.Reveal(), sqldb.Options{MaxConnections: n.Connections}); err != nil {
				errs[i] = fmt.Errorf("nodes[%d] (%s): %w", i, n.Name, err)
			}
		})
	}
	wg.Wait()
	err := errors.Join(errs...)
	if err != nil {
		p.discard(cfg, nodes)
	}
	return nodes, err
}

// adopt keeps the databases that openNodes has connected to until everything is closed.
func (p *parts) adopt(cfg *Config, nodes []*sqldb.DB) {
	for i, n := range cfg.Nodes {
		if p.nodes[n.Name] == nil {
			p.nodes[n.Name] = nodes[i]
			p.closers = append(p.closers, nodes[i].Close)
		}
	}
}

// discard closes the databases that openNodes has connected to; nil ones are left out.
func (p *parts) discard(cfg *Config, nodes []*sqldb.DB) {
	for i, n := range cfg.Nodes {
		if p.nodes[n.Name] == nil && nodes[i] != nil {
			_ = nodes[i].Close() // nothing was written that this could lose
		}
	}
}

// grow connects to the nodes that a config appends to the running ones and puts its map in force (I7). After an error
// nothing has changed. One call at a time, and none beside close.
func (p *parts) grow(ctx context.Context, cfg *Config) error {
	layout, err := layoutOf(cfg)
	if err != nil {
		return err
	}
	nodes, err := p.openNodes(ctx, cfg)
	if err != nil {
		return err
	}
	if err := p.store.Extend(ctx, store.Fleet{Map: layout, Nodes: nodes}); err != nil {
		p.discard(cfg, nodes)
		return err
	}
	p.adopt(cfg, nodes)
	return nil
}

// close hands unused IDs back and ends everything in reverse order.
func (p *parts) close(ctx context.Context) error {
	err := p.store.Close(ctx)
	p.closeDatabases()
	return err
}

// closeDatabases ends the connections. All that was written has been acknowledged, so their errors say nothing.
func (p *parts) closeDatabases() {
	for i := len(p.closers) - 1; i >= 0; i-- {
		_ = p.closers[i]()
	}
	p.closers = nil
}
