package typed

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func parse(t testing.TB, text string) Type {
	t.Helper()
	typ, err := ParseType(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return typ
}

func TestParseType(t *testing.T) {
	for text, want := range map[string]string{
		"BOOL": "bool", "boolean": "bool", "TinyInt": "tinyint", "int unsigned": "int unsigned", "INTEGER": "int", "BIGINT UNSIGNED": "bigint unsigned",
		"decimal": "decimal(10,0)", "numeric(5)": "decimal(5,0)", " DECIMAL( 10 , 2 ) ": "decimal(10,2)", "decimal(65,30)": "decimal(65,30)",
		"float": "double", "double": "double", "char(1)": "char(1)", "varchar (16383)": "varchar(16383)", "mediumtext": "mediumtext",
		"date": "date", "time": "time", "time(6)": "time(6)", "DATETIME(6)": "datetime(6)", "datetime(0)": "datetime", "timestamp(3)": "timestamp(3)",
		"binary(255)": "binary(255)", "varbinary(65533)": "varbinary(65533)", "blob": "blob", "json": "json",
	} {
		if got, err := ParseType(text); err != nil || got.String() != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "is no type such as", "enum('a')": "is no type such as", "point": "is no type that", "varchar": "needs its length", "varchar(0)": "varchar(1) to",
		"varchar(16384)": "varchar(16383)", "char(256)": "char(255)", "decimal(66,0)": "decimal(p,s)", "decimal(5,6)": "decimal(p,s)", "decimal(40,31)": "decimal(p,s)",
		"int(11)": "parentheses", "date(1)": "parentheses", "time(7)": "time(6)", "float unsigned": "only integers", "decimal(5,2) unsigned": "only integers",
		"text(9)": "parentheses", "varchar(5,5)": "parentheses", "varchar(99999)": "must be varchar", "int; drop table t": "is no type such as", "int`": "is no type such as", "bigint unsigned zerofill": "is no type such as",
	} {
		if _, err := ParseType(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// allTypes are one or more of each family.
var allTypes = []string{
	"bool", "tinyint", "tinyint unsigned", "smallint", "smallint unsigned", "mediumint", "mediumint unsigned", "int", "int unsigned", "bigint", "bigint unsigned",
	"decimal(10,2)", "decimal(65,30)", "decimal(1,1)", "decimal(65,0)", "double", "char(3)", "varchar(5)", "tinytext", "text", "mediumtext", "longtext",
	"date", "time", "time(6)", "datetime", "datetime(6)", "timestamp", "timestamp(6)", "binary(4)", "varbinary(4)", "tinyblob", "blob", "mediumblob", "longblob", "json",
}

// values are JSON values of a type, each with what comes back, or with the complaint after a "!".
var values = map[string]map[string]string{
	"bool":              {"true": "true", "false": "false", "1": "!true or false", `"true"`: "!true or false"},
	"tinyint":           {"-128": "-128", "127": "127", "128": "!from -128 to 127", "-129": "!from", "1e2": "100", "1.0": "1", "1.5": "!integer", "true": "!a number", `"1"`: "!a number", "-0": "0"},
	"tinyint unsigned":  {"255": "255", "256": "!from 0 to 255", "-1": "!from"},
	"mediumint":         {"-8388608": "-8388608", "8388607": "8388607", "8388608": "!from"},
	"bigint":            {"9223372036854775807": "9223372036854775807", "-9223372036854775808": "-9223372036854775808", "9223372036854775808": "!from", "9007199254740993": "9007199254740993", "1e999999999999999999999": "!from", "1e-999999999999999999999": "!integer", "0e999999999999999999999": "0"},
	"bigint unsigned":   {"18446744073709551615": "18446744073709551615", "18446744073709551616": "!from 0 to", "-1": "!from", "0.0": "0", "-0": "0"},
	"decimal(10,2)":     {"12.5": "12.50", "-0.01": "-0.01", "99999999.99": "99999999.99", "1e2": "100.00", "1.25e1": "12.50", "100000000": "!8 digits before", "0.001": "!2 digits after", "0.10000": "0.10", "-0": "0.00", "0.00e9": "0.00", `"1"`: "!a number", "5E-2": "0.05"},
	"decimal(65,30)":    {"12345678901234567890123456789012345.123456789012345678901234567891": "12345678901234567890123456789012345.123456789012345678901234567891", "1e34": "10000000000000000000000000000000000.000000000000000000000000000000"},
	"decimal(1,1)":      {"0.9": "0.9", "1": "!0 digits before", "0": "0.0", "1e-1": "0.1"},
	"double":            {"0.1": "0.1", "1e-07": "1e-7", "1.5e-10": "1.5e-10", "1.7976931348623157e308": "1.7976931348623157e+308", "5e-324": "5e-324", "1e400": "!range", "9007199254740993": "!more digits", "0.30000000000000004": "0.30000000000000004", "-0.0": "0", "1e-400": "!more digits", "100": "100", "1e21": "1e+21", "123456789012345680000": "123456789012345680000"},
	"char(3)":           {`"abc"`: `"abc"`, `"abcd"`: "!4 characters", `"äöü"`: `"äöü"`, `"ab "`: "!end with a space", `""`: `""`, `" a"`: `" a"`},
	"varchar(5)":        {`"a b  "`: `"a b  "`, `"😀😀😀😀😀"`: `"😀😀😀😀😀"`, `"123456"`: "!6 characters", `"\u00e9\n\"\\"`: `"é\n\"\\"`, `"\u0000"`: `"\u0000"`, "1": "!a string", "{}": "!a string"},
	"tinytext":          {`"` + strings.Repeat("é", 128) + `"`: "!256 bytes, at most 255"},
	"date":              {`"2026-02-28"`: `"2026-02-28"`, `"2026-02-30"`: "!date", `"0999-12-31"`: "!year", `"9999-12-31"`: `"9999-12-31"`, `"26-1-1"`: "!date", `"2026-02-28T00:00:00Z"`: "!date", `"1000-01-01"`: `"1000-01-01"`, `"2024-02-29"`: `"2024-02-29"`},
	"time":              {`"838:59:59"`: `"838:59:59"`, `"-838:59:59"`: `"-838:59:59"`, `"839:00:00"`: "!838", `"00:00:00"`: `"00:00:00"`, `"-00:00:00"`: `"00:00:00"`, `"12:60:00"`: "!a time", `"1:00:00"`: "!a time", `"012:00:00"`: `"12:00:00"`, `"12:00:00.0"`: `"12:00:00"`, `"12:00:00.1"`: "!0 digits"},
	"time(6)":           {`"838:59:59.000001"`: "!838", `"12:00:00.5"`: `"12:00:00.500000"`, `"-00:00:00.000001"`: `"-00:00:00.000001"`, `"12:00:00.1234567"`: "!6 digits"},
	"datetime":          {`"2026-03-01T12:00:00Z"`: `"2026-03-01T12:00:00Z"`, `"2026-03-01T12:00:00.5Z"`: "!0 digits"},
	"datetime(6)":       {`"2026-03-01T12:00:00.123456Z"`: `"2026-03-01T12:00:00.123456Z"`, `"2026-03-01T12:00:00+02:00"`: `"2026-03-01T10:00:00.000000Z"`, `"2026-03-01T12:00:00.1234567Z"`: "!6 digits", `"2026-03-01T12:00:00.1234560Z"`: `"2026-03-01T12:00:00.123456Z"`, `"9999-12-31T23:59:59.999999Z"`: `"9999-12-31T23:59:59.999999Z"`, `"1000-01-01T00:00:00Z"`: `"1000-01-01T00:00:00.000000Z"`, `"1000-01-01T00:00:00+01:00"`: "!years 1000", `"9999-12-31T23:59:59-01:00"`: "!years", `"2026-03-01 12:00:00Z"`: "!RFC 3339", `"2026-03-01T12:00:00"`: "!RFC 3339", `"2026-03-01T24:00:00Z"`: "!exists", `"2026-06-30T23:59:60Z"`: "!exists", `"2026-03-01T1:00:00Z"`: "!RFC 3339", `"2026-03-01T12:00:00,5Z"`: "!RFC 3339", "5": "!a string"},
	"timestamp":         {`"1970-01-01T00:00:01Z"`: `"1970-01-01T00:00:01Z"`, `"1970-01-01T00:00:00Z"`: "!from 1970", `"2038-01-19T03:14:07Z"`: `"2038-01-19T03:14:07Z"`, `"2038-01-19T03:14:08Z"`: "!from 1970"},
	"timestamp(6)":      {`"2038-01-19T03:14:07.000001Z"`: "!from 1970", `"2038-01-19T03:14:06.999999Z"`: `"2038-01-19T03:14:06.999999Z"`},
	"binary(4)":         {`"AAECAw=="`: `"AAECAw=="`, `"AAAAAA=="`: `"AAAAAA=="`, `"AAEC"`: "!exactly 4", `""`: "!exactly"},
	"varbinary(4)":      {`""`: `""`, `"AAEC"`: `"AAEC"`, `"AAECAwQ="`: "!5 bytes", `"AAEC\n"`: "!base64", `"AAE"`: "!base64", `"AB=="`: "!base64", `"_w=="`: "!base64", `"/w=="`: `"/w=="`},
	"json":              {`{"b":1,"a":[1.10,1e5]}`: `{"b":1,"a":[1.10,1e5]}`, `"x"`: `"x"`, "18446744073709551616": "18446744073709551616", `{ "b" : 1 }`: `{ "b" : 1 }`},
	"smallint":          {"32767": "32767", "-32768": "-32768"},
	"smallint unsigned": {"65535": "65535"},
	"int":               {"2147483647": "2147483647", "-2147483648": "-2147483648", "2147483648": "!from"},
	"int unsigned":      {"4294967295": "4294967295"},
}

func TestCodec(t *testing.T) {
	for text, cases := range values {
		typ := parse(t, text)
		for value, want := range cases {
			cell, err := typ.Encode([]byte(value))
			if complaint, refused := strings.CutPrefix(want, "!"); refused {
				if err == nil || !strings.Contains(err.Error(), complaint) {
					t.Errorf("%s %s: %v, want %s", text, value, err, complaint)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s %s: %v", text, value, err)
				continue
			}
			if got, err := typ.Decode(nil, cell); err != nil || string(got) != want {
				t.Errorf("%s %s: %s, %v; want %s", text, value, got, err, want)
			}
			again, err := typ.Encode([]byte(want))
			if err != nil || fmt.Sprint(again) != fmt.Sprint(cell) {
				t.Errorf("%s %s: what it came back as is stored as %v, %v; not as %v", text, value, again, err, cell)
			}
		}
	}
}

// TestDecodeForeign: what no gateway can have stored is an error.
func TestDecodeForeign(t *testing.T) {
	for text, cells := range map[string][]any{
		"bool": {int64(2), int64(-1), "x", 0.5}, "int": {"12", 1.5, time.Now(), true}, "bigint unsigned": {"-1", "1.5", int64(-1), "18446744073709551616"},
		"decimal(10,2)": {"1.234", "x", "", "1e999999999", int64(1), "NaN", ".5", "+1"}, "double": {"1", int64(1)},
		"varchar(5)": {"\xff", int64(1)}, "json": {"{", "{} {}", "", `{"a":1,"a":2}`}, "date": {"2026-02-30", "x", "2026-02-28 00:00:00", time.Time{}, time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)},
		"datetime": {"x", "2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01 00:00:00.5", time.Time{}, time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC), int64(5)},
		"time":     {"x", "24", "12:00:00.5"}, "varbinary(4)": {"x", int64(1)},
	} {
		for _, cell := range cells {
			if got, err := parse(t, text).Decode([]byte("..."), cell); err == nil {
				t.Errorf("%s: %v was read as %s", text, cell, got)
			}
		}
	}
}

// TestDecodeWider: a column that was made wider while gateways run is read by those that do not know.
func TestDecodeWider(t *testing.T) {
	for text, cell := range map[string]any{"varchar(2)": "abc", "tinyint": int64(1 << 40), "decimal(3,2)": "12345.00", "binary(2)": []byte("abc"), "int unsigned": uint64(1 << 40)} {
		if _, err := parse(t, text).Decode(nil, cell); err != nil {
			t.Errorf("%s: %v: %v", text, cell, err)
		}
	}
}

func TestDefault(t *testing.T) {
	for text, cases := range map[string]map[string]string{
		"varchar(9)":    {"none": "none", "7": "7", "too long text": "!characters"},
		"decimal(10,2)": {"0": "0.00", "1.5": "1.50", "x": "!JSON", " 1": "!JSON", "null": "!JSON", "1 2": "!JSON"},
		"bool":          {"true": "1", "yes": "!JSON"},
		"json":          {`{"a":1}`: `{"a":1}`, "{": "!JSON"},
		"date":          {"2026-01-01": "2026-01-01", "today": "!date"},
	} {
		for value, want := range cases {
			cell, err := parse(t, text).Default(value)
			if complaint, refused := strings.CutPrefix(want, "!"); refused {
				if err == nil || !strings.Contains(err.Error(), complaint) {
					t.Errorf("%s %q: %v, want %s", text, value, err, complaint)
				}
			} else if err != nil || fmt.Sprint(cell) != want {
				t.Errorf("%s %q: %v, %v", text, value, cell, err)
			}
		}
	}
}

// TestHolds: which columns of a table do for which types of config.
func TestHolds(t *testing.T) {
	for _, c := range []struct {
		stored, wanted string
		holds, alike   bool
	}{
		{"varchar(200)", "varchar(20)", true, true}, {"varchar(20)", "varchar(200)", false, true}, {"bigint", "int", true, true}, {"int", "bigint", false, true},
		{"int", "int unsigned", false, true}, {"bigint", "int unsigned", true, true}, {"bigint unsigned", "bigint", false, false}, {"decimal(12,2)", "decimal(10,2)", true, true},
		{"decimal(12,4)", "decimal(10,2)", false, false}, {"char(9)", "varchar(9)", false, true}, {"varchar(9)", "char(9)", true, true}, {"text", "varchar(16383)", true, true},
		{"tinytext", "varchar(100)", false, true}, {"longtext", "json", false, false}, {"json", "longtext", false, false}, {"bool", "tinyint", false, false}, {"tinyint", "bool", false, false},
		{"datetime(6)", "datetime(3)", false, false}, {"datetime", "timestamp", false, false}, {"varbinary(9)", "binary(9)", true, true}, {"binary(9)", "varbinary(9)", false, true},
		{"blob", "varbinary(65533)", true, true}, {"text", "blob", false, false}, {"double", "decimal(5,2)", false, false}, {"bigint", "bigint", true, true},
	} {
		stored, wanted := parse(t, c.stored), parse(t, c.wanted)
		if got := stored.Holds(wanted); got != c.holds {
			t.Errorf("%s holds %s: %v", stored, wanted, got)
		}
		if got := stored.StoredAlike(wanted); got != c.alike {
			t.Errorf("%s stored as %s: %v", stored, wanted, got)
		}
	}
	for _, text := range allTypes {
		typ := parse(t, text)
		if got := FromSQLite(typ.SQLite()); got.Type != typ || !got.Marked {
			t.Errorf("%s is %q in SQLite, which is read as %+v", text, typ.SQLite(), got)
		}
	}
	if got := FromSQLite("TEXT"); got.Marked || got.Type != (Type{}) {
		t.Errorf("a foreign column is %+v", got)
	}
}

func TestCheckWidth(t *testing.T) {
	many := func(n int, text string) (all []Type) {
		for range n {
			all = append(all, parse(t, text))
		}
		return all
	}
	for _, c := range []struct {
		types []Type
		want  string
	}{
		{many(200, "bigint"), ""}, {many(1, "varchar(16000)"), ""}, {many(4, "varchar(16000)"), "MySQL takes 65535"}, {many(200, "text"), "too many columns of text"}, {many(150, "text"), ""},
	} {
		if err := CheckWidth(c.types, 1000, 300); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d of %s: %v, want %q", len(c.types), c.types[0], err, c.want)
		}
	}
}

func testLayout(t testing.TB, keep bool) *Layout {
	return NewLayout("id", []Column{
		{Member: "total", Name: "total", Type: parse(t, "decimal(10,2)"), Required: true},
		{Member: "note", Name: "note", Type: parse(t, "varchar(200)"), Default: "none"},
		{Member: "st\"ate", Name: "order_state", Type: parse(t, "bool")},
		{Member: "data", Name: "data", Type: parse(t, "json")},
	}, keep)
}

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		keep           bool
		document, want string
		rest           string
	}{
		{false, `{"id":"k","total":5}`, `{"id":"k","total":5.00,"note":"none"}`, "{}"},
		{false, `{"data": {"x" : null} , "st\"ate":true,"note":"n","total":1e1}`, `{"id":"k","total":10.00,"note":"n","st\"ate":true,"data":{"x" : null}}`, "{}"},
		{false, `{"total":1,"note":null,"data":null}`, `{"id":"k","total":1.00,"note":"none"}`, "{}"},
		{false, `{"t\u006ftal":1}`, `{"id":"k","total":1.00,"note":"none"}`, "{}"},
		{true, `{"b":[1, 2],"total":1,"\u0061":null,"id":"k"}`, `{"id":"k","total":1.00,"note":"none","b":[1, 2],"\u0061":null}`, `{"b":[1, 2],"\u0061":null}`},
		{false, `{"total":1,"b":2}`, `!member "b" has no column`, ""},
		{false, `{"note":"n"}`, `!member "total" is required`, ""},
		{false, `{"total":null}`, `!member "total" is required`, ""},
		{false, `{"total":"secret"}`, `!member "total" must be a number`, ""},
		{false, `{"` + strings.Repeat("x", 200) + `":1}`, `!member "` + strings.Repeat("x", 64) + `..." has no`, ""},
	} {
		l := testLayout(t, c.keep)
		r, err := l.Split([]byte(c.document))
		if complaint, refused := strings.CutPrefix(c.want, "!"); refused {
			var member *MemberError
			if !errors.As(err, &member) || !strings.Contains(err.Error(), complaint) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v, want %s", c.document, err, complaint)
			}
			continue
		}
		if err != nil || string(r.Rest) != c.rest {
			t.Errorf("%s: %s, %v", c.document, r.Rest, err)
			continue
		}
		if got, err := l.Join("k", r); err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v; want %s", c.document, got, err, c.want)
		}
	}
}

