package idsegment

import "context"

// NextN issues up to n IDs of one issuer, which are neighbours as far as nobody else takes any meanwhile. It returns none
// when the issuer whose turn it is has none and fails to lease: Next tells why.
func (r *Rotation) NextN(ctx context.Context, n int) []int64 {
	count, turn := uint64(len(r.slots)), r.turn.Add(1)
	for k := range count {
		s := r.working(int((turn + k) % count))
		if s == nil || count > 1 && s.failing() != nil {
			continue
		}
		ids, _ := s.NextN(ctx, n) // those that it got are good whatever the error
		return ids
	}
	return nil
}
