package faults

import (
	"net/url"
	"testing"
	"time"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

// faultLasts is how long the network misbehaves: longer than a request may take.
const faultLasts = 1500 * time.Millisecond

// TestLinks: on each link between a gateway and a database, connections are refused, reset, stalled, delayed, and a reply
// gets lost. Clients get their answers in time, service is back at once, and nothing is lost or mixed up.
func TestLinks(t *testing.T) {
	// A write that the servers of each kind are sure to be sent under this load.
	matches := map[string]string{"index": "\x02insert\x00", "issuer": "UPDATE", "node-1": "INSERT INTO `records", "node-2": "UPDATE `records"}
	for link, match := range matches {
		t.Run(link, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, plan{})
			p := s.proxies[link]
			s.begin()
			for _, f := range networkFaults(p, faultLasts) {
				s.under(t, f)
			}
			for range 5 {
				s.under(t, fault{name: "a lost reply", begin: func() { waitFor(t, p.SwallowReply([]byte(match))) }, end: func() {}})
				s.under(t, fault{name: "a lost request", begin: func() { waitFor(t, p.CutBefore([]byte(match))) }, end: func() {}})
			}
			s.finish(t)
			s.gateways[0].Stop(t)
		})
	}
}

// networkFaults are what a link may suffer for a while.
func networkFaults(p *servers.Proxy, lasts time.Duration) []fault {
	return []fault{
		{"refused connections", func() { p.Refuse(true) }, func() { p.Refuse(false) }, lasts},
		{"reset connections", p.Reset, func() {}, 0},
		{"a stalled network", p.Stall, p.Resume, lasts},
		{"300 ms of delay", func() { p.Delay(300 * time.Millisecond) }, func() { p.Delay(0) }, lasts},
	}
}

// waitFor waits for a fault that was armed.
func waitFor(t *testing.T, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	case <-time.After(gateway.Patience):
		t.Fatal("the fault did not happen")
	}
}

// TestClientLink: replies to clients get lost and connections of clients are cut; each client finds out what became of its
// writes by reading.
func TestClientLink(t *testing.T) {
	t.Parallel()
	s := newSite(t, plan{})
	proxy, through := servers.NewProxyFor(t, s.gateways[0].URL)
	u, err := url.Parse(through)
	if err != nil {
		t.Fatal(err)
	}
	s.serve("http://" + u.Host)
	s.begin()
	for _, f := range networkFaults(proxy, faultLasts) {
		s.under(t, f)
	}
	for _, match := range []string{"POST /v1", "PUT /v1", "DELETE /v1"} {
		s.under(t, fault{name: "a lost reply to " + match, begin: func() { waitFor(t, proxy.SwallowReply([]byte(match))) }, end: func() {}})
	}
	s.serve(s.gateways[0].URL)
	s.finish(t)
	s.gateways[0].Stop(t)
}
