package handlers

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"keyrange/store"
)

// TestScanDocument: what is accepted comes back byte for byte, without the white space around it.
func TestScanDocument(t *testing.T) {
	for _, c := range []struct{ raw, text, key string }{
		{`{}`, `{}`, ""},
		{" \r\n\t{ \"a\" : 1 }\n ", `{ "a" : 1 }`, ""},
		{`{"n":18446744073709551615,"m":9007199254740993,"d":1.000,"e":1E+400}`, `{"n":18446744073709551615,"m":9007199254740993,"d":1.000,"e":1E+400}`, ""},
		{`{"z":1,"a":{"key":2,"z":[]},"key":"k"}`, `{"z":1,"a":{"key":2,"z":[]},"key":"k"}`, "k"},
		{`{"k\u0065y":"\u00e9\ud83d\ude00\"\\"}`, `{"k\u0065y":"\u00e9\ud83d\ude00\"\\"}`, "é😀\"\\"},
		{`{"":1,"Key":2}`, `{"":1,"Key":2}`, ""},
	} {
		before := strings.Clone(c.raw)
		doc, err := testScope.scan([]byte(c.raw))
		if err != nil || string(doc.text) != c.text || doc.key != c.key || doc.hasKey != (c.key != "") || c.raw != before {
			t.Errorf("%s: %q %q %t %v", c.raw, doc.text, doc.key, doc.hasKey, err)
		}
	}
	for raw, detail := range map[string]string{
		"":                          "the body is empty",
		`{"a":1,"b":{"a":1,"a":2}}`: "a member name is repeated at byte offset 18",
		`{"a":`:                     "the JSON ends too early, at byte offset 5",
		`{"a" 1}`:                   "at byte offset 5",
		`{"a":1} {`:                 "there is data after the object, from byte offset 7 on",
	} {
		_, err := testScope.scan([]byte(raw))
		if _, got := statusOf(err); !strings.Contains(got, detail) {
			t.Errorf("%s: %q, want %q", raw, got, detail)
		}
	}
}

// TestWithKey: the key is put first and all else stays.
func TestWithKey(t *testing.T) {
	for _, c := range []struct{ member, text, key, want string }{
		{"key", `{}`, "a", `{"key":"a"}`},
		{"key", "{ \n}", "a", "{\"key\":\"a\" \n}"},
		{"key", `{"b":1}`, "a", `{"key":"a","b":1}`},
		{"key", `{ "b":1 }`, "a\"\\\n<é\x7f", "{\"key\":\"a\\\"\\\\\\n<é\x7f\", \"b\":1 }"},
		{`or"der`, `{"b":1}`, "a", `{"or\"der":"a","b":1}`},
	} {
		of := &collection{opening: documentOpening(c.member)}
		if got := string(of.withKey(document{text: []byte(c.text)}, c.key)); got != c.want {
			t.Errorf("%s with %q: %s, want %s", c.text, c.key, got, c.want)
		}
	}
}

// FuzzDocument: what the scanner accepts is valid JSON to encoding/json too and is returned verbatim; with a key put in it
// is a valid document of that key.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{`{}`, ` {"key":"a"} `, `{"a":{"key":1},"b":[1e5,null,true]}`, `{"k\u0065y":"\ud83d\ude00"}`, `{"a":1}{"b":2}`, "{\"a\":\"\xff\"}"} {
		f.Add([]byte(seed), "some key")
	}
	of := &collection{opening: documentOpening("key")}
	f.Fuzz(func(t *testing.T, raw []byte, key string) {
		before := bytes.Clone(raw)
		doc, err := testScope.scan(raw)
		if !bytes.Equal(raw, before) {
			t.Fatalf("%q was changed to %q", before, raw)
		}
		if err != nil {
			if line, _ := statusOf(err); line.status != 400 {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if !bytes.Equal(doc.text, bytes.Trim(raw, jsonSpace)) {
			t.Fatalf("%q became %q", raw, doc.text)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(doc.text, &members); err != nil {
			t.Fatalf("%q is accepted: %v", raw, err)
		}
		if member, ok := members["key"]; ok != doc.hasKey || ok && !sameString(member, doc.key) {
			t.Fatalf("%q: key %q, member %q", raw, doc.key, member)
		}
		if doc.hasKey || store.CheckKey(key) != nil {
			return
		}
		whole := of.withKey(doc, key)
		again, err := testScope.scan(whole)
		if err != nil || again.key != key || !json.Valid(whole) || !bytes.HasSuffix(whole, doc.text[1:]) {
			t.Fatalf("%q with key %q: %q: %v", doc.text, key, whole, err)
		}
	})
}

// sameString tells whether a JSON text is the string s.
func sameString(text json.RawMessage, s string) bool {
	var got string
	return json.Unmarshal(text, &got) == nil && got == s
}

// BenchmarkScanDocument shows what the check costs per document; the copy is the least that any reading of it costs.
func BenchmarkScanDocument(b *testing.B) {
	raw := []byte(`{"key":"0123456789abcdef","package":"base-files","version":"12.4+deb12u5","size":70684,"description":"` + strings.Repeat("x", 800) + `"}`)
	b.Run("scan", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			if _, err := testScope.scan(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			_ = bytes.Clone(raw)
		}
	})
}

// testScope is a collection without groups.
var testScope = &Collection{KeyMember: "key"}
