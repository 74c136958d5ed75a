package contract

import (
	"errors"
	"io"
	"net/http"
)

// keptBytes is how much of a body is kept for the check. Of a larger one only the head is checked.
const keptBytes = 1 << 20

// Transport holds every response that passes through it against the document of the API.
type Transport struct {
	http.RoundTripper
	// Report gets what is wrong with a response, once its body has been read or closed. It may be called by many
	// goroutines at once.
	Report func(error)
	// Skip names requests that are none of the API; nil skips none.
	Skip func(*http.Request) bool
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if err != nil || t.Skip != nil && t.Skip(request) {
		return response, err
	}
	response.Body = &recorder{ReadCloser: response.Body, t: t, seen: Response{
		Method: request.Method, Path: pathOf(request), Status: response.StatusCode, Header: response.Header.Clone(),
	}}
	return response, nil
}

// CloseIdleConnections is for http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	if closer, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// pathOf is the path of a request as it was sent, escaped.
func pathOf(request *http.Request) string {
	if request.URL.Opaque != "" {
		return request.URL.Opaque
	}
	return request.URL.EscapedPath()
}

// recorder is a body that is checked when it has been read. Like any body it has one reader at a time.
type recorder struct {
	io.ReadCloser
	t    *Transport
	seen Response
	done bool
}

// Read implements io.Reader.
func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if len(r.seen.Body)+n > keptBytes {
		r.seen.Partial = true
	}
	if !r.seen.Partial {
		r.seen.Body = append(r.seen.Body, p[:n]...)
	}
	if err != nil {
		r.seen.Partial = r.seen.Partial || !errors.Is(err, io.EOF)
		r.check()
	}
	return n, err
}

// Close implements io.Closer. What was not read by then nobody has seen.
func (r *recorder) Close() error {
	r.seen.Partial = true
	r.check()
	return r.ReadCloser.Close()
}

// check reports once.
func (r *recorder) check() {
	if r.done {
		return
	}
	r.done = true
	if err := Default().Check(r.seen); err != nil {
		r.t.Report(err)
	}
}
