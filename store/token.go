package store

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
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
	flake    *sonyflake.Sonyflake
	instance uint64
	writes   atomic.Uint64
}

// flakeEpoch is where sonyflake starts counting; its 39 bits of 10 ms last 174 years from there.
var flakeEpoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// NewIdentity draws a random sonyflake machine number. Should two gateways draw the same one, a made key of one may
// meet a made key of the other, which the index refuses like any other duplicate; tokens stay apart by a random start.
func NewIdentity() (*Identity, error) {
	var seed [10]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("draw the identity of this gateway: %w", err)
	}
	flake, err := sonyflake.New(sonyflake.Settings{
		StartTime: flakeEpoch,
		MachineID: func() (uint16, error) { return binary.BigEndian.Uint16(seed[:2]), nil },
	})
	if err != nil {
		return nil, fmt.Errorf("start sonyflake: %w", err)
	}
	id := &Identity{flake: flake}
	if id.instance, err = flake.NextID(); err != nil {
		return nil, fmt.Errorf("name this gateway: %w", err)
	}
	id.writes.Store(binary.BigEndian.Uint64(seed[2:]))
	return id, nil
}

// Instance is the name of this gateway process, unique for ever.
func (i *Identity) Instance() string { return strconv.FormatUint(i.instance, 36) }

// NewKey makes a business key. Sonyflake gives 25,600 a second at most and makes callers wait beyond that.
func (i *Identity) NewKey() (string, error) {
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
