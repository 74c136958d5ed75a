package store

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"keyrange/idsegment"
	"keyrange/store/sqldb"
	"keyrange/test/servers"
)

// threeIssuers makes a deployment with three issuers.
func (d deployment) threeIssuers(t *testing.T) deployment {
	t.Helper()
	d.MoreIssuers = []string{d.renew(t).Issuer, d.renew(t).Issuer}
	return d
}

// mustOpen opens a database that is closed with the test.
func mustOpen(t *testing.T, url string) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), url, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// TestIssuersTakeTurns: three issuers give one gateway consecutive IDs, all of those of all ranges and none twice (I1).
func TestIssuersTakeTurns(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d = d.threeIssuers(t)
		d.Size = 100
		s, ctx := d.open(t), t.Context()
		seen := map[int64]bool{}
		for i := range 200 {
			id := mustCreate(t, s, fmt.Sprintf("k%d", i), "x").Tag.ID
			if seen[id] {
				t.Errorf("ID %d twice", id)
			}
			seen[id] = true
			if i == 89 && (!seen[1] || !seen[2] || !seen[3] || !seen[50]) {
				t.Error("the first IDs are not taken in turn")
			}
		}
		_, err := s.Create(ctx, testCollection, "one more", doc("x"))
		wantError(t, "create on full ranges", err, ErrExhausted)
		d.checkInvariants(t, s)
	})
}

// TestIssuersDown: any two of three issuers may be down while records are created; no create fails once the gateway runs.
// An issuer whose IDs of a range are left over gives them when it is back.
func TestIssuersDown(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		d = d.threeIssuers(t)
		d.Size = 3000
		through := d
		proxies := make([]*servers.Proxy, 3)
		proxies[0], through.Issuer = servers.NewProxyFor(t, d.Issuer)
		through.MoreIssuers = make([]string, 2)
		for i, url := range d.MoreIssuers {
			proxies[i+1], through.MoreIssuers[i] = servers.NewProxyFor(t, url)
		}
		s, ctx := through.open(t), t.Context()
		var stop atomic.Bool
		var created, failed atomic.Int64
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				for i := 0; !stop.Load(); i++ {
					if _, err := s.Create(ctx, testCollection, fmt.Sprintf("k%d-%d", worker, i), doc("x")); err != nil {
						failed.Add(1)
						t.Errorf("create: %v", err)
						return
					}
					created.Add(1)
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		await := func(n int64) {
			eventually(t, fmt.Sprintf("%d records", n), func() bool { return created.Load() >= n || failed.Load() > 0 })
		}
		await(50)
		for round := range 3 {
			proxies[round].Refuse(true)
			proxies[(round+1)%3].Stall()
			await(created.Load() + 250)
			proxies[round].Refuse(false)
			proxies[(round+1)%3].Resume()
			await(created.Load() + 50)
		}
		stop.Store(true)
		wg.Wait()
		ids := map[int64]bool{}
		for _, r := range d.allRows(t) {
			if ids[r.id] {
				t.Errorf("I1: row %d twice", r.id)
			}
			ids[r.id] = true
		}
		if int64(len(ids)) != created.Load() {
			t.Errorf("%d rows of %d creates", len(ids), created.Load())
		}
		d.checkInvariants(t, s)
	})
}

// TestIssuersLastRange: with an issuer down whose IDs are the last ones left, a create says that it is unavailable and not
// that all is full. When the issuer is back, its IDs are used.
func TestIssuersLastRange(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		d = d.threeIssuers(t)
		d.Nodes, d.Ranges, d.Size = d.Nodes[:1], []string{"1"}, 30
		through := d
		var third *servers.Proxy
		through.MoreIssuers = append([]string(nil), d.MoreIssuers...)
		third, through.MoreIssuers[1] = servers.NewProxyFor(t, d.MoreIssuers[1])
		through.used(t)
		third.Refuse(true)
		s, ctx := through.open(t), t.Context()
		created := 1
		var err error
		for ; err == nil; created++ {
			_, err = s.Create(ctx, testCollection, fmt.Sprintf("k%d", created), doc("x"))
		}
		wantError(t, "create with the last issuer down", err, ErrUnavailable)
		third.Refuse(false)
		eventually(t, "the rest of the range", func() bool {
			_, err = s.Create(ctx, testCollection, fmt.Sprintf("late%d", created), doc("x"))
			created++
			return strings.Contains(fmt.Sprint(err), ErrExhausted.Error())
		})
		if n := len(d.allRows(t)); n < 27 || n > 30 { // the one that was down may have lost a segment
			t.Errorf("%d rows in 30 IDs", n)
		}
		d.checkInvariants(t, s)
	})
}

