package idsegment

import (
	"math"
	"sync/atomic"
)

const (
	// never is a mark that no offset reaches, and a time that does not come.
	never = math.MaxInt64
	// cacheLineBytes is what amd64 and arm64 processors fetch and own as one, in most models.
	cacheLineBytes = 64
)

// buffer is a segment in use. Every ID is taken by moving used, so it cannot be taken twice, and a buffer that is used
// up or retired never issues again, whoever still holds a pointer to it.
type buffer struct {
	used atomic.Int64 // offset of the next ID; passes length when callers find nothing
	// Callers on all cores fight for used; what they only read is kept out of its cache line.
	_      [cacheLineBytes]byte
	mark   atomic.Int64 // the offset from which the next segment is to be fetched
	start  int64
	stride int64
	length int64 // in IDs
}

// newBuffer makes a buffer that asks for the next segment once half of it is used, or never when it is the last one.
func newBuffer(segment Segment, stride int64, last bool) *buffer {
	b := &buffer{start: segment.Start, stride: stride, length: (segment.End - segment.Start) / stride}
	b.mark.Store(b.length / 2)
	if last {
		b.mark.Store(never)
	}
	return b
}

// id is the ID at an offset.
func (b *buffer) id(offset int64) int64 { return b.start + offset*b.stride }

// take issues as many IDs as are left into ids and returns how many.
func (b *buffer) take(ids []int64) int {
	want := int64(len(ids))
	offset := b.used.Add(want) - want
	got := max(0, min(want, b.length-offset))
	for i := range got {
		ids[i] = b.id(offset + i)
	}
	return int(got)
}

// left is how many IDs are not taken yet.
func (b *buffer) left() int64 { return max(0, b.length-b.used.Load()) }

// retire takes all IDs that are left and returns them.
func (b *buffer) retire() Segment {
	offset := min(b.length, b.used.Swap(b.length))
	return Segment{Start: b.id(offset), End: b.id(b.length)}
}
