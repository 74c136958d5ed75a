package handlers

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"keyrange/store"
)

// Header names of an expiry, in the form that http.Header keeps them.
const (
	// headerTTL is how many seconds a record is to live from now on, as in RFC 8030.
	headerTTL = "Ttl"
	// headerExpires is when a record ceases to exist, by RFC 3339. (Expires is about caches.)
	headerExpires = "Record-Expires"
)

// maxTTL is the longest life of a record that has an expiry: 10 years of 365 days.
const maxTTL = 10 * 365 * 24 * time.Hour

// errTTL refuses a time to live that breaks the rules.
var errTTL = errors.New("invalid time to live")

// expiresLayout is RFC 3339 with as many digits of a second as there are, which is microseconds at most.
const expiresLayout = "2006-01-02T15:04:05.999999Z07:00"

// readTTL reads the TTL header of a write; x.ttl stays 0 when there is none.
func (x *exchange) readTTL() (err error) {
	switch lines := x.Request().Header[headerTTL]; len(lines) {
	case 0:
	case 1:
		x.ttl, err = parseTTL(lines[0], "the TTL header")
	default:
		err = refuse(errTTL, "the TTL header comes %d times", len(lines))
	}
	return err
}

// parseTTL reads a number of seconds; what says where it is from.
func parseTTL(text, what string) (time.Duration, error) {
	const most = int64(maxTTL / time.Second)
	n, err := strconv.ParseInt(text, 10, 64)
	// ParseInt takes signs, which a number of seconds does not have here.
	if err != nil || n < 1 || n > most || text[0] == '+' {
		return 0, refuse(errTTL, "%s must be a whole number of seconds, 1 to %d", what, most)
	}
	return time.Duration(n) * time.Second, nil
}

// expiring gives what a write stores its expiry: by the TTL header of the request, or else by the member of the document
// that the collection names for it, or else never.
func (s *Server) expiring(x *exchange, c store.Content) (store.Content, error) {
	ttl := x.ttl
	if ttl == 0 && x.collection.TTLMember != "" {
		if value := memberOf(c.Document, x.collection.TTLMember); value != nil {
			var err error
			if ttl, err = parseTTL(string(value), "the member "+x.collection.TTLMember); err != nil {
				return store.Content{}, err
			}
		}
	}
	if ttl > 0 {
		c.ExpiresAt = s.now().Add(ttl).UTC().Truncate(time.Microsecond)
	}
	return c, nil
}

// patched is what a patch stores: the expiry stays as it is, unless the patch says it anew.
func (s *Server) patched(x *exchange, p *patch, old store.Record, c store.Content) (store.Content, error) {
	_, given := p.position[x.collection.TTLMember]
	if given && x.collection.TTLMember != "" || x.ttl > 0 {
		return s.expiring(x, c)
	}
	c.ExpiresAt = old.ExpiresAt
	return c, nil
}

// memberOf is the value of a top-level member of a document that was checked; nil when it has none.
func memberOf(document []byte, name string) jsontext.Value {
	s := scanners.Get().(*scanner)
	defer func() {
		s.input = bytes.Buffer{}
		s.decoder.Reset(&s.input)
		scanners.Put(s)
	}()
	s.input = *bytes.NewBuffer(document)
	d := s.decoder
	d.Reset(&s.input)
	_, _ = d.ReadToken() // the object begins
	for d.PeekKind() == jsontext.KindString {
		quoted, err := d.ReadValue()
		if err != nil {
			return nil
		}
		found := s.named(quoted, name)
		value, err := d.ReadValue()
		if err != nil {
			return nil
		}
		if found {
			return bytes.Clone(value)
		}
	}
	return nil
}

// describeExpiry sets the header that tells when a record ceases to exist, if it does.
func describeExpiry(header http.Header, rec store.Record) {
	if !rec.ExpiresAt.IsZero() {
		header[headerExpires] = []string{rec.ExpiresAt.UTC().Format(expiresLayout)}
	}
}
