package handlers

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

// errOverloaded refuses a request at once, because those under way are as many as the gateway takes.
var errOverloaded = errors.New("overloaded")

// gate counts the requests for records that are under way, and what their bodies may take of the memory. Beyond the limits
// requests are refused at once: waiting in line would only make them late as well, and the line would have no end.
type gate struct {
	mu       sync.Mutex
	requests int
	bytes    int64
	refused  int64 // since the start
}

// enter lets a request of a weight in bytes in, or refuses it. A request that is alone always gets in.
func (g *gate) enter(limits *Limits, weight int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.requests > 0 && (g.requests >= limits.MaxRequests || g.bytes+weight > limits.MaxRequestBytes) {
		g.refused++
		return false
	}
	g.requests++
	g.bytes += weight
	return true
}

// leave undoes enter.
func (g *gate) leave(weight int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests--
	g.bytes -= weight
}

// Load is how much the gateway has to do for records.
type Load struct {
	// Requests are under way; their bodies take up to Bytes of memory.
	Requests int
	Bytes    int64
	// Refused counts the requests that were refused as too many since the start.
	Refused int64
}

// Load returns the load of this moment.
func (s *Server) Load() Load {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	return Load{s.gate.requests, s.gate.bytes, s.gate.refused}
}

// gated runs next for a client that is known and within its limits, unless there is too much to do already.
func (s *Server) gated(next handler) handler {
	return func(ctx context.Context, x *exchange) error {
		done, err := s.admit(ctx, x)
		if err != nil {
			return err
		}
		defer done()
		weight := x.weight()
		if !s.gate.enter(x.limits, weight) {
			return errOverloaded
		}
		defer s.gate.leave(weight)
		return next(ctx, x)
	}
}

// weight is what the body of a request may take of the memory: a stream its window, as many records that are read, any other what it says, or the most
// that it may when it does not say.
func (x *exchange) weight() int64 {
	request := x.Request()
	if x.route == patternCollection && (request.Method == http.MethodGet || request.Method == http.MethodHead) {
		return bulkWindowBytes // of records that are read
	}
	if media, err := mediaType(request.Header); err == nil && media == mediaNDJSON {
		return bulkWindowBytes
	}
	if request.ContentLength < 0 {
		return x.limits.MaxBulkBytes
	}
	return min(request.ContentLength, x.limits.MaxBulkBytes) // a larger one is refused without being read
}
