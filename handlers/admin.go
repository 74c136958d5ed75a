package handlers

import (
	"context"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"
)

// Reloaded is what became of a config file that was not refused, and the answer of POST /admin/reload.
type Reloaded struct {
	// Result is "applied", or "unchanged" when the file says what is in force already.
	Result string `json:"result"`
	// Changes has a line for each key that has another value now; empty when unchanged. Secrets show as ***.
	Changes []string `json:"changes"`
}

// reload answers what became of the config file: 200, or 422 with all faults of the file in the detail. It waits as long
// as its client does rather than for the request timeout, because a new node may be slow to answer.
func (s *Server) reload(_ context.Context, x *exchange) error {
	if s.options.Reload == nil {
		return echo.ErrNotFound
	}
	done, err := s.options.Reload(x.ctx)
	if err != nil {
		return refuse(errConfig, "%s", err)
	}
	if done.Changes == nil {
		done.Changes = []string{}
	}
	body, err := json.Marshal(done)
	if err != nil {
		return err
	}
	return x.sendJSON(http.StatusOK, append(body, '\n'))
}
