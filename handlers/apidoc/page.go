package apidoc

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page's template and style
	"encoding/base64"
	"fmt"
	"html"
	"html/template"
	"net/http"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// pageTemplate draws a pageView.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"prose": prose, "lower": strings.ToLower, "named": named}).Parse(pageHTML))

// pageView is what the page shows.
type pageView struct {
	Style                   template.CSS
	Title, Summary, Version string
	Description             string
	Groups                  []groupView
	Problems                []Problem
	Schemas                 []schemaView
}

// groupView is the operations of one tag.
type groupView struct {
	Name, Description string
	Operations        []operationView
}

// operationView is one operation.
type operationView struct {
	ID, Method, Path, Summary, Description string
	Parameters                             []fieldView
	Body                                   []mediaView
	BodyDescription                        string
	Responses                              []responseView
	Examples                               []Example
}

// fieldView is a parameter, a header, or a member of a schema.
type fieldView struct {
	Name, In, Type, Description string
	Required                    bool
}

// mediaView is a media type and the schema of what has it.
type mediaView struct{ Type, Schema string }

// responseView is the answer of one status.
type responseView struct {
	Status, Title, Description string
	Headers                    []fieldView
	Content                    []mediaView
}

// schemaView is a schema with a name.
type schemaView struct {
	Name, Type, Description string
	Members                 []fieldView
}

// Page is the description as an HTML page, and the Content-Security-Policy for it: the page's own style, by its hash, and
// nothing else.
func (d *Document) Page() (page []byte, policy string, err error) {
	view, err := d.view()
	if err != nil {
		return nil, "", err
	}
	var buffer bytes.Buffer
	if err := pageTemplate.Execute(&buffer, view); err != nil {
		return nil, "", err
	}
	hash := sha256.Sum256([]byte(pageCSS))
	return buffer.Bytes(), fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		base64.StdEncoding.EncodeToString(hash[:])), nil
}

// view gathers what the page shows.
func (d *Document) view() (v pageView, err error) {
	info := at(d.root, "info")
	v = pageView{
		Style: template.CSS(pageCSS),
		Title: textAt(info, "title"), Summary: textAt(info, "summary"), Version: textAt(d.root, "openapi"),
		Description: textAt(info, "description"), Problems: d.Problems(),
	}
	for _, tag := range at(d.root, "tags").Content {
		group := groupView{Name: textAt(tag, "name"), Description: textAt(tag, "description")}
		for _, op := range d.operations() {
			if tags := at(op.node, "tags"); len(tags.Content) == 0 || tags.Content[0].Value != group.Name {
				continue
			}
			shown, err := d.viewOperation(op)
			if err != nil {
				return v, fmt.Errorf("%s %s: %w", op.method, op.path, err)
			}
			group.Operations = append(group.Operations, shown)
		}
		v.Groups = append(v.Groups, group)
	}
	for name, schema := range members(at(d.root, "components", "schemas")) {
		shown := schemaView{Name: name, Type: typeOf(schema), Description: textAt(schema, "description")}
		required := at(schema, "required")
		for member, s := range members(at(schema, "properties")) {
			field := fieldView{Name: member, Type: typeOf(s), Description: textAt(s, "description")}
			field.Required = required != nil && contains(valuesOf(required), member)
			shown.Members = append(shown.Members, field)
		}
		if name != "ProblemCode" { // which has a table of its own
			v.Schemas = append(v.Schemas, shown)
		}
	}
	return v, nil
}

// everywhere is the header that every request and every response may have. The page says it once.
const everywhere = "X-Request-Id"

