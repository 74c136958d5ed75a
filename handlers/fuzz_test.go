package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"keyrange/store"
)

// FuzzDecodeKey: whatever a path holds, a key that comes out of it is valid and has one path of its own, which leads back
// to it and to its collection.
func FuzzDecodeKey(f *testing.F) {
	for _, seed := range []string{"", "a", "a%2Fb", "a%252Fb", "a/b", "%2E%2E", ".", "..", "+", "%2B", "%zz", "%", "%FF", "%C3%A9", "é", "a%00", "\x00", "?", "#", "%3F",
		strings.Repeat("k", 512), strings.Repeat("k", 513), strings.Repeat("%6b", 512), " ", "%20", ";,:@&=$!*'()", "%F0%9F%98%80", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, escaped string) {
		key, err := decodeKey(escaped)
		if err != nil {
			if !errors.Is(err, errInvalidKey) {
				t.Fatalf("%q: %v", escaped, err)
			}
			// As a key of a document it may still be one.
			key = escaped
		}
		if store.CheckKey(key) != nil {
			if err == nil {
				t.Fatalf("%q became the key %q", escaped, key)
			}
			return
		}
		path := location("or%ders", key)
		collection, rest, err := splitTarget(path)
		if err != nil || collection != "or%ders" {
			t.Fatalf("%q: %s leads to the collection %q, %v", key, path, collection, err)
		}
		if back, err := decodeKey(rest); err != nil || back != key {
			t.Fatalf("%q: %s leads to %q, %v", key, path, back, err)
		}
		if strings.ContainsAny(path, "?# \x00") || strings.HasSuffix(path, "/.") || strings.HasSuffix(path, "/..") {
			t.Fatalf("%q: a client would change %s", key, path)
		}
	})
}

// documentSeeds are documents, good and bad.
var documentSeeds = []string{
	`{}`, ` { } `, `{"key":"a"}`, `{"key":"a","key":"b"}`, `{"k\u0065y":"a"}`, `{"key":1}`, `{"key":null}`, `{"key":""}`, `{"key":{"$ne":""}}`, `{"a":{"key":"b"}}`,
	`{"v":1,"\u0076":2}`, `{"a":[{"b":1,"b":2}]}`, `{"a":18446744073709551615,"d":12.50,"e":1e400,"f":-0}`, `{"a":"\ud83d\ude00 \/ \b \u0000"}`, `{"a":"\ud800"}`, `{"a":"\udc00\ud800"}`,
	"{\"a\":\"\xff\"}", "\ufeff{}", `[]`, `1`, `"key"`, `null`, ``, ` `, `{`, `{"a"`, `{"a":}`, `{"a":1,}`, `{"a":01}`, `{"a":1}{"b":2}`, `{"a":1} x`, "{\"a\":\"\n\"}", `{"a":tru}`, `{"":1,"":2}`,
	`{"a":[[[[{"b":[]}]]]]}`, `{"é":1,"é":2}`, `{"a":"\u00e9"}`, `{/**/}`,
}

