package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// keyBytes is the entropy of a made key: nobody guesses 256 bits, which is why a fast hash of a key is enough.
const keyBytes = 32

// keyMark starts a made key, so that people and secret scanners know one when they see it.
const keyMark = "kr_"

// digest is the SHA-256 of a key.
type digest [sha256.Size]byte

// NewKey makes a fresh random key, which has no dots, and its SHA-256.
func NewKey() (key string, sum [sha256.Size]byte) {
	random := make([]byte, keyBytes)
	_, _ = rand.Read(random) // it never fails: it ends the program instead
	key = keyMark + base64.RawURLEncoding.EncodeToString(random)
	return key, sha256.Sum256([]byte(key))
}
