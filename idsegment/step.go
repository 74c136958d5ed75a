package idsegment

import "time"

const (
	// segmentLifeMin and segmentLifeMax are how long a segment should last: long enough that a lease costs nothing, short
	// enough that a crash burns little.
	segmentLifeMin = 30 * time.Second
	segmentLifeMax = 60 * time.Second
	// rangeFraction bounds a step to one thousandth of the IDs that the issuer has in the range.
	rangeFraction = 1000
)

// step sizes the segments of one sequence by the rate at which their IDs are used. It is not safe for concurrent use.
type step struct {
	min, max, size int64
	leasedAt       time.Time
	// settled: leasedAt has been judged, or there is nothing to judge yet. It keeps an outage, in which leases are tried
	// again and again, from counting as many short segments.
	settled bool
}

func newStep(bounds Bounds, opts Options) step {
	s := step{max: max(1, min(opts.MaxStep, bounds.count()/rangeFraction)), settled: true}
	s.min = min(opts.MinStep, s.max)
	s.size = s.min
	return s
}

// next is the size of a lease that starts now.
func (s *step) next(now time.Time) int64 {
	if !s.settled {
		s.settled = true
		switch life := now.Sub(s.leasedAt); {
		case life < segmentLifeMin:
			s.size = min(s.size*2, s.max)
		case life > segmentLifeMax:
			s.size = max(s.size/2, s.min)
		}
	}
	return s.size
}

// leased notes that a segment came in. In steady use a segment lives from one lease to the next.
func (s *step) leased(now time.Time) {
	s.leasedAt, s.settled = now, false
}
