package idsegment

import (
	"context"
	"database/sql"
	"fmt"
)

// Raise makes a range go on at next at the least, rounded up to the issuer's class, and reports whether that changed
// anything; the next ID is never lowered. It repairs an issuer that was restored from a backup. ErrRewound: the range has
// no row. ErrMismatch: it, or the database, is another issuer's. After ErrUnavailable it may have taken effect, and it is
// safe to try again.
func (i *Issuer) Raise(ctx context.Context, name Name, next int64) (bool, error) {
	for range rowAttempts {
		r, err := i.ownRow(ctx, name)
		if err != nil {
			return false, fmt.Errorf("raise %s at %s: %w", name, i.Describe(), err)
		}
		to := r.ceil(next)
		if r.next >= to {
			return false, nil
		}
		result, err := i.db.Exec(ctx, `UPDATE id_segment SET next_id = ?
			WHERE collection = ? AND range_no = ? AND lo = ? AND hi = ? AND stride = ? AND next_id < ?`,
			to, []byte(name.Collection), name.Range, r.Lo, r.Hi, r.Stride, to)
		if err != nil {
			return false, i.translate("raise "+name.String(), err)
		}
		if changed, err := result.RowsAffected(); changed == 1 || err != nil {
			return changed == 1, err
		}
	}
	return false, fmt.Errorf("raise %s at %s: %w: the row keeps changing", name, i.Describe(), ErrUnavailable)
}

// Rebuild makes the database this issuer of the cluster, whatever it was before, in one transaction: afterwards it knows
// exactly the given ranges. Of each, Lo and Hi are the bounds of the whole range, Stride is ignored, and the issuer goes on
// at its first ID that is not below Next. Tables are created before, when they are missing. After ErrUnavailable it is
// rebuilt or as it was, and it is safe to try again.
//
// It is for changing the number of issuers while no gateway runs: IDs that one has leased already are not seen by it.
func (i *Issuer) Rebuild(ctx context.Context, cluster string, ranges []Issued) error {
	if err := checkCluster(cluster); err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	seen := map[Name]bool{}
	for _, r := range ranges {
		if err := i.checkRange(r.Name, r.Lo, r.Hi); err != nil {
			return fmt.Errorf("rebuild with %w", err)
		}
		if seen[r.Name] {
			return fmt.Errorf("rebuild with %s twice", r.Name)
		}
		seen[r.Name] = true
	}
	if err := i.createTables(ctx); err != nil {
		return err
	}
	err := i.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		// The identity goes first: Register locks it, so from here on no gateway adds a range of the old class.
		_, err := tx.ExecContext(ctx, "REPLACE INTO id_cluster (one, cluster, issuer_no, issuers) VALUES (1, ?, ?, ?)",
			[]byte(cluster), i.number, i.of)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM id_segment"); err != nil {
			return err
		}
		for _, r := range ranges {
			b := i.Bounds(r.Lo, r.Hi)
			_, err := tx.ExecContext(ctx,
				"INSERT INTO id_segment (collection, range_no, lo, hi, stride, next_id) VALUES (?, ?, ?, ?, ?, ?)",
				[]byte(r.Collection), r.Range, b.Lo, b.Hi, b.Stride, b.ceil(r.Next))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return i.translate("rebuild", err)
	}
	return nil
}
