package idsegment

import (
	"slices"
	"testing"
)

// TestRotationNextN: IDs taken together are those of one issuer, without a gap in its class, and those given back come again.
func TestRotationNextN(t *testing.T) {
	for issuers := int64(1); issuers <= 3; issuers++ {
		r := NewRotation(int(issuers))
		defer r.Close(t.Context())
		for i := range issuers {
			bounds := Bounds{Lo: 1 + i, Hi: 10_001, Stride: issuers}
			r.Set(int(i), NewSequence(newMemory(bounds), Name{"c", 1}, bounds, bounds.Lo, Options{}))
		}
		seen := map[int64]bool{}
		for range 6 {
			ids := r.NextN(t.Context(), 50)
			if len(ids) != 50 {
				t.Fatalf("%d issuers: %d IDs", issuers, len(ids))
			}
			for i, id := range ids {
				if seen[id] {
					t.Errorf("%d issuers: ID %d comes twice", issuers, id)
				}
				if seen[id] = true; i > 0 && id != ids[i-1]+issuers {
					t.Errorf("%d issuers: ID %d follows %d", issuers, id, ids[i-1])
				}
			}
		}
		back := r.NextN(t.Context(), 3)
		for _, id := range back {
			r.Reuse(id)
		}
		again := []int64{}
		for range issuers {
			again = append(again, r.NextN(t.Context(), 3)...)
		}
		for _, id := range back {
			if !slices.Contains(again, id) {
				t.Errorf("%d issuers: ID %d was given back and does not come again", issuers, id)
			}
		}
	}
	if ids := NewRotation(2).NextN(t.Context(), 5); len(ids) > 0 {
		t.Errorf("without an issuer: %v", ids)
	}
}
