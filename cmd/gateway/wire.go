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
	// closers end what was opened, to be called in reverse order.
	closers []func() error
}

// openParts opens every database that the config names, makes sure that each node is who config says it is, and builds
// the store. It fails when anything is out of reach; nothing stays open then.
func openParts(ctx context.Context, cfg *Config, logger *slog.Logger) (p *parts, err error) {
	p = &parts{metrics: prometheus.NewRegistry()}
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
	issuer, err := p.openIssuer(ctx, cfg)
	if err != nil {
		return p, fmt.Errorf("ids.issuers[0]: %w", err)
	}
	cluster, err := issuer.Cluster(ctx, p.identity.Instance())
	if err != nil {
		return p, fmt.Errorf("ids.issuers[0]: %w", err)
	}
	nodes, err := p.openNodes(ctx, cfg)
	if err != nil {
		return p, err
	}
	if err := claimNodes(ctx, layout, nodes, cluster); err != nil {
		return p, err
	}
	p.store, err = store.New(ctx, store.Config{
		Map: layout, Nodes: nodes, Index: ix, Issuer: issuer, Collections: collectionNames(cfg), Identity: p.identity,
		CacheBytes: int64(cfg.Cache.MaxBytes),
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
		nodes = append(nodes, rangeshard.Node{Name: n.Name, Ranges: ranges})
	}
	return rangeshard.NewMap(cfg.Ranges.Size, nodes)
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

func (p *parts) openIssuer(ctx context.Context, cfg *Config) (*idsegment.Issuer, error) {
	db, err := sqldb.Open(ctx, cfg.IDs.Issuers[0].DSN.Reveal(), sqldb.Options{})
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, db.Close)
	return idsegment.OpenIssuer(ctx, db)
}

// openNodes connects to all nodes at once and says of each why it failed.
func (p *parts) openNodes(ctx context.Context, cfg *Config) ([]*sqldb.DB, error) {
	nodes, errs := make([]*sqldb.DB, len(cfg.Nodes)), make([]error, len(cfg.Nodes))
	var wg sync.WaitGroup
	for i, n := range cfg.Nodes {
		wg.Go(func() {
			var err error
			if nodes[i], err = sqldb.Open(ctx, n.DSN.Reveal(), sqldb.Options{MaxConnections: n.Connections}); err != nil {
				errs[i] = fmt.Errorf("nodes[%d] (%s): %w", i, n.Name, err)
			}
		})
	}
	wg.Wait()
	for _, db := range nodes {
		if db != nil {
			p.closers = append(p.closers, db.Close)
		}
	}
	return nodes, errors.Join(errs...)
}

// claimNodes compares all stamps before it writes the first, so that a refused config leaves no trace.
func claimNodes(ctx context.Context, layout *rangeshard.Map, nodes []*sqldb.DB, cluster string) error {
	var errs []error
	for i, n := range layout.Nodes() {
		have, ok, err := rangeshard.ReadStamp(ctx, nodes[i])
		if err == nil && ok {
			err = have.Accept(stampOf(layout, n, cluster))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("nodes[%d] (%s) at %s: %w", i, n.Name, nodes[i].Location(), err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, n := range layout.Nodes() {
		if err := rangeshard.ClaimNode(ctx, nodes[i], stampOf(layout, n, cluster), time.Now()); err != nil {
			return fmt.Errorf("nodes[%d] (%s) at %s: %w", i, n.Name, nodes[i].Location(), err)
		}
	}
	return nil
}

func stampOf(layout *rangeshard.Map, n rangeshard.Node, cluster string) rangeshard.Stamp {
	return rangeshard.Stamp{Cluster: cluster, Node: n.Name, RangeSize: layout.Size(), Ranges: n.Ranges}
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
