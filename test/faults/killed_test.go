package faults

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

const (
	// killRounds is how often the gateway is killed, killRoundsLong when GATEWAY_TEST_LONG is set.
	killRounds, killRoundsLong = 10, 100
	// killLoad is how long the load goes on before each kill, on average.
	killLoad = 300 * time.Millisecond
)

// TestGatewayKilled: the gateway is killed under load again and again. Nothing that was acknowledged is lost or mixed up, and
// no more entries dangle than requests were under way when it was killed (I1 to I6).
func TestGatewayKilled(t *testing.T) {
	for _, kind := range []string{servers.MySQLKind, gateway.Embedded} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			rounds := killRounds
			if os.Getenv("GATEWAY_TEST_LONG") != "" {
				rounds = killRoundsLong
			}
			s := newSite(t, plan{kind: kind, seed: 1})
			for range rounds {
				s.begin()
				<-time.After(rand.N(2 * killLoad))
				s.gateways[0].Kill(t)
				s.end()
				s.gateways[0] = gateway.StartIn(t, s.folder, s.env...)
				s.announce()
			}
			t.Logf("killed %d times\n  clients saw: %s", rounds, s.takeCounts())
			v := s.finish(t)
			if most := rounds * s.options.clients; v.dangling > most {
				t.Errorf("%d entries dangle after %d kills with %d clients", v.dangling, rounds, s.options.clients)
			}
			s.gateways[0].Stop(t)
		})
	}
}
