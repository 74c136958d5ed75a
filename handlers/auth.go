package handlers

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"keyrange/handlers/access"
)

// headerAPIKey is the other header that a credential may come in, beside Authorization: Bearer.
const headerAPIKey = "X-Api-Key" //nolint:gosec // the name of a header

// Challenges of a 401: without a credential, and for one that is refused.
const (
	challenge        = `Bearer realm="keyrange"`
	challengeInvalid = challenge + `, error="invalid_token"`
)

// errCredential is the fault of a request that brings no credential, or none that could be read.
var errCredential = access.ErrUnauthenticated

// What permitCollection reads of a query: the records that it names, which of their members it asks for, and what a POST does.
const (
	queryKey    = "key"
	queryFields = "fields"
	queryOp     = "op"
	queryOpGet  = "get"
)

// authenticate finds out who sent a request. Without a guard anybody may do everything, and client stays nil.
func (s *Server) authenticate(ctx context.Context, x *exchange) (err error) {
	if s.options.Guard == nil {
		return nil
	}
	header := x.Response().Header()
	header.Add(echo.HeaderVary, echo.HeaderAuthorization+", "+headerAPIKey)
	credential, err := credentialOf(x.Request().Header)
	if err != nil {
		header.Set(echo.HeaderWWWAuthenticate, challenge)
		return err
	}
	if x.client, err = s.options.Guard.Authenticate(ctx, credential); err != nil {
		if errors.Is(err, access.ErrUnauthenticated) {
			header.Set(echo.HeaderWWWAuthenticate, challengeInvalid)
		}
		return shownCause(err)
	}
	return nil
}

// admit lets the request of a client in: known, and within its limits. leave must be called when the request is over.
func (s *Server) admit(ctx context.Context, x *exchange) (leave func(), err error) {
	if err := s.authenticate(ctx, x); err != nil {
		return nil, err
	}
	if x.client == nil {
		return func() {}, nil
	}
	leave, err = x.client.Enter()
	var limited *access.LimitedError
	if errors.As(err, &limited) {
		seconds := max(1, math.Ceil(limited.RetryAfter.Seconds()))
		x.Response().Header().Set(echo.HeaderRetryAfter, strconv.FormatInt(int64(seconds), 10))
	}
	return leave, shownCause(err)
}

// permit checks that the client has a role on a collection, whether or not there is one of that name: who may not use it need
// not know.
func (s *Server) permit(x *exchange, collection string, role access.Role) error {
	switch {
	case s.options.Guard == nil:
		return nil
	case x.client == nil:
		return errCredential // a route that let it in without asking
	}
	return shownCause(x.client.Allow(collection, role))
}

// permitKey checks that the client may touch the record under a decoded key. Whatever learns the keys of a request after its
// route was chosen, as from a body, has to ask for each.
func (s *Server) permitKey(x *exchange, key string) error {
	switch {
	case s.options.Guard == nil:
		return nil
	case x.client == nil:
		return errCredential
	}
	return shownCause(x.client.AllowKey(key))
}

// roleOf is the role that a request for one record needs.
func roleOf(request *http.Request) access.Role {
	if request.Method == http.MethodGet || request.Method == http.MethodHead {
		return access.Read
	}
	return access.Write
}

// permitCollection checks a request on a whole collection. The items in the body of a POST are left to permitKey.
func (s *Server) permitCollection(x *exchange, name string) error {
	if s.options.Guard == nil {
		return nil
	}
	request := x.Request()
	query, err := url.ParseQuery(request.URL.RawQuery)
	role := roleOf(request)
	switch {
	case request.Method == http.MethodPost && len(query[queryOp]) == 1 && query.Get(queryOp) == queryOpGet:
		role = access.Read
	case request.Method == http.MethodDelete:
		role = access.Admin // a whole group of records
	}
	if denied := s.permit(x, name, role); denied != nil {
		return denied
	}
	if request.Method == http.MethodPost || !x.client.Confined() {
		return nil
	}
	if err != nil {
		return refuse(access.ErrForbidden, "the query is malformed, so it cannot be told which records it names")
	}
	return s.permitNamed(x, query)
}

// permitNamed checks a request on a collection of a client that is confined to some keys. It must name its records: anything
// else might show or touch others.
func (s *Server) permitNamed(x *exchange, query url.Values) error {
	for name := range query {
		if name != queryKey && name != queryFields {
			return refuse(access.ErrForbidden, "the client %s has a key_prefix, so it can only name records one by one", x.client.Name)
		}
	}
	if len(query[queryKey]) == 0 {
		return refuse(access.ErrForbidden, "the client %s has a key_prefix, so it cannot list the collection", x.client.Name)
	}
	for _, key := range query[queryKey] {
		if err := s.permitKey(x, key); err != nil {
			return err
		}
	}
	return nil
}

// openToAll are the routes of the operators' listener that ask nobody: those of health, and the page, which holds no data and
// cannot say who it is before it is there.
var openToAll = []string{patternHealthz, patternReadyz, patternUI, patternUIFile}

// guardOperators asks who a request is from before each route of the operators' listener, but for those that are open to all.
func (s *Server) guardOperators(routes []route) []route {
	if s.options.Guard == nil || !s.options.GuardAdmin {
		return routes
	}
	for i, r := range routes {
		if slices.Contains(openToAll, r.pattern) {
			continue
		}
		routes[i].handle = func(ctx context.Context, x *exchange) error {
			leave, err := s.admit(ctx, x)
			if err != nil {
				return err
			}
			defer leave()
			if err := s.permit(x, access.AnyCollection, access.Admin); err != nil {
				return err
			}
			return r.handle(ctx, x)
		}
	}
	return routes
}

// credentialOf is the one credential of a request.
func credentialOf(header http.Header) (string, error) {
	bearers, keys := header[echo.HeaderAuthorization], header[headerAPIKey]
	switch {
	case len(bearers)+len(keys) == 0:
		return "", refuse(errCredential, "send Authorization: Bearer <key or token>, or X-API-Key: <key>")
	case len(bearers)+len(keys) > 1:
		return "", refuse(errCredential, "send one credential, not several")
	case len(keys) == 1:
		return keys[0], nil
	}
	scheme, credential, _ := strings.Cut(bearers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", refuse(errCredential, "the Authorization must be Bearer <key or token>")
	}
	return strings.Trim(credential, " "), nil
}

// shownCause lets the client read what an error of package access says after its kind.
func shownCause(err error) error {
	for _, kind := range []error{access.ErrUnauthenticated, access.ErrForbidden, access.ErrLimited} {
		if errors.Is(err, kind) {
			return refuse(kind, "%s", strings.TrimPrefix(err.Error(), kind.Error()+": "))
		}
	}
	return err
}
