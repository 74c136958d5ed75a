package faults

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// told builds replies: what was asked at which moment, and what came back a moment later.
func told(at int, k kind, status int, document, found string) reply {
	r := reply{request: request{kind: k, key: "k", document: document}, outcome: done, status: status, body: document, called: time.Duration(at), returned: time.Duration(at + 1)}
	if k == get {
		r.document = ""
	}
	_, _ = fmt.Sscanf(found, "%d-%d", &r.found.id, &r.found.version) // none given, none found
	return r
}

// demanding adds the tag that a conditional write demands.
func demanding(r reply, tag string) reply {
	r.tag = tag
	return r
}

// unanswered makes the outcome of a write unknown.
func unanswered(r reply) reply {
	r.outcome, r.status, r.body, r.found, r.returned = unknown, 0, "", tag{}, never
	return r
}

// TestCheckers: what clients may be told is accepted, and what they must never be told is found out, both for the keys of
// one client and for those that are shared.
func TestCheckers(t *testing.T) {
	created := told(1, post, http.StatusCreated, "one", "1-1")
	tests := []struct {
		name    string
		fine    bool
		replies []reply
	}{
		{"life of a record", true, []reply{created, told(3, put, http.StatusOK, "two", "1-2"), told(5, get, http.StatusOK, "two", "1-2"), told(7, remove, http.StatusNoContent, "", ""), told(9, get, http.StatusNotFound, "", ""), told(11, put, http.StatusCreated, "three", "2-1")}},
		{"lost create", false, []reply{created, told(3, get, http.StatusNotFound, "", "")}},
		{"lost update", false, []reply{created, told(3, put, http.StatusOK, "two", "1-2"), told(5, get, http.StatusOK, "one", "1-1")}},
		{"deleted and back", false, []reply{created, told(3, remove, http.StatusNoContent, "", ""), told(5, get, http.StatusOK, "one", "1-1")}},
		{"created twice", false, []reply{created, told(3, post, http.StatusCreated, "two", "2-1")}},
		{"conflict with nothing", false, []reply{told(1, post, http.StatusConflict, "one", "1-1")}},
		{"unanswered create, seen", true, []reply{unanswered(created), told(3, get, http.StatusOK, "one", "1-1"), told(5, put, http.StatusOK, "two", "1-2")}},
		{"unanswered create, not seen", true, []reply{unanswered(created), told(3, get, http.StatusNotFound, "", ""), told(5, post, http.StatusCreated, "two", "2-1")}},
		{"unanswered delete, seen late", true, []reply{created, unanswered(told(3, remove, 0, "", "")), told(5, get, http.StatusOK, "one", "1-1"), told(7, get, http.StatusNotFound, "", "")}},
		{"unanswered update, then another document", false, []reply{created, unanswered(told(3, put, 0, "two", "")), told(5, get, http.StatusOK, "three", "1-2")}},
		{"version that nobody wrote", false, []reply{created, told(3, put, http.StatusOK, "two", "1-3")}},
		{"version that nobody wrote, read", false, []reply{created, told(3, get, http.StatusOK, "one", "1-2")}},
		{"deleted at its tag", true, []reply{created, demanding(told(3, removeIf, http.StatusNoContent, "", ""), "1-1"), told(5, get, http.StatusNotFound, "", "")}},
		{"unanswered delete at its tag, seen", true, []reply{created, demanding(unanswered(told(3, removeIf, 0, "", "")), "1-1"), told(5, get, http.StatusNotFound, "", "")}},
		{"delete claimed, and the record is there", false, []reply{created, demanding(told(3, removeIf, http.StatusNoContent, "", ""), "1-1"), told(5, get, http.StatusOK, "one", "1-1")}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b, h := &belief{key: "k"}, &history{key: "k"}
			var found error
			for _, r := range test.replies {
				if err := b.learn(r); err != nil {
					found = err
				}
				h.add(r)
			}
			if (found == nil) != test.fine {
				t.Errorf("one client: %v", found)
			}
			if err := h.check(); (err == nil) != test.fine {
				t.Errorf("shared: %v", err)
			}
		})
	}
	// What only several clients can tell of one another.
	updated := told(3, put, http.StatusOK, "two", "1-2")
	for name, replies := range map[string][]reply{
		"delete at an old tag claimed":   {created, updated, demanding(told(5, removeIf, http.StatusNoContent, "", ""), "1-1")},
		"delete claimed by two":          {created, told(3, remove, http.StatusNoContent, "", ""), told(4, remove, http.StatusNoContent, "", "")},
		"created where a tag was wanted": {demanding(told(1, ifMatch, http.StatusCreated, "one", "1-1"), "1-1")},
		"unanswered, but at an old tag":  {created, updated, demanding(unanswered(told(5, removeIf, 0, "", "")), "1-1"), told(7, get, http.StatusNotFound, "", "")},
		"replaced where another tag was": {created, updated, demanding(told(5, ifMatch, http.StatusOK, "three", "1-3"), "1-1")},
	} {
		if (&history{key: "k", replies: replies}).check() == nil {
			t.Errorf("accepted: %s", name)
		}
	}
}
