package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// keyTag is the struct tag that holds the name of a key.
const keyTag = "mapstructure"

// settings is a section of the config by key. Its values are settings, []any (a list of settings), or of the type of
// the field that they are meant for.
type settings = map[string]any

// settingsOf turns a config struct into settings that hold all of its keys.
func settingsOf(v reflect.Value) settings {
	out := settings{}
	for i := range v.NumField() {
		value := v.Field(i)
		key := v.Type().Field(i).Tag.Get(keyTag)
		switch value.Kind() {
		case reflect.Struct:
			out[key] = settingsOf(value)
		case reflect.Slice:
			list := make([]any, value.Len())
			for j := range list {
				list[j] = settingsOf(value.Index(j))
			}
			out[key] = list
		default:
			out[key] = value.Interface()
		}
	}
	return out
}

// newElement is an element of a list of the struct type before anything is said about it.
func newElement(typ reflect.Type) settings { return settingsOf(reflect.ValueOf(elementDefaults[typ])) }

// fieldOf is the field of a config struct with that key.
func fieldOf(typ reflect.Type, key string) (reflect.StructField, bool) {
	for i := range typ.NumField() {
		if typ.Field(i).Tag.Get(keyTag) == key {
			return typ.Field(i), true
		}
	}
	return reflect.StructField{}, false
}

// keysOf lists the keys of a config struct.
func keysOf(typ reflect.Type) []string {
	keys := make([]string, typ.NumField())
	for i := range keys {
		keys[i] = typ.Field(i).Tag.Get(keyTag)
	}
	return keys
}

var (
	yamlErrorPlace = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)
	yamlAnchorName = regexp.MustCompile(`anchor '.*'`) // a password that begins with * reads as an anchor
)

// parseYAML reads the one document of a config file; nil when there is none that could be walked, with the reason in f.
func parseYAML(data []byte, f *faults) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	err := decoder.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && doc.Content[0].ShortTag() == "!!null" {
		f.at(origin{}, "the file is empty or holds only comments; it may have been cut off")
		return nil
	}
	if err == nil {
		err = decoder.Decode(&next)
	}
	switch {
	case err == nil:
		f.at(origin{line: next.Line}, "a second YAML document begins; a config file holds one")
		return nil
	case !errors.Is(err, io.EOF):
		addSyntaxFault(err, f)
		return nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		f.at(origin{line: root.Line}, "a config file holds keys and values, such as server: {listen: ...}")
		return nil
	}
	return root
}

// addSyntaxFault records what the YAML parser says, at its line when it names one.
func addSyntaxFault(err error, f *faults) {
	line := 0
	if place := yamlErrorPlace.FindStringSubmatch(err.Error()); place != nil {
		line, _ = strconv.Atoi(place[1]) // empty when the parser names no line
	}
	text := yamlErrorPlace.ReplaceAllString(err.Error(), "")
	f.at(origin{line: line}, "is not YAML: "+yamlAnchorName.ReplaceAllString(text, "anchor"))
}

// walker turns YAML nodes into settings by the types of the config structs. What it refuses is left out.
type walker struct{ *faults }

// walkYAML checks the shape of a whole config file and returns what it sets.
func walkYAML(root *yaml.Node, f *faults) settings {
	out := settings{}
	walker{f}.mapping(root, reflect.TypeFor[Config](), "", out)
	return out
}

// mapping sets in out each key of the struct type that the node has.
func (w walker) mapping(node *yaml.Node, typ reflect.Type, path string, out settings) {
	first := map[string]int{} // the line of each key
	for i := 0; i < len(node.Content); i += 2 {
		keyNode, valueNode := node.Content[i], node.Content[i+1]
		key, full := keyNode.Value, joinKey(path, keyNode.Value)
		field, known := fieldOf(typ, key)
		if keyNode.Kind != yaml.ScalarNode || !known {
			w.unknownKey(keyNode, typ, path)
			continue
		}
		if line, repeated := first[key]; repeated {
			w.at(origin{line: keyNode.Line}, fmt.Sprintf("%s: is set twice; first in line %d", full, line))
			continue
		}
		first[key] = keyNode.Line
		w.origins[full] = origin{line: keyNode.Line}
		if value, ok := w.value(valueNode, field.Type, full); ok {
			out[key] = value
		}
	}
}

