package store

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/sonyflake"
)

// token marks the write that last changed a row, so that a gateway recognises its own write when the reply was lost. It
// is the instance's name and a counter: unique over all gateways, and it costs no clock and no lock.
type token [16]byte

// tokenOf reads a token from a row.
func tokenOf(b []byte) (t token) {
	copy(t[:], b)
	return t
}

// Identity makes what must be unique over all gateways: the instance's name, write tokens, and keys for records that
// were posted without one. Record IDs never come from here.
type Identity struct {
	instance uint64
	writes   atomic.Uint64

	mu    sync.Mutex // of what follows
	flake *sonyflake.Sonyflake
	// latest is the latest time on the clock so far, without its monotonic part.
	latest time.Time
}

// flakeEpoch is where sonyflake starts counting; its 39 bits of 10 ms last 174 years from there.
var flakeEpoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// flakeTick is sonyflake's unit of time; a clock that goes back by less makes nobody wait for long.
const flakeTick = 10 * time.Millisecond

// NewIdentity draws a random sonyflake machine number. Should two gateways draw the same one, a made key of one may
// meet a made key of the other, which the index refuses like any other duplicate; tokens stay apart by a random start.
func NewIdentity() (*Identity, error) {
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("draw the identity of this gateway: %w", err)
	}
	id := &Identity{latest: time.Now().Round(0)}
	var err error
	if id.flake, err = newFlake(); err != nil {
		return nil, err
	}
	if id.instance, err = id.flake.NextID(); err != nil {
		return nil, fmt.Errorf("name this gateway: %w", err)
	}
	id.writes.Store(binary.BigEndian.Uint64(seed[:]))
	return id, nil
}

// newFlake starts a sonyflake with a random machine number.
func newFlake() (*sonyflake.Sonyflake, error) {
	var machine [2]byte
	if _, err := rand.Read(machine[:]); err != nil {
		return nil, fmt.Errorf("draw a machine number: %w", err)
	}
	flake, err := sonyflake.New(sonyflake.Settings{
		StartTime: flakeEpoch,
		MachineID: func() (uint16, error) { return binary.BigEndian.Uint16(machine[:]), nil },
	})
	if err != nil {
		return nil, fmt.Errorf("start sonyflake: %w", err)
	}
	return flake, nil
}

// Instance is the name of this gateway process, unique for ever.
func (i *Identity) Instance() string { return strconv.FormatUint(i.instance, 36) }

// NewKey makes a business key. Sonyflake gives 25,600 a second at most and makes callers wait beyond that.
//
// When the clock has been set back, a sonyflake sleeps until it is where it was. Another machine number makes other keys at
// the same times, so that nobody has to wait.
func (i *Identity) NewKey() (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now().Round(0)
	if now.Before(i.latest.Add(-flakeTick)) {
		flake, err := newFlake()
		if err != nil {
			return "", fmt.Errorf("make a key: %w", err)
		}
		i.flake, i.latest = flake, now
	}
	if now.After(i.latest) {
		i.latest = now
	}
	n, err := i.flake.NextID()
	if err != nil {
		return "", fmt.Errorf("make a key: %w", err)
	}
	return strconv.FormatUint(n, 36), nil
}

// token makes the mark of one write.
func (i *Identity) token() (t token) {
	binary.BigEndian.PutUint64(t[:8], i.instance)
	binary.BigEndian.PutUint64(t[8:], i.writes.Add(1))
	return t
}

// Once marks a create that its client repeats when it got no answer. The zero value marks none.
type Once struct{ mark token }

// NewOnce makes the mark of a create from the idempotency key that the client gave it and the document as it was sent. The
// same key with another document makes another mark that is known to be of the same key.
func NewOnce(idempotencyKey, collection, key string, document []byte) Once {
	var o Once
	of := sha256.New()
	for _, part := range []string{collection, key, idempotencyKey} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		of.Write(length[:])
		of.Write([]byte(part))
	}
	copy(o.mark[:onceKeyBytes], of.Sum(nil))
	body := sha256.Sum256(document)
	copy(o.mark[onceKeyBytes:], body[:])
	return o
}

// onceKeyBytes is how much of a mark tells idempotency keys apart; the rest tells documents apart. Marks are only ever
// compared between creates of one record, so that 64 bits each are plenty.
const onceKeyBytes = 8

// isZero reports whether no create is marked.
func (o Once) isZero() bool { return o == Once{} }

// judge says what a live record that stands in the way of the marked create is to it: its own, made by an earlier
// repetition and not changed since (nil), another one's, or its own but for the document.
func (o Once) judge(r *row) error {
	switch {
	case o.isZero() || !bytes.Equal(r.token[:onceKeyBytes], o.mark[:onceKeyBytes]):
		return &ConflictError{Existing: r.tag()}
	case r.token != o.mark:
		return ErrReused
	}
	return nil
}
