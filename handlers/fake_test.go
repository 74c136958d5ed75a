package handlers

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"keyrange/store"
	"keyrange/test/contract"
)

// The real store must fit the interface that the fake stands for.
var (
	_ Records = (*store.Store)(nil)
	_ Records = (*fakeRecords)(nil)
)

// update rewrites the golden files from the answers of this run.
var update = flag.Bool("update", false, "rewrite the golden files")

// TestMain fails the run when a goroutine outlives it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeNow is the clock of the fake; each write is a second later.
var fakeNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fakeRecords keeps records in memory and fails on demand.
type fakeRecords struct {
	mu      sync.Mutex
	records map[string]store.Record
	lastID  int64
	max     int64
	health  []store.Health
	levels  store.Levels
	sweeper store.SweeperStatus
	over    store.Overview
	trace   store.Trace
	// before runs ahead of every call, with the key; its error is the call's.
	before func(ctx context.Context, op, key string) error
}

// newFake makes an empty store that takes documents of 64 KiB.
func newFake() *fakeRecords {
	return &fakeRecords{records: make(map[string]store.Record), max: 64 << 10}
}

// enter is the start of every call.
func (f *fakeRecords) enter(ctx context.Context, op, key string) error {
	if f.before != nil {
		if err := f.before(ctx, op, key); err != nil {
			return err
		}
	}
	return store.CheckKey(key)
}

// tick is the time of a write.
func (f *fakeRecords) tick() time.Time { return fakeNow.Add(time.Duration(f.lastID) * time.Second) }

// CreateOnce counts IDs up from 1, for all collections together. It knows no marks: those are the store's business.
func (f *fakeRecords) CreateOnce(ctx context.Context, collection, key string, content store.Content, _ store.Once) (rec store.Record, replayed bool, err error) {
	if err := f.enter(ctx, "create", key); err != nil {
		return store.Record{}, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if old, ok := f.records[collection+"/"+key]; ok {
		return store.Record{}, false, fmt.Errorf("create: %w", &store.ConflictError{Existing: old.Tag})
	}
	f.lastID++
	rec = store.Record{Key: key, Tag: store.Tag{ID: f.lastID, Version: 1}, Content: cloned(content), CreatedAt: f.tick(), UpdatedAt: f.tick()}
	f.records[collection+"/"+key] = rec
	return rec, false, nil
}

// Get returns the record, whose document the caller may keep.
func (f *fakeRecords) Get(ctx context.Context, collection, key string) (store.Record, error) {
	if err := f.enter(ctx, "get", key); err != nil {
		return store.Record{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	rec, ok := f.records[collection+"/"+key]
	if !ok {
		return store.Record{}, fmt.Errorf("get: %w", store.ErrNotFound)
	}
	return rec, nil
}

// cloned is a content that the caller may change.
func cloned(content store.Content) store.Content {
	content.Document = bytes.Clone(content.Document)
	return content
}

// demand applies a condition to what is there.
func demand(cond store.Condition, rec store.Record, ok bool) error {
	if !ok && (cond.Exists || len(cond.Tags) > 0) || len(cond.Tags) > 0 && !slices.Contains(cond.Tags, rec.Tag) {
		return fmt.Errorf("condition: %w", store.ErrPrecondition)
	}
	return nil
}

// Put replaces without moving UpdatedAt, which keeps the golden files stable.
func (f *fakeRecords) Put(ctx context.Context, collection, key string, content store.Content, cond store.Condition) (store.Record, bool, error) {
	if err := f.enter(ctx, "put", key); err != nil {
		return store.Record{}, false, err
	}
	f.mu.Lock()
	rec, ok := f.records[collection+"/"+key]
	err := demand(cond, rec, ok)
	if err == nil && ok {
		rec.Tag.Version++
		rec.Content = cloned(content)
		f.records[collection+"/"+key] = rec
	}
	f.mu.Unlock()
	if err != nil || ok {
		return rec, false, err
	}
	rec, _, err = f.CreateOnce(ctx, collection, key, content, store.Once{})
	return rec, err == nil, err
}

// Delete forgets the record and its ID.
func (f *fakeRecords) Delete(ctx context.Context, collection, key string, cond store.Condition) error {
	if err := f.enter(ctx, "delete", key); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	rec, ok := f.records[collection+"/"+key]
	if err := demand(cond, rec, ok); err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("delete: %w", store.ErrNotFound)
	}
	delete(f.records, collection+"/"+key)
	return nil
}

// CountGroup counts the records of a group.
func (f *fakeRecords) CountGroup(ctx context.Context, collection, group string) (n int64, err error) {
	page, err := f.List(ctx, collection, store.Walk{Group: group, Limit: 1 << 30, MaxBytes: 1 << 40})
	return int64(len(page.Records)), err
}

// DeleteGroup takes a deletion on that is never done.
func (f *fakeRecords) DeleteGroup(ctx context.Context, _, group string) (store.Deletion, error) {
	return store.Deletion{ID: "d1", Group: group, StartedAt: fakeNow}, f.enter(ctx, "delete group", group)
}

// Deletion knows one that is done.
func (f *fakeRecords) Deletion(ctx context.Context, _, id string) (store.Deletion, error) {
	if id != "d2" {
		return store.Deletion{}, store.ErrNoDeletion
	}
	return store.Deletion{ID: id, Group: "g", Deleted: 7, StartedAt: fakeNow, FinishedAt: fakeNow.Add(time.Minute)}, nil
}

// List walks through the records by ID, and obeys the bounds of a page.
func (f *fakeRecords) List(ctx context.Context, collection string, walk store.Walk) (page store.Page, err error) {
	if err := f.enter(ctx, "list", fmt.Sprint(walk.After)); err != nil {
		return page, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []store.Record
	for at, r := range f.records {
		behind := r.Tag.ID > walk.After
		if walk.Descending {
			behind = walk.After == 0 || r.Tag.ID < walk.After
		}
		if strings.HasPrefix(at, collection+"/") && behind && (walk.Group == "" || r.Group == walk.Group) {
			r.Content = cloned(r.Content)
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b store.Record) int {
		if walk.Descending {
			a, b = b, a
		}
		return int(a.Tag.ID - b.Tag.ID)
	})
	bytes := int64(0)
	for _, r := range all {
		bytes += int64(len(r.Document))
		if n := len(page.Records); n == walk.Limit || n > 0 && bytes > walk.MaxBytes {
			page.More = true
			break
		}
		page.Records, page.Next = append(page.Records, r), r.Tag.ID
	}
	return page, nil
}

// Health repeats what the test has set.
func (f *fakeRecords) Health(context.Context) []store.Health { return f.health }

// MaxDocumentBytes repeats what the test has set.
func (f *fakeRecords) MaxDocumentBytes() int64 { return f.max }

// Levels repeats what the test has set; a look that is exact counts as another operation.
func (f *fakeRecords) Levels(ctx context.Context, exact bool) (store.Levels, error) {
	if f.before != nil {
		if err := f.before(ctx, fmt.Sprintf("levels exact=%t", exact), ""); err != nil {
			return store.Levels{}, err
		}
	}
	return f.levels, nil
}

// Sweeper repeats what the test has set.
func (f *fakeRecords) Sweeper(ctx context.Context) (store.SweeperStatus, error) {
	if f.before != nil {
		if err := f.before(ctx, "sweeper", ""); err != nil {
			return store.SweeperStatus{}, err
		}
	}
	return f.sweeper, nil
}

// Overview repeats what the test has set.
func (f *fakeRecords) Overview() store.Overview { return f.over }

// Trace repeats what the test has set.
func (f *fakeRecords) Trace(ctx context.Context, collection, key string) (store.Trace, error) {
	return f.trace, f.enter(ctx, "trace "+collection, key)
}

// count is the number of records.
func (f *fakeRecords) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.records)
}

// rig is a server on a fake store, with its log.
type rig struct {
	*Server
	t    *testing.T
	fake *fakeRecords
	log  *lockedBuffer
	// astray is set by tests that make the store do what it never does, whose answers are in no document.
	astray bool
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends one log line.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is the log so far.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// newRig makes a server with the collections records (key member key) and orders (key member "order no").
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, fake: newFake(), log: new(lockedBuffer)}
	var made atomic.Int64
	r.Server = New(r.fake, Options{
		Collections: []Collection{{Name: "records", KeyMember: "key"}, {Name: "orders", KeyMember: "order no"}, {Name: "grouped", KeyMember: "key", GroupMember: "g"}},
		Limits:      Limits{RequestTimeout: 5 * time.Second, MaxBodyBytes: 32 << 10, MaxBulkBytes: 256 << 10},
		NewKey:      func() (string, error) { return fmt.Sprintf("made-%d", made.Add(1)), nil },
		Logger:      slog.New(slog.NewJSONHandler(r.log, nil)),
	})
	r.now = func() time.Time { return fakeNow }
	return r
}

