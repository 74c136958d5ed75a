package faults

import (
	"fmt"
	"net/http"
	"slices"
)

// belief is what the only writer of a key knows of its record. Requests for the key come one after the other.
type belief struct {
	key string
	// document and found are the record as it was last proved to be; the document is empty when there is none.
	document string
	found    tag
	// maybe has the documents (empty: a delete) of the writes whose outcome is unknown. Each of them may have taken effect,
	// or may still do so.
	maybe []string
}

// allows reports whether a document, or none, may be what is stored.
func (b *belief) allows(document string) bool {
	return b.document == document || slices.Contains(b.maybe, document)
}

// mayExist reports whether there may be a record.
func (b *belief) mayExist() bool {
	return b.document != "" || slices.ContainsFunc(b.maybe, func(d string) bool { return d != "" })
}

// follows reports whether the record that was found may have this tag: as long as nothing is uncertain, no other.
func (b *belief) follows(found tag, version int64) bool {
	return len(b.maybe) > 0 || found == tag{b.found.id, version}
}

// learn takes in a reply, and returns an error when no order of the writes explains it (I3, I4, I6).
func (b *belief) learn(r reply) error {
	switch r.outcome {
	case refused:
		return nil
	case unknown:
		if r.kind != get {
			b.maybe = append(b.maybe, r.document)
		}
		return nil
	case done:
	}
	before := *b
	if b.accept(r) {
		return nil
	}
	return fmt.Errorf("%s, body %.100q, tag %s, to the only client of %s, which was told that the record is %q with tag %s, then perhaps %q",
		r.name(), r.body, r.found, r.key, before.document, before.found, before.maybe)
}

// accept takes in a certain reply and reports whether it is possible.
func (b *belief) accept(r reply) (possible bool) {
	switch {
	case r.kind == get && r.status == http.StatusOK:
		possible = b.allows(r.body) && b.follows(r.found, b.found.version)
		b.become(r.body, r.found)
	case r.status == http.StatusNotFound:
		possible = b.allows("")
		b.become("", tag{})
	case r.status == http.StatusCreated:
		possible = b.allows("") && r.body == r.document && r.found.version == 1
		b.become(r.document, r.found)
	case r.status == http.StatusOK:
		possible = b.mayExist() && r.body == r.document && r.found.version > 1 && b.follows(r.found, b.found.version+1)
		b.become(r.document, r.found)
	case r.status == http.StatusNoContent:
		possible = b.mayExist()
		b.become("", tag{})
	case r.status == http.StatusConflict:
		possible = b.mayExist() && (len(b.maybe) > 0 || r.found == b.found)
	case r.status == http.StatusPreconditionFailed:
		possible = len(b.maybe) > 0 || r.tag != b.found.String()
	}
	return possible
}

// become notes what is stored now. A write that has been seen happens no second time.
func (b *belief) become(document string, found tag) {
	if b.document != document {
		if i := slices.Index(b.maybe, document); i >= 0 {
			b.maybe = slices.Delete(b.maybe, i, i+1)
		}
	}
	b.document, b.found = document, found
}
