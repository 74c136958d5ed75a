package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"keyrange/handlers/access"
	"keyrange/store"
)

// Reasons for a refusal that the handlers find themselves. Those of the store are in package store.
var (
	errRoute        = errors.New("no such route")
	errMethod       = errors.New("method not allowed")
	errCollection   = errors.New("no such collection")
	errInvalidJSON  = errors.New("invalid JSON")
	errInvalidKey   = store.ErrInvalid
	errKeyMismatch  = errors.New("keys differ")
	errETag         = errors.New("invalid entity tag")
	errCondition    = errors.New("unsupported condition")
	errMedia        = errors.New("unsupported media type")
	errBulkTooLarge = errors.New("bulk too large")
	errBody         = errors.New("unreadable body")
	errBodyTimeout  = errors.New("body too slow")
	errDeadline     = errors.New("deadline exceeded")
	errConfig       = errors.New("config refused")
	errParameter    = errors.New("invalid query parameter")
	// errClientGone: nobody is there to read the answer.
	errClientGone = errors.New("client closed the request")
)

// status is how one kind of error looks to a client.
type status struct {
	kind   error
	status int
	// code is what programs compare: snake_case and never changed.
	code, title string
	// detail is the text for an error that brings none. That of a 5xx is never replaced.
	detail string
	// retry sends Retry-After: the request changed nothing and may well pass in a moment.
	retry bool
}

// statusClientClosed is nginx's code for a client that went away. It is only seen in logs.
const statusClientClosed = 499

// retryAfterSeconds is the Retry-After of a status that says retry.
const retryAfterSeconds = "1"

