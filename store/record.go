package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxKeyBytes is the length of the longest business key, the same on every engine. (A MongoDB _id ends at 2,672 bytes
// on DocumentDB, MySQL's VARBINARY column at this.)
const MaxKeyBytes = 512

// Errors of the store, a closed set: every error of a Store method matches exactly one of them, except that
// ErrConflict comes as a *ConflictError. All but ErrUnknown mean that the request changed nothing.
var (
	// ErrInvalid: the key breaks a rule; the message says which.
	ErrInvalid = errors.New("invalid")
	// ErrMember: a member of the document is not what its column takes; a *typed.MemberError says which.
	ErrMember = errors.New("invalid member")
	// ErrGroup: the text is no group, or the collection has none; the message says why.
	ErrGroup = errors.New("invalid group")
	// ErrGroupMismatch: the record is in another group than the content that was to replace it. Groups never change.
	ErrGroupMismatch = errors.New("the record is in another group")
	// ErrNoDeletion: there is no deletion of this id, or it was done long ago.
	ErrNoDeletion = errors.New("deletion not found")
	// ErrTooLarge: the document does not fit the smallest node.
	ErrTooLarge = errors.New("document too large")
	// ErrNotFound: there is no record under the key.
	ErrNotFound = errors.New("record not found")
	// ErrConflict: a record exists under the key.
	ErrConflict = errors.New("record exists")
	// ErrReused: the request that created the record had the same idempotency key, but another document.
	ErrReused = errors.New("idempotency key reused")
	// ErrPrecondition: the record is absent or not in the demanded version.
	ErrPrecondition = errors.New("precondition failed")
	// ErrBusy: other requests for the same key kept winning. Trying again is safe.
	ErrBusy = errors.New("record busy")
	// ErrUnavailable: the index, an issuer or a node cannot be reached. Trying again is safe.
	ErrUnavailable = errors.New("unavailable")
	// ErrExhausted: all ranges are full; a node must be appended.
	ErrExhausted = errors.New("range exhausted")
	// ErrUnreadable: the row of the record cannot be read as one; somebody other than a gateway has changed it or its columns.
	ErrUnreadable = errors.New("row unreadable")
	// ErrUnknown: the write may have taken effect, or may yet.
	ErrUnknown = errors.New("outcome unknown")
)

// Tag names one version of one record, unique for ever: IDs are never issued twice and versions only grow. It is what
// an HTTP ETag carries.
type Tag struct {
	ID      int64
	Version int64
}

// String is the text of the tag, "<id>-<version>", without the quotes of an ETag.
func (t Tag) String() string { return fmt.Sprintf("%d-%d", t.ID, t.Version) }

// Content is what a write stores under a key.
type Content struct {
	// Document is the JSON object, byte for byte.
	Document []byte
	// Group is the group that the record belongs to, 1 to 255 bytes; "" for none. It never changes.
	Group string
	// ExpiresAt is when the record ceases to exist (UTC, microseconds); zero for never.
	ExpiresAt time.Time
	// split is the document in the columns of its collection, once that was checked; nil when the collection has none.
	split *splitDocument
}

// Record is what a client sees under a key, with its metadata.
type Record struct {
	Key string
	Tag Tag
	Content
	// CreatedAt and UpdatedAt come from the clock of the gateway that wrote (UTC, microseconds). Nothing is ordered by them.
	CreatedAt, UpdatedAt time.Time
}

// ConflictError is the ErrConflict of a create, with the tag of the record that is there.
type ConflictError struct{ Existing Tag }

func (e *ConflictError) Error() string { return ErrConflict.Error() + " as " + e.Existing.String() }

// Is makes a ConflictError match ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Condition is what a write demands of the record that is there (If-Match). The zero value demands nothing.
type Condition struct {
	// Exists demands that there is a record, in whatever version (If-Match: *).
	Exists bool
	// Tags demands that the record is in one of these versions.
	Tags []Tag
}

func (c Condition) demanded() bool { return c.Exists || len(c.Tags) > 0 }

// versions lists the versions of record id that satisfy the condition; none and ok means any version does.
func (c Condition) versions(id int64) (versions []int64, ok bool) {
	if len(c.Tags) == 0 {
		return nil, true
	}
	for _, tag := range c.Tags {
		if tag.ID == id && !slices.Contains(versions, tag.Version) {
			versions = append(versions, tag.Version)
		}
	}
	return versions, len(versions) > 0
}

// CheckKey applies the rules for business keys: 1 to MaxKeyBytes bytes of valid UTF-8 without NUL. Keys are compared
// byte by byte and never normalised. The error matches ErrInvalid.
func CheckKey(key string) error { return checkText("key", key, MaxKeyBytes, ErrInvalid) }

// checkText applies the rules that keys and groups share; what names the text in the error, which matches fault.
func checkText(what, text string, most int, fault error) error {
	switch {
	case text == "":
		return fmt.Errorf("%w: the %s is empty", fault, what)
	case len(text) > most:
		return fmt.Errorf("%w: the %s has %d bytes, at most %d are allowed", fault, what, len(text), most)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: the %s is not valid UTF-8", fault, what)
	case strings.IndexByte(text, 0) >= 0:
		return fmt.Errorf("%w: the %s contains a NUL byte", fault, what)
	}
	return nil
}
