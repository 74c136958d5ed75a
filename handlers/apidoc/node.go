package apidoc

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// plain copies a tree without comments and styles, and with what aliases stand for in their places.
func plain(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	c := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Value: n.Value}
	for _, child := range n.Content {
		c.Content = append(c.Content, plain(child))
	}
	return c
}

// members gives the members of a mapping in their order; none of nil or of anything else.
func members(n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, n.Content[i+1]) {
				return
			}
		}
	}
}

// at finds a node below n by the names of its members, nil when there is none.
func at(n *yaml.Node, names ...string) *yaml.Node {
	for _, name := range names {
		var found *yaml.Node
		for member, value := range members(n) {
			if member == name {
				found = value
			}
		}
		n = found
	}
	return n
}

// textAt is the text of a member, empty when there is none.
func textAt(n *yaml.Node, names ...string) string {
	if found := at(n, names...); found != nil {
		return strings.TrimSpace(found.Value)
	}
	return ""
}

// set gives a mapping a member, in place of the one of that name or at its end.
func set(n *yaml.Node, name string, value *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			n.Content[i+1] = value
			return
		}
	}
	n.Content = append(n.Content, text(name), value)
}

// drop takes a member out of a mapping and returns it, nil when there is none.
func drop(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			value := n.Content[i+1]
			n.Content = slices.Delete(n.Content, i, i+2)
			return value
		}
	}
	return nil
}

// ensure is the mapping under a name, made when there is none.
func ensure(n *yaml.Node, name string) *yaml.Node {
	if found := at(n, name); found != nil {
		return found
	}
	made := object()
	set(n, name, made)
	return made
}

// object is a mapping of names and values in turn.
func object(pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i := 0; i+1 < len(pairs); i += 2 {
		n.Content = append(n.Content, text(pairs[i].(string)), pairs[i+1].(*yaml.Node))
	}
	return n
}

// list is a sequence.
func list(items ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: items}
}

// text is a string.
func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// texts is a sequence of strings.
func texts(all []string) *yaml.Node {
	n := list()
	for _, one := range all {
		n.Content = append(n.Content, text(one))
	}
	return n
}

// reference is a mapping that stands for another part of the document.
func reference(to string) *yaml.Node { return object("$ref", text(to)) }

// pointer takes "#/a/b" apart; ok is false for anything else.
func pointer(reference string) (names []string, ok bool) {
	rest, ok := strings.CutPrefix(reference, "#/")
	if !ok {
		return nil, false
	}
	names = strings.Split(rest, "/")
	for i, name := range names {
		names[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
	}
	return names, true
}

// contains tells whether a name is in a list.
func contains(all []string, name string) bool { return slices.Contains(all, name) }

// JSON is the document as JSON, indented, its members in the order of the source.
func (d *Document) JSON() ([]byte, error) {
	var buffer bytes.Buffer
	encoder := jsontext.NewEncoder(&buffer, jsontext.WithIndent("  "))
	if err := encode(encoder, d.root); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

// encode writes one node as JSON. Numbers keep their digits.
func encode(to *jsontext.Encoder, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		return encodeAll(to, jsontext.BeginObject, n.Content, jsontext.EndObject)
	case yaml.SequenceNode:
		return encodeAll(to, jsontext.BeginArray, n.Content, jsontext.EndArray)
	case yaml.ScalarNode:
		switch n.Tag {
		case "!!str":
			return to.WriteToken(jsontext.String(n.Value))
		case "!!int", "!!float", "!!bool", "!!null":
			return to.WriteValue(jsontext.Value(n.Value))
		}
	}
	return fmt.Errorf("%s %q has no form in JSON", n.Tag, n.Value)
}

// encodeAll writes the parts of a mapping or sequence.
func encodeAll(to *jsontext.Encoder, begin jsontext.Token, parts []*yaml.Node, end jsontext.Token) error {
	if err := to.WriteToken(begin); err != nil {
		return err
	}
	for i, part := range parts {
		if begin.Kind() == jsontext.KindBeginObject && i%2 == 0 {
			if err := to.WriteToken(jsontext.String(part.Value)); err != nil {
				return err
			}
			continue
		}
		if err := encode(to, part); err != nil {
			return err
		}
	}
	return to.WriteToken(end)
}
