package store

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"keyrange/store/sqldb"
	"keyrange/store/typed"
)

// columnsOf makes columns of texts such as "total decimal(10,2)".
func columnsOf(t testing.TB, texts ...string) (all []typed.Column) {
	t.Helper()
	for _, text := range texts {
		name, typeText, _ := strings.Cut(text, " ")
		typ, err := typed.ParseType(typeText)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		all = append(all, typed.Column{Member: name, Name: "c_" + name, Type: typ})
	}
	return all
}

// oneOfEach has a column of each family of types, named after it.
func oneOfEach(t testing.TB) []typed.Column {
	return columnsOf(t, "bool bool", "tiny tinyint", "utiny tinyint unsigned", "small smallint", "usmall smallint unsigned", "medium mediumint", "umedium mediumint unsigned",
		"int int", "uint int unsigned", "big bigint", "ubig bigint unsigned", "dec decimal(10,2)", "wide decimal(65,30)", "double double", "char char(3)", "varchar varchar(200)",
		"tinytext tinytext", "text text", "mediumtext mediumtext", "longtext longtext", "date date", "time time", "time6 time(6)", "datetime datetime", "datetime6 datetime(6)",
		"timestamp timestamp", "timestamp6 timestamp(6)", "binary binary(4)", "varbinary varbinary(300)", "tinyblob tinyblob", "blob blob", "mediumblob mediumblob", "longblob longblob", "json json")
}

// extremes are documents of oneOfEach without their key, in the form that they come back in.
var extremes = []string{
	`"bool":true,"tiny":-128,"utiny":255,"small":-32768,"usmall":65535,"medium":-8388608,"umedium":16777215,"int":-2147483648,"uint":4294967295,"big":-9223372036854775808,` +
		`"ubig":18446744073709551615,"dec":-99999999.99,"wide":-99999999999999999999999999999999999.999999999999999999999999999999,"double":-1.7976931348623157e+308,"char":"äö😀","varchar":"  a'\"\\\u0000\n😀 é é  ",` +
		`"tinytext":"t ","text":"%_;--","mediumtext":"` + strings.Repeat("ß", 70_000) + `","longtext":"\u0000","date":"1000-01-01","time":"-838:59:59","time6":"-838:59:58.999999","datetime":"1000-01-01T00:00:00Z","datetime6":"1000-01-01T00:00:00.000001Z",` +
		`"timestamp":"1970-01-01T00:00:01Z","timestamp6":"1970-01-01T00:00:01.000001Z","binary":"AAECAw==","varbinary":"` + strings.Repeat("AAAA", 100) + `","tinyblob":"/w==","blob":"AA==","mediumblob":"Jw==","longblob":"XA==","json":{"b":18446744073709551616,"a":[1.10,1e400,"\u0041"]}`,
	`"bool":false,"tiny":127,"utiny":0,"small":32767,"usmall":0,"medium":8388607,"umedium":0,"int":2147483647,"uint":0,"big":9223372036854775807,` +
		`"ubig":0,"dec":99999999.99,"wide":99999999999999999999999999999999999.999999999999999999999999999999,"double":5e-324,"char":"","varchar":"",` +
		`"tinytext":"","text":"","mediumtext":"","longtext":"","date":"9999-12-31","time":"838:59:59","time6":"838:59:59.000000","datetime":"9999-12-31T23:59:59Z","datetime6":"9999-12-31T23:59:59.999999Z",` +
		`"timestamp":"2038-01-19T03:14:07Z","timestamp6":"2038-01-19T03:14:06.999999Z","binary":"AAAAAA==","varbinary":"","tinyblob":"","blob":"","mediumblob":"","longblob":"","json":[]`,
	`"bool":true,"tiny":0,"big":9007199254740993,"ubig":9223372036854775808,"dec":0.10,"wide":0.000000000000000000000000000001,"double":0.30000000000000004,"date":"2024-02-29","time":"00:00:00","time6":"-00:00:00.000001","json":"text"`,
	`"dec":-0.01,"double":1.7976931348623157e+308,"json":0`,
	`"wide":0.000000000000000000000000000000,"double":123456789012345680000`,
	`"double":0.1`, `"double":2.2250738585072014e-308`, `"double":-1e-7`, `"double":16777217`, `"double":9007199254740992`, `"double":1e+21`, `"double":0`,
}

// TestColumnsRoundTrip: the extreme values of all types come back the same from each engine, after a create and after an update.
func TestColumnsRoundTrip(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Columns = oneOfEach(t)
		s := d.open(t)
		for i, members := range extremes {
			key := fmt.Sprintf("k%d", i)
			want := fmt.Sprintf(`{"key":%q,%s}`, key, members)
			rec, err := s.Create(t.Context(), testCollection, key, Content{Document: []byte(want)})
			if err != nil {
				t.Fatalf("%.200s: %v", want, err)
			}
			if string(rec.Document) != want {
				t.Errorf("created\n%.3000s\nwant\n%.3000s", rec.Document, want)
			}
			wantDocument(t, s, key, []byte(want))
		}
		for i := range extremes {
			key := "k0" // over the row with the longest values
			want := fmt.Sprintf(`{"key":%q,%s}`, key, extremes[i])
			rec, created, err := s.Put(t.Context(), testCollection, key, Content{Document: []byte(want)}, Condition{})
			if err != nil || created || string(rec.Document) != want {
				t.Errorf("put: %.200s, %v, %v", rec.Document, created, err)
			}
			wantDocument(t, s, key, []byte(want))
		}
		d.checkInvariants(t, s)
	})
}

