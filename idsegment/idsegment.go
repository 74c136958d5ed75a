// Package idsegment gives every record its ID. An issuer is a database that hands out segments, blocks of IDs, each to
// one gateway; a sequence hands the IDs of its segments out within the process, without a round trip per ID. Of K issuers
// each owns a class of the IDs: issuer i those that are congruent to i modulo K. A rotation hands out the IDs of one range
// from the sequences of all issuers, so that any K-1 of them may be down.
//
// Everything here serves I1: an ID is issued at most once, ever. IDs may be lost (a crash, a lost reply), so they have
// gaps, and across gateways they are not ordered by time.
package idsegment

import (
	"context"
	"errors"
	"fmt"
)

// Outcomes of leasing and issuing. None of them can leave an ID behind that is issued a second time.
var (
	// ErrExhausted: the range has no IDs left to lease. Another gateway that stops may still hand some back.
	ErrExhausted = errors.New("no IDs left in the range")
	// ErrUnavailable: the issuer cannot be reached, refuses, or did not answer in time. A segment that it leased all the
	// same is lost, nobody will use it.
	ErrUnavailable = errors.New("issuer unavailable")
	// ErrRewound: the issuer's row is missing, behind IDs that are known to be issued, or reaches outside the range or the
	// issuer's class. Its word cannot be trusted, so nothing is issued until an operator has looked: an alarm.
	ErrRewound = errors.New("issuer rewound")
	// ErrMismatch: the database is another issuer than the caller takes it for, or knows the range under other bounds.
	ErrMismatch = errors.New("issuer does not match")
	// ErrClosed: the sequence, or the rotation, has been closed.
	ErrClosed = errors.New("sequence closed")
	// ErrUnknown: a job may have been taken on, or may be yet. Of leases nobody needs to know.
	ErrUnknown = errors.New("outcome unknown")
)

// Segment is the block of IDs Start, Start+stride, ... below End, where the stride is that of the issuer's Bounds. End is
// Start plus a whole number of strides, so it may exceed the end of the range, by less than one. A segment is empty unless
// Start < End.
type Segment struct{ Start, End int64 }

// Name names one sequence. The same ID may be issued in two collections, never in two ranges of one.
type Name struct {
	// Collection has 1 to 64 bytes and is compared byte by byte.
	Collection string
	// Range is the range's number, from 1.
	Range int64
}

// String is for logs and errors: "orders/1".
func (n Name) String() string { return fmt.Sprintf("%s/%d", n.Collection, n.Range) }

// Issued is how far an issuer has come with one sequence.
type Issued struct {
	Name
	// Bounds are the IDs of the range that are the issuer's to give.
	Bounds
	// Next is the first of them that is not leased. All are when it has reached Hi.
	Next int64
}

// Count is how many of the IDs have been leased.
func (i Issued) Count() int64 { return i.countBelow(i.Next) }

// Leaser is what a sequence needs of an issuer. Errors match ErrExhausted, ErrUnavailable, ErrRewound or ErrMismatch.
type Leaser interface {
	// Lease hands out 1 to count IDs that nobody else ever gets.
	Lease(ctx context.Context, name Name, count int64) (Segment, error)
	// Return takes a tail back that was leased last and not used, and reports whether it could. Whatever it answers, the
	// caller must not use the tail any more.
	Return(ctx context.Context, name Name, tail Segment) (bool, error)
}
