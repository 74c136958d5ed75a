package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"keyrange/handlers"
)

// rangesBarWidth is the length of the bar of a range, in columns.
const rangesBarWidth = 30

// printRanges prints, for each collection, its outlook and a table of the ranges that were opened.
func printRanges(out io.Writer, r handlers.Ranges) error {
	for i, c := range r.Collections {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintln(out, outlookLine(c))
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		rows := 0
		for _, l := range r.Ranges {
			if l.Collection != c.Collection {
				continue
			}
			if rows == 0 {
				fmt.Fprintf(table, "  range\tissued\t\trecords\tsize\tnode\n")
			}
			rows++
			fmt.Fprintf(table, "  %d\t%s\t%s\t%s\t%s\t%s\n", l.Range, rangeBar(l), issuedShare(l), rangeRecords(l), rangeSize(l), rangeNode(l))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		if rows == 0 {
			fmt.Fprintln(out, "  no range has been opened yet")
		}
	}
	return nil
}

// outlookLine says how long the ranges of a collection last.
func outlookLine(c handlers.CollectionRanges) string {
	atLeast := ""
	if !c.Complete {
		atLeast = "at least "
	}
	line := fmt.Sprintf("%s: %s, %s%s of %s IDs issued, %s left", c.Collection, c.State, atLeast, thousands(c.IssuedIDs), thousands(c.OwnedIDs), thousands(c.LeftIDs))
	switch {
	case c.GrowthIDsPerDay == nil:
		return line + ", growth not known yet"
	case c.DaysLeft == nil:
		return line + ", none issued in the last 24 hours"
	}
	days := thousands(int64(*c.DaysLeft))
	if *c.DaysLeft < 10 {
		days = fmt.Sprintf("%.1f", *c.DaysLeft)
	}
	return fmt.Sprintf("%s, %s a day, enough for %s days", line, thousands(int64(math.Round(*c.GrowthIDsPerDay))), days)
}

// share is how much of the range is issued, 0 to 1.
func share(l handlers.RangeLevel) float64 {
	return float64(l.IssuedIDs) / float64(l.LastID-l.FirstID+1)
}

// rangeBar draws how much of the range is issued; a bar is full only when the range is.
func rangeBar(l handlers.RangeLevel) string {
	filled := int(share(l) * rangesBarWidth)
	return "[" + strings.Repeat("#", filled) + strings.Repeat(".", rangesBarWidth-filled) + "]"
}

// issuedShare is the same in percent.
func issuedShare(l handlers.RangeLevel) string {
	text := fmt.Sprintf("%.1f %%", math.Floor(share(l)*1000)/10)
	if !l.Complete {
		return ">=" + text
	}
	return text
}

// estimated marks what was not counted.
func estimated(l handlers.RangeLevel, text string) string {
	if l.Exact {
		return text
	}
	return "~" + text
}

func rangeRecords(l handlers.RangeLevel) string {
	if l.LiveRows == nil {
		return "unknown"
	}
	return estimated(l, thousands(*l.LiveRows))
}

func rangeSize(l handlers.RangeLevel) string {
	if l.Bytes == nil {
		return "unknown"
	}
	return estimated(l, humanize.IBytes(uint64(*l.Bytes)))
}

// rangeNode names the node, and says whether the range takes new records, as far as is known.
func rangeNode(l handlers.RangeLevel) string {
	switch {
	case l.Open:
		return l.Node + ", open"
	case l.Drained:
		return l.Node + ", drained"
	}
	return l.Node
}
