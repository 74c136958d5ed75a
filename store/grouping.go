package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"keyrange/store/sqldb"
)

// errGrouping means that the rows of a collection are grouped by another member than config says. Nothing was written.
var errGrouping = errors.New("the group of a collection differs")

// groupings is what a node knows of the groups of its rows: by which member of the documents each collection is grouped.
// A collection that is not listed is not grouped. As long as no ID of a collection has been leased, that may change.
type groupings struct{ db *sqldb.DB }

const (
	createGroupingsMySQL = `CREATE TABLE IF NOT EXISTS gateway_group (
	collection VARBINARY(64) NOT NULL PRIMARY KEY,
	member     VARBINARY(64) NOT NULL
) ENGINE=InnoDB`
	createGroupingsSQLite = `CREATE TABLE IF NOT EXISTS gateway_group (
	collection BLOB NOT NULL PRIMARY KEY,
	member     BLOB NOT NULL
) STRICT, WITHOUT ROWID`
)

func (g groupings) create(ctx context.Context) error {
	create := createGroupingsMySQL
	if g.db.Engine() == sqldb.SQLite {
		create = createGroupingsSQLite
	}
	if _, err := g.db.Exec(ctx, create); err != nil {
		return fmt.Errorf("create the table gateway_group: %w", err)
	}
	return nil
}

// read lists the members by collection.
func (g groupings) read(ctx context.Context) (map[string]string, error) {
	stored := map[string]string{}
	exists, err := g.db.TableExists(ctx, "gateway_group")
	if err != nil || !exists {
		return stored, err
	}
	err = g.db.Query(ctx, func(r *sql.Rows) error {
		var collection, member []byte
		if err := r.Scan(&collection, &member); err != nil {
			return err
		}
		stored[string(collection)] = string(member)
		return nil
	}, "SELECT collection, member FROM gateway_group")
	return stored, err
}

// regrouping is a change of what a node knows of a collection.
type regrouping struct {
	collection, member string
	// was is the member so far; known is false when there is none.
	was   string
	known bool
	// prepared says that range tables of the collection exist on the node.
	prepared bool
}

// judge compares what the node knows with the shapes of the collections, and lists what would have to change. A collection
// whose IDs have been leased is an errGrouping. It writes nothing.
func (g groupings) judge(ctx context.Context, shapes schema) (changes []regrouping, err error) {
	stored, err := g.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read how records are grouped: %w", err)
	}
	for collection, shape := range shapes {
		was, known := stored[collection]
		if was == shape.group {
			continue
		}
		tables, used, err := g.usage(ctx, collection)
		if err != nil {
			return nil, fmt.Errorf("look for records of %s: %w", collection, err)
		}
		if used {
			return nil, regroupingFault(collection, was, shape.group)
		}
		changes = append(changes, regrouping{collection, shape.group, was, known, len(tables) > 0})
	}
	return changes, nil
}

// regroupingFault says why the group of a collection cannot change.
func regroupingFault(collection, was, is string) error {
	name := func(member string) string {
		if member == "" {
			return "no group"
		}
		return fmt.Sprintf("the group %q", member)
	}
	return fmt.Errorf("%w: collection %s: config says %s, but its records were made with %s: put that back, or use another collection: "+
		"the group of a collection with records can never change", errGrouping, collection, name(is), name(was))
}

// usage lists the range tables of a collection, and reports whether an ID of one may have been used.
func (g groupings) usage(ctx context.Context, collection string) (tables []string, used bool, err error) {
	all, err := sqlScanner{g.db, nil}.tables(ctx)
	if err != nil {
		return nil, false, err
	}
	own := regexp.MustCompile(`(?i)^` + collection + `_r\d{5,}$`) // some servers fold the case of table names
	hasLedger := slices.Contains(all, "gateway_segment")
	for _, table := range all {
		if !own.MatchString(table) {
			continue
		}
		tables = append(tables, table)
		queries := []string{fmt.Sprintf("SELECT 1 FROM `%s` LIMIT 1", table)}
		if hasLedger {
			queries = append(queries, "SELECT 1 FROM gateway_segment WHERE range_table = '"+table+"' LIMIT 1")
		}
		for _, query := range queries {
			if err := g.db.Query(ctx, func(*sql.Rows) error { used = true; return nil }, query); err != nil {
				return nil, false, err
			}
		}
	}
	return tables, used, nil
}

