package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"keyrange/idsegment"
	"keyrange/store/sqldb"
)

// Standing is how far an issuer has come with a range, by its own word and by the ledger of the range's node. The ledger is
// exact: no ID is used before its segment stands there.
type Standing struct {
	idsegment.Name
	// Issuer is its number, from 1.
	Issuer int
	// Next is the first ID that the issuer has not leased; 0 when it does not know the range.
	Next int64
	// Ledger is the end of the highest segment that it leased; 0 when it leased none.
	Ledger int64
	// Raised is what Repair has made of Next, at least; 0 when it left it alone.
	Raised int64
	// lo and hi bound the whole range.
	lo, hi int64
}

// Behind reports whether the issuer would lease IDs again that are in use.
func (s Standing) Behind() bool { return s.Next < s.Ledger }

// ledgerKey is an issuer's part of a node's ledger.
type ledgerKey struct {
	table  string
	issuer int
}

// ledgerEnds reads the ledger of a node: the end of the highest segment of each range table and issuer. A node that has
// never held a range has none.
func ledgerEnds(ctx context.Context, db *sqldb.DB) (map[ledgerKey]int64, error) {
	ends := map[ledgerKey]int64{}
	exists, err := db.TableExists(ctx, "gateway_segment")
	if err != nil || !exists {
		return ends, err
	}
	err = db.Query(ctx, func(r *sql.Rows) error {
		var table []byte
		var key ledgerKey
		var end int64
		if err := r.Scan(&table, &key.issuer, &end); err != nil {
			return err
		}
		key.table = string(table)
		ends[key] = end
		return nil
	}, "SELECT range_table, issuer, MAX(end_id) FROM gateway_segment GROUP BY range_table, issuer")
	return ends, err
}

// readLedgers reads the ledgers of all nodes. Every one must be the node that the map says it is.
func (f Fleet) readLedgers(ctx context.Context) (ledgers []map[ledgerKey]int64, cluster string, err error) {
	nodes := Fleet{Map: f.Map, Nodes: f.Nodes}
	v := nodes.Verify(ctx)
	if err := errors.Join(v.Err(), v.away()); err != nil {
		return nil, "", err
	}
	if v.cluster == "" {
		return nil, "", errors.New("no node has a stamp: this fleet has never been started, there is nothing to repair")
	}
	for i, db := range f.Nodes {
		ends, err := ledgerEnds(ctx, db)
		if err != nil {
			return nil, "", f.located(i, fmt.Errorf("read the ledger: %w", err))
		}
		ledgers = append(ledgers, ends)
	}
	return ledgers, v.cluster, nil
}

// Standings compares the issuers with the ledgers of the nodes, for every range of the collections that either knows. It
// writes nothing. All nodes must answer; a nil issuer is left out.
func (f Fleet) Standings(ctx context.Context, collections []string) ([]Standing, error) {
	ledgers, _, err := f.readLedgers(ctx)
	if err != nil {
		return nil, err
	}
	next := map[ledgerKey]int64{}
	for i, issuer := range f.Issuers {
		if issuer == nil {
			continue
		}
		list, err := issuer.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("ids.issuers[%d]: %w", i, err)
		}
		for _, seq := range list {
			next[ledgerKey{tableName(seq.Collection, seq.Range), i + 1}] = seq.Next
		}
	}
	var all []Standing
	for _, collection := range collections {
		for number := int64(1); number <= f.Map.LastRange(); number++ {
			r, node, _ := f.Map.Range(number) // every number up to the last is owned
			for i, issuer := range f.Issuers {
				key := ledgerKey{tableName(collection, number), i + 1}
				s := Standing{Name: idsegment.Name{Collection: collection, Range: number}, Issuer: i + 1,
					Next: next[key], Ledger: ledgers[node][key], lo: r.Lo, hi: r.Hi}
				if issuer != nil && (s.Next > 0 || s.Ledger > 0) {
					all = append(all, s)
				}
			}
		}
	}
	return all, nil
}

// Repair brings issuers that were set back up to the ledgers, and returns those of the standings before that it changed.
// With skip, which may be 0, each issuer of each range gives up so many IDs more. It is safe while gateways run.
func (f Fleet) Repair(ctx context.Context, collections []string, skip int64) (mended []Standing, err error) {
	all, err := f.Standings(ctx, collections)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if !s.Behind() && skip == 0 {
			continue
		}
		issuer := f.Issuers[s.Issuer-1]
		if err := issuer.Register(ctx, s.Name, s.lo, s.hi); err != nil {
			return mended, err
		}
		s.Raised = max(s.Next, s.Ledger) + skip*int64(len(f.Issuers))
		if _, err := issuer.Raise(ctx, s.Name, s.Raised); err != nil {
			return mended, err
		}
		mended = append(mended, s)
	}
	return mended, nil
}

// Rebuild makes the issuers of the fleet anew from the ledgers of its nodes, whatever their databases held before; nil ones
// are left out. To rebuild some of them is safe while gateways run, as long as their number stays. To change the number,
// all are rebuilt while none runs.
func (f Fleet) Rebuild(ctx context.Context, collections []string) error {
	ledgers, cluster, err := f.readLedgers(ctx)
	if err != nil {
		return err
	}
	highest := map[string]int64{} // by range table, over all issuers that ever leased
	for _, ends := range ledgers {
		for key, end := range ends {
			highest[key.table] = max(highest[key.table], end)
		}
	}
	var known []idsegment.Issued
	for _, collection := range collections {
		for number := int64(1); number <= f.Map.LastRange(); number++ {
			r, _, _ := f.Map.Range(number) // every number up to the last is owned
			if next := highest[tableName(collection, number)]; next > 0 {
				known = append(known, idsegment.Issued{
					Name: idsegment.Name{Collection: collection, Range: number}, Bounds: idsegment.Bounds{Lo: r.Lo, Hi: r.Hi}, Next: next,
				})
			}
		}
	}
	for i, issuer := range f.Issuers {
		if issuer == nil {
			continue
		}
		if err := issuer.Rebuild(ctx, cluster, known); err != nil {
			return fmt.Errorf("ids.issuers[%d]: %w", i, err)
		}
	}
	return nil
}