// viewOperation gathers one operation.
func (d *Document) viewOperation(op operation) (v operationView, err error) {
	n := op.node
	v = operationView{
		ID: textAt(n, "operationId"), Method: strings.ToUpper(op.method), Path: op.path,
		Summary: textAt(n, "summary"), Description: textAt(n, "description"), BodyDescription: textAt(n, "requestBody", "description"),
		Body: viewContent(at(n, "requestBody", "content")),
	}
	for _, from := range []*yaml.Node{at(d.root, "paths", op.path, "parameters"), at(n, "parameters")} {
		if from == nil {
			continue
		}
		for _, item := range from.Content {
			p, err := d.resolve(item)
			if err != nil {
				return v, err
			}
			if textAt(p, "name") == everywhere {
				continue
			}
			v.Parameters = append(v.Parameters, fieldView{textAt(p, "name"), textAt(p, "in"), typeOf(at(p, "schema")), textAt(p, "description"), textAt(p, "required") == "true"})
		}
	}
	for status, response := range members(at(n, "responses")) {
		shown := responseView{Status: status, Title: titleOf(status), Description: textAt(response, "description"), Content: viewContent(at(response, "content"))}
		for name, item := range members(at(response, "headers")) {
			header, err := d.resolve(item)
			if err != nil {
				return v, err
			}
			if name != everywhere && (name != "Cache-Control" || status < "400") {
				shown.Headers = append(shown.Headers, fieldView{Name: name, Description: textAt(header, "description")})
			}
		}
		v.Responses = append(v.Responses, shown)
	}
	for _, e := range examples {
		if found, err := d.find(e); err == nil && found.node == n {
			v.Examples = append(v.Examples, e)
		}
	}
	return v, nil
}

// named tells whether a type is a schema that the page has a section for.
func named(kind string) bool {
	return kind != "" && 'A' <= kind[0] && kind[0] <= 'Z' && !strings.Contains(kind, " ")
}

// viewContent lists the media types of a body.
func viewContent(content *yaml.Node) (all []mediaView) {
	for media, typed := range members(content) {
		if media != "application/problem+json" { // which is what all errors are
			all = append(all, mediaView{media, typeOf(at(typed, "schema"))})
		}
	}
	return all
}

// typeOf names what a schema allows, in a few words.
func typeOf(schema *yaml.Node) string {
	if to, ok := strings.CutPrefix(textAt(schema, "$ref"), "#/components/schemas/"); ok {
		return to
	}
	if constant := at(schema, "const"); constant != nil {
		return "`" + constant.Value + "`"
	}
	if enum := at(schema, "enum"); enum != nil && len(enum.Content) <= 5 {
		return "`" + strings.Join(valuesOf(enum), "`, `") + "`"
	}
	for _, choice := range []string{"oneOf", "anyOf"} {
		if either := at(schema, choice); either != nil {
			var names []string
			for _, one := range either.Content {
				names = append(names, typeOf(one))
			}
			return strings.Join(names, " or ")
		}
	}
	if textAt(schema, "type") == "array" {
		return "array of " + typeOf(at(schema, "items"))
	}
	kind := at(schema, "type")
	if kind != nil && kind.Kind == yaml.SequenceNode {
		return strings.Join(valuesOf(kind), " or ")
	}
	return textAt(schema, "type")
}

// valuesOf are the texts of a sequence.
func valuesOf(n *yaml.Node) (all []string) {
	for _, one := range n.Content {
		all = append(all, one.Value)
	}
	return all
}

// titleOf is the name of a status.
func titleOf(status string) string {
	var code int
	_, _ = fmt.Sscan(status, &code) // a status that is no number has no name
	return http.StatusText(code)
}

// prose draws the little Markdown that descriptions use: paragraphs, `code` and **strong**.
func prose(source string) template.HTML {
	var b strings.Builder
	for paragraph := range strings.SplitSeq(strings.TrimSpace(source), "\n\n") {
		if paragraph == "" {
			continue
		}
		text := html.EscapeString(paragraph)
		text = pairs(text, "`", "<code>", "</code>")
		text = pairs(text, "**", "<strong>", "</strong>")
		b.WriteString("<p>" + text + "</p>")
	}
	return template.HTML(b.String()) // everything in it was escaped above
}

// pairs puts tags in the place of marks that come in pairs. A last mark without its partner stays.
func pairs(text, mark, opening, closing string) string {
	parts := strings.Split(text, mark)
	var b strings.Builder
	for i, part := range parts {
		switch {
		case i == 0:
		case i%2 == 0:
			b.WriteString(closing)
		case i == len(parts)-1:
			b.WriteString(mark)
		default:
			b.WriteString(opening)
		}
		b.WriteString(part)
	}
	return b.String()
}
