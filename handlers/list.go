package handlers

import "context"

// list answers GET of a collection without keys.
func (s *Server) list(context.Context, *exchange) error {
	return refuse(errParameter, "key is missing")
}
