package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"keyrange/store/sqldb"
)

// TestRowsList: a window shows live rows in order, up to its limit or its bytes, and tells which it was.
func TestRowsList(t *testing.T) {
	rowSuite(t, func(t *testing.T, r rows) {
		ctx := t.Context()
		for _, id := range []int64{1, 2, 3, 5, 9, 10} {
			added := testRow(id, fmt.Sprintf("k%d", id), `{"twelve":12}`)
			if id == 3 {
				added = added.asFence()
			}
			if err := r.insert(ctx, "t", []row{added})[0]; err != nil {
				t.Fatal(err)
			}
		}
		const plenty = 1 << 20
		for name, c := range map[string]struct {
			w    window
			want string
			cut  bool
		}{
			"all":             {window{span{0, 99}, "", false, 99, plenty, false}, "[1 2 5 9 10]", false},
			"descending":      {window{span{0, 99}, "", true, 99, plenty, false}, "[10 9 5 2 1]", false},
			"limit":           {window{span{2, 99}, "", false, 2, plenty, false}, "[2 5]", false},
			"end":             {window{span{2, 9}, "", true, 2, plenty, false}, "[5 2]", false},
			"nothing":         {window{span{6, 9}, "", true, 2, plenty, true}, "[]", false},
			"bytes":           {window{span{0, 99}, "", false, 99, 2*13 + 12, false}, "[1 2]", true},
			"bytes, no more":  {window{span{9, 99}, "", false, 99, 2 * 13, false}, "[9 10]", false},
			"one too large":   {window{span{0, 99}, "", false, 99, 1, true}, "[1]", true},
			"none that large": {window{span{0, 99}, "", false, 99, 1, false}, "[]", true},
		} {
			found, cut, err := r.list(ctx, "t", c.w)
			ids := make([]int64, len(found))
			for i := range found {
				ids[i] = found[i].id
			}
			if fmt.Sprint(ids) != c.want || cut != c.cut || err != nil {
				t.Errorf("%s: %v, cut %t, %v; want %s, cut %t", name, ids, cut, err, c.want, c.cut)
			}
		}
		found, _, err := r.list(ctx, "t", window{span{9, 10}, "", false, 1, plenty, false})
		if want := testRow(9, "k9", `{"twelve":12}`); err != nil || len(found) != 1 || fmt.Sprint(found[0]) != fmt.Sprint(want) {
			t.Errorf("listed %v, %v; want %v", found, err, want)
		}
		if _, _, err := r.list(ctx, "nowhere", window{span{9, 10}, "", false, 1, plenty, false}); !errors.Is(err, sqldb.ErrRejected) {
			t.Errorf("a table that does not exist: %v", err)
		}
		for _, table := range []string{"empty", "fences"} {
			if err := r.prepare(ctx, table); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.insert(ctx, "fences", []row{testRow(1, "k", "{}").asFence()})[0]; err != nil {
			t.Fatal(err)
		}
		if has, err := r.occupied(ctx, []string{"empty", "t", "fences"}); err != nil || !slices.Equal(has, []bool{false, true, false}) {
			t.Errorf("occupied: %v, %v", has, err)
		}
	})
}

// countedRows counts the statements of lists and fails those of a kind on demand.
type countedRows struct {
	rows
	statements *atomic.Int64
	down       *atomic.Bool
}

func (c countedRows) ask() error {
	c.statements.Add(1)
	if c.down.Load() {
		return fmt.Errorf("%w: the test says so", sqldb.ErrUnavailable)
	}
	return nil
}

func (c countedRows) tables(ctx context.Context) ([]string, error) {
	if err := c.ask(); err != nil {
		return nil, err
	}
	return c.rows.tables(ctx)
}

func (c countedRows) list(ctx context.Context, table string, w window) ([]row, bool, error) {
	if err := c.ask(); err != nil {
		return nil, false, err
	}
	return c.rows.list(ctx, table, w)
}

func (c countedRows) occupied(ctx context.Context, tables []string) ([]bool, error) {
	if err := c.ask(); err != nil {
		return nil, err
	}
	return c.rows.occupied(ctx, tables)
}

// planted is a store whose range tables a test fills itself.
type planted struct {
	*opened
	t          *testing.T
	statements atomic.Int64
	down       [2]atomic.Bool
	ids        []int64 // of the records, in order
}

// plant opens a store with 999 ranges of 100 IDs on two nodes. The first owns the ranges 1, 2 and 5, the second all others.
func plant(t *testing.T, d deployment) *planted {
	t.Helper()
	d.Size, d.Ranges = 100, []string{"1-2,5", "3-4,6-999"}
	p := &planted{opened: d.open(t), t: t}
	for i, n := range p.topology.Load().nodes {
		n.rows = countedRows{n.rows, &p.statements, &p.down[i]}
	}
	return p
}

// open makes the table of a range with rows at some of its IDs, counted from its first; negative ones are fences.
func (p *planted) open(number int64, at ...int64) {
	p.t.Helper()
	r, n, _ := p.topology.Load().layout.Range(number)
	on := p.topology.Load().nodes[n].rows
	if err := on.prepare(p.t.Context(), tableName(testCollection, number)); err != nil {
		p.t.Fatal(err)
	}
	var batch []row
	for _, i := range at {
		id := r.Lo + max(i, -i)
		added := testRow(id, fmt.Sprintf("k%d", id), fmt.Sprintf(`{"key":"k%d"}`, id))
		if i < 0 {
			added = added.asFence()
		} else {
			p.ids = append(p.ids, id)
		}
		batch = append(batch, added)
	}
	if len(batch) > 0 {
		for _, err := range on.insert(p.t.Context(), tableName(testCollection, number), batch) {
			if err != nil {
				p.t.Fatal(err)
			}
		}
	}
	slices.Sort(p.ids)
}

// walk takes a walk to its end and returns the IDs that it met.
func (p *planted) walk(w Walk) (ids []int64, pages int, err error) {
	for {
		page, err := p.List(p.t.Context(), testCollection, w)
		if err != nil {
			return ids, pages, err
		}
		pages++
		for _, r := range page.Records {
			if want := fmt.Sprintf(`{"key":%q}`, r.Key); string(r.Document) != want || r.Key != fmt.Sprintf("k%d", r.Tag.ID) {
				p.t.Errorf("record %s of %q: %s, want %s", r.Tag, r.Key, r.Document, want)
			}
			ids = append(ids, r.Tag.ID)
		}
		if len(page.Records) > w.Limit || page.More && (len(page.Records) == 0 || page.Next != ids[len(ids)-1]) {
			p.t.Errorf("a page of %d records, up to %d, goes on at %d: %t", len(page.Records), w.Limit, page.Next, page.More)
			return ids, pages, nil
		}
		if w.After = page.Next; !page.More {
			return ids, pages, nil
		}
	}
}

// scatter opens ranges of all kinds: full, sparse, fenced, empty, and with gaps in between that were never opened.
func (p *planted) scatter() {
	all := make([]int64, 100)
	for i := range all {
		all[i] = int64(i)
	}
	p.open(1, all...)
	p.open(2)
	p.open(4, 0, -1, 2, -3, 99)
	p.open(5, 7)
	for number := int64(300); number < 340; number++ {
		p.open(number)
	}
	p.open(350, -1, -2)
	p.open(400, all...)
	p.open(998, 50)
}

// TestList: lists of range tables of all kinds.
func TestList(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		p := plant(t, d)
		if page, err := p.List(t.Context(), testCollection, Walk{Limit: 3, MaxBytes: 1}); err != nil || page.More || len(page.Records) > 0 {
			t.Errorf("an empty collection: %+v, %v", page, err)
		}
		p.scatter()
		t.Run("walks", p.walks)
		t.Run("statements", p.counts)
		t.Run("node down", p.outage)
	})
}

