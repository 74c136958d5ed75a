package handlers

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"

	"keyrange/store"
)

// storeSentinels are the errors of the store by name; TestEverySentinelIsMapped compares the names with its source.
var storeSentinels = map[string]error{
	"ErrInvalid": store.ErrInvalid, "ErrMember": store.ErrMember, "ErrGroup": store.ErrGroup, "ErrGroupMismatch": store.ErrGroupMismatch,
	"ErrNoDeletion": store.ErrNoDeletion, "ErrUnreadable": store.ErrUnreadable, "ErrTooLarge": store.ErrTooLarge, "ErrNotFound": store.ErrNotFound,
	"ErrConflict": store.ErrConflict, "ErrReused": store.ErrReused, "ErrPrecondition": store.ErrPrecondition, "ErrBusy": store.ErrBusy,
	"ErrUnavailable": store.ErrUnavailable, "ErrExhausted": store.ErrExhausted, "ErrUnknown": store.ErrUnknown,
}

// declaredSentinels reads the names of the errors that package store declares.
func declaredSentinels(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../store/record.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Err") {
			names = append(names, spec.Names[0].Name)
		}
		return true
	})
	return names
}

// TestEverySentinelIsMapped walks the errors of the store through a whole request, and the table for its own sake.
func TestEverySentinelIsMapped(t *testing.T) {
	declared := declaredSentinels(t)
	if len(declared) != len(storeSentinels) {
		t.Errorf("package store declares %v", declared)
	}
	for _, name := range declared {
		sentinel := storeSentinels[name]
		if sentinel == nil {
			t.Errorf("store.%s is not in this test", name)
			continue
		}
		r := newRig(t)
		r.astray = true
		r.fake.before = func(context.Context, string, string) error { return fmt.Errorf("secret cause: %w", sentinel) }
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			answer := r.do(method, "/v1/records/a", "{}")
			if (answer.Code == 500) != (name == "ErrUnreadable") || strings.Contains(answer.Body.String(), "secret") {
				t.Errorf("%s with store.%s: %s", method, name, answer.Body)
			}
			if retry := name == "ErrBusy" || name == "ErrUnavailable"; retry != (answer.Header().Get("Retry-After") == "1") {
				t.Errorf("%s with store.%s: %v", method, name, answer.Header())
			}
			if !strings.Contains(answer.Body.String(), `"request_id":"test"`) {
				t.Errorf("no request id: %s", answer.Body)
			}
		}
		if !strings.Contains(r.log.String(), "secret cause") {
			t.Errorf("store.%s: the cause is not in the log: %s", name, r.log)
		}
	}
	codes := []string{statusInternal.code}
	for _, line := range statuses {
		if !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(line.code) || slices.Contains(codes, line.code) {
			t.Errorf("code %q is malformed or repeated", line.code)
		}
		codes = append(codes, line.code)
		if got, _ := statusOf(fmt.Errorf("wrapped: %w", line.kind)); got.code != line.code {
			t.Errorf("%v is answered as %s", line.kind, got.code)
		}
		if line.title == "" || line.detail == "" || line.status < 400 {
			t.Errorf("incomplete: %+v", line)
		}
	}
}

// TestServerFaultsAreFixedText: what a 5xx says to the client does not depend on the cause.
func TestServerFaultsAreFixedText(t *testing.T) {
	for _, err := range []error{errors.New("secret"), refuse(store.ErrUnavailable, "secret"), because(store.ErrExhausted, errors.New("secret"))} {
		if line, detail := statusOf(err); line.status < 500 || strings.Contains(detail, "secret") {
			t.Errorf("%v: %d %s", err, line.status, detail)
		}
	}
}

// TestSettle names whose clock ran out.
func TestSettle(t *testing.T) {
	alive := t.Context()
	gone, cancel := context.WithCancel(alive)
	cancel()
	late, cancelLate := context.WithTimeout(alive, 0)
	defer cancelLate()
	for name, c := range map[string]struct {
		client, ctx context.Context
		read        bool
		err, want   error
	}{
		"none":                 {alive, alive, true, nil, nil},
		"client gone":          {gone, gone, true, errors.Join(store.ErrUnavailable, context.Canceled), errClientGone},
		"client gone, unknown": {gone, gone, false, store.ErrUnknown, store.ErrUnknown},
		"client gone, absent":  {gone, gone, true, store.ErrNotFound, store.ErrNotFound},
		"read late":            {alive, late, true, store.ErrUnavailable, errDeadline},
		"read down":            {alive, alive, true, store.ErrUnavailable, store.ErrUnavailable},
		"write late":           {alive, late, false, store.ErrUnavailable, store.ErrUnavailable},
		"bare deadline":        {alive, late, false, context.DeadlineExceeded, errDeadline},
	} {
		got := settle(c.client, c.ctx, c.read, c.err)
		if c.want == nil && got != nil || c.want != nil && !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
