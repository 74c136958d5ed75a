package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"keyrange/index"
)

const (
	// crashEnv makes the test binary a gateway that dies: it holds a crashPlan.
	crashEnv = "STORE_TEST_CRASH"
	// crashStatus is the exit status of a process that died where it was told to.
	crashStatus = 42
)

// crashPlan says what a process does and after which of its writes it exits.
type crashPlan struct {
	Deployment deployment
	Operation  string
	Step       int
}

func TestMain(m *testing.M) {
	if text := os.Getenv(crashEnv); text != "" {
		var plan crashPlan
		if err := json.Unmarshal([]byte(text), &plan); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		plan.run()
	}
	os.Exit(m.Run())
}

// operations by name, each on the key "k". The document says which life of the record it is.
var operations = map[string]func(ctx context.Context, s *Store) error{
	"create": func(ctx context.Context, s *Store) error {
		_, err := s.Create(ctx, testCollection, "k", doc("crashed"))
		return err
	},
	"put": func(ctx context.Context, s *Store) error {
		_, _, err := s.Put(ctx, testCollection, "k", doc("crashed"), Condition{})
		return err
	},
	"delete": func(ctx context.Context, s *Store) error { return s.Delete(ctx, testCollection, "k", Condition{}) },
}

func (p crashPlan) run() {
	o, err := p.Deployment.try(context.Background(), &bytes.Buffer{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	steps := &stepCounter{left: p.Step}
	o.index = crashingIndex{o.index, steps}
	for _, n := range o.topology.Load().nodes {
		n.rows = crashingRows{n.rows, steps}
	}
	if err := operations[p.Operation](context.Background(), o.Store); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// stepCounter ends the process once a number of writes have been acknowledged to it.
type stepCounter struct{ left int }

func (c *stepCounter) done() {
	if c.left--; c.left == 0 {
		os.Exit(crashStatus)
	}
}

type crashingIndex struct {
	index.Index
	steps *stepCounter
}

func (i crashingIndex) Insert(ctx context.Context, collection string, entries []index.Entry) []error {
	defer i.steps.done()
	return i.Index.Insert(ctx, collection, entries)
}

func (i crashingIndex) Replace(ctx context.Context, collection, key string, old, new int64) (bool, error) {
	defer i.steps.done()
	return i.Index.Replace(ctx, collection, key, old, new)
}

func (i crashingIndex) Remove(ctx context.Context, collection string, entries []index.Entry) error {
	defer i.steps.done()
	return i.Index.Remove(ctx, collection, entries)
}

type crashingRows struct {
	rows
	steps *stepCounter
}

func (r crashingRows) insert(ctx context.Context, table string, batch []row) []error {
	defer r.steps.done()
	return r.rows.insert(ctx, table, batch)
}

func (r crashingRows) change(ctx context.Context, table string, batch []rowChange) []answer[changed] {
	defer r.steps.done()
	return r.rows.change(ctx, table, batch)
}

// crash runs the operation in a process of its own and reports whether it died at the step.
func (d deployment) crash(t *testing.T, operation string, step int) (died bool) {
	t.Helper()
	plan, err := json.Marshal(crashPlan{d, operation, step})
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), crashEnv+"="+string(plan))
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return false
	case errors.As(err, &exit) && exit.ExitCode() == crashStatus:
		return true
	}
	t.Fatalf("%s, step %d: %v: %s", operation, step, err, output)
	return false
}

// TestStoreCrash ends a process after each write of a create, a take-over, an update and a delete. Whatever step it was,
// the invariants hold (I1 to I5), the record is as it was or as it was to be, and the key can be written again.
func TestStoreCrash(t *testing.T) {
	create := func(t *testing.T, d deployment) {
		t.Helper()
		s := d.open(t)
		mustCreate(t, s, "k", "before")
		s.shut(t)
	}
	expire := func(t *testing.T, d deployment) {
		t.Helper()
		s := d.open(t)
		mustExpire(t, s, "k", time.Second)
		s.shut(t)
	}
	tests := []struct {
		name, operation string
		// before prepares the key.
		before func(t *testing.T, d deployment)
		// outcomes are the documents that may be there afterwards; empty stands for none.
		outcomes []string
		writes   int
	}{
		{"Create", "create", nil, []string{"", "crashed"}, 2},
		{"CreateByPut", "put", nil, []string{"", "crashed"}, 2},
		// The entry insert that is refused counts too: insert, fence, replace, row.
		{"TakeOver", "create", func(t *testing.T, d deployment) { d.crash(t, "create", 1) }, []string{"", "crashed"}, 4},
		// Here it is: insert, row removed, replace, row; a put tries an update before.
		{"Expired", "create", expire, []string{"", "crashed"}, 4},
		{"ExpiredByPut", "put", expire, []string{"", "crashed"}, 5},
		{"Update", "put", create, []string{"before", "crashed"}, 1},
		{"Delete", "delete", create, []string{"before", ""}, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			engines(t, func(t *testing.T, d deployment) {
				step := 1
				for ; ; step++ {
					d := d.renew(t)
					s := d.open(t)
					mustCreate(t, s, "bystander", "untouched")
					s.shut(t)
					if test.before != nil {
						test.before(t, d)
					}
					if !d.crash(t, test.operation, step) {
						break
					}
					d.checkAfterCrash(t, test.outcomes)
				}
				if step-1 != test.writes {
					t.Errorf("died at %d steps, want %d", step-1, test.writes)
				}
			})
		})
	}
}

// checkAfterCrash restarts on what a crash has left.
func (d deployment) checkAfterCrash(t *testing.T, outcomes []string) {
	t.Helper()
	s, ctx := d.open(t), t.Context()
	defer s.shut(t)
	d.checkInvariants(t, s)
	wantDocument(t, s, "bystander", doc("untouched").Document)
	found := ""
	rec, err := s.Get(ctx, testCollection, "k")
	if err == nil {
		var v struct{ V string }
		if err := json.Unmarshal(rec.Document, &v); err != nil {
			t.Error(err)
		}
		found = v.V
	} else {
		wantError(t, "get", err, ErrNotFound)
	}
	if !slices.Contains(outcomes, found) {
		t.Errorf("found %q, want one of %q", found, outcomes)
	}
	if found != "" {
		_, err := s.Create(ctx, testCollection, "k", doc("again"))
		wantError(t, "create over a record", err, ErrConflict)
		if err := s.Delete(ctx, testCollection, "k", Condition{}); err != nil {
			t.Error(err)
		}
	}
	mustCreate(t, s, "k", "again")
	wantDocument(t, s, "k", doc("again").Document)
	d.checkInvariants(t, s)
	ids := map[int64]bool{}
	for _, r := range d.allRows(t) {
		if ids[r.id] {
			t.Errorf("I1: two rows at %d", r.id)
		}
		ids[r.id] = true
	}
}
