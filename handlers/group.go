package handlers

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"keyrange/store"
)

// Parameters of requests for groups. parameterDeletion names a deletion, by its id, and goes with no other.
const (
	parameterGroup    = "group"
	parameterCount    = "count"
	parameterDeletion = "deletion"
)

// groupOf is the group in a group member: a string, or an integer, which stands for its decimal text.
func groupOf(value jsontext.Value) (string, error) {
	switch kind := value.Kind(); {
	case kind == jsontext.KindString:
		group, err := jsontext.AppendUnquote(nil, value)
		if err != nil {
			return "", refuse(store.ErrGroup, "the group in the document is not valid UTF-8")
		}
		return string(group), checkGroup(string(group))
	case kind == jsontext.KindNumber && bytes.IndexFunc(value, notInInteger) < 0:
		group := string(value)
		if group == "-0" {
			group = "0" // the same number, and what a column makes of it
		}
		return group, checkGroup(group)
	}
	return "", refuse(store.ErrGroup, "the group in the document is neither a string nor an integer; leave the member out for a record without a group")
}

// notInInteger tells the characters that a JSON integer cannot contain.
func notInInteger(r rune) bool { return r != '-' && (r < '0' || r > '9') }

// checkGroup applies the store's rules for groups.
func checkGroup(group string) error {
	if err := store.CheckGroup(group); err != nil {
		return refuse(store.ErrGroup, "%s", strings.TrimPrefix(err.Error(), store.ErrGroup.Error()+": "))
	}
	return nil
}

// groupAsked is the group that a query names; the request must be about a collection that has groups.
func (x *exchange) groupAsked() (string, error) {
	if x.collection.GroupMember == "" {
		return "", refuse(errParameter, "The records of this collection have no groups (collections.group in the configuration).")
	}
	group, err := x.parameter(parameterGroup)
	if err != nil {
		return "", err
	}
	return group, checkGroup(group)
}

// listGroup answers with the records of a group as list does, and with how many there are if that is asked for. With that,
// limit=0 asks for the number only.
func (s *Server) listGroup(ctx context.Context, x *exchange) error {
	count, err := x.countAsked()
	if err != nil {
		return err
	}
	if !x.query.Has(parameterGroup) {
		return refuse(errParameter, "count: only the records of a group are counted, name one with group")
	}
	group, err := x.groupAsked()
	if err != nil {
		return err
	}
	if !count {
		return s.answerGroup(ctx, x, group, -1)
	}
	if media, err := negotiate(x.Request().Header, mediaJSON, mediaNDJSON); err == nil && media == mediaNDJSON {
		return refuse(errParameter, "count: a stream of lines has no place for it")
	}
	n, err := s.records.CountGroup(ctx, x.collection.Name, group)
	if err != nil {
		return err
	}
	if limit, err := x.parameter("limit"); err == nil && limit == "0" {
		x.Response().Header()[echo.HeaderCacheControl] = []string{"no-store"}
		return x.sendJSON(http.StatusOK, fmt.Appendf(nil, `{"items":[],"count":%d}`+"\n", n))
	}
	return s.answerGroup(ctx, x, group, n)
}

// answerGroup answers with the records of a group.
func (s *Server) answerGroup(ctx context.Context, x *exchange, group string, count int64) error {
	return s.answerList(ctx, x, x.collection.Name+"\x00"+group, count, func(ctx context.Context, walk store.Walk) (store.Page, error) {
		walk.Group = group
		return s.records.List(ctx, x.collection.Name, walk)
	})
}

// countAsked reads the query parameter count.
func (x *exchange) countAsked() (bool, error) {
	text, err := x.parameter(parameterCount)
	if err == nil && x.query.Has(parameterCount) && text != "true" && text != "false" {
		err = refuse(errParameter, "count: true or false")
	}
	return text == "true", err
}

// Deletion is the answer of DELETE of a group, and of the path that its Location names.
type Deletion struct {
	ID    string `json:"id"`
	Group string `json:"group"`
	// State is running or done.
	State string `json:"state"`
	// Deleted counts the records that are gone, some fewer than there were when a gateway died meanwhile.
	Deleted    int64      `json:"deleted"`
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
}

// States of a deletion.
const (
	deletionRunning = "running"
	deletionDone    = "done"
)

// deleteGroup takes on the deletion of a group, and answers where to look how far it has come.
func (s *Server) deleteGroup(ctx context.Context, x *exchange) error {
	if !x.query.Has(parameterGroup) {
		return refuse(errParameter, "group is missing: only the records of a group can be deleted together.")
	}
	group, err := x.groupAsked()
	if err != nil {
		return err
	}
	if header := x.Request().Header; len(header[headerIfMatch])+len(header[headerIfNoneMatch])+len(header[headerIfUnmodSince]) > 0 {
		return refuse(errCondition, "the deletion of a group takes no conditions")
	}
	d, err := s.records.DeleteGroup(ctx, x.collection.Name, group)
	if err != nil {
		return err
	}
	x.Response().Header()[echo.HeaderLocation] = []string{"/v1/" + url.PathEscape(x.collection.Name) + "?" + parameterDeletion + "=" + url.QueryEscape(d.ID)}
	return x.sendDeletion(http.StatusAccepted, d)
}

// deletion answers how far the deletion of a group has come.
func (s *Server) deletion(ctx context.Context, x *exchange) error {
	if len(x.query) > 1 {
		return refuse(errParameter, "deletion goes with no other parameter.")
	}
	id, err := x.parameter(parameterDeletion)
	if err != nil {
		return err
	}
	d, err := s.records.Deletion(ctx, x.collection.Name, id)
	if err != nil {
		return err
	}
	return x.sendDeletion(http.StatusOK, d)
}

func (x *exchange) sendDeletion(status int, d store.Deletion) error {
	answer := Deletion{ID: d.ID, Group: d.Group, State: deletionRunning, Deleted: d.Deleted, StartedAt: d.StartedAt}
	if !d.FinishedAt.IsZero() {
		answer.State, answer.FinishedAt = deletionDone, &d.FinishedAt
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	x.Response().Header()[echo.HeaderCacheControl] = []string{"no-store"}
	return x.sendJSON(status, append(body, '\n'))
}