// TestJoin: members without a column that were stored before their column was declared are read, and what no gateway has
// written is an error.
func TestJoin(t *testing.T) {
	l := testLayout(t, false)
	for _, c := range []struct {
		rest  string
		cells []any
		want  string
	}{
		{`{"note":"old","more":1}`, []any{"1.00", "stale", nil, nil}, `{"id":"k","total":1.00,"note":"old","more":1}`},
		{` { "more" : 1 } `, []any{nil, nil, nil, nil}, `{"id":"k","more" : 1}`},
		{`{"id":"k","total":1}`, []any{nil, nil, nil, nil}, "!the key is among"},
		{``, []any{nil, nil, nil, nil}, "!not one JSON object"},
		{`[]`, []any{nil, nil, nil, nil}, "!not one JSON object"},
		{`{}x`, []any{nil, nil, nil, nil}, "!not one JSON object"},
		{`{"a":1`, []any{nil, nil, nil, nil}, "!not one JSON object"},
		{`{}`, []any{"abc", nil, nil, nil}, "!column total"},
		{`{}`, []any{nil}, "!1 cells"},
	} {
		got, err := l.Join("k", Row{c.cells, []byte(c.rest)})
		if complaint, refused := strings.CutPrefix(c.want, "!"); refused {
			if err == nil || !strings.Contains(err.Error(), complaint) {
				t.Errorf("%s: %s, %v; want %s", c.rest, got, err, complaint)
			}
		} else if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v; want %s", c.rest, got, err, c.want)
		}
	}
}