// statuses is the one table from errors to answers.
var statuses = []status{
	{errClientGone, statusClientClosed, "client_closed_request", "Client closed request", "The client went away.", false},
	{errDeadline, http.StatusGatewayTimeout, "deadline_exceeded", "Deadline exceeded", "The answer did not come in time.", false},
	{errRoute, http.StatusNotFound, "not_found", "Not found", "There is nothing at this path.", false},
	{errMethod, http.StatusMethodNotAllowed, "method_not_allowed", "Method not allowed", "The Allow header lists the methods of this path.", false},
	{errCollection, http.StatusNotFound, "collection_not_found", "Collection not found", "The configuration has no collection of this name.", false},
	{errInvalidJSON, http.StatusBadRequest, "invalid_json", "Invalid JSON", "The body is not one JSON object.", false},
	{errKeyMismatch, http.StatusUnprocessableEntity, "key_mismatch", "Keys differ", "The key in the document differs from the key in the path.", false},
	{errETag, http.StatusBadRequest, "invalid_etag", "Invalid entity tag", "The condition is not a list of entity tags.", false},
	{errCondition, http.StatusBadRequest, "unsupported_condition", "Unsupported condition", "This condition is not supported here.", false},
	{errMedia, http.StatusUnsupportedMediaType, "unsupported_media_type", "Unsupported media type", "Bodies are JSON.", false},
	{errBulkTooLarge, http.StatusRequestEntityTooLarge, "bulk_too_large", "Bulk too large", "The array is too large.", false},
	{errBody, http.StatusBadRequest, "invalid_body", "Unreadable body", "The body could not be read.", false},
	{errBodyTimeout, http.StatusRequestTimeout, "request_timeout", "Request timeout", "The body did not arrive in time.", false},
	{errConfig, http.StatusUnprocessableEntity, "config_refused", "Config refused", "The config file is not put in force; the running config stays.", false},
	{errQueryTooLong, http.StatusRequestURITooLong, "query_too_long", "Query too long", "The query of the URL is too long.", false},
	{errNotAcceptable, http.StatusNotAcceptable, "not_acceptable", "Not acceptable", "No media type of the answer fits the Accept header.", false},
	{errParameter, http.StatusBadRequest, "invalid_parameter", "Invalid query parameter", "A query parameter is unknown or has a value that it does not take.", false},
	{access.ErrUnauthenticated, http.StatusUnauthorized, "unauthenticated", "Unauthenticated", "The request does not say who it is from.", false},
	{access.ErrForbidden, http.StatusForbidden, "forbidden", "Forbidden", "The client may not do this.", false},
	{access.ErrLimited, http.StatusTooManyRequests, "rate_limited", "Rate limited", "The client has too many requests.", false},
	{access.ErrNoSigningKeys, http.StatusServiceUnavailable, "signing_keys_unavailable", "Signing keys unavailable", "The keys that tokens are checked with cannot be fetched. Nothing was changed; try again.", true},
	{errOverloaded, http.StatusServiceUnavailable, "overloaded", "Overloaded", "Too many requests are under way. Nothing was changed; try again.", true},
	{store.ErrInvalid, http.StatusBadRequest, "invalid_key", "Invalid key", "The key breaks a rule.", false},
	{store.ErrGroup, http.StatusUnprocessableEntity, "invalid_group", "Invalid group", "The group breaks a rule.", false},
	{store.ErrGroupMismatch, http.StatusUnprocessableEntity, "group_mismatch", "Groups differ", "The record is in another group, or in none: the group of a record never changes.", false},
	{store.ErrNoDeletion, http.StatusNotFound, "deletion_not_found", "Deletion not found", "There is no deletion of this id, or it ended days ago.", false},
	{store.ErrMember, http.StatusUnprocessableEntity, "invalid_member", "Invalid member", "A member of the record is not what its column takes.", false},
	{store.ErrTooLarge, http.StatusRequestEntityTooLarge, "body_too_large", "Body too large", "The document does not fit the smallest node.", false},
	{store.ErrNotFound, http.StatusNotFound, "record_not_found", "Record not found", "There is no record under this key.", false},
	{store.ErrConflict, http.StatusConflict, "record_exists", "Record exists", "There is a record under this key already.", false},
	{errIdempotencyKey, http.StatusBadRequest, "invalid_idempotency_key", "Invalid idempotency key", "The Idempotency-Key breaks a rule.", false},
	{errTTL, http.StatusBadRequest, "invalid_ttl", "Invalid time to live", "A time to live is a whole number of seconds.", false},
	{store.ErrReused, http.StatusUnprocessableEntity, "idempotency_key_reused", "Idempotency key reused", "A request with this Idempotency-Key has created the record with another body.", false},
	{store.ErrPrecondition, http.StatusPreconditionFailed, "precondition_failed", "Precondition failed", "The record is not in the state that the request demands.", false},
	{store.ErrBusy, http.StatusServiceUnavailable, "busy", "Record busy", "Other requests for this key kept winning. Nothing was changed; try again.", true},
	{store.ErrUnavailable, http.StatusServiceUnavailable, "unavailable", "Unavailable", "A database cannot be reached. Nothing was changed; try again.", true},
	{store.ErrExhausted, http.StatusInsufficientStorage, "range_exhausted", "Range exhausted", "All ranges are full. Nothing was changed; a node must be appended.", false},
	{store.ErrUnreadable, http.StatusInternalServerError, "record_unreadable", "Record unreadable", "The stored record cannot be read; the log of the gateway says why.", false},
	{store.ErrUnknown, http.StatusServiceUnavailable, "outcome_unknown", "Outcome unknown", "The write may or may not have taken effect. Read the record to find out.", false},
}

// statusInternal answers for an error that is in no table, and for a panic.
var statusInternal = status{nil, http.StatusInternalServerError, "internal", "Internal error", "The gateway failed; its log has the cause under the request id.", false}

// fault is an error of a kind of the table with a detail for the client. Details never quote keys or documents, because
// faults are logged.
type fault struct {
	kind   error
	detail string
	// cause is what led to it, nil when nothing did.
	cause error
}

// Error is the text for the log.
func (f *fault) Error() string {
	switch {
	case f.cause != nil:
		return f.kind.Error() + ": " + f.cause.Error()
	case f.detail != "":
		return f.kind.Error() + ": " + f.detail
	}
	return f.kind.Error()
}

