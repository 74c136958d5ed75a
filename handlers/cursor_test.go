package handlers

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// TestCursor: a cursor fits its own list only, and one that was changed fits none.
func TestCursor(t *testing.T) {
	c := cursor{"records", true, 12345}
	text := c.String()
	if got, err := parseCursor(text, "records", true); err != nil || got != c {
		t.Errorf("%s: %+v, %v", text, got, err)
	}
	for name, try := range map[string]struct {
		text, scope string
		descending  bool
		want        string
	}{
		"other direction":  {text, "records", false, "order"},
		"other collection": {text, "orders", true, "another list"},
		"empty":            {"", "records", true, "not a cursor"},
		"cut":              {text[:len(text)-1], "records", true, "not a cursor"},
		"longer":           {text + "AAAA", "records", true, "not a cursor"},
		"padded":           {text + "==", "records", true, "not a cursor"},
		"a line break":     {text[:5] + "\n" + text[5:], "records", true, "another list"},
		"place 0":          {cursor{"records", true, 0}.String(), "records", true, "out of bounds"},
		"negative place":   {cursor{"records", true, -5}.String(), "records", true, "out of bounds"},
		"a number":         {"12345", "records", true, "not a cursor"},
	} {
		_, err := parseCursor(try.text, try.scope, try.descending)
		if !errors.Is(err, errParameter) || !strings.Contains(err.Error(), try.want) {
			t.Errorf("%s: %v, want %s", name, err, try.want)
		}
	}
	for i := range len(text) {
		for _, b := range []byte("A9_z") {
			changed := text[:i] + string(b) + text[i+1:]
			if _, err := parseCursor(changed, "records", true); err == nil && changed != text {
				t.Errorf("%s is taken for %s", changed, text)
			}
		}
	}
}

// FuzzCursor: whatever text comes, only what a list made is taken, and means what it meant.
func FuzzCursor(f *testing.F) {
	f.Add("", int64(1), "records", false)
	f.Add(cursor{"records", true, math.MaxInt64}.String(), int64(math.MaxInt64), "orders", true)
	f.Add(cursor{"records", false, 1}.String()+"\r\n", int64(-1), "", false)
	f.Fuzz(func(t *testing.T, text string, after int64, scope string, descending bool) {
		if c, err := parseCursor(text, scope, descending); err == nil && (c.String() != text || c.after < 1 || c.descending != descending) {
			t.Errorf("%q was taken for %+v", text, c)
		}
		made := cursor{scope, descending, after}
		got, err := parseCursor(made.String(), scope, descending)
		if after >= 1 && (err != nil || got != made) || after < 1 && err == nil {
			t.Errorf("%+v came back as %+v, %v", made, got, err)
		}
		if _, err := parseCursor(made.String(), scope, !descending); err == nil {
			t.Errorf("%+v was taken in the other direction", made)
		}
		if _, err := parseCursor(made.String(), scope+"x", descending); err == nil {
			t.Errorf("%+v was taken for another list", made)
		}
	})
}
