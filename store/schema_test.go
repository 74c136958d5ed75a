package store

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"keyrange/store/sqldb"
	"keyrange/store/typed"
)

// tableTexts is how the range tables of all nodes are made, and what they hold.
func (d deployment) tableTexts(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, url := range d.Nodes {
		db, err := sqldb.Open(t.Context(), url, sqldb.Options{})
		if err != nil {
			t.Fatal(err)
		}
		tables, err := adapter{db, nil}.columns(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&text, tables)
		db.Close()
	}
	return text.String() + fmt.Sprint(d.allRows(t))
}

// TestSchemaRefused: a node whose tables cannot serve the columns of config is refused, with the table and the column named,
// and nothing is changed.
func TestSchemaRefused(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Columns, d.Size, d.Ranges = columnsOf(t, "total decimal(10,2)", "note varchar(20)", "n int", "at datetime(6)", "data json"), 10, []string{"1,3", "2"}
		s := d.open(t)
		for i := range 25 { // three tables on two nodes
			if _, err := s.Create(t.Context(), testCollection, fmt.Sprint("k", i), Content{Document: []byte(`{"total":1}`)}); err != nil {
				t.Fatal(err)
			}
		}
		s.shut(t)
		before := d.tableTexts(t)
		embedded := strings.HasPrefix(d.Nodes[0], "sqlite:")
		change := func(i int, text string) []typed.Column {
			all := append([]typed.Column{}, d.Columns...)
			all[i] = columnsOf(t, text)[0]
			return all
		}
		for name, c := range map[string]struct {
			columns []typed.Column
			words   []string
			// elastic: SQLite does not mind, because nothing that it stores is bounded.
			elastic bool
		}{
			"dropped":               {d.Columns[1:], []string{"records_r00001", "records_r00002", "records_r00003", "c_total", "does not declare", "DROP COLUMN `c_total`"}, false},
			"all dropped":           {nil, []string{"c_total", "c_data"}, false},
			"renamed":               {change(1, "remark varchar(20)"), []string{"c_note", "does not declare"}, false},
			"changed":               {change(2, "n varchar(20)"), []string{"records_r00002", "c_n as int", "declares varchar(20)", "can not change"}, false},
			"other scale":           {change(0, "total decimal(12,3)"), []string{"c_total as decimal(10,2)", "decimal(12,3)", "can not change"}, false},
			"fewer fractions":       {change(3, "at datetime(3)"), []string{"c_at as datetime(6)", "can not change"}, false},
			"json as text":          {change(4, "data longtext"), []string{"c_data as json", "longtext", "can not change"}, false},
			"wider text":            {change(1, "note varchar(200)"), []string{"to widen it", "MODIFY COLUMN `c_note` VARCHAR(200)"}, true},
			"wider number":          {change(2, "n bigint"), []string{"to widen it", "MODIFY COLUMN `c_n` BIGINT"}, true},
			"dropped and one added": {append(columnsOf(t, "new int"), d.Columns[1:]...), []string{"c_total"}, false},
		} {
			with := d
			with.Columns = c.columns
			o, err := with.try(t.Context(), &bytes.Buffer{})
			if err == nil {
				o.shut(t)
			}
			if c.elastic && embedded {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			for _, word := range c.words {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("%s: no %q in: %v", name, word, err)
				}
			}
		}
		if after := d.tableTexts(t); after != before {
			t.Errorf("refused starts changed\n%s\nto\n%s", before, after)
		}
		if embedded {
			return
		}
		// A column that was made wider by hand does for both configs.
		for _, url := range d.Nodes {
			db, err := sqldb.Open(t.Context(), url, sqldb.Options{})
			if err != nil {
				t.Fatal(err)
			}
			tables, err := adapter{db, nil}.columns(t.Context(), "")
			for table := range tables {
				if err == nil {
					_, err = db.Exec(t.Context(), fmt.Sprintf("ALTER TABLE %s MODIFY COLUMN c_note %s", table, columnsOf(t, "note varchar(200)")[0].Type.MySQL()))
				}
			}
			if db.Close(); err != nil {
				t.Fatal(err)
			}
		}
		d.open(t)
		d.Columns = change(1, "note varchar(200)")
		d.open(t)
	})
}

