package idsegment

import (
	"errors"
	"slices"
	"testing"
	"time"

	"keyrange/test/servers"
)

// openTrio opens three databases as the issuers of a cluster, on which the range orders is registered.
func openTrio(t testing.TB, urls []string, whole Bounds) []*Issuer {
	t.Helper()
	var issuers []*Issuer
	for i, url := range urls {
		issuer := openIssuer(t, url, class{i + 1, len(urls)})
		register(t, issuer, orders, whole.Lo, whole.Hi)
		issuers = append(issuers, issuer)
	}
	return issuers
}

// rotate makes a rotation over issuers.
func rotate(issuers []*Issuer, whole Bounds, opts Options) *Rotation {
	r := NewRotation(len(issuers))
	for i, issuer := range issuers {
		r.Set(i, NewSequence(issuer, orders, issuer.Bounds(whole.Lo, whole.Hi), 1, opts))
	}
	return r
}

// freshTrio makes three databases of an engine.
func freshTrio(t testing.TB, engine servers.Engine) []string {
	return []string{engine.Fresh(t), engine.Fresh(t), engine.Fresh(t)}
}

// I1: two gateways issue from one range of three issuers at once, and no ID twice; both hand back what they have not used,
// so that the next one issues every ID below theirs or beside.
func TestI1TwoGatewaysShareThreeIssuers(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			urls := freshTrio(t, engine)
			opts := Options{MinStep: 10, MaxStep: 40, LeaseTimeout: patience}
			issuers := openTrio(t, urls, wide)
			gateways := []*Rotation{rotate(issuers, wide, opts), rotate(openTrio(t, urls, wide), wide, opts)}
			const callers, each = 32, 150
			ids := concurrently(callers, func(caller int) (ids []int64) {
				r := gateways[caller%2]
				for n := range each {
					id, err := r.Next(t.Context())
					if err != nil {
						t.Error(err)
						return ids
					}
					if n%10 == 0 {
						r.Reuse(id)
						continue
					}
					ids = append(ids, id)
				}
				return ids
			})
			distinct(t, ids, wide)
			if len(ids) != callers*each*9/10 {
				t.Errorf("got %d IDs", len(ids))
			}
			for _, r := range gateways {
				if err := r.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			for i, issuer := range issuers {
				highest := int64(0)
				for _, id := range ids {
					if id%3 == int64(i+1)%3 {
						highest = max(highest, id)
					}
				}
				// The gateway that leased last has handed its tail back, all but IDs that it was about to reuse.
				if got := next(t, issuer, orders); got <= highest || got > highest+3*(40+each*callers/10) {
					t.Errorf("issuer %d goes on at %d, the highest ID issued is %d", i+1, got, highest)
				}
			}
		})
	}
}

// One gateway alone leaves no gap when it stops: the next one goes on where it ended, at each issuer.
func TestRotationCloseReturnsTailsToServers(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			issuers := openTrio(t, freshTrio(t, engine), wide)
			var all []int64
			for range 4 {
				r := rotate(issuers, wide, Options{MinStep: 10, MaxStep: 40, LeaseTimeout: patience})
				ids := take(t, r, 50)
				if err := r.Close(t.Context()); err != nil {
					t.Error(err)
				}
				all = append(all, ids...)
			}
			slices.Sort(all)
			distinct(t, all, wide)
			for i, issuer := range issuers {
				own := issuer.Bounds(wide.Lo, wide.Hi)
				count := int64(0)
				for _, id := range all {
					if own.contains(id) {
						count++
					}
				}
				// IDs that came when another issuer had already answered are given back to be reused, and lost on Close: at most
				// one for each time that a caller had to ask.
				if got := own.countBelow(next(t, issuer, orders)); got < count || got > count+50 {
					t.Errorf("issuer %d has leased %d IDs, of which %d were issued", i+1, got, count)
				}
			}
		})
	}
}

// Every ID of a range is issued once before three issuers are exhausted.
func TestRotationExhaustsServers(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			whole := Bounds{Lo: 101, Hi: 1102}
			r := rotate(openTrio(t, freshTrio(t, engine), whole), whole, Options{LeaseTimeout: patience})
			ids := concurrently(8, func(int) (ids []int64) {
				for {
					id, err := r.Next(t.Context())
					if errors.Is(err, ErrExhausted) {
						return ids
					}
					if err != nil {
						t.Error(err)
						return ids
					}
					ids = append(ids, id)
				}
			})
			if !slices.Equal(ids, run(whole, 0, 1001)) || r.Issued() != 1001 {
				t.Errorf("%d IDs are issued and %d leased", len(ids), r.Issued())
			}
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// With one of three servers stalled and one refusing, IDs go on, and come from all three again afterwards.
func TestRotationTwoServersAway(t *testing.T) {
	server := servers.MySQL(t)[0]
	var urls []string
	var proxies []*servers.Proxy
	for range 3 {
		proxy, url := servers.NewProxyFor(t, servers.FreshMySQL(t, server))
		urls, proxies = append(urls, url), append(proxies, proxy)
	}
	// A timeout that is longer than the test may take: nobody waits for it.
	r := rotate(openTrio(t, urls, wide), wide, Options{MinStep: 10, MaxStep: 10, LeaseTimeout: patience})
	ids := take(t, r, 30)
	proxies[0].Stall()
	proxies[2].Refuse(true)
	started := time.Now()
	away := concurrently(16, func(int) []int64 { return take(t, r, 50) })
	if took := time.Since(started); took > patience/2 {
		t.Errorf("callers waited %v", took)
	}
	proxies[0].Resume()
	proxies[2].Refuse(false)
	ids = append(ids, away...)
	back := map[int64]bool{}
	for deadline := time.Now().Add(patience); len(back) < 3; {
		id := take(t, r, 1)[0]
		ids = append(ids, id)
		back[id%3] = true
		if time.Now().After(deadline) {
			t.Fatalf("only classes %v are used again", back)
		}
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	slices.Sort(ids)
	distinct(t, ids, wide)
}