// cell reads one value with SQL, as another tool would.
func cell(t *testing.T, d deployment, node int, query string) (value string) {
	t.Helper()
	db, err := sqldb.Open(t.Context(), d.Nodes[node], sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Query(t.Context(), func(r *sql.Rows) error { return r.Scan(&value) }, query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

// shop has the columns of a collection with all that config can say.
func shop(t testing.TB) []typed.Column {
	columns := columnsOf(t, "total decimal(10,2)", "note varchar(20)", "state varchar(9)")
	columns[0].Required, columns[1].Default = true, "none"
	return columns
}

// TestColumnsQueryable: other tools see typed columns, with defaults filled in, and the rest of a document beside them.
func TestColumnsQueryable(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Columns, d.KeepUnknown = shop(t), true
		s := d.open(t)
		rec, err := s.Create(t.Context(), testCollection, "k", Content{Document: []byte(`{"more":{"x":[1, 2]},"total":12.5,"state":null,"key":"k"}`)})
		const want = `{"key":"k","total":12.50,"note":"none","more":{"x":[1, 2]}}`
		if err != nil || string(rec.Document) != want {
			t.Fatalf("created %s, %v", rec.Document, err)
		}
		wantDocument(t, s, "k", []byte(want))
		// What a write returned may be changed and written again.
		content := rec.Content
		content.Document = []byte(strings.Replace(want, "12.50", "13.00", 1))
		if rec, _, err = s.Put(t.Context(), testCollection, "k", content, Condition{}); err != nil || string(rec.Document) != string(content.Document) {
			t.Errorf("put %s, %v", rec.Document, err)
		}
		if _, _, err := s.Put(t.Context(), testCollection, "k", Content{Document: []byte(want)}, Condition{}); err != nil {
			t.Error(err)
		}
		for query, want := range map[string]string{
			"SELECT c_total FROM records_r00001": "12.50", "SELECT c_note FROM records_r00001 WHERE c_total = 12.5": "none",
			"SELECT document FROM records_r00001": `{"more":{"x":[1, 2]}}`, "SELECT COUNT(*) FROM records_r00001 WHERE c_state IS NULL": "1",
		} {
			if strings.Contains(query, "= 12.5") && strings.HasPrefix(d.Nodes[0], "sqlite:") {
				query = strings.Replace(query, "= 12.5", "+ 0 = 12.5", 1) // text, unless something is computed
			}
			if got := cell(t, d, 0, query); got != want {
				t.Errorf("%s: %q, want %q", query, got, want)
			}
		}
		live, bytes, err := s.topology.Load().nodes[0].rows.tally(t.Context(), "records_r00001", []span{{1, 1001}})
		if err != nil || live != 1 || bytes != int64(len(`k12.50none{"more":{"x":[1, 2]}}`)) {
			t.Errorf("counted %d records of %d bytes, %v", live, bytes, err)
		}
		// A repetition gets the first answer, though the document was sent in another form.
		sent := []byte(`{"total":1e0}`)
		once := NewOnce("attempt", testCollection, "r", sent)
		for i := range 2 {
			rec, replayed, err := s.CreateOnce(t.Context(), testCollection, "r", Content{Document: sent}, once)
			if err != nil || replayed != (i == 1) || string(rec.Document) != `{"key":"r","total":1.00,"note":"none"}` {
				t.Errorf("attempt %d: %s, %v, %v", i, rec.Document, replayed, err)
			}
		}
	})
}

// TestColumnsRefuse: what a column does not take is refused with its name, and nothing is written (I6).
func TestColumnsRefuse(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Columns = shop(t)
		s := d.open(t)
		for document, want := range map[string]string{
			`{"total":1,"more":2}`: `"more" has no column`,
			`{"note":"n"}`:         `"total" is required`,
			`{"total":"1"}`:        `"total" must be a number`,
			`{"total":1,"note":"` + strings.Repeat("secret", 9) + `"}`: `"note" has 54 characters`,
		} {
			for name, write := range map[string]func() error{
				"create": func() error {
					_, err := s.Create(t.Context(), testCollection, "k", Content{Document: []byte(document)})
					return err
				},
				"put": func() error {
					_, _, err := s.Put(t.Context(), testCollection, "k", Content{Document: []byte(document)}, Condition{})
					return err
				},
			} {
				err := write()
				if !errors.Is(err, ErrMember) || errors.Is(err, ErrUnavailable) || !strings.Contains(MemberOf(err), want) || strings.Contains(err.Error(), "secret") {
					t.Errorf("%s %.80s: %v, want %s", name, document, err, want)
				}
			}
		}
		if _, ok, err := s.find(t.Context(), testCollection, "k"); ok || err != nil || len(d.allRows(t)) > 0 {
			t.Errorf("a refused write left something: %v, %v, %v", ok, err, d.allRows(t))
		}
	})
}

