package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// layout is a way to cut the IDs for the measurement of growth.
type layout struct {
	title     string
	rangeSize int64
	// ranges of each node.
	ranges []string
}

// layouts: all records in one table, and in twenty over three nodes at a million.
var layouts = []layout{
	{"one range on one node", 10_000_000, []string{"1", "2", "3"}},
	{"ranges of 50,000 over three nodes", 50_000, []string{"1-7", "8-14", "15-400"}},
}

// Growth is measured with these.
const (
	growthFirst         = 10_000 // records at the first level
	growthFactor        = 10     // from level to level
	growthDocumentBytes = 300
	// growthRounds make the median of a point.
	growthRounds = 3
	// flatFactor is how much slower the last level may be than the first and still be called flat.
	flatFactor   = 1.5
	fillProgress = 5 * time.Second
)

// growthClients are the numbers of clients that latency is measured with as a table grows.
var growthClients = []int{1, 64}

// growthPoint is the latency at one number of records.
type growthPoint struct {
	Layout   string `json:"layout"`
	Workload string `json:"workload"`
	Clients  int    `json:"clients"`
	// Records were there when the measurement began.
	Records int64 `json:"records"`
	// P50 of a closed load, in milliseconds, over the rounds.
	P50 spread `json:"p50_ms"`
}

// measureGrowth measures latency while the number of records grows, in each layout.
func (b *bench) measureGrowth(ctx context.Context) (points []growthPoint, err error) {
	for _, l := range layouts {
		some, err := b.growLayout(ctx, l)
		if err != nil {
			return nil, fmt.Errorf("growth, %s: %w", l.title, err)
		}
		points = append(points, some...)
	}
	return points, nil
}

// growLayout fills one layout level by level, with the key cache off, so that both steps of a read are measured.
func (b *bench) growLayout(ctx context.Context, l layout) (points []growthPoint, err error) {
	made := &databases{servers: b.servers}
	defer func() { err = errors.Join(err, made.drop(ctx)) }()
	config, err := b.gatewayOn(ctx, made, l.rangeSize, l.ranges)
	if err != nil {
		return nil, err
	}
	config.cold = true
	g, err := startGateway(ctx, b.binary, b.folder, config)
	if err != nil {
		return nil, err
	}
	defer g.stop()
	data := &dataset{documentBytes: growthDocumentBytes}
	fillCtx, cancel := context.WithTimeout(ctx, b.plan.growthTime)
	defer cancel()
	for level := int64(growthFirst); level <= b.plan.growthMax; level *= growthFactor {
		if err := b.growTo(fillCtx, g, l, data, level); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if data.stored < level {
			b.say("growth, %s: the time for filling is over at %d records", l.title, data.stored)
			return points, nil
		}
		for _, w := range []workload{{name: "read", reads: 1}, {name: "create", creates: true}} {
			for _, clients := range growthClients {
				p, err := b.growthPoint(ctx, g, l, data, w, clients)
				if err != nil {
					return nil, err
				}
				points = append(points, p)
			}
		}
	}
	return points, nil
}

// growTo fills up to a level and shows how far it is.
func (b *bench) growTo(ctx context.Context, g *gateway, l layout, data *dataset, level int64) error {
	shown, started, from := time.Now(), time.Now(), data.next.Load()
	return g.fill(ctx, data, level, func() {
		if time.Since(shown) < fillProgress {
			return
		}
		shown = time.Now()
		have := data.next.Load()
		rate := float64(have-from) / time.Since(started).Seconds()
		b.say("growth, %s: %d of %d records, %.0f/s, %.0f s left", l.title, have, level, rate, float64(level-have)/rate)
	})
}

// growthPoint measures one workload at the number of records that there are now.
func (b *bench) growthPoint(ctx context.Context, g *gateway, l layout, data *dataset, w workload, clients int) (growthPoint, error) {
	point := growthPoint{Layout: l.title, Workload: w.name, Clients: clients, Records: data.stored}
	workers, err := gatewayWorkers(ctx, g, w, data, clients)
	if err != nil {
		return point, err
	}
	defer closeAll(workers)
	if _, err := closedLoad(ctx, workers, warmUp); err != nil {
		return point, err
	}
	var medians []float64
	for range growthRounds {
		p, err := closedLoad(ctx, workers, b.plan.duration)
		if err != nil {
			return point, err
		}
		medians = append(medians, milliseconds(p.percentile(0.5)))
	}
	data.stored = data.next.Load()
	point.P50 = spreadOf(medians)
	b.say("growth, %s: %s, %s at %d records: p50 %.2f ms", l.title, w.name, plural(clients, "client"), point.Records, point.P50.Median)
	return point, nil
}
