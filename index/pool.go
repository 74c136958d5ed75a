package index

import (
	"database/sql"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
)

// mongoPool counts the connections of a MongoDB client from what its driver tells of them.
type mongoPool struct {
	most          int
	open, inUse   atomic.Int64
	waits, waited atomic.Int64 // times, and nanoseconds
}

// told is called by the driver, from several goroutines.
func (p *mongoPool) told(e *event.PoolEvent) {
	switch e.Type {
	case event.ConnectionCreated:
		p.open.Add(1)
	case event.ConnectionClosed:
		p.open.Add(-1)
	case event.ConnectionCheckOutStarted:
		if p.inUse.Load() >= int64(p.most) {
			p.waits.Add(1)
		}
	case event.ConnectionCheckOutFailed:
		p.waited.Add(int64(e.Duration))
	case event.ConnectionCheckedOut:
		p.inUse.Add(1)
		p.waited.Add(int64(e.Duration))
	case event.ConnectionCheckedIn:
		p.inUse.Add(-1)
	}
}

// Pool implements Index.
func (m *mongoIndex) Pool() sql.DBStats {
	p := m.pool
	return sql.DBStats{
		MaxOpenConnections: p.most, OpenConnections: int(p.open.Load()), InUse: int(p.inUse.Load()),
		WaitCount: p.waits.Load(), WaitDuration: time.Duration(p.waited.Load()),
	}
}