// TestIssuersMismatch: another number of issuers, another order or a repeated one would issue IDs twice, and is refused.
func TestIssuersMismatch(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		one := d.renew(t)
		one.used(t)
		d = d.threeIssuers(t)
		d.used(t)
		refused := func(what string, d deployment, parts ...string) {
			t.Helper()
			_, err := d.try(t.Context(), &bytes.Buffer{})
			if err == nil {
				t.Errorf("%s: started", what)
				return
			}
			for _, part := range parts {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %v does not say %q", what, err, part)
				}
			}
		}
		fewer := d
		fewer.MoreIssuers = d.MoreIssuers[:1]
		refused("two of three", fewer, "issuer 1 of 3, but config lists 2", "issuer 2 of 3, but config lists 2", "rebuild")
		more := one
		more.MoreIssuers = []string{d.renew(t).Issuer}
		refused("a second one", more, "issuer 1 of 1, but config lists 2", "ids.issuers[1]", "is empty")
		swapped := d
		swapped.MoreIssuers = []string{d.MoreIssuers[1], d.MoreIssuers[0]}
		refused("swapped", swapped, "it is issuer 3, but config lists it as number 2", "it is issuer 2, but config lists it as number 3")
		foreign := d
		foreign.Issuer = d.renew(t).threeIssuers(t).Issuer
		refused("an empty one", foreign, "ids.issuers[0]", "is empty")
		d.used2(t)
	})
}

// used2 opens the deployment once more, to see that nothing was spoilt.
func (d deployment) used2(t *testing.T) {
	t.Helper()
	s := d.open(t)
	mustCreate(t, s, "again", "x")
	d.checkInvariants(t, s)
	s.shut(t)
}

// TestLedgerCatchesRewind: an issuer that was set back while gateways run leases IDs that another gateway holds; the
// node's ledger knows, and no ID is issued twice (I1), even if their rows are gone.
func TestLedgerCatchesRewind(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		if strings.HasPrefix(d.Issuer, "sqlite") {
			d.CacheBytes = 0 // one process, two stores: nothing else differs
		}
		first, second := d.open(t), d.open(t)
		ctx := t.Context()
		mustCreate(t, first, "a", "x")
		for i := range 40 {
			mustCreate(t, second, fmt.Sprintf("b%d", i), "x")
			if err := second.Delete(ctx, testCollection, fmt.Sprintf("b%d", i), Condition{}); err != nil {
				t.Fatal(err)
			}
		}
		before := second.topology.Load().nodes[0]
		end, err := before.rows.entered(ctx, tableName(testCollection, 1), 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := first.issuerDB(t, d).Exec(ctx, "UPDATE id_segment SET next_id = next_id - 20"); err != nil {
			t.Fatal(err)
		}
		failed := false
		for i := range 20 {
			rec, err := first.Create(ctx, testCollection, fmt.Sprintf("c%d", i), doc("x"))
			if err != nil {
				wantError(t, "create", err, ErrUnavailable)
				failed = true
				break
			}
			if rec.Tag.ID > 2 && rec.Tag.ID < end-3 {
				t.Errorf("ID %d was issued before", rec.Tag.ID)
			}
		}
		// The lease runs in the background: the create may fail before it has been logged why.
		for deadline := time.Now().Add(5 * time.Second); !strings.Contains(first.log.String(), "level=ERROR") && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if !failed || !strings.Contains(first.log.String(), "level=ERROR") {
			t.Errorf("no alarm: failed %v, log\n%s", failed, first.log)
		}
		d.checkInvariants(t, first)
	})
}

// TestLedger: what a node notes of segments.
func TestLedger(t *testing.T) {
	rowSuite(t, func(t *testing.T, r rows) {
		ctx, now := t.Context(), time.Now()
		enter := func(issuer int, start, end int64, want bool) {
			t.Helper()
			if fresh, err := r.enter(ctx, "t", issuer, idsegment.Segment{Start: start, End: end}, now); fresh != want || err != nil {
				t.Errorf("enter [%d, %d): %v, %v", start, end, fresh, err)
			}
		}
		wantEnd := func(issuer int, want int64) {
			t.Helper()
			if end, err := r.entered(ctx, "t", issuer); end != want || err != nil {
				t.Errorf("issuer %d is at %d, want %d: %v", issuer, end, want, err)
			}
		}
		wantEnd(1, 0)
		enter(1, 1, 11, true)
		enter(1, 21, 31, true)  // the reply in between is still on its way
		enter(1, 11, 21, true)  // here it is
		enter(1, 11, 21, false) // once more
		enter(1, 25, 45, false) // an overlap from below
		enter(1, 5, 8, false)   // from within
		enter(2, 5, 8, true)    // another issuer's
		enter(1, 31, 41, true)
		wantEnd(1, 41)
		wantEnd(2, 8)
		if err := r.shorten(ctx, "t", 1, idsegment.Segment{Start: 25, End: 41}); err != nil {
			t.Fatal(err)
		}
		wantEnd(1, 25)
		enter(1, 25, 41, true)
		enter(1, 24, 26, false)
		wantEnd(1, 41)
	})
}
