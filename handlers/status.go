package handlers

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"keyrange/store"
)

// Program is what the program knows of itself, for GET /admin/status.
type Program struct {
	Version, Instance string
	StartedAt         time.Time
	Config            ConfigState
	// Pools are the connections to the databases.
	Pools []Pool
}

// ConfigState is what became of the config file.
type ConfigState struct {
	// Path of the file; empty when there is none.
	Path string `json:"path"`
	// Result is "loaded" at start, and then "applied" or "refused".
	Result string    `json:"result"`
	At     time.Time `json:"at"`
	// Changes has a line for each key that was changed; Reason says why the content is not in force. Secrets show as ***.
	Changes []string `json:"changes"`
	Reason  string   `json:"reason,omitempty"`
}

// Pool is the connections to one database.
type Pool struct {
	Kind  string `json:"-"`
	Name  string `json:"-"`
	Open  int    `json:"open"`
	InUse int    `json:"in_use"`
	// Max is the most that may be open; 0 before the database has answered.
	Max int `json:"max"`
}

// Status is the answer of GET /admin/status: what a person wants to know of a gateway at one look. What is unknown is null.
type Status struct {
	At           time.Time          `json:"at"`
	Status       string             `json:"status"`
	Version      string             `json:"version"`
	Instance     string             `json:"instance"`
	StartedAt    *time.Time         `json:"started_at"`
	Config       *ConfigState       `json:"config"`
	Requests     RequestsUnderWay   `json:"requests"`
	Collections  []string           `json:"collections"`
	RangeSize    int64              `json:"range_size"`
	WarnPercent  float64            `json:"warn_percent"`
	AlarmPercent float64            `json:"alarm_percent"`
	Dependencies []DependencyStatus `json:"dependencies"`
}

// RequestsUnderWay is the load of the clients' listener. Refused counts the requests since the start that were too many.
type RequestsUnderWay struct {
	UnderWay int64 `json:"under_way"`
	Max      int   `json:"max"`
	Bytes    int64 `json:"bytes"`
	MaxBytes int64 `json:"max_bytes"`
	Refused  int64 `json:"refused"`
}

// DependencyStatus is one database: what readyz says of it, and what this gateway has of it.
type DependencyStatus struct {
	dependency
	Pool *Pool `json:"pool"`
	// Circuits are those for reads and for writes; null where there are none.
	Circuits *CircuitStates `json:"circuits"`
	// Ranges and Drained are those of a node.
	Ranges  *string `json:"ranges"`
	Drained *bool   `json:"drained"`
}

// CircuitStates are "closed", or "open" while such calls are refused at once.
type CircuitStates struct {
	Reads  string `json:"reads"`
	Writes string `json:"writes"`
}

// status says how the gateway and its databases do.
func (s *Server) status(ctx context.Context, x *exchange) error {
	if err := x.readQuery(nil); err != nil {
		return err
	}
	over, ready, load := s.records.Overview(), s.readiness(ctx), s.Load()
	answer := Status{
		At: time.Now().UTC(), Status: ready.Status, Collections: []string{},
		RangeSize: over.RangeSize, WarnPercent: over.Levels.Warn * 100, AlarmPercent: over.Levels.Alarm * 100,
		Requests: RequestsUnderWay{UnderWay: int64(load.Requests), Max: x.limits.MaxRequests, Bytes: load.Bytes, MaxBytes: x.limits.MaxRequestBytes, Refused: int64(load.Refused)},
	}
	for _, c := range s.options.Collections {
		answer.Collections = append(answer.Collections, c.Name)
	}
	var program Program
	if s.options.Program != nil {
		program = s.options.Program()
		answer.Version, answer.Instance, answer.StartedAt, answer.Config = program.Version, program.Instance, &program.StartedAt, &program.Config
	}
	for _, d := range ready.Dependencies {
		answer.Dependencies = append(answer.Dependencies, dependencyStatus(d, over, program.Pools))
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return x.sendJSON(http.StatusOK, append(body, '\n'))
}

// dependencyStatus gathers what is known of one database.
func dependencyStatus(d dependency, over store.Overview, pools []Pool) DependencyStatus {
	is := DependencyStatus{dependency: d}
	for _, p := range pools {
		if p.Kind == d.Kind && p.Name == d.Name {
			is.Pool = &p
		}
	}
	for _, c := range over.Circuits {
		if c.Kind != d.Kind || c.Name != d.Name {
			continue
		}
		is.Circuits = &CircuitStates{Reads: circuitState(c.ReadsOpen), Writes: circuitState(c.WritesOpen)}
	}
	for _, n := range over.Nodes {
		if d.Kind == kindNode && n.Name == d.Name {
			is.Ranges, is.Drained = &n.Ranges, &n.Drained
		}
	}
	return is
}

// circuitState is the word for a circuit.
func circuitState(open bool) string {
	if open {
		return "open"
	}
	return "closed"
}
