// Package rangeshard knows which node owns which IDs: ranges, the map that is proved from them, and the stamps by which
// nodes prove that they are who config says they are. Routing is pure; only stamp.go talks to a node.
package rangeshard

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Range is a contiguous block of IDs, [Lo, Hi), with its number, counted from 1.
type Range struct {
	Number int64
	Lo, Hi int64
}

// Contains reports whether the range owns the ID.
func (r Range) Contains(id int64) bool { return r.Lo <= id && id < r.Hi }

// span is a run of range numbers, both ends included.
type span struct{ first, last int64 }

// Ranges is a set of range numbers, kept as ordered, disjoint, non-adjacent spans. The zero value is empty.
type Ranges struct{ spans []span }

// maxRange bounds range numbers, so that their table names stay short and a slip such as "1-10000000000" is caught.
const maxRange = 9_999_999

var spanSyntax = regexp.MustCompile(`^([1-9][0-9]*)(?:-([1-9][0-9]*))?$`)

// ParseRanges reads a list such as "1", "2-5" or "1,4-5". Numbers are plain decimals from 1 to 9,999,999; a number may
// occur once only.
func ParseRanges(text string) (Ranges, error) {
	var spans []span
	for _, part := range strings.Split(text, ",") {
		m := spanSyntax.FindStringSubmatch(strings.TrimSpace(part))
		if m == nil {
			return Ranges{}, fmt.Errorf(`%q is not a list of ranges: want for instance "1", "2-5" or "1,4-5"`, text)
		}
		first, err := strconv.ParseInt(m[1], 10, 64)
		last := first
		if m[2] != "" && err == nil {
			last, err = strconv.ParseInt(m[2], 10, 64)
		}
		if err != nil || first > maxRange || last > maxRange {
			return Ranges{}, fmt.Errorf("%q: range numbers end at %d", text, maxRange)
		}
		if last < first {
			return Ranges{}, fmt.Errorf("%q runs backwards", strings.TrimSpace(part))
		}
		spans = append(spans, span{first, last})
	}
	slices.SortFunc(spans, func(a, b span) int { return int(a.first - b.first) })
	joined := spans[:1]
	for _, s := range spans[1:] {
		end := &joined[len(joined)-1]
		if s.first <= end.last {
			return Ranges{}, fmt.Errorf("%q lists range %d twice", text, s.first)
		}
		if s.first == end.last+1 {
			end.last = s.last
			continue
		}
		joined = append(joined, s)
	}
	return Ranges{joined}, nil
}

// String is the shortest list that ParseRanges reads back; empty for the zero value.
func (r Ranges) String() string {
	parts := make([]string, len(r.spans))
	for i, s := range r.spans {
		parts[i] = s.String()
	}
	return strings.Join(parts, ",")
}

func (s span) String() string {
	if s.first == s.last {
		return strconv.FormatInt(s.first, 10)
	}
	return fmt.Sprintf("%d-%d", s.first, s.last)
}

// Covers reports whether every number of other is in r too.
func (r Ranges) Covers(other Ranges) bool {
	for _, s := range other.spans {
		inside := slices.ContainsFunc(r.spans, func(t span) bool { return t.first <= s.first && s.last <= t.last })
		if !inside {
			return false
		}
	}
	return true
}

// Contains reports whether a number is in the set.
func (r Ranges) Contains(number int64) bool { return r.Covers(Ranges{[]span{{number, number}}}) }

// Equal reports whether both sets hold the same numbers.
func (r Ranges) Equal(other Ranges) bool { return slices.Equal(r.spans, other.spans) }

// Count is how many numbers are in the set.
func (r Ranges) Count() int64 {
	var count int64
	for _, s := range r.spans {
		count += s.last - s.first + 1
	}
	return count
}

// Bounds are the lowest and the highest number in the set; 0 and 0 when it is empty.
func (r Ranges) Bounds() (first, last int64) {
	if len(r.spans) == 0 {
		return 0, 0
	}
	return r.spans[0].first, r.spans[len(r.spans)-1].last
}
