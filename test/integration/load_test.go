package integration

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

// Sizes of the load on two gateways. The long one runs with GATEWAY_TEST_LONG set, and in CI.
const (
	loadClients  = 64
	longCreates  = 100_000
	shortCreates = 20_000
	// sharedShare: one of so many keys is posted to both gateways at once.
	sharedShare = 10
)

// loadSize is the number of records to create.
func loadSize() int {
	if os.Getenv("GATEWAY_TEST_LONG") != "" || os.Getenv("CI") == "true" {
		return longCreates
	}
	return shortCreates
}

// TestTwoGateways: two gateways on one stack, under 64 clients, never issue an ID twice and never let a key live twice,
// over the ends of ranges (I1, I4, I5).
func TestTwoGateways(t *testing.T) {
	creates := loadSize()
	s := gateway.NewStack(t, servers.MySQLKind, 3, int64(creates)/2) // a third range, as each gateway burns some at the end of one
	gateways := []*gateway.Process{gateway.Start(t, s.Config()), gateway.Start(t, s.Config())}
	made := newAcknowledged()
	start := time.Now()
	err := gateway.Together(loadClients, func(c int) error {
		for i := c; i < creates; i += loadClients {
			key := fmt.Sprintf("record-%d", i)
			var err error
			if i%sharedShare == 0 {
				err = made.createOnBoth(gateways, key)
			} else {
				err = made.create(gateways[(i/loadClients)%2], key)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	took := time.Since(start)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d creates by %d clients in %s: %.0f/s", creates, loadClients, took.Round(time.Millisecond), float64(creates)/took.Seconds())
	if n := int(made.count.Load()); n != creates {
		t.Errorf("%d creates were acknowledged, want %d", n, creates)
	}
	ids := ownedIDs(t, s, "records")
	if len(ids) != creates {
		t.Errorf("the nodes hold %d records, want %d", len(ids), creates)
	}
	for id, key := range made.keys {
		if fmt.Sprint(ids[key]) != id {
			t.Errorf("%s was acknowledged as %s, its row is at %d", key, id, ids[key])
		}
	}
	wantEntries(t, s, ids)
	for _, g := range gateways {
		g.Stop(t)
	}
}

// createOnBoth posts one key to two gateways at once, of which exactly one may create it.
func (k *acknowledged) createOnBoth(gateways []*gateway.Process, key string) error {
	answers := make([]gateway.Answer, len(gateways))
	err := gateway.Together(len(gateways), func(i int) (err error) {
		answers[i], err = gateways[i].Call("POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key))
		return err
	})
	if err != nil {
		return err
	}
	winner, loser := answers[0], answers[1]
	if winner.Status != http.StatusCreated {
		winner, loser = loser, winner
	}
	if winner.Status != http.StatusCreated || loser.Status != http.StatusConflict || loser.ETag() != winner.ETag() {
		return fmt.Errorf("create %s twice at once: %d %s %s and %d %s %s, want one 201 and one 409 with its ETag",
			key, answers[0].Status, answers[0].ETag(), answers[0].Body, answers[1].Status, answers[1].ETag(), answers[1].Body)
	}
	return k.add(key, winner)
}