// Unwrap lets a fault match its kind and its cause.
func (f *fault) Unwrap() []error {
	if f.cause == nil {
		return []error{f.kind}
	}
	return []error{f.kind, f.cause}
}

// refuse builds a fault with a detail for the client.
func refuse(kind error, format string, args ...any) error {
	return &fault{kind: kind, detail: fmt.Sprintf(format, args...)}
}

// because builds a fault that shows the client the text of its kind and the log the cause.
func because(kind, cause error) error { return &fault{kind: kind, cause: cause} }

// statusOf finds the line of the table for an error, and the detail for the client.
func statusOf(err error) (*status, string) {
	kind, detail := err, ""
	var f *fault
	if errors.As(err, &f) {
		kind, detail = f.kind, f.detail
	}
	if member := store.MemberOf(err); member != "" && detail == "" {
		detail = member
	}
	line := &statusInternal
	for i := range statuses {
		if errors.Is(kind, statuses[i].kind) {
			line = &statuses[i]
			break
		}
	}
	if detail == "" || line.status >= http.StatusInternalServerError {
		detail = line.detail
	}
	return line, detail
}

// settle says whose clock ran out: client is the context of the connection, ctx that of the request within it. The store
// reports either as unavailable. For a write that is the better answer, because it says that nothing was changed; an
// unknown outcome stays one whatever else happened.
func settle(client, ctx context.Context, read bool, err error) error {
	if err == nil || errors.Is(err, store.ErrUnknown) {
		return err
	}
	stopped := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	refused := errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrBusy)
	switch {
	case (stopped || refused) && client.Err() != nil:
		return because(errClientGone, err)
	case stopped && !refused, refused && read && ctx.Err() != nil:
		return because(errDeadline, err)
	}
	return err
}

// frameworkFault translates the errors that echo makes itself.
func frameworkFault(err *echo.HTTPError) error {
	switch err.Code {
	case http.StatusNotFound:
		return errRoute
	case http.StatusMethodNotAllowed:
		return errMethod
	}
	return err
}

// problem is an RFC 9457 problem document.
type problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	RequestID string `json:"request_id"`
}

// fail answers a request with the problem document of an error.
func (x *exchange) fail(err error) error {
	line, detail := statusOf(err)
	body, marshalErr := json.Marshal(problem{
		Type: "/problems/" + line.code, Title: line.title, Status: line.status, Code: line.code, Detail: detail, RequestID: x.id,
	})
	if marshalErr != nil {
		return marshalErr
	}
	header := x.Response().Header()
	header.Set(echo.HeaderContentType, "application/problem+json")
	header.Set(echo.HeaderCacheControl, "no-store")
	header.Del(echo.HeaderLastModified)
	if line.retry {
		header.Set(echo.HeaderRetryAfter, retryAfterSeconds)
	}
	header.Del(headerETag)
	var conflict *store.ConflictError
	if errors.As(err, &conflict) {
		header.Set(headerETag, formatETag(conflict.Existing))
	}
	if line.status == http.StatusRequestTimeout {
		// The rest of the body may still come, so the connection is of no further use.
		header.Set(echo.HeaderConnection, "close")
	}
	return x.send(line.status, append(body, '\n'))
}

// send writes a whole response with its length, without the body for HEAD. An error means that the client went away.
func (x *exchange) send(status int, body []byte) error {
	response := x.Response()
	if x.Request().Method == http.MethodHead && len(body) >= compressFromBytes && acceptsGzip(x.Request().Header) {
		// GET would be compressed, to a length that is not known.
		response.Header()[echo.HeaderContentEncoding] = []string{"gzip"}
	} else {
		response.Header()[echo.HeaderContentLength] = []string{strconv.Itoa(len(body))}
	}
	response.WriteHeader(status)
	if x.Request().Method == http.MethodHead {
		return nil
	}
	if _, err := response.Write(body); err != nil {
		return because(errClientGone, err)
	}
	return nil
}
