package faults

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"keyrange/rangeshard"
	"keyrange/test/gateway"
)

// stored is what the databases of a stack hold.
type stored struct {
	live map[string]storedRow // by key
	// fences counts tombstones, dangling the entries without a live row.
	fences, entries, dangling int
	faults                    []string
}

// storedRow is a live row.
type storedRow struct {
	id       int64
	document string
}

func (s *stored) complain(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// examine reads all databases, while nothing is on its way, and checks what must hold then: an ID lives once (I2) and on
// the node that owns its range (I5), a key lives once (I4), and its entry points at its row (I3).
func examine(t *testing.T, s gateway.Stack) *stored {
	t.Helper()
	found := &stored{live: map[string]storedRow{}}
	ids := map[int64]string{}
	for _, n := range s.Nodes {
		owned, err := rangeshard.ParseRanges(n.Ranges)
		if err != nil {
			t.Fatal(err)
		}
		db := gateway.OpenSQL(t, n.DSN)
		for _, table := range gateway.Tables(t, db, n.DSN) {
			var number int64
			if _, err := fmt.Sscanf(table, "records_r%d", &number); err != nil {
				continue
			}
			if !owned.Contains(number) {
				found.complain("I5: %s has the table %s", n.Name, table)
			}
			found.table(t, db, table, (number-1)*s.RangeSize+1, number*s.RangeSize, ids)
		}
		_ = db.Close() // it was only read
	}
	entries := entriesOf(t, s)
	found.entries = len(entries)
	for key, id := range entries {
		if row, live := found.live[key]; !live || row.id != id {
			found.dangling++
		}
	}
	for key, row := range found.live {
		if id, ok := entries[key]; !ok || id != row.id {
			found.complain("I3: %s lives at %d, its entry says %d", key, row.id, id)
		}
	}
	return found
}

// table reads a range table, which may hold the IDs from lo to hi.
func (s *stored) table(t *testing.T, db *sql.DB, table string, lo, hi int64, ids map[int64]string) {
	t.Helper()
	rows, err := db.Query("SELECT id, state, biz_key, document FROM " + table) // the gateway made the name
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, state int64
		var key []byte
		var document string
		if err := rows.Scan(&id, &state, &key, &document); err != nil {
			t.Fatal(err)
		}
		if id < lo || id > hi {
			s.complain("I5: %s holds row %d", table, id)
		}
		if other, twice := ids[id]; twice {
			s.complain("I2: ID %d is in %s and in %s", id, other, table)
		}
		ids[id] = table
		if state != 0 {
			s.fences++
			continue
		}
		if other, twice := s.live[string(key)]; twice {
			s.complain("I4: %s lives at %d and at %d", key, other.id, id)
		}
		s.live[string(key)] = storedRow{id, document}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// entriesOf reads the index of a stack.
func entriesOf(t *testing.T, s gateway.Stack) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	if !strings.HasPrefix(s.Index, "sqlite:") {
		for _, e := range gateway.Entries(t, s.Index) {
			if e.Collection == "records" && e.Key != "" {
				all[e.Key] = e.ID
			}
		}
		return all
	}
	rows, err := gateway.OpenSQL(t, s.Index).Query("SELECT key, id FROM entries_records")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var key []byte
		var id int64
		if err := rows.Scan(&key, &id); err != nil {
			t.Fatal(err)
		}
		all[string(key)] = id
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// compare checks what is stored against what the clients were told: what was acknowledged is there, and what was deleted
// is not (I3, I6). It returns how many records are lost and how many are mixed up: another document, or one that was
// deleted.
func (s *stored) compare(l *load) (lost, mixedUp int) {
	for _, b := range l.beliefs() {
		switch document := s.live[b.key].document; {
		case b.allows(document):
		case document == "":
			lost++
			s.complain("I3: %s is lost, it was %q with tag %s, then perhaps %q", b.key, b.document, b.found, b.maybe)
		default:
			mixedUp++
			s.complain("I3: %s is stored as %q, it was %q with tag %s, then perhaps %q", b.key, document, b.document, b.found, b.maybe)
		}
	}
	for key, row := range s.live {
		if !strings.HasPrefix(row.document, fmt.Sprintf(`{"key":%q,`, key)) && strings.Contains(row.document, `"n":`) {
			mixedUp++
			s.complain("I4: under %s is stored %s", key, row.document)
		}
	}
	return lost, mixedUp
}

// readBack reads up to most records of clients and all keys that clients share through a gateway.
func (l *load) readBack(most int) {
	beliefs := l.beliefs()
	rand.Shuffle(len(beliefs), func(i, j int) { beliefs[i], beliefs[j] = beliefs[j], beliefs[i] })
	beliefs = beliefs[:min(len(beliefs), most)]
	_ = gateway.Together(l.options.clients, func(c int) error {
		random := rand.New(rand.NewPCG(l.options.seed, uint64(c)))
		for i := c; i < len(beliefs); i += l.options.clients {
			l.settle(func() reply { return l.ask(c, beliefs[i], get, random) })
		}
		for i := c; i < len(l.histories); i += l.options.clients {
			h := l.histories[i]
			l.settle(func() reply {
				r := l.send(c, request{kind: get, key: h.key}, random)
				h.add(r)
				return r
			})
		}
		return nil
	})
}

// settle repeats a read that is refused, as a client does that is told to come back, and complains when it does not succeed
// though all is well.
func (l *load) settle(read func() reply) {
	for start := time.Now(); ; <-time.After(retryPause) {
		r := read()
		if r.status == http.StatusOK || r.status == http.StatusNotFound {
			return
		}
		if time.Since(start) > backWithin {
			l.complain("read of %s when all is well: %s", r.key, r.name())
			return
		}
	}
}

// checkHistories checks the keys that clients share and returns how many were not linearizable.
func (l *load) checkHistories() (wrong int) {
	for _, h := range l.histories {
		if err := h.check(); err != nil {
			l.complain("%v", err)
			wrong++
		}
	}
	return wrong
}
