package contract

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestTransport: a response is reported once, with its path as it was sent.
func TestTransport(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, values := range read() {
			w.Header()[name] = values
		}
		if strings.Contains(r.URL.Path, "large") {
			_, _ = w.Write([]byte(`{"a":"` + strings.Repeat("x", keptBytes) + `"}`))
			return
		}
		_, _ = w.Write([]byte(`[` + r.URL.Path[len("/v1/records/"):] + `]`))
	}))
	defer server.Close()
	var reports []string
	client := &http.Client{Transport: &Transport{
		RoundTripper: server.Client().Transport,
		Report:       func(err error) { reports = append(reports, err.Error()) },
		Skip:         func(r *http.Request) bool { return r.URL.Path == "/v1/records/2" },
	}}
	for _, key := range []string{"1%2F1", "2", "large", "3"} {
		response, err := client.Get(server.URL + "/v1/records/" + key)
		if err != nil {
			t.Fatal(err)
		}
		if key != "3" { // whose body is not read, so nothing can be said about it
			if _, err := io.ReadAll(response.Body); err != nil {
				t.Error(err)
			}
		}
		_ = response.Body.Close()
	}
	if len(reports) != 1 || !strings.HasPrefix(reports[0], "GET /v1/records/1%2F1: 200 is not as the document says:") {
		t.Errorf("reports: %q", reports)
	}
}
