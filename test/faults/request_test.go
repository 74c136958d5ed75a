package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"time"
)

// kind is an operation of a client.
type kind string

const (
	post     kind = "post"
	put      kind = "put"
	ifMatch  kind = "put if-match"
	remove   kind = "delete"
	removeIf kind = "delete if-match"
	get      kind = "get"
)

// demands reports whether an operation is for the record with one tag only.
func (k kind) demands() bool { return k == ifMatch || k == removeIf }

// request is one operation on one record.
type request struct {
	kind kind
	key  string
	// document is what a write stores; it differs from all others.
	document string
	// tag is the ETag that ifMatch and removeIf demand.
	tag string
}

// outcome is what an answer says about a write.
type outcome int

const (
	// refused: nothing was changed. An answer that no table of outcomes has counts as refused too, and is reported.
	refused outcome = iota
	// unknown: the write may have taken effect, or may do so later.
	unknown
	// done: the answer says what is stored.
	done
)

// reply is what a client knows after an operation.
type reply struct {
	request
	outcome outcome
	// status is 0 when there was no answer; then code is a word for the reason. Otherwise it is the code of a problem.
	status int
	code   string
	body   string
	// found is the ETag of the answer, of the form id-version.
	found tag
	// called and returned are times since the start of the load; returned is never reached by an unknown write.
	called, returned time.Duration
	// odd is a complaint about an answer that should never be given.
	odd string
}

// tag is an ETag taken apart; the zero value stands for none.
type tag struct{ id, version int64 }

func (t tag) String() string { return fmt.Sprintf("%d-%d", t.id, t.version) }

// never is when an unknown write returns.
const never = time.Duration(math.MaxInt64)

// name says what came of an operation, for counting.
func (r reply) name() string {
	switch {
	case r.status == 0:
		return fmt.Sprintf("%s: %s", r.kind, r.code)
	case r.code != "":
		return fmt.Sprintf("%s: %d %s", r.kind, r.status, r.code)
	}
	return fmt.Sprintf("%s: %d", r.kind, r.status)
}

// send carries out one operation. clock gives the time since the start of the load.
func send(client *http.Client, base string, r request, clock func() time.Duration) reply {
	answer := reply{request: r, called: clock()}
	method, path := map[kind]string{post: "POST", put: "PUT", ifMatch: "PUT", remove: "DELETE", removeIf: "DELETE", get: "GET"}[r.kind], "/v1/records/"+r.key
	if r.kind == post {
		path = "/v1/records"
	}
	httpRequest, err := http.NewRequestWithContext(context.Background(), method, base+path, strings.NewReader(r.document))
	if err != nil {
		answer.odd = err.Error()
		return answer
	}
	httpRequest.Header.Set("Content-Type", "application/json")
	if r.kind.demands() {
		httpRequest.Header.Set("If-Match", `"`+r.tag+`"`)
	}
	response, err := client.Do(httpRequest)
	if err == nil {
		answer.status = response.StatusCode
		_, _ = fmt.Sscanf(response.Header.Get("ETag"), `"%d-%d"`, &answer.found.id, &answer.found.version) // not every answer has one
		var body []byte
		body, err = io.ReadAll(response.Body)
		answer.body = string(body)
		_ = response.Body.Close() // it has been read
	}
	answer.returned = clock()
	if err != nil {
		answer.fail(err)
	} else {
		answer.judge()
	}
	if answer.outcome == unknown {
		answer.returned = never
	}
	return answer
}

// fail sorts an error of the connection. Only one that was never made proves that nothing was sent.
func (r *reply) fail(err error) {
	r.status, r.outcome, r.code = 0, unknown, "connection lost"
	var operation *net.OpError
	var network net.Error
	switch {
	case errors.As(err, &operation) && operation.Op == "dial":
		r.outcome, r.code = refused, "no connection"
	case errors.As(err, &network) && network.Timeout():
		r.code = "client timeout"
	}
}

// judge sorts an answer.
func (r *reply) judge() {
	if r.status >= http.StatusBadRequest {
		var problem struct{ Code string }
		_ = json.Unmarshal([]byte(r.body), &problem) // an answer without a code is odd anyway
		r.code = problem.Code
	}
	switch {
	case r.status < http.StatusMultipleChoices, r.code == "record_not_found", r.code == "record_exists", r.code == "precondition_failed":
		r.outcome = done
	case r.code == "outcome_unknown" && r.kind != get:
		r.outcome = unknown
	case r.status == http.StatusServiceUnavailable, r.status == http.StatusGatewayTimeout && r.kind == get:
	default:
		r.odd = fmt.Sprintf("%s %s was answered %d %s", r.kind, r.key, r.status, strings.TrimSpace(r.body))
	}
}