// limit changes the limits of the requests to come.
func (r *rig) limit(change func(*Limits)) {
	limits := *r.limits.Load()
	change(&limits)
	r.SetLimits(limits)
}

// do sends a request; headers are "Name: value".
func (r *rig) do(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	request := httptest.NewRequest(method, target, strings.NewReader(body))
	request.Header.Set("X-Request-Id", "test")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Add(name, value)
	}
	return r.serve(request)
}

// serve sends a request to the public listener and holds the answer against the document of the API.
func (r *rig) serve(request *http.Request) *httptest.ResponseRecorder {
	r.t.Helper()
	answer := httptest.NewRecorder()
	r.Public().ServeHTTP(answer, request)
	if !r.astray {
		if err := contract.Default().Check(contract.Response{
			Method: request.Method, Path: request.URL.EscapedPath(),
			Status: answer.Code, Header: answer.Result().Header, Body: answer.Body.Bytes(),
		}); err != nil {
			r.t.Error(err)
		}
	}
	return answer
}

// listen serves on a port; its client holds the answers against the document of the API.
func (r *rig) listen() *httptest.Server {
	server := httptest.NewServer(r.Public())
	client := server.Client()
	client.Transport = &contract.Transport{RoundTripper: client.Transport, Report: func(err error) {
		if !r.astray {
			r.t.Error(err)
		}
	}}
	return server
}

// expect sends a request and checks the status and, for an error, the code of its problem document.
func (r *rig) expect(status int, code, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	answer := r.do(method, target, body, headers...)
	if answer.Code != status {
		r.t.Errorf("%s %s: status %d, want %d: %s", method, target, answer.Code, status, answer.Body)
	}
	if code != "" && !strings.Contains(answer.Body.String(), `"code":"`+code+`"`) {
		r.t.Errorf("%s %s: want code %s, got %s", method, target, code, answer.Body)
	}
	return answer
}

// transcript is an answer as the golden files keep it: status, headers in alphabetical order, body.
func transcript(answer *httptest.ResponseRecorder) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s\n", answer.Code, http.StatusText(answer.Code))
	_ = answer.Header().Write(&b)
	return strings.ReplaceAll(b.String(), "\r\n", "\n") + "\n" + answer.Body.String()
}

// golden compares text with a file under testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("%s differs, run with -update to accept.\n got: %s\nwant: %s", path, text, want)
	}
}
