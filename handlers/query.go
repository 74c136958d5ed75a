package handlers

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"keyrange/store"
)

// errQueryTooLong refuses a query that no route could need.
var errQueryTooLong = errors.New("query too long")

// errUnknownParameter is the cause of an errParameter.
var errUnknownParameter = errors.New("the route does not take it")

// maxQueryKeys is the largest number of keys in a query; more go into a body (op=get).
const maxQueryKeys = 100

// maxQueryBytes is a query with as many of the longest keys as are allowed, every byte of them escaped.
const maxQueryBytes = maxQueryKeys * (len("key=&") + len("%00")*store.MaxKeyBytes)

// shownNameBytes is how much of an unknown parameter's name is repeated to the client.
const shownNameBytes = 40

// readQuery takes the query of a request apart and refuses parameters that its route does not take.
func (x *exchange) readQuery(takes []string) (err error) {
	raw := x.Request().URL.RawQuery
	switch {
	case raw == "":
		return nil
	case len(raw) > maxQueryBytes:
		return refuse(errQueryTooLong, "The query has %d bytes, at most %d are allowed: send many keys with POST and op=get.", len(raw), maxQueryBytes)
	}
	if x.query, err = url.ParseQuery(raw); err != nil {
		return refuse(errParameter, "The query is not a list of name=value pairs with percent escapes.")
	}
	for _, name := range slices.Sorted(maps.Keys(x.query)) {
		if slices.Contains(takes, name) {
			continue
		}
		known := "none is known here"
		if len(takes) > 0 {
			known = "known here: " + strings.Join(takes, ", ")
		}
		detail := fmt.Sprintf("There is no parameter %q; %s.", name[:min(len(name), shownNameBytes)], known)
		// With a cause, which the log has in place of the detail: it must not have what a client put into a query.
		return &fault{kind: errParameter, detail: detail, cause: errUnknownParameter}
	}
	return nil
}

// parameter is a query parameter that may be given once; empty when it is not given.
func (x *exchange) parameter(name string) (string, error) {
	values := x.query[name]
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", refuse(errParameter, "%s is given %d times.", name, len(values))
}