// TestColumnsTooLarge: the columns of a row count like a document, together with the others of its statement.
func TestColumnsTooLarge(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Columns = columnsOf(t, "text longtext", "data longblob")
		s := d.open(t)
		s.topology.Load().maxDocument = 1 << 20
		third := int(s.MaxDocumentBytes()) / 3
		largest := fmt.Sprintf(`{"key":"k","text":%q,"data":%q}`, strings.Repeat("'", third), strings.Repeat("XFxc", third/4))
		if _, err := s.Create(t.Context(), testCollection, "k", Content{Document: []byte(largest)}); err != nil {
			t.Fatal(err)
		}
		wantDocument(t, s, "k", []byte(largest))
		over := fmt.Sprintf(`{"key":"k","text":%q}`, strings.Repeat("x", int(s.MaxDocumentBytes())-len(`{"key":"k","text":""}`)))
		if _, _, err := s.Put(t.Context(), testCollection, "k", Content{Document: []byte(over)}, Condition{}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("with %d bytes: %v", len(over), err)
		}
	})
	m := &mysqlRows{packetBytes: func() int64 { return 1 << 20 }}
	large := row{Content: Content{Document: []byte("{}")}, cells: []any{strings.Repeat("x", 200_000), make([]byte, 100_000)}}
	if n := m.fit([]row{large, large, large}, []int{0, 1, 2}); n != 1 {
		t.Errorf("%d rows of 600 kB as literals go in a statement of 1 MiB", n)
	}
}

// TestColumnsForeign: a row that somebody else has changed is an error of its own record, which can still be replaced.
func TestColumnsForeign(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Columns, d.KeepUnknown = columnsOf(t, "state varchar(9)", "data json"), true
		s := d.open(t)
		for _, key := range []string{"a", "b", "c"} {
			if _, err := s.Create(t.Context(), testCollection, key, Content{Document: fmt.Appendf(nil, `{"key":%q,"state":"s","data":1}`, key)}); err != nil {
				t.Fatal(err)
			}
		}
		db, err := sqldb.Open(t.Context(), d.Nodes[0], sqldb.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		exec := func(statement string, args ...any) {
			if _, err := db.Exec(t.Context(), statement, args...); err != nil {
				t.Fatal(err)
			}
		}
		exec("UPDATE records_r00001 SET c_data = '{' WHERE biz_key = ?", []byte("a"))
		exec(`UPDATE records_r00001 SET document = '{"key":"b"}' WHERE biz_key = ?`, []byte("b"))
		for _, key := range []string{"a", "b"} {
			if rec, err := s.Get(t.Context(), testCollection, key); !errors.Is(err, ErrUnreadable) || errors.Is(err, ErrUnavailable) {
				t.Errorf("%s: %s, %v", key, rec.Document, err)
			}
		}
		wantDocument(t, s, "c", []byte(`{"key":"c","state":"s","data":1}`))
		if _, _, err := s.Put(t.Context(), testCollection, "a", Content{Document: []byte(`{"data":2}`)}, Condition{}); err != nil {
			t.Error(err)
		}
		wantDocument(t, s, "a", []byte(`{"key":"a","data":2}`))
		if err := s.Delete(t.Context(), testCollection, "b", Condition{}); err != nil {
			t.Error(err)
		}
		// The column itself is gone.
		exec("ALTER TABLE records_r00001 DROP COLUMN c_data")
		if rec, err := s.Get(t.Context(), testCollection, "c"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("without its column: %s, %v", rec.Document, err)
		}
	})
}

// TestColumnsAtTheLimit: MySQL makes the largest tables that config takes, at once and by adding to one without columns.
func TestColumnsAtTheLimit(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		db, err := sqldb.Open(t.Context(), d.Nodes[0], sqldb.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if db.Engine() == sqldb.SQLite {
			return // it has no such limit
		}
		shapes := schema{}
		for i, text := range []string{"text", "varchar(85)", "char(20)", "binary(200)", "decimal(65,30)"} {
			var columns []typed.Column
			for len(columns) < 200 {
				next := slices.Concat(columns, columnsOf(t, fmt.Sprintf("x%d %s", len(columns), text)))
				if CheckColumns(next) != nil {
					break
				}
				columns = next
			}
			name := fmt.Sprintf("wide%d", i)
			shapes[name] = shapeOf(Collection{Name: name, Columns: columns})
			if err := rowsOf(db, shapes).prepare(t.Context(), name+"_r00001"); err != nil {
				t.Errorf("%d of %s: %v", len(columns), text, err)
			}
			if err := rowsOf(db, nil).prepare(t.Context(), name+"_r00002"); err != nil {
				t.Error(err)
			}
		}
		node := adapter{db, shapes}
		if err := errors.Join(node.check(t.Context()), node.adapt(t.Context()), node.check(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
