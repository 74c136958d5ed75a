package store

import (
	"errors"
	"testing"

	"keyrange/test/servers"
)

// TestGroupDeletionReplyLost: a deletion whose request or reply is lost on its way is taken on, or not, or nobody knows; asked
// for again, all of the group goes (I6).
func TestGroupDeletionReplyLost(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		d = d.grouped()
		toIssuer, through := servers.NewProxyFor(t, d.Issuer)
		d.Issuer = through
		s := d.open(t)
		known := func(group string) bool {
			jobs, err := s.issuers[0].StartJob(t.Context(), "probe "+group, testCollection, group)
			if err != nil {
				t.Fatal(err)
			}
			return jobs.ID != "probe "+group
		}
		join(t, s, "k", "g")
		if _, err := s.DeleteGroup(t.Context(), testCollection, "other"); err != nil { // makes the table
			t.Fatal(err)
		}
		happened := toIssuer.SwallowReply([]byte("INSERT INTO gateway_job"))
		_, err := s.DeleteGroup(t.Context(), testCollection, "g")
		<-happened
		if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnavailable) {
			t.Errorf("without a reply: %v", err)
		}
		again, err := s.DeleteGroup(t.Context(), testCollection, "g")
		if err != nil {
			t.Fatal(err)
		}
		awaitDeletion(t, s, again.ID)
		wantGroup(t, s, "g", nil)
		// Nothing was sent: it says so, and it is so.
		toIssuer.Refuse(true)
		toIssuer.Reset()
		_, err = s.DeleteGroup(t.Context(), testCollection, "unasked")
		toIssuer.Refuse(false)
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) {
			t.Errorf("without a connection: %v", err)
		}
		eventually(t, "the issuer answers again", func() bool { return s.issuers[0].Ping(t.Context()) == nil })
		if known("unasked") {
			t.Error("it was taken on after all")
		}
		d.checkInvariants(t, s)
	})
}