// FuzzCodec: what is taken comes back, is taken again as the same, and is the same number if it is one.
func FuzzCodec(f *testing.F) {
	for text, cases := range values {
		for value := range cases {
			for i, name := range allTypes {
				if name == text {
					f.Add(uint8(i), []byte(value))
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, value []byte) {
		typ := parse(t, allTypes[int(which)%len(allTypes)])
		l := NewLayout("key", []Column{{Member: "v", Name: "v", Type: typ}}, true)
		document := slicesConcat(`{"key":"k","v":`, value, `}`)
		r, err := l.Split(document)
		if err != nil {
			return
		}
		joined, err := l.Join("k", r)
		if err != nil {
			t.Fatalf("%s %s: cannot be read again: %v", typ, value, err)
		}
		again, err := l.Split(joined)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(r) {
			t.Fatalf("%s %s: stored as %v, then as %v, %v", typ, value, r, again, err)
		}
		for i, cell := range r.Cells { // as MySQL's driver reads it
			if text, ok := cell.(string); ok {
				r.Cells[i] = []byte(text)
			}
		}
		if read, err := l.Join("k", r); err != nil || !bytes.Equal(read, joined) {
			t.Fatalf("%s %s: read as bytes: %s, %v; want %s", typ, value, read, err, joined)
		}
		if want, ok := parseDecimal(bytes.TrimSpace(value)); ok && typ.kind <= kindDouble && typ.kind != kindBool && r.Cells[0] != nil {
			shown := bytes.TrimSuffix(bytes.TrimPrefix(joined, []byte(`{"key":"k","v":`)), []byte("}"))
			if got, ok := parseDecimal(shown); !ok || !got.equal(want) {
				t.Fatalf("%s %s: came back as %s", typ, value, shown)
			}
		}
	})
}

func slicesConcat(before string, value []byte, after string) []byte {
	return append(append([]byte(before), value...), after...)
}

// FuzzJoin: whatever is stored, reading it ends with a document or an error.
func FuzzJoin(f *testing.F) {
	f.Add(`{"a":1}`, "1.00", "note", `{}`)
	f.Add(`{"note":1}`, "x", "\xff", `[`)
	l := testLayout(f, true)
	f.Fuzz(func(t *testing.T, rest, total, note, data string) {
		document, err := l.Join("k", Row{[]any{total, note, nil, data}, []byte(rest)})
		if err != nil {
			return
		}
		if err := each(document, func(_, _, _ []byte) error { return nil }); err != nil {
			t.Fatalf("%q %q %q %q: made %s", rest, total, note, data, document)
		}
	})
}
