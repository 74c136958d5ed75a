package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"keyrange/store"
)

// TestGroupInDocument: a string or an integer is a group, of whatever is written in the document; anything else is refused.
func TestGroupInDocument(t *testing.T) {
	scope := &Collection{KeyMember: "key", GroupMember: "g"}
	longest := strings.Repeat("x", store.MaxGroupBytes)
	for value, want := range map[string]string{
		`"a"`: "a", `"\u0061"`: "a", `" "`: " ", `"😀"`: "😀", `42`: "42", `-7`: "-7", `0`: "0", `-0`: "0", `"-0"`: "-0", `"42"`: "42", `123456789012345678901234567890`: "123456789012345678901234567890",
		`"` + longest + `"`: longest,
	} {
		doc, err := scope.scan([]byte(`{"o": {"g": "inner"}, "g" : ` + value + `, "key": "k"}`))
		if err != nil || doc.group != want || doc.key != "k" {
			t.Errorf("%s: %q, %v", value, doc.group, err)
		}
	}
	for _, value := range []string{`""`, `null`, `true`, `1.5`, `1e3`, `[]`, `["a"]`, `{}`, `"a\u0000b"`, `"` + longest + `x"`} {
		doc, err := scope.scan([]byte(`{"g":` + value + `}`))
		if line, _ := statusOf(err); err == nil || line.code != "invalid_group" {
			t.Errorf("%s: %q, %v", value, doc.group, err)
		}
	}
	for text, of := range map[string]*Collection{`{"o":{"g":"a"}}`: scope, `{}`: scope, `{"g":null}`: testScope} {
		if doc, err := of.scan([]byte(text)); err != nil || doc.group != "" {
			t.Errorf("%s: %q, %v", text, doc.group, err)
		}
	}
	if doc, err := scope.scan([]byte(`{"\u0067":"a"}`)); err != nil || doc.group != "a" {
		t.Errorf("an escaped member name: %q, %v", doc.group, err)
	}
}

// TestGroupWritten: every way to write a record hands its group on.
func TestGroupWritten(t *testing.T) {
	r := newRig(t)
	r.expect(201, "", "POST", "/v1/grouped", `{"key":"a","g":"one"}`)
	r.expect(201, "", "PUT", "/v1/grouped/b", `{"g":"one"}`)
	r.expect(200, "", "PUT", "/v1/grouped/b", `{"g":"one","n":1}`)
	r.expect(201, "", "PUT", "/v1/grouped/c", `{"g":"one"}`, "If-None-Match: *")
	r.expect(200, "", "POST", "/v1/grouped", `[{"key":"d","g":"one"},{"g":"one"},{"key":"x","g":2},{"key":"y"}]`)
	r.expect(200, "", "POST", "/v1/grouped?op=put", `[{"key":"e","g":"one"}]`)
	r.expect(200, "", "PATCH", "/v1/grouped/a", `{"n":2}`)
	if n, _ := r.fake.CountGroup(t.Context(), "grouped", "one"); n != 6 {
		t.Errorf("%d records in the group", n)
	}
	if n, _ := r.fake.CountGroup(t.Context(), "grouped", "2"); n != 1 {
		t.Errorf("%d records in the group of an integer", n)
	}
	r.expect(422, "invalid_group", "POST", "/v1/grouped", `{"key":"z","g":[]}`)
	answer := r.expect(200, "", "POST", "/v1/grouped", `[{"key":"z","g":1.5}]`)
	if body := answer.Body.String(); !strings.Contains(body, `"status":422`) || !strings.Contains(body, "invalid_group") {
		t.Errorf("in an array: %s", body)
	}
}

