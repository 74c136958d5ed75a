package handlers

import (
	"net/http"
	"strconv"
	"strings"

	"keyrange/store"
)

// Header names in the form that http.Header keeps them, for the places that use its map directly.
const (
	headerETag         = "Etag"
	headerIfMatch      = "If-Match"
	headerIfNoneMatch  = "If-None-Match"
	headerIfUnmodSince = "If-Unmodified-Since"
)

// maxConditionTags bounds an If-Match list, because each of its versions goes into the statement.
const maxConditionTags = 100

// entityTag is one element of an If-Match or If-None-Match list.
type entityTag struct {
	// opaque is the text between the quotes.
	opaque string
	weak   bool
}

// formatETag is the strong ETag of a version of a record.
func formatETag(tag store.Tag) string {
	text := make([]byte, 0, len(`"9223372036854775807-9223372036854775807"`))
	text = strconv.AppendInt(append(text, '"'), tag.ID, 10)
	text = strconv.AppendInt(append(text, '-'), tag.Version, 10)
	return string(append(text, '"'))
}

// parseTags reads a list of entity tags as RFC 9110 section 8.8.3 writes them, over all lines of a header. star means
// that the list is a lone *. ok is false for anything else.
func parseTags(lines []string) (tags []entityTag, star, ok bool) {
	rest := strings.Trim(strings.Join(lines, ","), " \t,")
	if rest == "*" {
		return nil, true, true
	}
	for rest != "" {
		var tag entityTag
		rest, tag.weak = strings.CutPrefix(rest, "W/")
		if rest == "" || rest[0] != '"' {
			return nil, false, false
		}
		end := strings.IndexByte(rest[1:], '"') + 1
		if end == 0 || strings.ContainsFunc(rest[1:end], notInTag) {
			return nil, false, false
		}
		tag.opaque = rest[1:end]
		tags = append(tags, tag)
		after := strings.TrimLeft(rest[end+1:], " \t")
		if after != "" && after[0] != ',' {
			return nil, false, false
		}
		rest = strings.TrimLeft(after, " \t,")
	}
	return tags, false, len(tags) > 0
}

// notInTag tells the characters that an entity tag cannot contain.
func notInTag(r rune) bool { return r <= ' ' || r == 0x7F }

// record is the version that an entity tag names. A weak tag, or one that the gateway never made, names none; it gets a
// tag that no record has, because IDs begin at 1.
func (t entityTag) record() store.Tag {
	id, version, _ := strings.Cut(t.opaque, "-")
	var tag store.Tag
	var err error
	if tag.ID, err = strconv.ParseInt(id, 10, 64); err != nil {
		return store.Tag{}
	}
	if tag.Version, err = strconv.ParseInt(version, 10, 64); err != nil || t.weak || tag.String() != t.opaque {
		return store.Tag{}
	}
	return tag
}

// ifMatch reads the If-Match of a request; without one the condition demands nothing.
func ifMatch(header http.Header) (store.Condition, error) {
	lines := header[headerIfMatch]
	if len(lines) == 0 {
		return store.Condition{}, nil
	}
	tags, star, ok := parseTags(lines)
	switch {
	case !ok:
		return store.Condition{}, refuse(errETag, `If-Match is neither * nor a list of quoted entity tags, like "5-1"`)
	case len(tags) > maxConditionTags:
		return store.Condition{}, refuse(errETag, "If-Match has %d entity tags, at most %d are allowed", len(tags), maxConditionTags)
	case star:
		return store.Condition{Exists: true}, nil
	}
	cond := store.Condition{Tags: make([]store.Tag, len(tags))}
	for i, tag := range tags {
		cond.Tags[i] = tag.record()
	}
	return cond, nil
}

// writeConditions reads the conditions of a write: If-Match, or If-None-Match: * where mayCreate allows it. A condition
// that could not be kept is refused, never ignored.
func writeConditions(header http.Header, mayCreate bool) (cond store.Condition, createOnly bool, err error) {
	none := header[headerIfNoneMatch]
	switch {
	case len(header[headerIfUnmodSince]) > 0:
		return cond, false, refuse(errCondition, "If-Unmodified-Since is not supported, a second is too coarse: use If-Match")
	case len(none) > 0 && !mayCreate:
		return cond, false, refuse(errCondition, "If-None-Match makes no sense here")
	case len(none) > 0 && len(header[headerIfMatch]) > 0:
		return cond, false, refuse(errCondition, "If-Match and If-None-Match exclude each other")
	case len(none) > 0:
		if _, star, ok := parseTags(none); !ok || !star {
			return cond, false, refuse(errCondition, "If-None-Match of a write can only be *")
		}
		return cond, true, nil
	}
	cond, err = ifMatch(header)
	return cond, false, err
}

// matches tells whether a read's If-Match, already parsed, lets it see this version.
func matches(cond store.Condition, tag store.Tag) bool {
	if len(cond.Tags) == 0 {
		return true
	}
	for _, t := range cond.Tags {
		if t == tag {
			return true
		}
	}
	return false
}

// notModified tells whether If-None-Match names this ETag, by weak comparison. A malformed list names nothing: the worst
// that follows is an answer in full.
func notModified(header http.Header, etag string) bool {
	lines := header[headerIfNoneMatch]
	if len(lines) == 0 {
		return false
	}
	tags, star, _ := parseTags(lines)
	if star {
		return true
	}
	for _, tag := range tags {
		if tag.opaque == etag[1:len(etag)-1] {
			return true
		}
	}
	return false
}