// TestSchemaFirstColumns: a collection with whole documents gets no columns, an empty one does.
func TestSchemaFirstColumns(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s := d.open(t)
		if _, err := s.Create(t.Context(), testCollection, "k", doc("x")); err != nil {
			t.Fatal(err)
		}
		s.shut(t)
		with := d
		with.Columns = columnsOf(t, "v varchar(9)")
		if _, err := with.try(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "records_r00001 holds records as whole documents") {
			t.Errorf("with a record: %v", err)
		}
		s = d.open(t)
		wantDocument(t, s, "k", doc("x").Document)
		if err := s.Delete(t.Context(), testCollection, "k", Condition{}); err != nil {
			t.Fatal(err)
		}
		s.shut(t)
		s = with.open(t)
		if _, err := s.Create(t.Context(), testCollection, "k", doc("y")); err != nil {
			t.Fatal(err)
		}
		wantDocument(t, s, "k", []byte(`{"key":"k","v":"y"}`))
	})
}

// TestSchemaGrowsOnline: a second gateway adds columns to all tables, with records on two nodes, while one without them
// serves; tables that the older one makes later get the columns too.
func TestSchemaGrowsOnline(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Columns, d.KeepUnknown, d.Size, d.Ranges = columnsOf(t, "total decimal(10,2)"), true, 20, []string{"1,3,5", "2,4,6"}
		old := d.open(t)
		create := func(s *opened, key, members string) {
			if _, err := s.Create(t.Context(), testCollection, key, Content{Document: []byte(`{` + members + `}`)}); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
		for i := range 30 {
			create(old, fmt.Sprint("before", i), `"total":1,"late":"was here"`)
		}
		serving, stop := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		served := 0
		clients.Go(func() {
			for ; serving.Err() == nil; served++ {
				key := fmt.Sprint("before", served%30)
				if _, _, err := old.Put(t.Context(), testCollection, key, Content{Document: []byte(`{"total":2,"late":"was here"}`)}, Condition{}); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
		})
		d.Columns = append(d.Columns, columnsOf(t, "late varchar(20)", "needed int", "preset int")...)
		d.Columns[2].Required, d.Columns[3].Default = true, int64(7)
		next := d.open(t)
		stop()
		clients.Wait()
		if served == 0 {
			t.Error("nothing was served meanwhile")
		}
		// What was kept beside the columns before is still a member, and rows without new columns are read as they are.
		for i := range 30 {
			wantDocument(t, next, fmt.Sprint("before", i), []byte(fmt.Sprintf(`{"key":"before%d","total":%d.00,"late":"was here"}`, i, min(2, 1+served/(i+1)))))
		}
		create(next, "after", `"total":3,"late":"l","needed":1`)
		wantDocument(t, next, "after", []byte(`{"key":"after","total":3.00,"late":"l","needed":1,"preset":7}`))
		wantDocument(t, old, "after", []byte(`{"key":"after","total":3.00}`)) // what it does not know it does not show
		if _, _, err := old.Put(t.Context(), testCollection, "after", Content{Document: []byte(`{"total":4,"late":"newer"}`)}, Condition{}); err != nil {
			t.Error(err)
		}
		wantDocument(t, next, "after", []byte(`{"key":"after","total":4.00,"needed":1,"preset":7,"late":"newer"}`))
		// The older gateway opens ranges 3 to 6.
		for i := range 60 {
			create(old, fmt.Sprint("older", i), `"total":5`)
		}
		if page, err := next.List(t.Context(), testCollection, Walk{Limit: 200, MaxBytes: 1 << 20}); err != nil || len(page.Records) != 91 {
			t.Errorf("listed %d records, %v", len(page.Records), err)
		}
		for i := range 60 {
			key := fmt.Sprint("older", i)
			wantDocument(t, next, key, []byte(fmt.Sprintf(`{"key":%q,"total":5.00}`, key)))
			if _, _, err := next.Put(t.Context(), testCollection, key, Content{Document: []byte(`{"total":6,"needed":2}`)}, Condition{}); err != nil {
				t.Error(err)
			}
			wantDocument(t, next, key, []byte(fmt.Sprintf(`{"key":%q,"total":6.00,"needed":2,"preset":7}`, key)))
		}
		d.checkInvariants(t, next)
		// An older gateway does not come back.
		d.Columns = d.Columns[:1]
		if _, err := d.try(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "c_late") {
			t.Errorf("an older gateway was started again: %v", err)
		}
	})
}
