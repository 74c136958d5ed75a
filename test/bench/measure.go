package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"
)

// bench is one run.
type bench struct {
	plan     *plan
	servers  *servers
	binary   string
	folder   string
	progress io.Writer
	started  time.Time
	// cells have been measured so far, of so many; cellsStarted is when the first was begun.
	done, cells  int
	cellsStarted time.Time
}

const (
	// warmUp is how long each side runs unmeasured before the first round of a cell, so that connections are there.
	warmUp = 400 * time.Millisecond
	// warmClients read all records before the workloads that want a warm cache.
	warmClients = 64
	// directNode is the node that both sides use: `order: strict` fills the first range first, and that is the first node's.
	directNode = 0
	// nodeCount is the number of nodes that the gateway is configured with.
	nodeCount = 3
)

// say prints a line of progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "%6s  %s\n", time.Since(b.started).Round(time.Second), fmt.Sprintf(format, args...))
}

// left estimates the time that the cells still take, growth not counted.
func (b *bench) left() string {
	if b.done == 0 {
		return ""
	}
	rest := time.Since(b.cellsStarted) / time.Duration(b.done) * time.Duration(b.cells-b.done)
	return fmt.Sprintf(", %s left", rest.Round(time.Second))
}

// measure does the whole run.
func (b *bench) measure(ctx context.Context) (*results, error) {
	r := newResults(b)
	var err error
	if r.IDs, err = measureIDs(ctx); err != nil {
		return nil, err
	}
	for _, one := range r.IDs {
		b.say("idsegment, %s: %.1f ns per ID", plural(one.Goroutines, "goroutine"), one.Nanoseconds.Median)
	}
	b.cells, b.cellsStarted = len(b.plan.sizes)*len(b.plan.workloads)*len(b.plan.clients), time.Now()
	for _, size := range b.plan.sizes {
		cells, err := b.measureSize(ctx, size)
		if err != nil {
			return nil, err
		}
		r.Cells = append(r.Cells, cells...)
	}
	if b.plan.growth {
		if r.Growth, err = b.measureGrowth(ctx); err != nil {
			return nil, err
		}
	}
	r.Seconds = time.Since(b.started).Seconds()
	return r, ctx.Err()
}

// stand is both sides over fresh databases, filled with documents of one size.
type stand struct {
	rowsURL, directIndex string
	config               gatewayConfig
	directData           dataset
	gatewayData          dataset
	// nextID is the next ID of the direct clients, kept from one pool to the next.
	nextID int64
}

// measureSize measures all workloads with documents of one size.
func (b *bench) measureSize(ctx context.Context, size int) (cells []cell, err error) {
	if len(b.plan.workloads) == 0 {
		return nil, nil
	}
	made := &databases{servers: b.servers}
	defer func() { err = errors.Join(err, made.drop(ctx)) }()
	s, err := b.openStand(ctx, made, size)
	if err != nil {
		return nil, err
	}
	for _, w := range b.plan.workloads {
		for _, clients := range b.plan.clients {
			c, err := b.measureCell(ctx, s, w, clients)
			if err != nil {
				return nil, fmt.Errorf("%s, %s, %d B: %w", w.title, plural(clients, "client"), size, err)
			}
			cells = append(cells, *c)
			b.done++
		}
	}
	return cells, nil
}

// gatewayOn makes databases for a gateway and its config.
func (b *bench) gatewayOn(ctx context.Context, made *databases, rangeSize int64, ranges []string) (g gatewayConfig, err error) {
	g = gatewayConfig{rangeSize: rangeSize, ranges: ranges, logLevel: b.plan.logLevel}
	if g.index, err = made.mongo(); err != nil {
		return g, err
	}
	if g.issuer, err = made.mysql(ctx, directNode); err != nil {
		return g, err
	}
	for i := range nodeCount {
		node, err := made.mysql(ctx, directNode+i)
		if err != nil {
			return g, err
		}
		g.nodes = append(g.nodes, node)
	}
	return g, nil
}

// openStand makes the databases of both sides and stores the same records on each.
func (b *bench) openStand(ctx context.Context, made *databases, size int) (s *stand, err error) {
	s = &stand{directData: dataset{documentBytes: size}, gatewayData: dataset{documentBytes: size}}
	if s.config, err = b.gatewayOn(ctx, made, 10_000_000, []string{"1", "2", "3"}); err != nil {
		return nil, err
	}
	if s.directIndex, err = made.mongo(); err != nil {
		return nil, err
	}
	if s.rowsURL, err = made.mysql(ctx, directNode); err != nil {
		return nil, err
	}
	b.say("%d B: storing %d records on each side", size, b.plan.records)
	d, err := openDirect(s.rowsURL, s.directIndex, 1)
	if err != nil {
		return nil, err
	}
	defer d.disconnect()
	if err := d.fill(ctx, &s.directData, b.plan.records); err != nil {
		return nil, err
	}
	s.nextID = d.nextID.Load()
	g, err := startGateway(ctx, b.binary, b.folder, s.config)
	if err != nil {
		return nil, err
	}
	defer g.stop()
	return s, errors.Join(g.fill(ctx, &s.gatewayData, b.plan.records, func() {}), ctx.Err())
}

