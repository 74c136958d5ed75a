package handlers

import (
	"errors"
	"iter"
	"net/http"
	"strconv"
	"strings"
)

// errNotAcceptable refuses a request whose Accept excludes everything that there is.
var errNotAcceptable = errors.New("not acceptable")

// Header names of content negotiation in the form that http.Header keeps them.
const (
	headerAccept         = "Accept"
	headerAcceptEncoding = "Accept-Encoding"
)

// qualities gives the elements of a list like Accept in lower case, without their parameters, each with its weight from 0
// to 1. Malformed elements are passed over.
func qualities(lines []string) iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		for _, line := range lines {
			for element := range strings.SplitSeq(line, ",") {
				value, parameters, _ := strings.Cut(element, ";")
				value = strings.ToLower(strings.Trim(value, " \t"))
				if q, ok := weightIn(parameters); ok && value != "" && !yield(value, q) {
					return
				}
			}
		}
	}
}

// weightIn finds the q among the parameters of an element; without one it is 1.
func weightIn(parameters string) (q float64, ok bool) {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(parameter, "=")
		if strings.EqualFold(strings.Trim(name, " \t"), "q") {
			q, err := strconv.ParseFloat(strings.Trim(value, " \t"), 64)
			return q, err == nil && 0 <= q && q <= 1
		}
	}
	return 1, true
}

// negotiate returns the media type among the offers that the client likes best, of equals the first. A client that says
// nothing, or nothing that can be understood, gets the first offer; one that excludes all gets errNotAcceptable.
func negotiate(header http.Header, offers ...string) (string, error) {
	lines := header[headerAccept]
	if len(lines) == 0 || len(lines) == 1 && (lines[0] == "*/*" || lines[0] == offers[0]) {
		return offers[0], nil
	}
	best, most, understood := "", 0.0, false
	for _, offer := range offers {
		q, says := acceptance(lines, offer)
		understood = understood || says
		if q > most {
			best, most = offer, q
		}
	}
	switch {
	case !understood:
		return offers[0], nil
	case best == "":
		return "", refuse(errNotAcceptable, "the answer is available as %s", strings.Join(offers, " and "))
	}
	return best, nil
}

// acceptance is the weight of a media type in an Accept, of the most specific element that matches it; understood says
// that the header has an element at all.
func acceptance(lines []string, media string) (weight float64, understood bool) {
	kind, _, _ := strings.Cut(media, "/")
	specific := 0
	for element, q := range qualities(lines) {
		if !strings.Contains(element, "/") {
			continue
		}
		understood = true
		level := 0
		switch element {
		case media:
			level = 3
		case kind + "/*":
			level = 2
		case "*/*":
			level = 1
		}
		if level > specific {
			specific, weight = level, q
		}
	}
	return weight, understood
}

// acceptsGzip tells whether an answer may be compressed.
func acceptsGzip(header http.Header) bool {
	for coding, q := range qualities(header[headerAcceptEncoding]) {
		if coding == "gzip" {
			return q > 0
		}
	}
	return false
}