// TestGroupList: a group is listed in pages and as lines, counted, and its cursors are none of another group.
func TestGroupList(t *testing.T) {
	r := newRig(t)
	for i := range 10 {
		r.expect(201, "", "POST", "/v1/grouped", fmt.Sprintf(`{"key":"k%d","g":"g %d"}`, i, i%2))
	}
	type answer struct {
		Items []struct{ Key string }
		Next  string
		Count *int64
	}
	get := func(query string) (a answer) {
		t.Helper()
		if err := json.Unmarshal(r.expect(200, "", "GET", "/v1/grouped?"+query, "").Body.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := get("group=g+1&limit=3&count=true")
	if len(first.Items) != 3 || first.Items[0].Key != "k1" || first.Count == nil || *first.Count != 5 || first.Next == "" {
		t.Errorf("the first page: %+v", first)
	}
	second := get("group=g%201&limit=3&count=false&cursor=" + url.QueryEscape(first.Next))
	if len(second.Items) != 2 || second.Items[1].Key != "k9" || second.Count != nil || second.Next != "" {
		t.Errorf("the second page: %+v", second)
	}
	if a := get("group=g+0&limit=0&count=true"); len(a.Items) != 0 || a.Count == nil || *a.Count != 5 || a.Next != "" {
		t.Errorf("the count alone: %+v", a)
	}
	if a := get("group=nobody"); len(a.Items) != 0 || a.Next != "" {
		t.Errorf("nobody's group: %+v", a)
	}
	if a := get("group=g+0&order=desc&fields=key"); len(a.Items) != 5 || a.Items[0].Key != "k8" {
		t.Errorf("backwards: %+v", a)
	}
	lines := r.expect(200, "", "GET", "/v1/grouped?group=g+0", "", "Accept: application/x-ndjson").Body.String()
	if strings.Count(lines, "\n") != 5 {
		t.Errorf("as lines: %s", lines)
	}
	for _, bad := range []string{
		"group=g+0&cursor=" + url.QueryEscape(first.Next), "group=g+1&group=g+0", "count=true", "group=g+1&count=yes", "group=g+1&limit=0", "group=g+1&key=k1", "group=g+1&deletion=d2",
	} {
		r.expect(400, "invalid_parameter", "GET", "/v1/grouped?"+bad, "")
	}
	r.expect(400, "invalid_parameter", "GET", "/v1/grouped?group=g+0&count=true", "", "Accept: application/x-ndjson")
	r.expect(400, "invalid_parameter", "GET", "/v1/records?group=a", "")
	r.expect(422, "invalid_group", "GET", "/v1/grouped?group=", "")
	r.expect(422, "invalid_group", "GET", "/v1/grouped?group=a%00b", "")
}

// TestGroupDeletion: a deletion is taken on and looked at by its Location.
func TestGroupDeletion(t *testing.T) {
	r := newRig(t)
	taken := r.expect(http.StatusAccepted, "", "DELETE", "/v1/grouped?group=a%20b", "")
	if at := taken.Header().Get("Location"); at != "/v1/grouped?deletion=d1" {
		t.Errorf("Location: %s", at)
	}
	golden(t, "deletion", transcript(taken)+"\n"+transcript(r.expect(200, "", "GET", "/v1/grouped?deletion=d2", "")))
	r.expect(404, "deletion_not_found", "GET", "/v1/grouped?deletion=d9", "")
	r.expect(400, "invalid_parameter", "GET", "/v1/grouped?deletion=d2&limit=3", "")
	for _, query := range []string{"", "?group=a&limit=3", "?key=a", "?group=a&group=b"} {
		r.expect(400, "invalid_parameter", "DELETE", "/v1/grouped"+query, "")
	}
	r.expect(422, "invalid_group", "DELETE", "/v1/grouped?group=", "")
	r.fake.before = func(context.Context, string, string) error {
		return fmt.Errorf("take a deletion on: %w", store.ErrUnknown)
	}
	r.expect(503, "outcome_unknown", "DELETE", "/v1/grouped?group=a", "")
	r.fake.before = nil
	r.expect(400, "invalid_parameter", "DELETE", "/v1/records?group=a", "")
	r.expect(400, "unsupported_condition", "DELETE", "/v1/grouped?group=a", "", `If-Match: "1-1"`)
}

// TestGroupRoles: reading a group and how far its deletion has come needs the role read, deleting it admin, and a client that
// is confined to some keys may do neither, whatever its role.
func TestGroupRoles(t *testing.T) {
	r := newGuardedRig(t)
	r.collections["records"].GroupMember = "g"
	r.expect(201, "", "PUT", "/v1/records/a", `{"g":"a"}`, as("root"))
	r.expect(201, "", "PUT", "/v1/records/t%2F1-a", `{"g":"a"}`, as("root"))
	var asked []string
	r.fake.before = func(_ context.Context, op, _ string) error {
		asked = append(asked, op)
		return nil
	}
	for _, c := range []struct {
		client, method, query string
		status                int
	}{
		{"reader", "GET", "group=a", 200}, {"reader", "GET", "group=a&count=true&limit=0", 200}, {"reader", "GET", "deletion=d2", 200},
		{"reader", "DELETE", "group=a", 403}, {"writer", "DELETE", "group=a", 403}, {"root", "DELETE", "group=a", 202},
	} {
		answer := r.expect(c.status, "", c.method, "/v1/records?"+c.query, "", as(c.client))
		if c.status == 403 && !strings.Contains(answer.Body.String(), "admin") {
			t.Errorf("%s: %s", c.client, answer.Body)
		}
	}
	if got := strings.Join(asked, ", "); got != "list, list, delete group" {
		t.Errorf("the store was asked to %s", got)
	}
	asked = nil
	for _, query := range []string{"group=a", "group=t/1-", "group=a&count=true", "group=a&key=t/1-a", "deletion=d2"} {
		for _, method := range []string{"GET", "HEAD", "DELETE"} {
			r.expect(403, "", method, "/v1/records?"+query, "", as("tenant"))
		}
	}
	if len(asked) > 0 {
		t.Errorf("for a client with a key_prefix the store was asked to %q", asked)
	}
	for _, method := range []string{"GET", "DELETE"} {
		r.expect(401, "unauthenticated", method, "/v1/records?group=a", "")
	}
}
