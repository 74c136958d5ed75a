// Package index keeps the entries {_id: key, id} that lead from a business key to the ID of its record, in a
// MongoDB-protocol server or an embedded SQLite file.
package index

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

// Entry is a reservation of a key, and a pointer to the row that may live at the ID.
type Entry struct {
	// Key is 1 to 512 bytes of valid UTF-8; the caller has checked that. It is compared byte by byte. Keys of records have no
	// NUL; those of the directory of groups have one.
	Key string
	// ID is from 1 on.
	ID int64
}

// Outcomes of a failed call. Every error of an Index matches exactly one of them, and also context.Canceled or
// context.DeadlineExceeded where the end of the caller's context was the cause.
var (
	// ErrExists: the key has an entry already. Nothing changed.
	ErrExists = errors.New("the key has an entry")
	// ErrUnavailable: the index cannot be reached or refuses. Nothing changed, and nothing will.
	ErrUnavailable = errors.New("index unavailable")
	// ErrUnknown: the request was sent and no certain answer came. It may have taken effect, or may yet.
	ErrUnknown = errors.New("index outcome unknown")
)

// Index is an open index. It is safe for concurrent use, and every call ends within the deadline of its context. The
// caller has validated the names of collections, and bounds each batch to 1,000 entries or keys.
type Index interface {
	// Prepare makes the place for a collection's entries when it is missing. It may be called by several gateways at once.
	// A server that must not be used (a standalone one) is an error without an outcome.
	Prepare(ctx context.Context, collection string) error

	// Stamp returns the id of the cluster whose entries these are; "" when none has been noted. It writes nothing.
	Stamp(ctx context.Context) (cluster string, err error)

	// SetStamp notes the cluster unless one is noted already, and returns the one that is. After an error it may have been
	// noted, and it is safe to try again.
	SetStamp(ctx context.Context, cluster string) (string, error)

	// Insert adds entries, each of which must not exist yet, and returns one result per entry: nil when it was inserted.
	// It is never an upsert. Of entries with the same key within one call, the first wins. They succeed and fail one by one.
	Insert(ctx context.Context, collection string, entries []Entry) []error

	// Find returns the IDs of the keys that have an entry, from the primary. Keys without one are absent from the map. A
	// failure is ErrUnavailable.
	Find(ctx context.Context, collection string, keys []string) (map[string]int64, error)

	// Scan returns the entries whose keys come after the given one, "" for all, in the byte order of keys: the first of them
	// up to limit, 1 to 1,000; fewer are all that is left. It reads from the primary. Of entries that come and go during
	// a walk from batch to batch some may be missed; one that is there all along is met exactly once. A failure is
	// ErrUnavailable.
	Scan(ctx context.Context, collection, after string, limit int) ([]Entry, error)

	// Replace changes the entry {key, old} to {key, new} in one step. It returns false, and changes nothing, when the key
	// has another entry or none.
	Replace(ctx context.Context, collection, key string, old, new int64) (bool, error)

	// Remove deletes exactly the entries given, comparing key and ID. A key that has another entry, or none, is left alone
	// and is no error. After an error some of them may be gone.
	Remove(ctx context.Context, collection string, entries []Entry) error

	// Ping checks that the index answers.
	Ping(ctx context.Context) error

	// Describe names the location without credentials, and once it has been asked the engine and its version, for people.
	Describe() string

	// Pool counts the connections to the index, in the terms of database/sql. With MongoDB those to the members of a replica set
	// count together, WaitDuration includes the time that new connections take, and no others of the fields are set than those
	// for open, used and most connections, and for waits.
	Pool() sql.DBStats

	// Close ends all connections. It may be called twice.
	Close() error
}

// Options of Open. Zero values take the defaults.
type Options struct {
	// AllowStandalone accepts a MongoDB server that is no member of a replica set. It may lose acknowledged entries when
	// its disk fails.
	AllowStandalone bool
	// Connections bounds the open connections to a MongoDB server; default 16. SQLite has one writer whatever it says.
	Connections int
}

// New prepares the index that uri names and does not talk to it yet: mongodb:// and mongodb+srv:// are a server, sqlite://
// is a file that belongs to one gateway process and is created when missing. Until Ping, Stamp or Prepare has succeeded once,
// nothing else may be asked of it. Errors never contain the URI, which may hold a password.
func New(uri string, opts Options) (Index, error) {
	scheme, _, _ := strings.Cut(uri, "://")
	switch strings.ToLower(scheme) {
	case "mongodb", "mongodb+srv":
		return newMongo(uri, opts)
	case "sqlite":
		return newSQLite(uri)
	}
	return nil, errors.New("index: not a URL of an index: want mongodb://host:port/database or sqlite://path/to/file.db")
}

// Open is New and Ping.
func Open(ctx context.Context, uri string, opts Options) (Index, error) {
	ix, err := New(uri, opts)
	if err != nil {
		return nil, err
	}
	if err := ix.Ping(ctx); err != nil {
		_ = ix.Close() // the first error counts
		return nil, err
	}
	return ix, nil
}
