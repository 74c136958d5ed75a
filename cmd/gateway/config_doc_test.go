package main

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const configDoc = "../../docs/config.md"

const configIntro = `# Configuration

Every key of the config file, in the order of [config.yaml](../config.yaml), from which this page is made. **reload**: a change is
put in force while the gateway runs. **restart**: it needs one, and until then the changed file is refused as a whole. Everything
can also come from the environment: ` + "`GATEWAY__SERVER__LISTEN`, `GATEWAY__NODES__0__DSN`" + `.
`

// configLine is a line of config.yaml that sets a key, perhaps as an example in a comment.
var configLine = regexp.MustCompile(`^( *)(# )?(- )?([a-z_]+):( .*)?$`)

// TestConfigDocumented: docs/config.md says of every key what config.yaml says of it, and when a change of it takes effect.
func TestConfigDocumented(t *testing.T) {
	doc := configDocOf(t)
	if *update {
		if err := os.WriteFile(configDoc, []byte(doc), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(configDoc); err != nil || string(text) != doc {
		t.Errorf("docs/config.md is not what config.yaml says (%v): go test ./cmd/gateway -run TestConfigDocumented -update", err)
	}
}

// configKey is a key with what config.yaml says of it.
type configKey struct{ path, text string }

func configDocOf(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	known := configPatterns(reflect.TypeFor[Config](), "")
	var doc strings.Builder
	doc.WriteString(configIntro)
	seen := map[string]bool{}
	section := ""
	for _, key := range documentedKeys(string(text), known) {
		seen[key.path] = true
		if head, _, _ := strings.Cut(strings.ReplaceAll(key.path, "[]", ""), "."); head != section {
			section = head
			fmt.Fprintf(&doc, "\n## %s\n\n", section)
			if known[key.path] != reflect.Struct && known[key.path] != reflect.Slice {
				t.Errorf("%s is no section", key.path)
			}
			if key.text != "" {
				doc.WriteString(key.text + "\n\n")
			}
			doc.WriteString("| key | a change needs | meaning |\n|---|---|---|\n")
			continue
		}
		if key.text == "" {
			t.Errorf("config.yaml says nothing of %s", key.path)
		}
		fmt.Fprintf(&doc, "| `%s` | %s | %s |\n", key.path, effectOf(key.path), strings.ReplaceAll(key.text, "|", `\|`))
	}
	for path := range known {
		// The elements of columns are an example with a comment behind each key.
		if !seen[path] && !strings.HasPrefix(path, "collections[].columns[]") && !strings.HasSuffix(path, "[]") {
			t.Errorf("config.yaml does not have %s", path)
		}
	}
	return doc.String()
}

// effectOf says what it takes for a change of a key to take effect.
func effectOf(path string) string {
	switch {
	case slices.Contains(hotKeys, path), path == "nodes", path == patternNodeRanges:
		return "reload"
	case path == patternGroup:
		return "restart; never once it holds records"
	case path == "ranges.size":
		return "never once a record is stored"
	case path == patternNodeName:
		return "never"
	}
	return "restart"
}

// configPatterns lists all keys of a section, as patternOf writes them, with their kinds.
func configPatterns(of reflect.Type, path string) map[string]reflect.Kind {
	all := map[string]reflect.Kind{}
	for i := range of.NumField() {
		field := of.Field(i)
		key := joinKey(path, field.Tag.Get(keyTag))
		all[key] = field.Type.Kind()
		inner := field.Type
		if inner.Kind() == reflect.Slice {
			inner, key = inner.Elem(), key+"[]"
		}
		if inner.Kind() == reflect.Struct {
			for k, kind := range configPatterns(inner, key) {
				all[k] = kind
			}
		}
	}
	return all
}

// documentedKeys reads the keys of config.yaml in their order, each with the comment above it. Of several elements of a list the
// first counts.
func documentedKeys(text string, known map[string]reflect.Kind) (keys []configKey) {
	type level struct {
		indent int
		path   string
	}
	var open []level
	var comment []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		parts := configLine.FindStringSubmatch(line)
		path := ""
		if parts != nil {
			indent := len(parts[1]) + len(parts[3])
			parent := ""
			for _, l := range open {
				if l.indent < indent {
					parent = l.path
				}
			}
			path = joinKey(parent, parts[4])
			if _, ok := known[path]; !ok {
				path = joinKey(parent+"[]", parts[4])
			}
			if _, ok := known[path]; ok && parts[2] == "" {
				open = slices.DeleteFunc(open, func(l level) bool { return l.indent >= indent })
				open = append(open, level{indent, path})
			}
		}
		_, ok := known[path]
		switch trimmed := strings.TrimSpace(line); {
		case ok:
			if !slices.ContainsFunc(keys, func(k configKey) bool { return k.path == path }) {
				keys = append(keys, configKey{path, strings.Join(comment, " ")})
			}
			comment = nil
		case strings.HasPrefix(trimmed, "#   "): // an example
		case strings.HasPrefix(trimmed, "#"):
			comment = append(comment, strings.TrimSpace(cmp.Or(strings.TrimPrefix(trimmed, "#"), " ")))
		default:
			comment = nil
		}
	}
	return keys
}
