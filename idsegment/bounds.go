package idsegment

import "fmt"

// Bounds are the IDs that one issuer may give in a range: Lo, Lo+Stride, Lo+2*Stride, ... below Hi. IDs start at 1. Stride
// 0 counts as 1. There are none when Lo has reached Hi: the range is smaller than the number of issuers.
type Bounds struct{ Lo, Hi, Stride int64 }

// String is for logs and errors: "[2, 101) by 3".
func (b Bounds) String() string { return fmt.Sprintf("[%d, %d) by %d", b.Lo, b.Hi, b.stride()) }

// stride is at least 1.
func (b Bounds) stride() int64 { return max(b.Stride, 1) }

// contains reports whether id is one of the IDs.
func (b Bounds) contains(id int64) bool {
	return id >= b.Lo && id < b.Hi && b.inClass(id)
}

// inClass reports whether id could be one of the IDs if the range were larger.
func (b Bounds) inClass(id int64) bool { return (id-b.Lo)%b.stride() == 0 }

// countBelow is how many of the IDs are below id.
func (b Bounds) countBelow(id int64) int64 {
	id = min(id, b.Hi)
	if id <= b.Lo {
		return 0
	}
	return (id-b.Lo-1)/b.stride() + 1 // rounded up, without a sum that could overflow
}

// count is how many IDs there are.
func (b Bounds) count() int64 { return b.countBelow(b.Hi) }

// ceil is the first of the IDs that is not below id, or their end: the first ID of the class that is not below Hi.
func (b Bounds) ceil(id int64) int64 { return b.Lo + b.countBelow(id)*b.stride() }
