package handlers

import (
	"net/http"
	"strings"
	"testing"
)

// newMortalRig is a rig whose collection visits has a member for the time to live.
func newMortalRig(t *testing.T) *rig {
	r := newRig(t)
	r.collections["visits"] = &collection{
		Collection: Collection{Name: "visits", KeyMember: "key", TTLMember: "expires_in"}, opening: documentOpening("key"),
	}
	return r
}

// TestExpiryOfWrites: the header says how long a record lives, or else its member, or else it lives for ever; each answer
// that has the record's version has its expiry.
func TestExpiryOfWrites(t *testing.T) {
	const hour, day = "2026-03-01T13:00:00Z", "2026-03-02T12:00:00Z"
	for _, c := range []struct {
		name, method, target, body, ttl, want string
	}{
		{"none", "PUT", "/v1/records/a", `{}`, "", ""},
		{"header", "PUT", "/v1/records/b", `{}`, "3600", hour},
		{"header of a create", "POST", "/v1/records", `{"key":"c"}`, "3600", hour},
		{"header of a create without a key", "POST", "/v1/records", `{}`, "86400", day},
		{"a member that means nothing", "PUT", "/v1/records/d", `{"expires_in":3600}`, "", ""},
		{"member", "PUT", "/v1/visits/a", `{"expires_in":3600,"x":{"expires_in":1}}`, "", hour},
		{"member with escapes", "PUT", "/v1/visits/b", `{"x":"}", "expires\u005fin" : 3600 }`, "", hour},
		{"member of a member", "PUT", "/v1/visits/c", `{"x":{"expires_in":3600}}`, "", ""},
		{"no member", "POST", "/v1/visits", `{"key":"d"}`, "", ""},
		{"header before member", "POST", "/v1/visits", `{"key":"e","expires_in":3600}`, "86400", day},
		{"the longest", "PUT", "/v1/visits/f", `{"expires_in":315360000}`, "", "2036-02-27T12:00:00Z"},
		{"the shortest", "PUT", "/v1/visits/g", `{}`, "1", "2026-03-01T12:00:01Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newMortalRig(t)
			var headers []string
			if c.ttl != "" {
				headers = []string{"TTL: " + c.ttl}
			}
			answer := r.expect(http.StatusCreated, "", c.method, c.target, c.body, headers...)
			path := answer.Header().Get("Location")
			if got := answer.Header().Get("Record-Expires"); got != c.want {
				t.Errorf("the answer says %q, want %q", got, c.want)
			}
			for _, method := range []string{"GET", "HEAD"} {
				read := r.expect(http.StatusOK, "", method, path, "")
				if got := read.Header().Get("Record-Expires"); got != c.want {
					t.Errorf("%s says %q, want %q", method, got, c.want)
				}
			}
			if body := r.do("GET", path, "").Body.String(); c.method == "PUT" && !strings.HasSuffix(body, c.body[1:]) {
				t.Errorf("stored as %s", body)
			}
			if etag := answer.Header().Get("ETag"); r.expect(http.StatusNotModified, "", "GET", path, "", "If-None-Match: "+etag).Header().Get("Record-Expires") != c.want {
				t.Error("a 304 says something else")
			}
			// A PUT replaces the record, and its expiry with it.
			replaced := r.expect(http.StatusOK, "", "PUT", path, `{}`)
			if got := replaced.Header().Get("Record-Expires"); got != "" {
				t.Errorf("after a PUT without one it is %q", got)
			}
		})
	}
}

// TestExpiryOfPatches: a patch keeps the expiry, unless it says it anew.
func TestExpiryOfPatches(t *testing.T) {
	const hour = "2026-03-01T13:00:00Z"
	for _, c := range []struct{ name, patch, ttl, want string }{
		{"nothing", `{"v":1}`, "", hour},
		{"a member without a name", `{"":1}`, "", hour},
		{"header", `{"v":1}`, "60", "2026-03-01T12:01:00Z"},
		{"member", `{"expires_in":120}`, "", "2026-03-01T12:02:00Z"},
		{"member removed", `{"expires_in":null}`, "", ""},
		{"both", `{"expires_in":null}`, "60", "2026-03-01T12:01:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newMortalRig(t)
			r.expect(http.StatusCreated, "", "PUT", "/v1/visits/k", `{"expires_in":30}`, "TTL: 3600")
			var headers []string
			if c.ttl != "" {
				headers = []string{"TTL: " + c.ttl}
			}
			answer := r.expect(http.StatusOK, "", "PATCH", "/v1/visits/k", c.patch, headers...)
			if got := answer.Header().Get("Record-Expires"); got != c.want {
				t.Errorf("it is %q, want %q", got, c.want)
			}
		})
	}
}

// TestExpiryOfBulks: the header is for each item, and so are the members.
func TestExpiryOfBulks(t *testing.T) {
	r := newMortalRig(t)
	expires := func(key string) string {
		return r.expect(http.StatusOK, "", "GET", "/v1/visits/"+key, "").Header().Get("Record-Expires")
	}
	for _, target := range []string{"/v1/visits", "/v1/visits?op=put"} {
		answer := r.expect(http.StatusOK, "", "POST", target, `[{"key":"a`+target[10:]+`","expires_in":60},{"key":"b`+target[10:]+`"},{"key":"c","expires_in":"60"}]`)
		if !strings.Contains(answer.Body.String(), `{"status":400,"key":"c","error":{"code":"invalid_ttl"`) {
			t.Errorf("POST %s: %s", target, answer.Body)
		}
	}
	if a, b := expires("a"), expires("b"); a != "2026-03-01T12:01:00Z" || b != "" {
		t.Errorf("by member they expire at %q and %q", a, b)
	}
	r.expect(http.StatusOK, "", "POST", "/v1/visits?op=put", `[{"key":"a","expires_in":60},{"key":"b"}]`, "TTL: 120")
	if a, b := expires("a"), expires("b"); a != "2026-03-01T12:02:00Z" || b != a {
		t.Errorf("by header they expire at %q and %q", a, b)
	}
	r.expect(http.StatusBadRequest, "invalid_ttl", "POST", "/v1/visits?op=put", `[{"key":"a"}]`, "TTL: soon")
}

// TestExpiryRefused: a time to live that is none is refused, and nothing is written.
func TestExpiryRefused(t *testing.T) {
	r := newMortalRig(t)
	for _, ttl := range []string{"", "0", "-1", "+1", "1.5", "1e3", "0x10", "1_000", "315360001", "99999999999999999999", "soon", "1h", "1, 2"} {
		for _, c := range [][2]string{{"POST", "/v1/visits"}, {"PUT", "/v1/visits/k"}, {"PATCH", "/v1/visits/k"}} {
			r.expect(http.StatusBadRequest, "invalid_ttl", c[0], c[1], `{}`, "TTL: "+ttl)
		}
	}
	for _, value := range []string{"0", "-1", "1.5", "1e3", "1.0", "315360001", "99999999999999999999", `"60"`, "null", "true", "[60]", "{}"} {
		r.expect(http.StatusBadRequest, "invalid_ttl", "POST", "/v1/visits", `{"expires_in":`+value+`}`)
		r.expect(http.StatusBadRequest, "invalid_ttl", "PUT", "/v1/visits/k", `{"expires_in":`+value+`}`)
	}
	r.expect(http.StatusBadRequest, "invalid_ttl", "PUT", "/v1/visits/k", `{}`, "TTL: 1", "TTL: 2")
	if r.fake.count() != 0 {
		t.Errorf("%d records were stored", r.fake.count())
	}
}