func joinKey(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// value converts a node to what a field of the type holds in settings; not ok when it was refused.
func (w walker) value(node *yaml.Node, typ reflect.Type, path string) (value any, ok bool) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" {
		w.drop(path, "has no value; give it one or remove the key")
		return nil, false
	}
	if typ == wordsType && node.Kind == yaml.SequenceNode {
		return w.words(node, path)
	}
	switch typ.Kind() {
	case reflect.Struct:
		if node.Kind != yaml.MappingNode {
			w.drop(path, "must be a section with the keys "+strings.Join(keysOf(typ), ", "))
			return nil, false
		}
		section := settings{}
		w.mapping(node, typ, path, section)
		return section, true
	case reflect.Slice:
		return w.sequence(node, typ.Elem(), path)
	}
	return w.scalar(node, typ, path)
}

// sequence converts a list. An element that was refused keeps its place, so that the others keep their index.
func (w walker) sequence(node *yaml.Node, elem reflect.Type, path string) (any, bool) {
	if node.Kind != yaml.SequenceNode {
		w.drop(path, "must be a list")
		return nil, false
	}
	list := []any{}
	for i, item := range node.Content {
		full := fmt.Sprintf("%s[%d]", path, i)
		w.origins[full] = origin{line: item.Line}
		element := newElement(elem)
		list = append(list, element)
		if item.Kind == yaml.AliasNode {
			item = item.Alias
		}
		if item.Kind != yaml.MappingNode {
			w.drop(full, "must be a section with the keys "+strings.Join(keysOf(elem), ", "))
			continue
		}
		w.mapping(item, elem, full, element)
	}
	return list, true
}

func (w walker) scalar(node *yaml.Node, typ reflect.Type, path string) (any, bool) {
	if rule := refuseNode(node, typ); rule != "" {
		w.drop(path, rule)
		return nil, false
	}
	value, err := parseScalar(typ, node.Value)
	if err != nil {
		w.drop(path, fmt.Sprintf("%s (got %s)", err, shown(node.Value)))
		return nil, false
	}
	return value, true
}

// refuseNode is the rule that a node for a scalar of the type breaks by the way it is written; "" when none.
func refuseNode(node *yaml.Node, typ reflect.Type) string {
	const quotedStyles = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	quoted := node.Style&quotedStyles != 0
	switch {
	case node.Kind != yaml.ScalarNode:
		return scalarRule(typ) + ", not a list or section"
	case node.Style&yaml.TaggedStyle != 0:
		return "must not have a YAML tag (!...)"
	case typ.Kind() == reflect.String && !quoted && node.ShortTag() != "!!str":
		return fmt.Sprintf("%s, but YAML reads it as %s; put it in quotes", scalarRule(typ), strings.TrimPrefix(node.ShortTag(), "!!"))
	case quoted && (typ.Kind() == reflect.Bool || typ == ratioType || isNumber(typ)):
		return scalarRule(typ) + ", without quotes"
	}
	return ""
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// unknownKey reports a key that the struct type does not have. A key that is no word is not repeated: where the space
// after a colon is missing, it holds the value too.
func (w walker) unknownKey(node *yaml.Node, typ reflect.Type, path string) {
	from := origin{line: node.Line}
	switch {
	case node.Value == "<<":
		w.at(from, joinKey(path, "<<")+": merge keys are not supported; repeat the keys")
	case node.Kind != yaml.ScalarNode || !plainKey.MatchString(node.Value):
		rule := "a key that is not a plain word; is a space missing after its colon?"
		if path != "" {
			rule = path + ": " + rule
		}
		w.at(from, rule)
	default:
		w.at(from, joinKey(path, node.Value)+": unknown key"+didYouMean(node.Value, keysOf(typ)))
	}
}

// didYouMean is a hint at the known word that is nearest to a mistyped one, or else at all of them.
func didYouMean(word string, known []string) string {
	const farthest = 2 // edits
	nearest := slices.MinFunc(known, func(a, b string) int { return editDistance(word, a) - editDistance(word, b) })
	if editDistance(word, nearest) <= farthest {
		return "; did you mean " + nearest + "?"
	}
	return "; known here: " + strings.Join(known, ", ")
}

// editDistance counts the letters to insert, remove or change to make b of a (Levenshtein); case does not count.
func editDistance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
