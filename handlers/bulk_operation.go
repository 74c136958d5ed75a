package handlers

import (
	"bytes"
	"context"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"keyrange/store"
)

// parameterOp is the query parameter of a POST that says what it does; without it, it creates.
const parameterOp = "op"

// Values of parameterOp.
const (
	opGet    = "get"
	opPut    = "put"
	opDelete = "delete"
)

// operation reads the op of a POST, which takes no Idempotency-Key with it: a put or a delete may be repeated anyway.
func (x *exchange) operation() (string, error) {
	if !x.query.Has(parameterOp) {
		return "", nil
	}
	op, err := x.parameter(parameterOp)
	switch {
	case err != nil:
		return "", err
	case op != opGet && op != opPut && op != opDelete:
		return "", refuse(errParameter, "op must be get, put or delete.")
	case x.idempotency != "":
		return "", refuse(errIdempotencyKey, "an Idempotency-Key is for creates, it goes with no op")
	}
	return op, nil
}

// accepts refuses a request that does not take an answer of this media type.
func (x *exchange) accepts(media string) error {
	_, err := negotiate(x.Request().Header, media)
	return err
}

// postBulk puts or deletes the items in the body, an array or lines.
func (s *Server) postBulk(x *exchange, op, media string) error {
	if err := x.accepts(media); err != nil {
		return err
	}
	work := s.putting(x)
	if op == opDelete {
		work = s.deleting(x)
	}
	if media == mediaNDJSON {
		return s.bulkLines(x, work)
	}
	body, err := x.readArray(x.bulkLimit(), op)
	if err != nil {
		return err
	}
	return s.bulkArray(x, work, body)
}

// readArray reads a body that can only be an array.
func (x *exchange) readArray(most limit, op string) ([]byte, error) {
	body, _, err := x.readBody(most, most)
	if err == nil && !bytes.HasPrefix(bytes.TrimLeft(body, jsonSpace), []byte{'['}) {
		err = refuse(errInvalidJSON, "op=%s takes a JSON array, or lines as %s", op, mediaNDJSON)
	}
	return body, err
}

// creating is the operation of a POST without op.
func (s *Server) creating(x *exchange) operation {
	return operation{
		scan: func(raw []byte, it *item) (err error) {
			it.doc, err = x.collection.scan(raw)
			return err
		},
		run: func(ctx context.Context, it *item) (store.Record, int, error) {
			rec, _, err := s.create(ctx, x, it.doc, it.position)
			return rec, http.StatusCreated, err
		},
	}
}

// putting is the operation of op=put: each record is stored whether or not there is one under its key.
func (s *Server) putting(x *exchange) operation {
	return operation{
		scan: func(raw []byte, it *item) (err error) {
			if it.doc, err = x.collection.scan(raw); err == nil && !it.doc.hasKey {
				err = refuse(errInvalidKey, "op=put needs the key in each record, as its member %s", x.collection.KeyMember)
			}
			return err
		},
		run: func(ctx context.Context, it *item) (store.Record, int, error) {
			content, err := x.collection.complete(it.doc, it.doc.key, s.records.MaxDocumentBytes())
			if err != nil {
				return store.Record{}, 0, err
			}
			if content, err = s.expiring(x, content); err != nil {
				return store.Record{}, 0, err
			}
			rec, created, err := s.records.Put(ctx, x.collection.Name, it.doc.key, content, it.cond)
			if created {
				return rec, http.StatusCreated, err
			}
			return rec, http.StatusOK, err
		},
	}
}

// deleting is the operation of op=delete: an item is a key, or an object with a key and the etag that the record must
// have, as in If-Match.
func (s *Server) deleting(x *exchange) operation {
	return operation{
		scan: func(raw []byte, it *item) (err error) {
			it.doc.key, it.cond, err = deletionIn(raw)
			it.doc.hasKey = err == nil
			return err
		},
		run: func(ctx context.Context, it *item) (store.Record, int, error) {
			err := s.records.Delete(ctx, x.collection.Name, it.doc.key, it.cond)
			return store.Record{Key: it.doc.key}, http.StatusNoContent, err
		},
	}
}

// deletionIn reads an item of op=delete.
func deletionIn(raw []byte) (key string, cond store.Condition, err error) {
	if !bytes.HasPrefix(raw, []byte{'{'}) {
		key, err = keyIn(raw)
		return key, cond, err
	}
	var it struct {
		Key  *string `json:"key"`
		ETag *string `json:"etag"`
	}
	// The error would quote the item.
	if json.Unmarshal(raw, &it, json.RejectUnknownMembers(true)) != nil || it.Key == nil {
		return "", cond, refuse(errInvalidJSON, `an item of op=delete is a key, or an object like {"key": "a", "etag": "\"5-1\""}`)
	}
	if err := checkKey(*it.Key); err != nil {
		return "", cond, err
	}
	if it.ETag != nil {
		cond, err = ifMatch(http.Header{headerIfMatch: {*it.ETag}})
	}
	return *it.Key, cond, err
}

// keyIn reads an item that is a key and nothing else.
func keyIn(raw []byte) (string, error) {
	switch value := jsontext.Value(raw); {
	case !value.IsValid():
		return "", refuse(errInvalidJSON, "an item is not valid JSON")
	case value.Kind() != jsontext.KindString:
		return "", refuse(errInvalidKey, "an item that stands for a key is not a string")
	default:
		key := unquoted(value)
		return key, checkKey(key)
	}
}
