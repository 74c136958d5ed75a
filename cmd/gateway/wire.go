package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	// dependencies are the metrics of databases.
	dependencies *dependencies
	// nodes are the databases of nodes by name.
	nodes map[string]nodeDatabase
	// closers end everything else, to be called in reverse order.
	closers []func() error
}

// nodeDatabase is the database of a node, and the URL that it was made from.
type nodeDatabase struct {
	*sqldb.DB
	dsn Secret
}

func newParts() *parts {
	p := &parts{nodes: map[string]nodeDatabase{}}
	p.metrics, p.dependencies = newMetrics()
	return p
}

// openParts connects to the databases that the config names, makes sure that each is who config says it is, and builds
// the store. A database that is out of reach does not hold it up, unless the fleet has never been started. When it fails,
// nothing stays open.
func openParts(ctx context.Context, cfg *Config, logger *slog.Logger) (p *parts, err error) {
	p = newParts()
	defer func() {
		if err != nil {
			p.closeDatabases()
		}
	}()
	if p.identity, err = store.NewIdentity(); err != nil {
		return p, err
	}
	ix, err := index.New(cfg.Index.URI.Reveal(), indexOptions(cfg))
	if err != nil {
		return p, fmt.Errorf("index: %w", err)
	}
	p.closers = append(p.closers, ix.Close)
	p.dependencies.watch(kindIndex, kindIndex, ix)
	fleet, err := p.openFleet(cfg)
	if err != nil {
		return p, err
	}
	p.store, err = store.New(ctx, store.Config{
		Fleet: fleet, Index: index.Observed(ix, p.dependencies.observe(kindIndex, kindIndex)),
		Collections: collectionsOf(cfg), Identity: p.identity,
		CacheBytes: int64(cfg.Cache.MaxBytes),
		Placement:  placementOf(cfg), AlarmLevels: alarmLevelsOf(cfg), Sweeping: sweepingOf(cfg),
		Sequences: idsegment.Options{MinStep: cfg.IDs.Step.Min, MaxStep: cfg.IDs.Step.Max, Logger: logger},
		Now:       time.Now, Logger: logger, Metrics: p.metrics,
	})
	if err != nil {
		return p, err
	}
	p.store.Warm(ctx)
	return p, nil
}

// openFleet prepares the databases of the issuers and the nodes, without talking to them. They close with the parts.
func (p *parts) openFleet(cfg *Config) (fleet store.Fleet, err error) {
	if fleet.Map, err = layoutOf(cfg); err != nil {
		return fleet, err
	}
	for i, c := range cfg.IDs.Issuers {
		name := store.IssuerName(i, len(cfg.IDs.Issuers))
		db, err := sqldb.New(c.DSN.Reveal(), sqldb.Options{Observe: p.dependencies.observe(kindIssuer, name)})
		if err != nil {
			return fleet, fmt.Errorf("ids.issuers[%d]: %w", i, err)
		}
		p.closers = append(p.closers, db.Close)
		p.dependencies.watch(kindIssuer, name, db)
		fleet.Issuers = append(fleet.Issuers, idsegment.NewIssuer(db, i+1, len(cfg.IDs.Issuers)))
	}
	if fleet.Nodes, err = p.openNodes(cfg); err == nil {
		p.adopt(cfg, fleet.Nodes)
	}
	return fleet, err
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

func alarmLevelsOf(cfg *Config) store.AlarmLevels {
	return store.AlarmLevels{Warn: float64(cfg.Ranges.WarnPercent) / 100, Alarm: float64(cfg.Ranges.AlarmPercent) / 100}
}

// sweepingOf leaves requests twice their time between the two looks at an entry that dangles.
func sweepingOf(cfg *Config) store.Sweeping {
	return store.Sweeping{RowsPerSecond: cfg.Sweeper.RowsPerSecond, Interval: cfg.Sweeper.Interval, Grace: 2 * cfg.Server.RequestTimeout}
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

// openNodes returns the databases of all nodes, in their order: those that are open under the same URL, and new ones, which
// are to be adopted or discarded.
func (p *parts) openNodes(cfg *Config) (nodes []*sqldb.DB, err error) {
	for i, n := range cfg.Nodes {
		running, ok := p.nodes[n.Name]
		db := running.DB
		if !ok || running.dsn != n.DSN {
			if db, err = sqldb.New(n.DSN.Reveal(), sqldb.Options{MaxConnections: n.Connections, Observe: p.dependencies.observe(kindNode, n.Name)}); err != nil {
				p.discard(cfg, nodes)
				return nil, fmt.Errorf("nodes[%d] (%s): %w", i, n.Name, err)
			}
		}
		nodes = append(nodes, db)
	}
	return nodes, nil
}

// adopt keeps the databases that openNodes has returned until everything is closed, and closes those whose place they
// take; a statement that is on its way there still ends.
func (p *parts) adopt(cfg *Config, nodes []*sqldb.DB) {
	for i, n := range cfg.Nodes {
		running := p.nodes[n.Name]
		if running.DB != nil && running.DB != nodes[i] {
			_ = running.Close() // whatever it wrote was acknowledged
		}
		p.nodes[n.Name] = nodeDatabase{nodes[i], n.DSN}
		p.dependencies.watch(kindNode, n.Name, nodes[i])
	}
}

// discard closes the databases that openNodes has made anew.
func (p *parts) discard(cfg *Config, nodes []*sqldb.DB) {
	for i, db := range nodes {
		if p.nodes[cfg.Nodes[i].Name].DB != db {
			_ = db.Close() // nothing was written that this could lose
		}
	}
}

// grow puts the map of a config in force, with the nodes that it appends and those that it moves (I7). After an error
// nothing has changed. One call at a time, and none beside close.
func (p *parts) grow(ctx context.Context, cfg *Config) error {
	layout, err := layoutOf(cfg)
	if err != nil {
		return err
	}
	nodes, err := p.openNodes(cfg)
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
	for _, n := range p.nodes {
		_ = n.Close()
	}
	for i := len(p.closers) - 1; i >= 0; i-- {
		_ = p.closers[i]()
	}
	p.nodes, p.closers = nil, nil
}

// collectionsOf lists the collections as the store knows them.
func collectionsOf(cfg *Config) []store.Collection {
	all := make([]store.Collection, len(cfg.Collections))
	for i, c := range cfg.Collections {
		all[i] = store.Collection{
			Name: c.Name, Group: c.Group, KeyMember: c.Key, Columns: columnsOf(c), KeepUnknown: c.UnknownMembers == unknownKeep,
		}
	}
	return all
}

// groupsOf are the members that hold groups, by collection.
func groupsOf(cfg *Config) map[string]string {
	groups := map[string]string{}
	for _, c := range cfg.Collections {
		groups[c.Name] = c.Group
	}
	return groups
}
