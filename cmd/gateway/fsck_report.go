package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"keyrange/store"
)

const (
	// fsckExamples is how much damage of one kind is printed piece by piece.
	fsckExamples = 20
	// fsckBarTick and fsckLineTick are the pauses between two signs of progress, on a screen and in a log.
	fsckBarTick, fsckLineTick = 100 * time.Millisecond, 5 * time.Second
)

// fsckReport gathers examples of damage. One call at a time.
type fsckReport struct {
	out      io.Writer
	showKeys bool
	examples map[store.DamageKind][]store.Damage
}

func newFsckReport(out io.Writer, showKeys bool) *fsckReport {
	return &fsckReport{out, showKeys, map[store.DamageKind][]store.Damage{}}
}

// found takes a piece of damage.
func (r *fsckReport) found(d store.Damage) {
	if len(r.examples[d.Kind]) < fsckExamples {
		r.examples[d.Kind] = append(r.examples[d.Kind], d)
	}
}

// print says what was looked at and what was found.
func (r *fsckReport) print(c store.SweepCounts, repair bool, took time.Duration) {
	fmt.Fprintf(r.out, "looked at %s entries, %s records and %s fences in %.1f s\n",
		thousands(c.Entries), thousands(c.Rows), thousands(c.Fences), took.Seconds())
	mended := func(n int64, how string) string {
		if !repair {
			return ""
		}
		return fmt.Sprintf(", %s %s", thousands(n), how)
	}
	if c.Expired > 0 {
		fmt.Fprintf(r.out, "%s expired records%s\n", thousands(c.Expired), mended(c.Buried, "are gone"))
	}
	r.kind(store.Stray, c.Strays, "stray records"+mended(c.Reindexed, "have their entries again"))
	r.kind(store.Double, c.Doubles, "double records")
	r.kind(store.Misplaced, c.Misplaced, "misplaced rows")
	r.kind(store.Unlisted, c.Unlisted, "ranges not listed for a group"+mended(c.Relisted, "are listed again"))
	r.kind(store.Beyond, c.Beyond, "entries beyond the ranges")
	r.kind(store.Dangling, c.Dangling, "dangling entries (harmless)"+mended(c.Removed, "are gone"))
	if c.Harmful() == 0 {
		fmt.Fprintln(r.out, "no damage is left")
	}
}

// kind prints how much damage of a kind there is, with examples; nothing when there is none.
func (r *fsckReport) kind(kind store.DamageKind, n int64, what string) {
	if n == 0 {
		return
	}
	fmt.Fprintf(r.out, "%s %s\n", thousands(n), what)
	for _, d := range r.examples[kind] {
		fmt.Fprintf(r.out, "  %s\n", r.describe(d))
	}
	if more := n - int64(len(r.examples[kind])); more > 0 {
		fmt.Fprintf(r.out, "  and %s more\n", thousands(more))
	}
}

// describe is one line about a piece of damage.
func (r *fsckReport) describe(d store.Damage) string {
	line := fmt.Sprintf("ID %d in %s on %s", d.ID, d.Table, d.Node)
	switch {
	case d.Table == "":
		line = fmt.Sprintf("ID %d of %s, which no range has", d.ID, d.Collection)
	case d.Kind == store.Beyond:
		line += ", which is not there"
	}
	switch {
	case d.Kind == store.Double:
		line += fmt.Sprintf(", the other one is ID %d", d.Entry)
	case d.Kind == store.Stray && d.Entry != 0:
		line += fmt.Sprintf(", its entry points at ID %d", d.Entry)
	}
	if d.Repaired {
		line += ", mended"
	}
	if r.showKeys {
		line += fmt.Sprintf(", key %q", d.Key)
	}
	return line
}

// fsckProgress shows how far a look has come: a bar on a terminal, a line every few seconds elsewhere. One call at a time.
type fsckProgress struct {
	notes io.Writer
	bar   *progressbar.ProgressBar
	began time.Time
	last  time.Time
}

func newFsckProgress(notes io.Writer) *fsckProgress {
	p := &fsckProgress{notes: notes, began: time.Now(), last: time.Now()}
	if f, ok := notes.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(notes), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
	}
	return p
}

// show takes how much of how much has been looked at.
func (p *fsckProgress) show(done, of int64, c store.SweepCounts) {
	tick := fsckLineTick
	if p.bar != nil {
		tick = fsckBarTick
	}
	now := time.Now()
	if now.Sub(p.last) < tick {
		return
	}
	p.last = now
	looked := c.Rows + c.Fences + c.Entries
	what := fmt.Sprintf("%s rows, %s entries, %s/s", thousands(c.Rows+c.Fences), thousands(c.Entries), perSecond(looked, now.Sub(p.began)))
	if p.bar == nil {
		fmt.Fprintf(p.notes, "fsck: %s, about %d %%\n", what, done*100/max(of, 1))
		return
	}
	p.bar.ChangeMax64(of)
	p.bar.Describe(what)
	_ = p.bar.Set64(done)
}

// finish takes the bar away.
func (p *fsckProgress) finish() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
