package handlers

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"keyrange/store"
)

// Sizes of a page, in records.
const (
	defaultPageItems = 100
	maxPageItems     = 1000
)

// list answers GET and HEAD of a collection with its records in the order of their IDs: a page, or, when the client
// prefers application/x-ndjson, all of them or up to limit, a line each.
func (s *Server) list(ctx context.Context, x *exchange) error {
	if x.query.Has(parameterGroup) || x.query.Has(parameterCount) {
		return s.listGroup(ctx, x)
	}
	return s.answerList(ctx, x, x.collection.Name, -1, func(ctx context.Context, walk store.Walk) (store.Page, error) {
		return s.records.List(ctx, x.collection.Name, walk)
	})
}

// answerList answers with the records of a source. scope names the list, so that its cursors are none of others; count is
// how many records there are in all, or -1 for nothing said of that.
func (s *Server) answerList(ctx context.Context, x *exchange, scope string, count int64, from source) error {
	media, err := negotiate(x.Request().Header, mediaJSON, mediaNDJSON)
	if err != nil {
		return err
	}
	lines := media == mediaNDJSON
	p, err := pagerOf(x.query, scope, lines)
	if err != nil {
		return err
	}
	p.server, p.x, p.source, p.count = s, x, from, count
	if lines {
		return p.stream(ctx)
	}
	return p.page(ctx)
}

// pagerOf reads the parameters of a list: limit, cursor, order and fields. The errors match errParameter.
func pagerOf(query url.Values, scope string, lines bool) (p *pager, err error) {
	p = &pager{cursor: cursor{scope: scope}}
	if p.fields, err = fieldsOf(query); err != nil {
		return nil, err
	}
	if p.cursor.descending, err = descendingOf(query); err != nil {
		return nil, err
	}
	if p.limit, err = limitOf(query, lines); err != nil {
		return nil, err
	}
	text, given, err := single(query, "cursor")
	if err != nil || !given {
		return p, err
	}
	p.cursor, err = parseCursor(text, scope, p.cursor.descending)
	return p, err
}

// descendingOf reads the query parameter order.
func descendingOf(query url.Values) (bool, error) {
	order, given, err := single(query, "order")
	if err == nil && given && order != "asc" && order != "desc" {
		err = refuse(errParameter, "order: asc or desc")
	}
	return order == "desc", err
}

// limitOf reads the query parameter limit. A stream of lines has none unless it is given, then whatever it is, and
// -1 says that there is none.
func limitOf(query url.Values, lines bool) (int, error) {
	text, given, err := single(query, "limit")
	switch {
	case err != nil:
		return 0, err
	case !given && lines:
		return -1, nil
	case !given:
		return defaultPageItems, nil
	}
	n, err := strconv.ParseUint(text, 10, 32) // no sign, and an int on every machine but 32-bit ones, which it just fits
	switch {
	case lines && (err != nil || n < 1 || n > 1<<31-1):
		return 0, refuse(errParameter, "limit: a number from 1 to %d", 1<<31-1)
	case !lines && (err != nil || n < 1 || n > maxPageItems):
		return 0, refuse(errParameter, "limit: a number from 1 to %d; a stream (Accept: %s) takes any", maxPageItems, mediaNDJSON)
	}
	return int(n), nil
}

// single is the value of a query parameter that may be given once.
func single(query url.Values, name string) (value string, given bool, err error) {
	values := query[name]
	if len(values) == 0 {
		return "", false, nil
	}
	if len(values) > 1 {
		return "", true, refuse(errParameter, "%s: it is given %d times", name, len(values))
	}
	return values[0], true, nil
}

// isHead tells a request whose answer has no body.
func (x *exchange) isHead() bool { return x.Request().Method == http.MethodHead }
