package idsegment

import "context"

// Count is how many IDs have been leased.
func (i Issued) Count() int64 { return i.countBelow(i.Next) }

// Look reads how far the issuer has come with one sequence, false when it does not know it.
func (i *Issuer) Look(ctx context.Context, name Name) (issued Issued, found bool, err error) {
	r, found, err := i.row(ctx, name)
	return Issued{Name: name, Bounds: r.Bounds, Next: r.next}, found, err
}
