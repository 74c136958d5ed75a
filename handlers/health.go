package handlers

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"
)

// readyTimeout bounds the look at the dependencies, so that a stalled one cannot hold up the probe.
const readyTimeout = time.Second

// Kinds of dependencies, as store.Health names them.
const (
	kindIndex = "index"
	kindNode  = "node"
)

// Answers of readyz.
const (
	statusReady       = "ready"
	statusDegraded    = "degraded"
	statusUnavailable = "unavailable"
)

// readiness is the body of readyz.
type readiness struct {
	Status       string       `json:"status"`
	Dependencies []dependency `json:"dependencies"`
}

// dependency is one database as readyz shows it.
type dependency struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// TookMS is the time that the answer, or its absence, took.
	TookMS float64 `json:"took_ms"`
	// Reason says why it is not OK.
	Reason string `json:"reason,omitempty"`
}

// healthz answers as long as the process can answer at all.
func (s *Server) healthz(_ context.Context, x *exchange) error {
	return x.sendJSON(http.StatusOK, []byte("{\"status\":\"ok\"}\n"))
}

// readyz tells whether records can be served: not without the index, nor without any node. With an issuer or some node
// down, or an index that only answers reads, the gateway is degraded and stays in service, because reads and many writes
// go on.
func (s *Server) readyz(ctx context.Context, x *exchange) error {
	answer := s.readiness(ctx)
	code := http.StatusOK
	if answer.Status == statusUnavailable {
		code = http.StatusServiceUnavailable
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return x.sendJSON(code, append(body, '\n'))
}

// readiness asks the dependencies and judges what they say.
func (s *Server) readiness(ctx context.Context) readiness {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	answer := readiness{Status: statusReady, Dependencies: []dependency{}}
	nodes, nodesDown, indexDown := 0, 0, false
	for _, health := range s.records.Health(ctx) {
		d := dependency{Kind: health.Kind, Name: health.Name, OK: health.Err == nil, TookMS: milliseconds(health.Took)}
		if health.Err != nil {
			d.Reason = health.Err.Error()
			answer.Status = statusDegraded
			indexDown = indexDown || health.Kind == kindIndex && !health.ReadsGoOn
		}
		if health.Kind == kindNode {
			nodes++
			if health.Err != nil {
				nodesDown++
			}
		}
		answer.Dependencies = append(answer.Dependencies, d)
	}
	if indexDown || nodes > 0 && nodes == nodesDown {
		answer.Status = statusUnavailable
	}
	return answer
}

// sendJSON answers with a document of the gateway's own, which no cache may keep.
func (x *exchange) sendJSON(status int, body []byte) error {
	header := x.Response().Header()
	header.Set(echo.HeaderContentType, mediaJSON)
	header.Set(echo.HeaderCacheControl, "no-store")
	return x.send(status, body)
}
