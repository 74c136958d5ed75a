package handlers

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"keyrange/store"
)

// Header names in the form that http.Header keeps them.
const (
	headerIdempotencyKey = "Idempotency-Key"
	// headerReplayed says that the answer is about a record that an earlier repetition of the request created.
	headerReplayed = "Idempotency-Replayed"
)

// maxIdempotencyKeyBytes is the longest Idempotency-Key, and more than a UUID or a hash takes.
const maxIdempotencyKeyBytes = 255

// errIdempotencyKey refuses an Idempotency-Key that breaks the rules.
var errIdempotencyKey = errors.New("invalid idempotency key")

// idempotency is the Idempotency-Key of a POST, empty when there is none.
type idempotency string

// idempotencyOf reads the Idempotency-Key of a request: 1 to 255 printable ASCII characters, compared as they come.
func idempotencyOf(header http.Header) (idempotency, error) {
	switch lines := header[headerIdempotencyKey]; {
	case len(lines) == 0:
		return "", nil
	case len(lines) > 1:
		return "", refuse(errIdempotencyKey, "there are %d of them", len(lines))
	case lines[0] == "" || len(lines[0]) > maxIdempotencyKeyBytes || strings.ContainsFunc(lines[0], func(r rune) bool { return r < ' ' || r > '~' }):
		return "", refuse(errIdempotencyKey, "it must have 1 to %d printable ASCII characters", maxIdempotencyKeyBytes)
	default:
		return idempotency(lines[0]), nil
	}
}

// once marks the create of a document under a key.
func (i idempotency) once(c *collection, key string, document []byte) store.Once {
	if i == "" {
		return store.Once{}
	}
	return store.NewOnce(string(i), c.Name, key, document)
}

// madeKeyLetters is how much of a hash a key is made of: 5 bits a letter, 130 in all, so that no two meet by accident.
const madeKeyLetters = 26

// madeKey is the key of a record that is posted without one, the same for each repetition of the request. position counts
// the items of a bulk request from 0.
func (i idempotency) madeKey(c *collection, position int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", c.Name, strconv.Itoa(position), i))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:madeKeyLetters]
}
