package contract

import (
	"net/http"
	"strings"
	"testing"
)

// headers makes a header of "Name: value" lines.
func headers(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

const (
	jsonType    = "Content-Type: application/json"
	problemType = "Content-Type: application/problem+json"
	linesType   = "Content-Type: application/x-ndjson"
	id          = "X-Request-Id: a"
	noStore     = "Cache-Control: no-store"
)

// read are the headers of a record that was read.
func read(more ...string) http.Header {
	return headers(append([]string{jsonType, id, `ETag: "1-1"`, "Last-Modified: Sun, 01 Mar 2026 12:00:01 GMT", "Cache-Control: no-cache"}, more...)...)
}

// without is a header without one of its names.
func without(h http.Header, name string) http.Header {
	h.Del(name)
	return h
}

// TestCheck: what the document says passes, and anything else in a response does not.
func TestCheck(t *testing.T) {
	const absent = `{"type":"/problems/record_not_found","title":"Record not found","status":404,"code":"record_not_found","detail":"-","request_id":"a"}`
	notFound := strings.ReplaceAll(absent, "record_not_found", "not_found")
	for name, c := range map[string]struct {
		method, path string
		status       int
		header       http.Header
		body         string
		// wrong is a part of the fault, empty when there is none.
		wrong string
	}{
		"record":             {"GET", "/v1/records/a%2Fb", 200, read(), `{"key":"a/b","any":[1e400]}`, ""},
		"head":               {"HEAD", "/v1/records/a", 200, read(), "", ""},
		"head with body":     {"HEAD", "/v1/records/a", 200, read(), "{}", "there is a body"},
		"not modified":       {"GET", "/v1/records/a", 304, without(read(), "Content-Type"), "", ""},
		"no object":          {"GET", "/v1/records/a", 200, read(), `[]`, "got array, want object"},
		"no JSON":            {"GET", "/v1/records/a", 200, read(), `{`, "no JSON"},
		"status":             {"GET", "/v1/records/a", 202, read(), `{}`, "the status is not described"},
		"media type":         {"GET", "/v1/records/a", 200, headers("Content-Type: text/plain"), `{}`, "text/plain is not described"},
		"unknown header":     {"GET", "/v1/records/a", 200, read("X-Powered-By: x"), `{}`, "X-Powered-By is not described"},
		"absent header":      {"GET", "/v1/records/a", 200, without(read(), "ETag"), `{}`, "there is no header Etag"},
		"malformed header":   {"GET", "/v1/records/a", 200, without(read("Etag: 1-1"), "nothing"), `{}`, "header Etag"},
		"problem":            {"GET", "/v1/records/a", 404, headers(problemType, id, noStore), absent, ""},
		"problem's member":   {"GET", "/v1/records/a", 404, headers(problemType, id, noStore), strings.Replace(absent, "{", `{"more":1,`, 1), "'more' not allowed"},
		"problem lacks":      {"GET", "/v1/records/a", 404, headers(problemType, id, noStore), strings.Replace(absent, `"detail":"-",`, "", 1), "missing property 'detail'"},
		"another's code":     {"GET", "/v1/records/a", 404, headers(problemType, id, noStore), strings.ReplaceAll(absent, "record_not_found", "record_exists"), "code"},
		"bulk":               {"POST", "/v1/records", 200, headers(jsonType, id), `{"results":[{"status":201,"key":"a","etag":"\"1-1\""}]}`, ""},
		"bulk's member":      {"POST", "/v1/records", 200, headers(jsonType, id), `{"results":[{"status":201,"id":1}]}`, "'id' not allowed"},
		"lines":              {"POST", "/v1/records", 200, headers(linesType, id), "{\"status\":201,\"key\":\"a\"}\n{\"status\":400,\"error\":{\"code\":\"invalid_json\",\"detail\":\"-\"}}\n", ""},
		"line":               {"POST", "/v1/records", 200, headers(linesType, id), "{\"status\":201}\n{\"status\":\"201\"}\n", "got string, want integer"},
		"deleted":            {"DELETE", "/v1/records/a", 204, headers(id), "", ""},
		"deleted, with body": {"DELETE", "/v1/records/a", 204, headers(id, jsonType), "{}", "no body is described"},
		"elsewhere":          {"GET", "/elsewhere", 404, headers(problemType, id, noStore), notFound, ""},
		"served elsewhere":   {"GET", "/elsewhere", 200, headers(jsonType), "{}", "no such operation"},
		"method":             {"TRACE", "/healthz", 405, headers(problemType, id, noStore, "Allow: GET"), strings.ReplaceAll(absent, "record_not_found", "method_not_allowed"), ""},
		"minimal":            {"PUT", "/v1/records/a", 201, without(without(read("Location: /v1/records/a", "Preference-Applied: return=minimal"), "Content-Type"), "Cache-Control"), "", ""},
		"no body":            {"PUT", "/v1/records/a", 201, without(without(read("Location: /v1/records/a"), "Content-Type"), "Cache-Control"), "", "no media type"},
		"no HTTP":            {"PUT", "/v1/records/a%2", 400, headers("Content-Type: text/plain; charset=utf-8"), "400 Bad Request", ""},
	} {
		err := Default().Check(Response{Method: c.method, Path: c.path, Status: c.status, Header: c.header, Body: []byte(c.body)})
		switch {
		case c.wrong == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s: got %v, want %q", name, err, c.wrong)
		}
	}
}
