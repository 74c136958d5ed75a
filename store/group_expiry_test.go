package store

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// memberUntil is member with an expiry so far from now.
func memberUntil(group, text string, left time.Duration) Content {
	content := docUntil(text, left)
	content.Group = group
	return content
}

// TestGroupExpired: to a group, a record that has expired is none, and its key may come again in another group.
func TestGroupExpired(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d = d.grouped()
		s := d.open(t)
		write := func(key string, content Content) {
			t.Helper()
			if _, err := s.Create(t.Context(), testCollection, key, content); err != nil {
				t.Fatalf("create %s: %v", key, err)
			}
		}
		for i := range 6 {
			write(fmt.Sprintf("expired %d", i), memberUntil("a", "x", -time.Second))
			write(fmt.Sprintf("overdue %d", i), memberUntil("a", "x", -time.Hour))
		}
		write("lives", memberUntil("a", "x", time.Hour))
		wantGroup(t, s, "a", []string{"lives"})
		// Created, put and put into no group, in the place of a member that has expired.
		write("expired 0", member("b", "new"))
		write("overdue 0", member("", "new"))
		for key, content := range map[string]Content{"expired 1": member("b", "new"), "overdue 1": member("", "new")} {
			if rec, created, err := s.Put(t.Context(), testCollection, key, content, Condition{}); err != nil || !created || rec.Group != content.Group {
				t.Errorf("put %s: %+v, created %v, %v", key, rec, created, err)
			}
			wantDocument(t, s, key, content.Document)
		}
		_, _, err := s.Put(t.Context(), testCollection, "lives", member("b", "new"), Condition{})
		wantError(t, "put into another group", err, ErrGroupMismatch)
		_, _, err = s.Put(t.Context(), testCollection, "expired 2", member("b", "new"), Condition{Exists: true})
		wantError(t, "put over an expired record", err, ErrPrecondition)
		wantGroup(t, s, "a", []string{"lives"})
		if n, err := s.CountGroup(t.Context(), testCollection, "b"); err != nil || n != 2 {
			t.Errorf("%d records in the other group, %v", n, err)
		}
		d.checkInvariants(t, s)
		// The group's directory has what it needs, also of rows that have expired.
		counts, err := fleetOf(s).Fsck(t.Context(), Fsck{
			Index: s.gate.Index, Collections: []string{testCollection}, Groups: map[string]string{testCollection: d.Group},
			Now: time.Now, Found: func(d Damage) { t.Errorf("%+v", d) }, Progress: func(int64, int64, SweepCounts) {},
		})
		if err != nil || counts.Expired != 4 {
			t.Errorf("a look counts %+v, %v", counts, err)
		}
		deletion, err := s.DeleteGroup(t.Context(), testCollection, "a")
		if err != nil || awaitDeletion(t, s, deletion.ID).Deleted != 1 {
			t.Errorf("deletion: %+v, %v", deletion, err)
		}
		wantGroup(t, s, "a", nil)
		d.checkInvariants(t, s)
		w, clock := newTestSweeper(s)
		if counts := w.pass(t, clock); counts.Harmful() != 0 || counts.Dangling != 0 || counts.Buried != 4 {
			t.Errorf("the sweeper counts %+v", counts)
		}
		d.checkInvariants(t, s)
	})
}

// expiringRows are range tables whose members expire as soon as a deletion has seen them, but for one.
type expiringRows struct {
	rows
	exec func(query string, args ...any)
	but  string
}

func (e *expiringRows) members(ctx context.Context, table, group string, within span, limit int) ([]brief, error) {
	found, err := e.rows.members(ctx, table, group, within, limit)
	e.exec(fmt.Sprintf("UPDATE `%s` SET expires_at = created_at WHERE group_key = ? AND biz_key <> ?", table), []byte(group), []byte(e.but))
	return found, err
}

// TestGroupDeletedWhileItExpires: what expires between the look of a deletion and its statement goes with its entry, so that
// the key can be used again and no row stays behind without one (I3, I4).
func TestGroupDeletedWhileItExpires(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d = d.grouped()
		s := d.open(t)
		for i := range 5 {
			join(t, s, fmt.Sprintf("k%d", i), "g")
		}
		join(t, s, "lives", "g")
		for _, n := range s.topology.Load().nodes {
			n.rows = &expiringRows{rows: n.rows, but: "lives", exec: func(query string, args ...any) {
				if _, err := n.db.Exec(context.Background(), query, args...); err != nil {
					t.Errorf("expire: %v", err)
				}
			}}
		}
		deletion, err := s.DeleteGroup(t.Context(), testCollection, "g")
		if err != nil {
			t.Fatal(err)
		}
		if done := awaitDeletion(t, s, deletion.ID); done.Deleted != 1 {
			t.Errorf("%d records deleted; those that had expired were none any more", done.Deleted)
		}
		d.checkInvariants(t, s)
		if rows := d.allRows(t); len(rows) != 0 {
			t.Errorf("rows are left: %+v", rows)
		}
		join(t, s, "k0", "other")
		d.checkInvariants(t, s)
	})
}

// TestGroupDeletionOfAnotherCollection: a deletion in a collection that this gateway's config does not have waits for another
// gateway, and holds up no other deletion.
func TestGroupDeletionOfAnotherCollection(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d = d.grouped()
		s := d.open(t)
		for i := range deletionsAtOnce + 1 {
			id := fmt.Sprintf("foreign %d", i)
			if _, err := s.issuers[0].StartJob(t.Context(), id, "removed", id); err != nil {
				t.Fatal(err)
			}
		}
		join(t, s, "k", "g")
		deletion, err := s.DeleteGroup(t.Context(), testCollection, "g")
		if err != nil || awaitDeletion(t, s, deletion.ID).Deleted != 1 {
			t.Errorf("deletion: %+v, %v", deletion, err)
		}
	})
}
