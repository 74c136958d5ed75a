package handlers

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// prefersLines tells whether a client names application/x-ndjson in Accept, and does not rather want JSON.
func prefersLines(header http.Header) bool {
	lines, json := 0.0, 0.0
	for part := range strings.SplitSeq(strings.Join(header["Accept"], ","), ",") {
		media, parameters, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		quality := 1.0
		if q, given := parameters["q"]; given {
			if quality, err = strconv.ParseFloat(q, 64); err != nil {
				continue
			}
		}
		switch media {
		case mediaNDJSON:
			lines = max(lines, quality)
		case mediaJSON:
			json = max(json, quality)
		}
	}
	return lines > 0 && lines >= json
}