// measureCell measures one workload with so many clients, on a gateway process of its own.
func (b *bench) measureCell(ctx context.Context, s *stand, w workload, clients int) (c *cell, err error) {
	c = &cell{Workload: w.name, Title: w.title, Clients: clients, DocumentBytes: s.directData.documentBytes}
	d, err := openDirect(s.rowsURL, s.directIndex, min(clients, b.plan.directPool))
	if err != nil {
		return nil, err
	}
	d.nextID.Store(s.nextID)
	defer func() { s.nextID = d.nextID.Load(); d.disconnect() }()
	config := s.config
	config.cold = w.cold
	g, err := startGateway(ctx, b.binary, b.folder, config)
	if err != nil {
		return nil, err
	}
	defer func() {
		g.stop()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, g.tail())
		}
	}()
	direct := make([]*worker, clients)
	for i := range direct {
		direct[i] = newWorker(d, w, &s.directData, i)
	}
	viaGateway, err := gatewayWorkers(ctx, g, w, &s.gatewayData, clients)
	if err != nil {
		return nil, err
	}
	defer closeAll(viaGateway)
	if !w.creates && !w.cold {
		if err := warmCache(ctx, g, &s.gatewayData); err != nil {
			return nil, err
		}
	}
	if err := b.closedRounds(ctx, c, g, direct, viaGateway); err != nil {
		return nil, err
	}
	if err := b.openRounds(ctx, c, direct, viaGateway); err != nil {
		return nil, err
	}
	c.PeakBytes, err = g.peakBytes()
	return c, err
}

// gatewayWorkers opens a connection for each client.
func gatewayWorkers(ctx context.Context, g *gateway, w workload, data *dataset, clients int) ([]*worker, error) {
	var opened []*worker
	for i := range clients {
		c, err := dialGateway(ctx, g.address)
		if err != nil {
			closeAll(opened)
			return nil, err
		}
		opened = append(opened, newWorker(c, w, data, i))
	}
	return opened, nil
}

func closeAll(workers []*worker) {
	for _, k := range workers {
		k.close()
	}
}

// warmCache reads each record once, so that the gateway knows all keys.
func warmCache(ctx context.Context, g *gateway, data *dataset) error {
	workers, err := gatewayWorkers(ctx, g, workload{reads: 1}, data, warmClients)
	if err != nil {
		return err
	}
	defer closeAll(workers)
	errs := make([]error, len(workers))
	var wg sync.WaitGroup
	for i, k := range workers {
		wg.Go(func() {
			for number := int64(i); number < data.stored && errs[i] == nil; number += warmClients {
				errs[i] = k.read(ctx, keyOf(number))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// closedRounds measures throughput and the gateway's CPU. Which side goes first changes from round to round.
func (b *bench) closedRounds(ctx context.Context, c *cell, g *gateway, direct, viaGateway []*worker) error {
	for _, workers := range [][]*worker{direct, viaGateway} {
		if _, err := closedLoad(ctx, workers, warmUp); err != nil {
			return err
		}
	}
	for n := range b.plan.rounds {
		one := round{}
		for side := range 2 {
			runtime.GC() // the garbage of one side is not the other's burden
			if (side+n)%2 == 0 {
				p, err := closedLoad(ctx, direct, b.plan.duration)
				if err != nil {
					return fmt.Errorf("direct: %w", err)
				}
				one.Direct, c.DirectFailed = p.rate(), c.DirectFailed+p.failed
				continue
			}
			before, err := g.cpu()
			if err != nil {
				return err
			}
			p, err := closedLoad(ctx, viaGateway, b.plan.duration)
			if err != nil {
				return fmt.Errorf("gateway: %w", err)
			}
			after, err := g.cpu()
			if err != nil {
				return err
			}
			one.Gateway, c.GatewayFailed = p.rate(), c.GatewayFailed+p.failed
			one.CPUMicroseconds = float64((after - before).Microseconds()) / float64(p.completed)
		}
		if one.Direct == 0 || one.Gateway == 0 {
			return errors.New("no request was answered in time: -duration is too short")
		}
		c.Rounds = append(c.Rounds, one)
		b.say("[%d/%d%s] %s: round %d: direct %.0f/s, gateway %.0f/s, x%.2f", b.done+1, b.cells, b.left(), c, n+1, one.Direct, one.Gateway, one.ratio())
	}
	return nil
}

// openRounds measures latency at the same fixed rate on both sides: direct, gateway, gateway, direct, so that neither
// gains by a drift of the machine.
func (b *bench) openRounds(ctx context.Context, c *cell, direct, viaGateway []*worker) error {
	c.OpenRate = b.plan.load * min(c.Rounds[0].Direct, c.Rounds[0].Gateway)
	var ofDirect, ofGateway phase
	for _, turn := range []struct {
		side    string
		workers []*worker
		sum     *phase
	}{{"direct", direct, &ofDirect}, {"gateway", viaGateway, &ofGateway}, {"gateway", viaGateway, &ofGateway}, {"direct", direct, &ofDirect}} {
		runtime.GC()
		p, err := openLoad(ctx, turn.workers, c.OpenRate, b.plan.duration)
		if err != nil {
			return fmt.Errorf("%s: %w", turn.side, err)
		}
		turn.sum.merge(p)
	}
	c.DirectFailed += ofDirect.failed
	c.GatewayFailed += ofGateway.failed
	c.DirectLatency, c.GatewayLatency = latencyOf(&ofDirect), latencyOf(&ofGateway)
	b.say("[%d/%d] at %.0f/s: direct %s; gateway %s ms (p50 / p99 / p99.9)", b.done+1, b.cells, c.OpenRate, c.DirectLatency, c.GatewayLatency)
	return nil
}
