package main

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Words is a list of plain words, kept as one text with commas between them, so that a variable of the environment can set
// it and two lists can be compared. In the file it is a list, or that text.
type Words string

// wordsType is the type of such keys.
var wordsType = reflect.TypeFor[Words]()

// List is each word by itself; empty when there is none.
func (w Words) List() []string {
	return strings.FieldsFunc(string(w), func(r rune) bool { return r == ',' || r == ' ' })
}

// words reads a list of plain words.
func (w walker) words(node *yaml.Node, path string) (any, bool) {
	list := make([]string, 0, len(node.Content))
	for i, item := range node.Content {
		full := fmt.Sprintf("%s[%d]", path, i)
		w.origins[full] = origin{line: item.Line}
		word, ok := w.scalar(item, reflect.TypeFor[string](), full)
		if ok && (word == "" || strings.ContainsAny(word.(string), ", ")) {
			w.add(full, fmt.Sprintf("must be one word without a comma or space (got %s)", shown(word)))
			ok = false
		}
		if !ok {
			w.dropped[path] = true
			return nil, false
		}
		list = append(list, word.(string))
	}
	return Words(strings.Join(list, ",")), true
}
