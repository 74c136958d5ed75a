package handlers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"mime"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"keyrange/store"
)

// mediaMergePatch is the media type of a JSON merge patch.
const mediaMergePatch = "application/merge-patch+json"

// headerAcceptPatch lists the media types that PATCH takes.
const headerAcceptPatch = "Accept-Patch"

// Bounds of the tries of one patch: when another write came between its read and its write, it starts over, after a random
// pause below patchPause, so that rivals do not stay in step. The pause does not grow: newcomers would always win then.
const (
	patchTries = 50
	patchPause = 4 * time.Millisecond
)

// patch merges the body into a record that exists. The write demands the version that was read, so that no other write is
// lost. A patch that changes nothing still makes a new version.
func (s *Server) patch(ctx context.Context, x *exchange) error {
	cond, _, err := writeConditions(x.Request().Header, false)
	if err != nil {
		return err
	}
	if err := x.readTTL(); err != nil {
		return err
	}
	p, err := s.readPatch(x)
	if err != nil {
		return err
	}
	for range patchTries {
		rec, err := s.applyPatch(ctx, x, p, cond)
		if !errors.Is(err, errLostRace) {
			if err != nil {
				return err
			}
			return x.sendWritten(http.StatusOK, rec)
		}
		select {
		case <-time.After(rand.N(patchPause)):
		case <-ctx.Done():
			return fmt.Errorf("patch: %w: %w", store.ErrBusy, ctx.Err())
		}
	}
	return fmt.Errorf("patch: %w: gave up after %d tries", store.ErrBusy, patchTries)
}

// errLostRace: another write came between the read and the write of a patch.
var errLostRace = errors.New("the record was changed meanwhile")

// readPatch reads and checks the body of a patch, as far as that goes without the record.
func (s *Server) readPatch(x *exchange) (*patch, error) {
	declared := x.Request().Header.Get(echo.HeaderContentType)
	media, _, err := mime.ParseMediaType(declared)
	if declared != "" && (err != nil || media != mediaMergePatch && media != mediaJSON) {
		x.Response().Header()[headerAcceptPatch] = []string{mediaMergePatch + ", " + mediaJSON}
		return nil, refuse(errMedia, "send a JSON merge patch as %s", mediaMergePatch)
	}
	// Also refuses a Content-Encoding.
	body, err := x.readRecord(s.recordLimit(x))
	if err != nil {
		return nil, err
	}
	p, err := parsePatch(body)
	if err != nil {
		return nil, err
	}
	i, given := p.position[x.collection.KeyMember]
	if !given {
		return p, nil
	}
	if p.members[i].removes() {
		return nil, refuse(errKeyMismatch, "a patch cannot remove the key from the document")
	}
	switch key, err := keyOf(p.members[i].raw); {
	case err != nil:
		return nil, err
	case key != x.key:
		return nil, errKeyMismatch
	}
	return p, nil
}

// applyPatch reads the record, merges, and writes on the condition that the record is still the one that was read;
// errLostRace when it is not.
func (s *Server) applyPatch(ctx context.Context, x *exchange, p *patch, cond store.Condition) (store.Record, error) {
	old, err := s.records.Get(ctx, x.collection.Name, x.key)
	switch {
	case errors.Is(err, store.ErrNotFound) && (cond.Exists || len(cond.Tags) > 0):
		return store.Record{}, because(store.ErrPrecondition, err)
	case err != nil:
		return store.Record{}, err
	case !matches(cond, old.Tag):
		return store.Record{}, store.ErrPrecondition
	}
	merged, err := p.mergeInto(old.Document)
	if err != nil {
		return store.Record{}, fmt.Errorf("patch record %s: it is not the JSON that was stored: %w", old.Tag, err)
	}
	// The key was put in beside what the client sent, so it does not count.
	most := s.recordLimit(x)
	if int64(len(merged)-len(x.collection.opening)-len(x.key)-len(`"",`)) > most.bytes {
		return store.Record{}, most.exceeded()
	}
	content, err := s.replacement(x, merged)
	if err != nil {
		return store.Record{}, err
	}
	if content, err = s.patched(x, p, old, content); err != nil {
		return store.Record{}, err
	}
	rec, _, err := s.records.Put(ctx, x.collection.Name, x.key, content, store.Condition{Tags: []store.Tag{old.Tag}})
	if errors.Is(err, store.ErrPrecondition) {
		return store.Record{}, because(errLostRace, err)
	}
	return rec, err
}
