package store

import (
	"fmt"
	"testing"
	"time"

	"keyrange/index"
)

// loseDirectory removes what the directory has of a group.
func loseDirectory(t *testing.T, o *opened, group string) {
	t.Helper()
	for number := int64(1); number <= 4; number++ {
		e := groupPlace{testCollection, group, number}.entry()
		if err := o.index.Remove(t.Context(), directoryOf(testCollection), []index.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSweepUnlisted: ranges that the directory has lost are found from their rows by the sweeper and by fsck, and listed again.
func TestSweepUnlisted(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d = d.grouped()
		o := d.open(t)
		for i := range 120 {
			group := ""
			if i%4 > 0 {
				group = fmt.Sprint("g", i%4)
			}
			join(t, o, fmt.Sprintf("k%d", i), group)
		}
		w, clock := newTestSweeper(o)
		if got := w.pass(t, clock); got.Unlisted != 0 || got.Harmful() != 0 {
			t.Fatalf("a whole directory: %+v", got)
		}
		loseDirectory(t, o, "g1")
		loseDirectory(t, o, "g3")
		wantGroup(t, o, "g1", nil)
		look := func(repair bool) SweepCounts {
			var found []Damage
			counts, err := fleetOf(o).Fsck(t.Context(), Fsck{
				Index: o.index, Collections: []string{testCollection}, Groups: map[string]string{testCollection: d.Group}, Repair: repair,
				Now: time.Now, Found: func(d Damage) { found = append(found, d) }, Progress: func(int64, int64, SweepCounts) {},
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				if f.Kind != Unlisted || f.Repaired != repair || f.Table == "" || f.Node == "" {
					t.Errorf("%+v", f)
				}
			}
			return counts
		}
		if got := look(false); got.Unlisted == 0 || got.Relisted != 0 || got.Harmful() != got.Unlisted {
			t.Errorf("fsck: %+v", got)
		}
		wantGroup(t, o, "g1", nil)
		if got := look(true); got.Unlisted < 6 || got.Relisted != got.Unlisted || got.Harmful() != 0 {
			t.Errorf("fsck with repair: %+v", got)
		}
		wantGroup(t, o, "g1", o.keysOf(t, "g1"))
		loseDirectory(t, o, "g2")
		if got := w.pass(t, clock); got.Unlisted < 3 || got.Relisted != got.Unlisted {
			t.Errorf("the sweeper: %+v", got)
		}
		for _, group := range []string{"g1", "g2", "g3"} {
			if keys := o.keysOf(t, group); len(keys) != 30 {
				t.Errorf("%d rows in %s", len(keys), group)
			}
			wantGroup(t, o, group, o.keysOf(t, group))
		}
		// A config without the group, or with another one, would not make the directory again.
		for _, groups := range []map[string]string{nil, {testCollection: "other"}} {
			_, err := fleetOf(o).Fsck(t.Context(), Fsck{
				Index: o.index, Collections: []string{testCollection}, Groups: groups, Now: time.Now, Found: func(Damage) {}, Progress: func(int64, int64, SweepCounts) {},
			})
			wantError(t, fmt.Sprint("fsck grouped by ", groups), err, errGrouping)
		}
	})
}
