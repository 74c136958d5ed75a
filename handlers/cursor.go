package handlers

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
)

// cursor is where a list goes on. Its text says nothing of the gateway or the process that made it, and there need be no
// record at its place any more.
type cursor struct {
	// scope names the list: a cursor of one list is none of another.
	scope string
	// descending is the direction of the list.
	descending bool
	// after is the ID behind which the list goes on, from 1.
	after int64
}

// The bytes of a cursor: version, direction, ID, hash of the scope, checksum of all before it.
const (
	cursorVersion   = 1
	cursorScopeAt   = 2 + 8
	cursorSumAt     = cursorScopeAt + 8
	cursorBytes     = cursorSumAt + 4
	cursorAscending = 0
)

// cursorText is base64url without padding.
var cursorText = base64.RawURLEncoding

// cursorSums is the polynomial of the checksum, which catches slips and not malice: whoever makes a cursor up can only
// begin a list of their own at a place of their choice.
var cursorSums = crc32.MakeTable(crc32.Castagnoli)

// String is the text of a cursor.
func (c cursor) String() string {
	text := make([]byte, 0, cursorBytes)
	direction := byte(cursorAscending)
	if c.descending {
		direction = 1
	}
	text = binary.BigEndian.AppendUint64(append(text, cursorVersion, direction), uint64(c.after))
	scope := sha256.Sum256([]byte(c.scope))
	text = append(text, scope[:cursorSumAt-cursorScopeAt]...)
	return cursorText.EncodeToString(binary.BigEndian.AppendUint32(text, crc32.Checksum(text, cursorSums)))
}

// parseCursor reads the cursor of a list, and accepts nothing that String does not make. The errors match errParameter.
func parseCursor(text, scope string, descending bool) (cursor, error) {
	raw, err := cursorText.DecodeString(text)
	if err != nil || len(raw) != cursorBytes || raw[0] != cursorVersion || raw[1] > 1 ||
		binary.BigEndian.Uint32(raw[cursorSumAt:]) != crc32.Checksum(raw[:cursorSumAt], cursorSums) {
		return cursor{}, refuse(errParameter, "cursor: this is not a cursor that a list gave: send the next of the page before, or none to start over")
	}
	c := cursor{scope, raw[1] == 1, int64(binary.BigEndian.Uint64(raw[2:]))}
	switch {
	case c.after < 1:
		return cursor{}, refuse(errParameter, "cursor: this is not a cursor that a list gave: its place is out of bounds")
	case c.descending != descending:
		return cursor{}, refuse(errParameter, "cursor: it is of a list in the other order: send the same order as with the page before")
	case c.String() != text: // also when the text has line breaks, which the decoder ignores
		return cursor{}, refuse(errParameter, "cursor: it is of another list: send it to the path that gave it")
	}
	return c, nil
}