// escapedSurrogate finds what may be half of a pair.
var escapedSurrogate = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.`)

// loneSurrogate tells whether a valid JSON text has an escaped surrogate that is no pair.
func loneSurrogate(text []byte) bool {
	for _, found := range escapedSurrogate.FindAll(text, -1) {
		if len(found) == len(`\ud800`) {
			return true
		}
	}
	return false
}

// uniqueNames reads one value with the standard library and tells whether no object in it has a name twice.
func uniqueNames(d *json.Decoder) bool {
	token, err := d.Token()
	if err != nil {
		return false
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return true
	}
	names := map[string]bool{}
	for d.More() {
		if delim == '{' {
			name, err := d.Token()
			if err != nil || names[name.(string)] {
				return false
			}
			names[name.(string)] = true
		}
		if !uniqueNames(d) {
			return false
		}
	}
	_, err = d.Token()
	return err == nil
}

// keepsRules is what a scan should think of a document, by another JSON library.
func keepsRules(raw []byte) bool {
	trimmed := bytes.Trim(raw, jsonSpace)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return bytes.HasPrefix(trimmed, []byte{'{'}) && utf8.Valid(raw) && json.Valid(raw) && !loneSurrogate(raw) && uniqueNames(d)
}

// decoded is a document as the standard library reads it, with numbers as they are written.
func decoded(t *testing.T, raw []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("%q: there is more", raw)
	}
	return value
}

// FuzzScanDocument compares the check of documents with one by the standard library, and the key that it finds.
func FuzzScanDocument(f *testing.F) {
	for _, seed := range documentSeeds {
		f.Add([]byte(seed))
	}
	c := &collection{Collection: Collection{KeyMember: "key"}, opening: documentOpening("key")}
	f.Fuzz(func(t *testing.T, raw []byte) {
		doc, err := testScope.scan(raw)
		valid := err == nil || errors.Is(err, errInvalidKey)
		if valid != keepsRules(raw) && bytes.Count(raw, []byte{'{'})+bytes.Count(raw, []byte{'['}) < 10_000 {
			t.Fatalf("%q: %v, want valid %t", raw, err, keepsRules(raw))
		}
		if !valid {
			return
		}
		value := decoded(t, raw).(map[string]any)
		member, given := value["key"]
		key, text := member.(string)
		switch {
		case err != nil && (!given || text && store.CheckKey(key) == nil):
			t.Fatalf("%q: %v", raw, err)
		case err == nil && (doc.hasKey != given || given && (doc.key != key || !text)):
			t.Fatalf("%q: key %q", raw, doc.key)
		case err == nil && !given:
			stored, err := testScope.scan(c.withKey(doc, "a\"\n/é"))
			if err != nil || stored.key != "a\"\n/é" || !bytes.HasSuffix(stored.text, bytes.TrimLeft(doc.text[1:], jsonSpace)) {
				t.Fatalf("%q: with its key %q, %v", raw, stored.text, err)
			}
		}
	})
}

// mergeReference is the algorithm of RFC 7396, section 2, on values.
func mergeReference(target, change any) any {
	members, ok := change.(map[string]any)
	if !ok {
		return change
	}
	object, ok := target.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	for name, value := range members {
		if value == nil {
			delete(object, name)
		} else {
			object[name] = mergeReference(object[name], value)
		}
	}
	return object
}

// FuzzMergePatch compares patched documents with the algorithm of the RFC, and holds that they keep the rules, that a
// second time changes nothing, and that an empty patch keeps every byte.
func FuzzMergePatch(f *testing.F) {
	for _, c := range mergeCases {
		f.Add([]byte(c[0]), []byte(c[1]))
	}
	for i, seed := range documentSeeds {
		f.Add([]byte(seed), []byte(documentSeeds[(i*7+3)%len(documentSeeds)]))
	}
	f.Fuzz(func(t *testing.T, target, change []byte) {
		doc, err := testScope.scan(target)
		if err != nil {
			return
		}
		p, err := parsePatch(change)
		if (err == nil) != keepsRules(change) {
			t.Fatalf("patch %q: %v, want valid %t", change, err, keepsRules(change))
		}
		if err != nil {
			return
		}
		got, err := p.mergeInto(doc.text)
		if err != nil {
			t.Fatalf("%q on %q: %v", change, target, err)
		}
		if !keepsRules(got) {
			t.Fatalf("%q on %q: %q breaks the rules", change, target, got)
		}
		if want := mergeReference(decoded(t, doc.text), decoded(t, change)); !reflect.DeepEqual(decoded(t, got), want) {
			t.Fatalf("%q on %q: got %q, want %v", change, target, got, want)
		}
		again, err := p.mergeInto(got)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q on %q: %q, then %q, %v", change, target, got, again, err)
		}
		if same := merged(t, string(doc.text), " { } "); same != string(doc.text) {
			t.Fatalf("nothing changed %q to %q", doc.text, same)
		}
	})
}
