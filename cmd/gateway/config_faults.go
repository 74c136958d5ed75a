package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// origin says where the value of a key comes from: a line of the file, or a variable of the environment. The zero
// value is a default.
type origin struct {
	line     int // from 1; 0 is not in the file
	variable string
}

// faults gathers all that is wrong with a config, so that it can be mended in one go.
type faults struct {
	file    string
	origins map[string]origin // by key, such as nodes[1].ranges
	dropped map[string]bool   // keys whose value was refused while reading, so that no rule should look at it
	list    []fault
}

type fault struct {
	origin
	text string
}

func newFaults(file string) *faults {
	return &faults{file: file, origins: map[string]origin{}, dropped: map[string]bool{}}
}

// add records a broken rule of a key. Neither may hold a secret.
func (f *faults) add(key, rule string) {
	f.list = append(f.list, fault{f.originOf(key), key + ": " + rule})
}

// drop records why the value of a key was left out, and keeps later rules from judging what stands in for it.
func (f *faults) drop(key, rule string) {
	f.add(key, rule)
	f.dropped[key] = true
}

// check records a broken rule, with the value that broke it, unless ok.
func (f *faults) check(ok bool, key, rule string, got any) {
	if !ok {
		f.reject(key, rule, got)
	}
}

// reject records a broken rule, with the value that broke it.
func (f *faults) reject(key, rule string, got any) {
	if !f.isDropped(key) {
		f.add(key, fmt.Sprintf("%s (got %s)", rule, shown(got)))
	}
}

// at records a fault of a place rather than of a key's value.
func (f *faults) at(from origin, text string) { f.list = append(f.list, fault{from, text}) }

// isDropped reports whether the key, or a list or section that it is in, was left out.
func (f *faults) isDropped(key string) bool {
	for {
		if f.dropped[key] {
			return true
		}
		parent, ok := parentOf(key)
		if !ok {
			return false
		}
		key = parent
	}
}

// given reports whether the file or the environment sets the key.
func (f *faults) given(key string) bool { return f.origins[key] != origin{} }

// originOf is the origin of the key or else of what it is in.
func (f *faults) originOf(key string) origin {
	for {
		if from, ok := f.origins[key]; ok {
			return from
		}
		parent, ok := parentOf(key)
		if !ok {
			return origin{}
		}
		key = parent
	}
}

// parentOf cuts the last step of a key: nodes[1].ranges is in nodes[1], which is in nodes.
func parentOf(key string) (string, bool) {
	i := strings.LastIndexAny(key, ".[")
	if i < 0 {
		return "", false
	}
	return key[:i], true
}

// err lists the faults, those of the file in its order, then those of the environment, then the rest; nil without any.
func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	slices.SortStableFunc(f.list, func(a, b fault) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.line, b.line), cmp.Compare(a.variable, b.variable))
	})
	lines := make([]string, len(f.list))
	for i, one := range f.list {
		lines[i] = f.place(one.origin) + one.text
	}
	return errors.New(strings.Join(slices.Compact(lines), "\n"))
}

func (f *faults) place(from origin) string {
	switch {
	case from.variable != "":
		return from.variable + ": "
	case from.line > 0:
		return fmt.Sprintf("%s:%d: ", f.file, from.line)
	}
	return f.file + ": "
}

func (o origin) rank() int {
	switch {
	case o.variable != "":
		return 1
	case o.line > 0:
		return 0
	}
	return 2
}

// shown is a value as a fault message may repeat it: on one line, not too long, and nothing that looks like a URL,
// because a DSN under the wrong key is still a secret.
func shown(value any) string {
	text, ok := value.(string)
	if !ok {
		return fmt.Sprint(value)
	}
	const longest = 80 // characters
	switch {
	case strings.Contains(text, "://"):
		return redacted
	case utf8.RuneCountInString(text) > longest:
		return fmt.Sprintf("%q...", string([]rune(text)[:longest]))
	}
	return fmt.Sprintf("%q", text)
}
