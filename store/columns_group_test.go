package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"keyrange/store/sqldb"
)

// TestColumnsWithGroupAndExpiry: a row in columns keeps its group through updates, its expiry is what each write says, and
// lists, counts and repeated creates return what a read returns.
func TestColumnsWithGroupAndExpiry(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d = d.grouped()
		d.Columns, d.KeepUnknown = columnsOf(t, "customer bigint", "ttl int", "note varchar(9)", "total decimal(10,2)"), true
		d.Columns[2].Default, d.Columns[3].Required = "none", true
		s := d.open(t)
		content := func(text string, left time.Duration) Content {
			c := Content{Document: []byte(text), Group: "7"}
			if left != 0 {
				c.ExpiresAt = time.Now().Add(left).UTC().Truncate(time.Microsecond)
			}
			return c
		}
		once := NewOnce("a", testCollection, "k", []byte(`{"total":1,"customer":7}`))
		first := content(`{"total":1,"customer":7}`, time.Hour)
		rec, replayed, err := s.CreateOnce(t.Context(), testCollection, "k", first, once)
		const want = `{"key":"k","customer":7,"note":"none","total":1.00}`
		if err != nil || replayed || string(rec.Document) != want || rec.Group != "7" || !rec.ExpiresAt.Equal(first.ExpiresAt) {
			t.Fatalf("created %s of %q until %s, %v, %v", rec.Document, rec.Group, rec.ExpiresAt, replayed, err)
		}
		again, replayed, err := s.CreateOnce(t.Context(), testCollection, "k", content(`{"total":1,"customer":7}`, 2*time.Hour), once)
		if err != nil || !replayed || again.Tag != rec.Tag || string(again.Document) != want || !again.ExpiresAt.Equal(rec.ExpiresAt) {
			t.Errorf("again: %s %v until %s, %v, %v", again.Document, again.Tag, again.ExpiresAt, replayed, err)
		}
		// What was read can be written again, as it is and under another key: nothing of the old one sticks to it.
		got, err := s.Get(t.Context(), testCollection, "k")
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range []Record{got, rec} {
			if put, _, err := s.Put(t.Context(), testCollection, "k", from.Content, Condition{}); err != nil || string(put.Document) != want || put.Group != "7" || !put.ExpiresAt.Equal(rec.ExpiresAt) {
				t.Errorf("put what was read: %s %q until %s, %v", put.Document, put.Group, put.ExpiresAt, err)
			}
			if copied, _, err := s.Put(t.Context(), testCollection, "copy", from.Content, Condition{}); err != nil || string(copied.Document) != `{"key":"copy","customer":7,"note":"none","total":1.00}` {
				t.Errorf("put under another key: %s, %v", copied.Document, err)
			}
		}
		if rec, _, err = s.Put(t.Context(), testCollection, "k", content(`{"total":2,"customer":7,"more":[1]}`, 0), Condition{}); err != nil || !rec.ExpiresAt.IsZero() {
			t.Errorf("put for ever: until %s, %v", rec.ExpiresAt, err)
		}
		wantDocument(t, s, "k", []byte(`{"key":"k","customer":7,"note":"none","total":2.00,"more":[1]}`))
		wantGroup(t, s, "7", []string{"k", "copy"})
		page, err := s.List(t.Context(), testCollection, Walk{Group: "7", Limit: 1, MaxBytes: 1 << 20})
		if err != nil || len(page.Records) != 1 || string(page.Records[0].Document) != string(rec.Document) || page.Records[0].Tag != rec.Tag {
			t.Errorf("listed %+v, %v", page, err)
		}
		// It expires in its columns, and its place is taken by another of another group.
		if _, _, err := s.Put(t.Context(), testCollection, "k", content(`{"total":2,"customer":7}`, -time.Second), Condition{}); err != nil {
			t.Fatal(err)
		}
		wantGroup(t, s, "7", []string{"copy"})
		other := content(`{"total":3,"customer":8}`, 0)
		other.Group = "8"
		if rec, replayed, err = s.CreateOnce(t.Context(), testCollection, "k", other, once); err != nil || replayed || rec.Group != "8" {
			t.Errorf("created in its place: %s %q, %v, %v", rec.Document, rec.Group, replayed, err)
		}
		wantGroup(t, s, "8", []string{"k"})
		d.checkInvariants(t, s)
	})
}

// TestGroupDeletedThoughUnreadable: a record that cannot be read goes with its group.
func TestGroupDeletedThoughUnreadable(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d = d.grouped()
		d.Columns, d.KeepUnknown = columnsOf(t, "data json"), true
		s := d.open(t)
		for i := range 3 {
			content := Content{Document: []byte(`{"data":1}`), Group: "g"}
			if _, err := s.Create(t.Context(), testCollection, fmt.Sprintf("k%d", i), content); err != nil {
				t.Fatal(err)
			}
		}
		db := mustOpen(t, d.Nodes[0])
		if _, err := db.Exec(t.Context(), "UPDATE records_r00001 SET c_data = '{'"); err != nil {
			t.Fatal(err)
		}
		_, err := s.List(t.Context(), testCollection, Walk{Group: "g", Limit: 1, MaxBytes: 1})
		wantError(t, "list it", err, ErrUnreadable)
		deletion, err := s.DeleteGroup(t.Context(), testCollection, "g")
		if err != nil || awaitDeletion(t, s, deletion.ID).Deleted != 3 {
			t.Errorf("deletion: %+v, %v", deletion, err)
		}
		d.checkInvariants(t, s)
	})
}

// TestGroupIndex: new tables and tables that are given a group later get the same index, which has all that counting needs.
func TestGroupIndex(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		db := mustOpen(t, d.Nodes[0])
		if db.Engine() == sqldb.SQLite {
			return // has one statement for both
		}
		shapes := schema{"made": newShape("g"), "given": newShape("g")}
		if err := rowsOf(db, shapes).prepare(t.Context(), "made_r00001"); err != nil {
			t.Fatal(err)
		}
		if err := rowsOf(db, nil).prepare(t.Context(), "given_r00001"); err != nil {
			t.Fatal(err)
		}
		if err := (adapter{db, shapes}).adapt(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"made_r00001", "given_r00001"} {
			columns := cell(t, d, 0, "SELECT GROUP_CONCAT(column_name ORDER BY seq_in_index) FROM information_schema.statistics "+
				"WHERE table_schema = DATABASE() AND index_name = 'by_group' AND table_name = '"+table+"'")
			if columns != "group_key,id,expires_at" {
				t.Errorf("%s is indexed by %s", table, columns)
			}
			if n, err := rowsOf(db, shapes).count(context.Background(), table, "g"); n != 0 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
	})
}
