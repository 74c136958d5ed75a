package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"keyrange/idsegment"
)

// issuedRanges is what the issuers that answer say of the ranges, by name. One without an entry is new to all of them.
type issuedRanges map[idsegment.Name]issuedRange

// issuedRange is what the issuers that answer say of one range.
type issuedRange struct {
	// issued is how many of its IDs are leased.
	issued int64
	// left says that one of them has IDs left to lease.
	left bool
	// issuers is how many of them know it.
	issuers int
	// top is the end of its leased IDs; 0 when none is.
	top int64
}

// of returns what is known of a range.
func (r issuedRanges) of(collection string, number int64) issuedRange {
	known, ok := r[idsegment.Name{Collection: collection, Range: number}]
	known.left = known.left || !ok
	return known
}

// listIssued asks all issuers. It is nil when none answers; the error says why others do not.
func (s *Store) listIssued(ctx context.Context) (issuedRanges, error) {
	lists, err := askIssuers(ctx, s.issuers)
	return mergeIssued(lists), err
}

// askIssuers asks all issuers at once. The list of one that does not answer is nil; the error says why.
func askIssuers(ctx context.Context, issuers []*issuer) ([][]idsegment.Issued, error) {
	lists, errs := make([][]idsegment.Issued, len(issuers)), make([]error, len(issuers))
	var wg sync.WaitGroup
	for i, issuer := range issuers {
		wg.Go(func() {
			err := issuer.barred()
			if err == nil {
				lists[i], err = issuer.List(ctx)
			}
			if err != nil {
				lists[i], errs[i] = nil, fmt.Errorf("%s: %w", IssuerName(i, len(issuers)), err)
				return
			}
			lists[i] = append([]idsegment.Issued{}, lists[i]...) // an answer, if an empty one
		})
	}
	wg.Wait()
	return lists, errors.Join(errs...)
}

// mergeIssued adds up the lists of issuers, of which some may be nil; it is nil when all are.
func mergeIssued(lists [][]idsegment.Issued) issuedRanges {
	all, answered := issuedRanges{}, 0
	for _, list := range lists {
		if list == nil {
			continue
		}
		answered++
		for _, seq := range list {
			known := all[seq.Name]
			known.issued += seq.Count()
			known.left = known.left || seq.Next < seq.Hi
			known.issuers++
			if seq.Next > seq.Lo {
				known.top = max(known.top, seq.Next-max(seq.Stride, 1)+1)
			}
			all[seq.Name] = known
		}
	}
	if answered == 0 {
		return nil
	}
	for name, known := range all {
		known.left = known.left || known.issuers < answered // the others have all of theirs
		all[name] = known
	}
	return all
}
