package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"keyrange/store/sqldb"
)

// Codes of MongoDB that decide an outcome (source: error_codes.yml of the server).
const (
	mongoNamespaceExists = 48
	mongoDuplicateKey    = 11000
)

// mongoRefusals are the codes that prove that a write was refused before anything changed. All others, above all those
// of interrupted work (50, 91, 189, 11600, 11602), leave the outcome open.
var mongoRefusals = []int{
	13,    // Unauthorized
	18,    // AuthenticationFailed
	112,   // WriteConflict
	10058, // LegacyNotPrimary
	10107, // NotWritablePrimary
	13435, // NotPrimaryNoSecondaryOk
	13436, // NotPrimaryOrSecondary
	14031, // OutOfDiskSpace
}

// translate sorts an error of an engine into one of the package's outcomes. sends is how often a write was given to a
// MongoDB server, at least once when it may have arrived, and 0 for reads; SQLite's errors know their outcome. ctx is
// the caller's. No driver's type survives it, and of a duplicate key not even the text, which shows the key.
func translate(ctx context.Context, op string, err error, sends int) error {
	if err == nil {
		return nil
	}
	outcome := outcomeOf(err, sends)
	if errors.Is(outcome, ErrExists) {
		return fmt.Errorf("%s: %w", op, ErrExists)
	}
	translated := fmt.Errorf("%s: %w: %w", op, outcome, plain(ctx, err))
	if answered(err) {
		return answeredError{translated}
	}
	return translated
}

// answeredError marks what the index itself said.
type answeredError struct{ error }

func (e answeredError) Unwrap() error { return e.error }

// Answered reports whether an error is an answer: the index is there, though it refuses this call or leaves its outcome
// open.
func Answered(err error) bool {
	var marked answeredError
	return errors.Is(err, ErrExists) || errors.As(err, &marked)
}

// answered tells an engine's own words from the silence of one that is away or too slow.
func answered(err error) bool {
	if mongo.IsNetworkError(err) || mongo.IsTimeout(err) || errors.Is(err, context.Canceled) {
		return false
	}
	var server mongo.ServerError
	if errors.As(err, &server) || errors.Is(err, errForeign) {
		return true
	}
	// SQLite is in this process.
	return errors.Is(err, sqldb.ErrUnavailable) || errors.Is(err, sqldb.ErrUnknown) || errors.Is(err, sqldb.ErrRejected)
}

// outcomeOf picks the sentinel of an error, see translate; what it does not know is ErrUnknown once sent.
func outcomeOf(err error, sends int) error {
	switch {
	case errors.Is(err, sqldb.ErrUnknown):
		return ErrUnknown
	case errors.Is(err, sqldb.ErrUnavailable), errors.Is(err, sqldb.ErrRejected):
		return ErrUnavailable
	case errors.Is(err, sqldb.ErrDuplicate):
		return ErrExists
	case sends == 0:
		return ErrUnavailable
	}
	var item mongo.WriteError
	if errors.As(err, &item) && item.Code == mongoDuplicateKey {
		return ErrExists // also when the driver sent it again: the server recognises its own statement
	}
	// Once the driver has sent a write again, the last answer says nothing of the first attempt.
	if sends == 1 && refused(err) {
		return ErrUnavailable
	}
	return ErrUnknown
}

// refused reports whether the server's answer proves that the write changed nothing. A write concern error never does,
// whatever its code: the primary has the write.
func refused(err error) bool {
	var one mongo.WriteException
	if errors.As(err, &one) && one.WriteConcernError != nil {
		return false
	}
	var bulk mongo.BulkWriteException
	if errors.As(err, &bulk) {
		return false // some of its statements may have succeeded
	}
	var answer mongo.ServerError
	if !errors.As(err, &answer) {
		return false
	}
	codes := answer.ErrorCodes()
	return len(codes) > 0 && !slices.ContainsFunc(codes, func(code int) bool { return !slices.Contains(mongoRefusals, code) })
}

// plain keeps the identity of a context error that the caller's context caused, and only the text of any other. The
// driver has deadlines of its own, such as the one for finding a server, whose end is no reason for the caller to stop.
func plain(ctx context.Context, err error) error {
	if cause := ended(ctx); cause != nil && errors.Is(err, cause) {
		return cause
	}
	return errors.New(err.Error())
}

// ended says why the context is over, or nil. Connections notice a deadline a moment before the context does.
func ended(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}
