package handlers

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"keyrange/store"
)

// Media types of bodies.
const (
	mediaJSON   = "application/json"
	mediaNDJSON = "application/x-ndjson"
	mediaForm   = "application/x-www-form-urlencoded"
)

// firstReadBytes is the buffer that a body starts with when its length is unknown or large, so that a length that is only
// claimed costs no memory.
const firstReadBytes = 64 << 10

// limit is a bound on a body.
type limit struct {
	bytes int64
	// kind is the error of a body above it, where words say what it bounds.
	kind  error
	words string
}

// exceeded is the error of a body above the limit.
func (l limit) exceeded() error { return refuse(l.kind, "%s has at most %d bytes", l.words, l.bytes) }

// recordLimit bounds the body of one record: by configuration, or by the smallest node.
func (s *Server) recordLimit(x *exchange) limit {
	if most := s.records.MaxDocumentBytes(); most < x.limits.MaxBodyBytes {
		return limit{most, store.ErrTooLarge, "a record that fits the smallest node"}
	}
	return limit{x.limits.MaxBodyBytes, store.ErrTooLarge, "the body of a record (server.max_body_bytes)"}
}

// bulkLimit bounds a JSON array of records.
func (x *exchange) bulkLimit() limit {
	return limit{x.limits.MaxBulkBytes, errBulkTooLarge, "an array of records (server.max_bulk_bytes; a stream of " + mediaNDJSON + " has no bound)"}
}

// mediaType is what the body of a request is: mediaJSON, also when the request does not say or names a +json type, or
// mediaNDJSON.
func mediaType(header http.Header) (string, error) {
	if coding := header.Get(echo.HeaderContentEncoding); coding != "" && !strings.EqualFold(coding, "identity") {
		return "", refuse(errMedia, "the body must come without a Content-Encoding")
	}
	declared := header.Get(echo.HeaderContentType)
	if declared == "" || declared == mediaJSON {
		return mediaJSON, nil
	}
	media, _, err := mime.ParseMediaType(declared)
	switch {
	case err != nil && media == "":
		return "", refuse(errMedia, "the Content-Type is malformed: send %s", mediaJSON)
	case media == mediaJSON, strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"):
		return mediaJSON, nil
	case media == mediaNDJSON:
		return mediaNDJSON, nil
	case media == mediaForm:
		return "", refuse(errMedia, "this is a form (the default of curl -d): add -H 'Content-Type: %s'", mediaJSON)
	}
	return "", refuse(errMedia, "send one record or an array as %s, or records line by line as %s", mediaJSON, mediaNDJSON)
}

// readBody reads a whole body of at most one.bytes, or at most many.bytes when it begins an array. Nothing beyond the
// limit is kept, and a length that is declared above it is refused without reading on.
func (x *exchange) readBody(one, many limit) (body []byte, array bool, err error) {
	request := x.Request()
	bound, seen := one, false
	if one == many && request.ContentLength > one.bytes {
		return nil, false, one.exceeded()
	}
	first := int64(firstReadBytes)
	if n := request.ContentLength; n >= 0 && n < first {
		first = n + 1
	}
	body = make([]byte, 0, first)
	for {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		n, err := request.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if start := bytes.TrimLeft(body, jsonSpace); !seen && len(start) > 0 {
			seen, array = true, start[0] == '['
			if array {
				bound = many
			}
			if request.ContentLength > bound.bytes {
				return nil, array, bound.exceeded()
			}
		}
		switch {
		case int64(len(body)) > bound.bytes:
			return nil, array, bound.exceeded()
		case errors.Is(err, io.EOF):
			x.setReadDeadline(time.Time{})
			return body, array, nil
		case err != nil:
			return nil, array, bodyFault(err)
		}
	}
}

// readRecord reads the body of a request that can only be one record.
func (x *exchange) readRecord(one limit) ([]byte, error) {
	media, err := mediaType(x.Request().Header)
	if err != nil {
		return nil, err
	}
	if media != mediaJSON {
		return nil, refuse(errMedia, "send the record as %s", mediaJSON)
	}
	body, _, err := x.readBody(one, one)
	return body, err
}

// bodyFault says why a body could not be read to its end.
func bodyFault(err error) error {
	var broken *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return because(errBodyTimeout, err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &broken), errors.Is(err, errClientGone):
		return because(errClientGone, err)
	}
	return because(errBody, err)
}
