// Package apidoc describes the public API: an OpenAPI 3.1 document and a page for people, both from the files in document/.
package apidoc

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"go.yaml.in/yaml/v3"
)

// source has the parts of the document.
//
//go:embed document/*.yaml
var source embed.FS

// Document is the description of the API that one gateway serves. It does not change.
type Document struct {
	root *yaml.Node
}

// New makes the document of a gateway with these collections; with none, their names are left open. An error means that
// the package's own files are wrong.
func New(collections ...string) (*Document, error) {
	root, err := load(source)
	if err != nil {
		return nil, err
	}
	d := &Document{root}
	if err := d.expand(); err != nil {
		return nil, err
	}
	if err := d.addExamples(examples); err != nil {
		return nil, err
	}
	if len(collections) > 0 {
		parameter := at(root, "components", "parameters", "collection")
		set(at(parameter, "schema"), "enum", texts(collections))
		set(parameter, "example", text(collections[0]))
	}
	return d, nil
}

// load merges the files of document/ in the order of their names.
func load(files fs.FS) (*yaml.Node, error) {
	names, err := fs.Glob(files, "document/*.yaml")
	if err != nil {
		return nil, err
	}
	root := object()
	for _, name := range names {
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		var file yaml.Node
		if err := yaml.Unmarshal(content, &file); err != nil {
			return nil, fmt.Errorf("%s: %w", path.Base(name), err)
		}
		if len(file.Content) != 1 {
			return nil, fmt.Errorf("%s: it is empty", path.Base(name))
		}
		if err := merge(root, plain(file.Content[0]), ""); err != nil {
			return nil, fmt.Errorf("%s: %w", path.Base(name), err)
		}
	}
	return root, nil
}

// merge puts the members of one mapping into another. What both have must be mappings as well.
func merge(into, from *yaml.Node, where string) error {
	if into.Kind != yaml.MappingNode || from.Kind != yaml.MappingNode {
		return fmt.Errorf("%s is given twice", where)
	}
	for name, value := range members(from) {
		if there := at(into, name); there != nil {
			if err := merge(there, value, where+"/"+name); err != nil {
				return err
			}
			continue
		}
		set(into, name, value)
	}
	return nil
}

// methods are the names under which a path has operations.
var methods = []string{"get", "head", "post", "put", "patch", "delete"}

// operation is one operation of the document.
type operation struct {
	method, path string
	node         *yaml.Node
}

// operations lists the operations in their order.
func (d *Document) operations() (all []operation) {
	for path, item := range members(at(d.root, "paths")) {
		for name, node := range members(item) {
			if contains(methods, name) {
				all = append(all, operation{name, path, node})
			}
		}
	}
	return all
}

// resolve follows a reference within the document; a node that is none is its own target.
func (d *Document) resolve(n *yaml.Node) (*yaml.Node, error) {
	reference := at(n, "$ref")
	if reference == nil {
		return n, nil
	}
	names, ok := pointer(reference.Value)
	if !ok {
		return nil, fmt.Errorf("%s: only #/... is supported", reference.Value)
	}
	target := at(d.root, names...)
	if target == nil {
		return nil, fmt.Errorf("%s leads nowhere", reference.Value)
	}
	return target, nil
}

// errNoOperation is a request that the document does not have.
var errNoOperation = errors.New("the document has no such operation")