// walks: a walk in either direction meets each record once, over ranges and nodes, whatever the size of its pages.
func (p *planted) walks(t *testing.T) {
	backwards := slices.Clone(p.ids)
	slices.Reverse(backwards)
	for _, limit := range []int{1, 2, 7, 100, len(p.ids) - 1, len(p.ids), 1000} {
		for _, descending := range []bool{false, true} {
			want := p.ids
			if descending {
				want = backwards
			}
			got, pages, err := p.walk(Walk{Descending: descending, Limit: limit, MaxBytes: 1 << 20})
			if most := (len(p.ids)-1)/limit + 1; err != nil || !slices.Equal(got, want) || pages != most {
				t.Errorf("limit %d, descending %t: %d records on %d pages, %v; want %d on %d", limit, descending, len(got), pages, err, len(want), most)
			}
		}
	}
	got, pages, err := p.walk(Walk{Limit: 1000, MaxBytes: 40}) // three documents
	if err != nil || !slices.Equal(got, p.ids) || pages < len(p.ids)/3 {
		t.Errorf("pages of 40 bytes: %d records on %d pages, %v", len(got), pages, err)
	}
	if _, err := p.List(t.Context(), "nothing", Walk{Limit: 1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a collection that does not exist: %v", err)
	}
	for _, far := range []Walk{{After: 1 << 40, Limit: 1}, {After: 1<<63 - 1, Limit: 1}, {After: 1, Descending: true, Limit: 1}} {
		if page, err := p.List(t.Context(), testCollection, far); err != nil || page.More || len(page.Records) > 0 {
			t.Errorf("%+v: %+v, %v", far, page, err)
		}
	}
}

// counts: ranges without records cost next to nothing, be they never opened or empty.
func (p *planted) counts(t *testing.T) {
	for name, c := range map[string]struct {
		w    Walk
		most int64
	}{
		"inside a range":     {Walk{After: 10, Limit: 20}, 1},
		"over empty ones":    {Walk{After: 407, Limit: 20}, 1 + 2 + 4},
		"over the whole map": {Walk{Limit: 1000}, 1 + 2 + 4 + 5},
		"backwards":          {Walk{Descending: true, Limit: 1000}, 2 + 4 + 6},
	} {
		c.w.MaxBytes = 1 << 20
		p.statements.Store(0)
		if _, err := p.List(t.Context(), testCollection, c.w); err != nil {
			t.Fatal(err)
		}
		if got := p.statements.Load(); got > c.most {
			t.Errorf("%s: %d statements, want %d at most", name, got, c.most)
		}
	}
}

// outage: a list never leaves out what it cannot see (I3). Pages before the node that is down are served.
func (p *planted) outage(t *testing.T) {
	p.down[1].Store(true)
	got, _, err := p.walk(Walk{Limit: 30, MaxBytes: 1 << 20})
	if !errors.Is(err, ErrUnavailable) || !slices.Equal(got, p.ids[:100]) {
		t.Errorf("second node down: %d records, %v; want those of range 1", len(got), err)
	}
	got, _, err = p.walk(Walk{Descending: true, Limit: 30, MaxBytes: 1 << 20})
	if !errors.Is(err, ErrUnavailable) || len(got) > 0 {
		t.Errorf("backwards: %d records, %v", len(got), err)
	}
	if got, _, err := p.walk(Walk{After: 408, Descending: true, Limit: 3, MaxBytes: 1 << 20}); !errors.Is(err, ErrUnavailable) || len(got) > 0 {
		t.Errorf("backwards from range 5: %v, %v", got, err)
	}
	p.down[1].Store(false)
	p.down[0].Store(true)
	got, _, err = p.walk(Walk{Descending: true, Limit: 30, MaxBytes: 1 << 20})
	if !errors.Is(err, ErrUnavailable) || len(got) != 101 {
		t.Errorf("first node down, backwards: %d records, %v; want 101", len(got), err)
	}
	if _, _, err := p.walk(Walk{Limit: 30, MaxBytes: 1 << 20}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("first node down: %v", err)
	}
	p.down[0].Store(false)
	if got, _, err := p.walk(Walk{Limit: 30, MaxBytes: 1 << 20}); err != nil || !slices.Equal(got, p.ids) {
		t.Errorf("all up again: %d records, %v", len(got), err)
	}
}

// TestListUnknownNode: a gateway that does not know the newest node refuses the end of a list, instead of hiding what is
// stored there.
func TestListUnknownNode(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Placement = Placement{Spread: 2}
		old := d
		old.Nodes, old.Ranges = d.Nodes[:1], d.Ranges[:1]
		before := old.open(t)
		if _, err := before.Create(t.Context(), testCollection, "a", Content{Document: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		if page, err := before.List(t.Context(), testCollection, Walk{Limit: 5, MaxBytes: 99}); err != nil || len(page.Records) != 1 || page.More {
			t.Errorf("before the fleet grew: %+v, %v", page, err)
		}
		after := d.open(t)
		for i := range 10 {
			if _, err := after.Create(t.Context(), testCollection, fmt.Sprint("b", i), Content{Document: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		if page, err := after.List(t.Context(), testCollection, Walk{Limit: 50, MaxBytes: 99}); err != nil || len(page.Records) != 11 || page.More {
			t.Errorf("the new gateway: %+v, %v", page, err)
		}
		page, err := before.List(t.Context(), testCollection, Walk{Limit: 50, MaxBytes: 99})
		if err != nil || len(page.Records) == 0 || !page.More {
			t.Errorf("the old gateway: %+v, %v", page, err)
		}
		_, err = before.List(t.Context(), testCollection, Walk{After: page.Next, Limit: 50, MaxBytes: 99})
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "range 2 is in use") {
			t.Errorf("the end of the list on the old gateway: %v", err)
		}
		if _, err := before.List(t.Context(), testCollection, Walk{Descending: true, Limit: 50, MaxBytes: 99}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("backwards on the old gateway: %v", err)
		}
	})
}

// TestListWhileChanging: records that stay are met exactly once, whatever comes and goes meanwhile, on another gateway
// too, and also when the record goes that a page ended with.
func TestListWhileChanging(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Placement = Placement{Spread: 2}
		o, other := d.open(t), d.open(t)
		create := func(s *opened, key string) (Record, error) {
			return s.Create(context.WithoutCancel(t.Context()), testCollection, key, Content{Document: []byte("{}")})
		}
		for i := range 50 {
			for _, kind := range []string{"stays", "goes"} {
				if _, err := create(o, fmt.Sprintf("%s-%d", kind, i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, descending := range []bool{false, true} {
			ctx, stop := context.WithCancel(t.Context())
			var churn sync.WaitGroup
			churn.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					key := fmt.Sprintf("new-%t-%d", descending, i)
					if _, err := create(other, key); err != nil {
						t.Errorf("create %s: %v", key, err)
						return
					}
					if err := other.Delete(context.WithoutCancel(ctx), testCollection, key, Condition{}); err != nil {
						t.Errorf("delete %s: %v", key, err)
						return
					}
				}
			})
			met := map[string]int{}
			for walk := (Walk{Descending: descending, Limit: 7, MaxBytes: 1 << 20}); ; {
				page, err := o.List(t.Context(), testCollection, walk)
				if err != nil {
					t.Error(err)
					break
				}
				for _, r := range page.Records {
					met[r.Key]++
				}
				if walk.After = page.Next; !page.More {
					break
				}
				last := page.Records[len(page.Records)-1]
				if strings.HasPrefix(last.Key, "goes") {
					if err := o.Delete(t.Context(), testCollection, last.Key, Condition{Tags: []Tag{last.Tag}}); err != nil {
						t.Errorf("delete %s: %v", last.Key, err)
					}
				}
			}
			stop()
			churn.Wait()
			for i := range 50 {
				if key := fmt.Sprint("stays-", i); met[key] != 1 {
					t.Errorf("descending %t: %s was met %d times", descending, key, met[key])
				}
			}
		}
	})
}
