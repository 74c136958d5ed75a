package handlers

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"keyrange/store"
)

// Lookup is the answer of GET /admin/lookup: what is met on the path from a key to its row. It never has the document. What
// there is none of, or is unknown, is null.
type Lookup struct {
	Collection string `json:"collection"`
	Key        string `json:"key"`
	// Entry is what the index says, CachedID what this gateway remembers.
	Entry    LookupEntry `json:"entry"`
	CachedID *int64      `json:"cached_id"`
	// ID is the one that was followed, and Source where it comes from: "index", or "cache" while the index does not answer.
	ID     *int64  `json:"id"`
	Source *string `json:"source"`
	// Place is null when no node of this config owns the ID.
	Place *LookupPlace `json:"place"`
	Row   *LookupRow   `json:"row"`
}

// LookupEntry is the entry of a key. Reason says why it is unknown.
type LookupEntry struct {
	ID     *int64 `json:"id"`
	Reason string `json:"reason,omitempty"`
}

// LookupPlace is where an ID belongs.
type LookupPlace struct {
	Range   int64  `json:"range"`
	FirstID int64  `json:"first_id"`
	LastID  int64  `json:"last_id"`
	Node    string `json:"node"`
	Table   string `json:"table"`
}

// LookupRow is what is at the ID.
type LookupRow struct {
	// State is live, expired, fence, absent or foreign; null when the node did not say, and Reason says why.
	State     *string    `json:"state"`
	Reason    string     `json:"reason,omitempty"`
	Version   *int64     `json:"version"`
	ETag      *string    `json:"etag"`
	CreatedAt *time.Time `json:"created_at"`
	UpdatedAt *time.Time `json:"updated_at"`
	ExpiresAt *time.Time `json:"expires_at"`
	Bytes     *int64     `json:"bytes"`
}

// lookup shows the path from the key of the query to its row.
func (s *Server) lookup(ctx context.Context, x *exchange) error {
	if err := x.readQuery([]string{"collection", queryKey}); err != nil {
		return err
	}
	collection, err := x.parameter("collection")
	if err != nil {
		return err
	}
	key, err := x.parameter(queryKey)
	if err != nil {
		return err
	}
	if collection == "" {
		return refuse(errParameter, "collection and key say what to look up; collection is missing.")
	}
	if s.collections[collection] == nil {
		return errCollection
	}
	if err := checkKey(key); err != nil {
		return err
	}
	trace, err := s.records.Trace(ctx, collection, key)
	if err != nil {
		return err
	}
	body, err := json.Marshal(newLookup(collection, key, trace))
	if err != nil {
		return err
	}
	return x.sendJSON(http.StatusOK, append(body, '\n'))
}

// newLookup puts what the store has seen into the form of the answer.
func newLookup(collection, key string, t store.Trace) Lookup {
	l := Lookup{Collection: collection, Key: key, CachedID: unlessZero(t.CachedID), ID: unlessZero(t.ID)}
	l.Entry.ID = unlessZero(t.EntryID)
	source := "index"
	if t.EntryErr != nil {
		l.Entry.Reason, source = t.EntryErr.Error(), "cache"
	}
	if t.ID == 0 {
		return l
	}
	if l.Source = &source; t.Range == 0 {
		return l
	}
	l.Place = &LookupPlace{Range: t.Range, FirstID: t.Lo, LastID: t.Hi - 1, Node: t.Node, Table: t.Table}
	l.Row = &LookupRow{
		State: unlessZero(t.Row), Version: unlessZero(t.Version),
		CreatedAt: unlessZero(t.CreatedAt), UpdatedAt: unlessZero(t.UpdatedAt), ExpiresAt: unlessZero(t.ExpiresAt),
	}
	if t.RowErr != nil {
		l.Row.Reason = t.RowErr.Error()
	}
	if t.Row == store.RowLive || t.Row == store.RowExpired {
		etag := formatETag(store.Tag{ID: t.ID, Version: t.Version})
		l.Row.ETag, l.Row.Bytes = &etag, &t.Bytes
	}
	return l
}