// note makes the node know a change, unless it has learnt another one meanwhile or an ID was leased.
func (g groupings) note(ctx context.Context, c regrouping) error {
	if err := g.create(ctx); err != nil {
		return err
	}
	var err error
	if c.known {
		_, err = g.db.Exec(ctx, "UPDATE gateway_group SET member = ? WHERE collection = ? AND member = ?", []byte(c.member), []byte(c.collection), []byte(c.was))
	} else {
		_, err = g.db.Exec(ctx, "INSERT INTO gateway_group (collection, member) VALUES (?, ?)", []byte(c.collection), []byte(c.member))
	}
	if err != nil && !errors.Is(err, sqldb.ErrDuplicate) {
		return fmt.Errorf("note how records are grouped: %w", err)
	}
	stored, err := g.read(ctx)
	if err != nil {
		return err
	}
	if stored[c.collection] != c.member {
		return regroupingFault(c.collection, stored[c.collection], c.member)
	}
	// Written first and looked at afterwards, as a lease is in the ledger: of this and a lease by a gateway with the earlier
	// config, one sees the other.
	_, used, err := g.usage(ctx, c.collection)
	if err != nil || !used {
		return err
	}
	if c.known {
		_, err = g.db.Exec(ctx, "UPDATE gateway_group SET member = ? WHERE collection = ? AND member = ?", []byte(c.was), []byte(c.collection), []byte(c.member))
	} else {
		_, err = g.db.Exec(ctx, "DELETE FROM gateway_group WHERE collection = ? AND member = ?", []byte(c.collection), []byte(c.member))
	}
	return errors.Join(regroupingFault(c.collection, c.was, c.member), err)
}

// sameGrouping checks, for a lease, that the node knows the collection of a range table as this gateway does.
func (l sqlLedger) sameGrouping(ctx context.Context, table string) error {
	collection := table[:max(0, strings.LastIndex(table, "_r"))]
	member := ""
	err := l.db.Query(ctx, func(r *sql.Rows) error {
		var text []byte
		err := r.Scan(&text)
		member = string(text)
		return err
	}, "SELECT member FROM gateway_group WHERE collection = ?", []byte(collection))
	if err == nil && member != l.shapes.of(table).group {
		err = regroupingFault(collection, member, l.shapes.of(table).group)
	}
	return err
}

// judgeGroupings compares what the usable nodes of a verdict know of groups with this config, and returns what each is to
// learn. A node that cannot be used with this config is at fault. Nodes that are nil are in use already. Whether a
// collection is used can only be told when all nodes answer, and so can a change that concerns it.
func (s *Store) judgeGroupings(ctx context.Context, nodes []*sqldb.DB, v *Verdict) [][]regrouping {
	changes := make([][]regrouping, len(nodes))
	var mu sync.Mutex
	agreed := map[string]bool{} // collections that some node knows as config does
	inUse := slices.Contains(nodes, nil)
	eachAdapter(ctx, nodes, s.shapes, v, func(f *Finding) bool { return f.usable() }, func(ctx context.Context, i int, a adapter) (err error) {
		changes[i], err = groupings{a.db}.judge(ctx, s.shapes)
		mu.Lock()
		defer mu.Unlock()
		for collection, shape := range s.shapes {
			differs := slices.ContainsFunc(changes[i], func(c regrouping) bool { return c.collection == collection })
			agreed[collection] = agreed[collection] || err == nil && shape.grouped() && !differs
		}
		return err
	})
	complete := !inUse && v.Err() == nil && v.away() == nil
	for i := range changes {
		for _, c := range changes[i] {
			fresh := !c.known && !c.prepared
			if complete || fresh && (inUse || agreed[c.collection]) {
				continue
			}
			found := &v.Nodes[i]
			if found.Err == nil {
				found.Away = fresh
				found.Err = fmt.Errorf("node at %s: the group of collection %s can only be set while every node answers", nodes[i].Location(), c.collection)
			}
		}
	}
	return changes
}

// JudgeGroups adds to a verdict what is wrong with nodes whose records are grouped by other members than config says; groups
// has those by collection, "" for none. It writes nothing.
func (f Fleet) JudgeGroups(ctx context.Context, v *Verdict, groups map[string]string) {
	shapes := schema{}
	for collection, member := range groups {
		shapes[collection] = newShape(member)
	}
	eachAdapter(ctx, f.Nodes, shapes, v, func(f *Finding) bool { return f.usable() }, func(ctx context.Context, _ int, a adapter) error {
		_, err := groupings{a.db}.judge(ctx, shapes)
		return err
	})
}
