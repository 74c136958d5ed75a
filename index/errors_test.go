package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"keyrange/store/sqldb"
)

// concern is a write concern error with the code of a refusal, which it is not.
var concern = &mongo.WriteConcernError{Code: 10107, Message: "not primary any more"}

// TestTranslate: each error has one outcome, and what is not certainly refused is unknown.
func TestTranslate(t *testing.T) {
	command := func(code int32) error { return mongo.CommandError{Code: code, Message: "m"} }
	network := mongo.CommandError{Labels: []string{"NetworkError"}, Wrapped: io.ErrUnexpectedEOF}
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	for _, test := range []struct {
		name  string
		err   error
		sends int
		want  error
	}{
		{"never sent", network, 0, ErrUnavailable},
		{"deadline before sending", context.DeadlineExceeded, 0, ErrUnavailable},
		{"deadline after sending", context.DeadlineExceeded, 1, ErrUnknown},
		{"network", network, 1, ErrUnknown},
		{"not primary", command(10107), 1, ErrUnavailable},
		{"not primary, no secondary", command(13435), 1, ErrUnavailable},
		{"unauthorized", command(13), 1, ErrUnavailable},
		{"not primary after a retry", command(10107), 2, ErrUnknown},
		{"time limit", command(50), 1, ErrUnknown},
		{"shutdown", command(91), 1, ErrUnknown},
		{"stepped down", command(189), 1, ErrUnknown},
		{"interrupted at shutdown", command(11600), 1, ErrUnknown},
		{"interrupted by a state change", command(11602), 1, ErrUnknown},
		{"duplicate of a whole command", command(11000), 1, ErrUnknown},
		{"a code of tomorrow", command(99999), 1, ErrUnknown},
		{"no code", command(0), 1, ErrUnknown},
		{"duplicate", mongo.WriteError{Code: 11000}, 1, ErrExists},
		{"duplicate after a retry", mongo.WriteError{Code: 11000}, 2, ErrExists},
		{"item refused", mongo.WriteError{Code: 10107}, 1, ErrUnavailable},
		{"item interrupted", mongo.WriteError{Code: 11602}, 1, ErrUnknown},
		{"update refused", mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 13}}}, 1, ErrUnavailable},
		{"update without majority", mongo.WriteException{WriteConcernError: concern}, 1, ErrUnknown},
		{"bulk", mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{{WriteError: mongo.WriteError{Code: 13}}}}, 1, ErrUnknown},
		{"anything else", io.EOF, 1, ErrUnknown},
		{"sqlite duplicate", sqldb.ErrDuplicate, 0, ErrExists},
		{"sqlite unavailable", sqldb.ErrUnavailable, 0, ErrUnavailable},
		{"sqlite rejected", sqldb.ErrRejected, 0, ErrUnavailable},
		{"sqlite unknown", sqldb.ErrUnknown, 0, ErrUnknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := translate(ctx, "op", fmt.Errorf("wrapped: %w", test.err), test.sends)
			for _, outcome := range []error{ErrExists, ErrUnavailable, ErrUnknown} {
				if errors.Is(err, outcome) != errors.Is(outcome, test.want) {
					t.Errorf("%v, want only %v", err, test.want)
				}
			}
			if errors.Is(test.err, context.DeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v does not say that the deadline passed", err)
			}
			if err := translate(t.Context(), "op", test.err, test.sends); errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v takes a deadline of the driver's for the caller's", err)
			}
			var driver mongo.ServerError
			if errors.As(err, &driver) || errors.Is(err, sqldb.ErrRejected) {
				t.Errorf("%v leads to the driver's error", err)
			}
			if !strings.HasPrefix(err.Error(), "op: ") {
				t.Errorf("%v does not name the operation", err)
			}
		})
	}
	if err := translate(t.Context(), "op", nil, 1); err != nil {
		t.Error(err)
	}
}

// TestAnswered: what a server says proves that it is there, even when it leaves the outcome open; silence does not, whoever
// ran out of time.
func TestAnswered(t *testing.T) {
	network := mongo.CommandError{Labels: []string{"NetworkError"}, Wrapped: io.ErrUnexpectedEOF}
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"not primary", mongo.CommandError{Code: 10107}, true},
		{"unauthorized", mongo.CommandError{Code: 13}, true},
		{"disk full", mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 14031}}}, true},
		{"a code of tomorrow", mongo.CommandError{Code: 99999}, true},
		{"duplicate", mongo.WriteError{Code: mongoDuplicateKey}, true},
		{"bulk", mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{{WriteError: mongo.WriteError{Code: 13}}}}, true},
		{"foreign documents", errForeign, true},
		{"sqlite busy", sqldb.ErrUnavailable, true},
		{"sqlite rejected", sqldb.ErrRejected, true},
		{"network", network, false},
		{"time limit of the server", mongo.CommandError{Code: 50}, false},
		{"no majority in time", mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 50}}, false},
		{"deadline", context.DeadlineExceeded, false},
		{"sqlite deadline", fmt.Errorf("%w: %w", sqldb.ErrUnavailable, context.DeadlineExceeded), false},
		{"the client went away", fmt.Errorf("%w: %w", sqldb.ErrUnavailable, context.Canceled), false},
		{"anything else", io.EOF, false},
	} {
		for sends := range 3 {
			if got := Answered(fmt.Errorf("wrapped: %w", translate(t.Context(), "op", test.err, sends))); got != test.want {
				t.Errorf("%s: %v", test.name, got)
			}
		}
	}
	if Answered(nil) {
		t.Error("no error is no answer")
	}
}

// TestItemResults: an item without an error of its own has succeeded only when the batch as a whole is certain.
func TestItemResults(t *testing.T) {
	duplicate := func(i int) mongo.BulkWriteError {
		return mongo.BulkWriteError{WriteError: mongo.WriteError{Index: i, Code: 11000}}
	}
	for _, test := range []struct {
		name string
		err  error
		want []error
	}{
		{"success", nil, []error{nil, nil, nil}},
		{"some exist", mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{duplicate(1)}}, []error{nil, ErrExists, nil}},
		{"no majority", mongo.BulkWriteException{WriteConcernError: concern}, []error{ErrUnknown, ErrUnknown, ErrUnknown}},
		{
			"no majority and one exists",
			mongo.BulkWriteException{WriteConcernError: concern, WriteErrors: []mongo.BulkWriteError{duplicate(2)}},
			[]error{ErrUnknown, ErrUnknown, ErrExists},
		},
		{
			"an item that was not sent",
			mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{duplicate(0), duplicate(3)}},
			[]error{ErrUnknown, ErrUnknown, ErrUnknown},
		},
		{"refused", mongo.CommandError{Code: 10107}, []error{ErrUnavailable, ErrUnavailable, ErrUnavailable}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for i, err := range itemResults(t.Context(), "insert", test.err, 1, len(test.want)) {
				if !errors.Is(err, test.want[i]) {
					t.Errorf("item %d: %v, want %v", i, err, test.want[i])
				}
			}
		})
	}
}
