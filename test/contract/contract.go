// Package contract holds responses against the document of the API. Whatever the document does not have is an error: a
// status, a header, a media type, a member, a code of an error.
package contract

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"keyrange/handlers/apidoc"
)

// Contract is a document that responses can be held against. It is safe for concurrent use.
type Contract struct {
	paths map[string]map[string]operation
	// root is the whole document, for references.
	root map[string]any

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

// operation and what follows are the parts of a document that matter here. In the place of each schema is its pointer.
type operation struct {
	Responses map[string]response `json:"responses"`
}

type response struct {
	Headers map[string]json.RawMessage `json:"headers"`
	Content map[string]json.RawMessage `json:"content"`
	// at points at the response, headers says of each header by its canonical name what there is to know.
	at      string
	headers map[string]header
}

// header is a header of a response.
type header struct {
	// schema points at its schema.
	schema   string
	required bool
}

// Names in JSON pointers, and back.
var (
	escapes   = strings.NewReplacer("~", "~0", "/", "~1")
	unescapes = strings.NewReplacer("~1", "/", "~0", "~")
)

// documentURL names the document for the compiler of schemas.
const documentURL = "openapi.json"

// Default is the contract of the document of a gateway with any collections.
var Default = sync.OnceValue(func() *Contract {
	d, err := apidoc.New()
	if err != nil {
		panic(err)
	}
	text, err := d.JSON()
	if err != nil {
		panic(err)
	}
	c, err := New(text)
	if err != nil {
		panic(err)
	}
	return c
})

// New reads a document. Its objects are taken to have no members but those that they list, unless they say otherwise:
// what may come to a response later is no fault of a client, but it is one of the document.
func New(document []byte) (*Contract, error) {
	var parts struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(document, &parts); err != nil {
		return nil, err
	}
	c := &Contract{paths: map[string]map[string]operation{}, compiled: map[string]*jsonschema.Schema{}, compiler: jsonschema.NewCompiler()}
	for path, item := range parts.Paths {
		c.paths[path] = map[string]operation{}
		for method, raw := range item {
			var op operation
			if method == "parameters" {
				continue
			}
			if err := json.Unmarshal(raw, &op); err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			c.paths[path][method] = op
		}
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, err
	}
	closeObjects(root)
	c.root, _ = root.(map[string]any)
	c.describeHeaders()
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	return c, c.compiler.AddResource(documentURL, root)
}

// describeHeaders finds what there is to know of the headers of all responses.
func (c *Contract) describeHeaders() {
	for path, item := range c.paths {
		for method, op := range item {
			for status, r := range op.Responses {
				r.at = "#/paths/" + escape(path) + "/" + method + "/responses/" + status
				r.headers = map[string]header{}
				for name, raw := range r.Headers {
					part, pointer := c.resolve(raw, r.at+"/headers/"+escape(name))
					r.headers[http.CanonicalHeaderKey(name)] = header{pointer + "/schema", part["required"] == true}
				}
				op.Responses[status] = r
			}
		}
	}
}

// closeObjects refuses the members that an object schema does not list, where it leaves them open by saying nothing.
func closeObjects(node any) {
	switch n := node.(type) {
	case map[string]any:
		_, listed := n["properties"].(map[string]any)
		if _, open := n["additionalProperties"]; listed && !open && n["type"] == "object" {
			n["additionalProperties"] = false
		}
		for _, child := range n {
			closeObjects(child)
		}
	case []any:
		for _, child := range n {
			closeObjects(child)
		}
	}
}

// unlisted are the headers that belong to HTTP rather than to the API.
var unlisted = []string{"Content-Type", "Content-Length", "Content-Encoding", "Vary", "Transfer-Encoding", "Trailer", "Date", "Connection"}

// Response is what was answered to a request, as far as the contract is about it.
type Response struct {
	Method string
	// Path is escaped; a query is not looked at.
	Path   string
	Status int
	Header http.Header
	Body   []byte
	// Partial says that the end of the body is missing, so that nothing can be said about it.
	Partial bool
}

// Check returns what a response has that the document does not, or lacks.
func (c *Contract) Check(r Response) error {
	if err := c.check(r); err != nil {
		return fmt.Errorf("%s %.80s: %d is not as the document says: %w", r.Method, r.Path, r.Status, err)
	}
	return nil
}

func (c *Contract) check(r Response) error {
	if _, err := url.ParseRequestURI(r.Path); err != nil && r.Status == http.StatusBadRequest && strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") {
		return nil // the HTTP server's own
	}
	if r.Header.Get("Content-Encoding") == "gzip" && !r.Partial && len(r.Body) > 0 {
		plain, err := gzip.NewReader(bytes.NewReader(r.Body))
		if err != nil {
			return err
		}
		if r.Body, err = io.ReadAll(plain); err != nil {
			return err
		}
	}
	var template string
	for path := range c.paths {
		if apidoc.Match(path, r.Path) {
			template = path
		}
	}
	if template == "" {
		return c.checkElsewhere(r, http.StatusNotFound, "not_found")
	}
	op, ok := c.paths[template][strings.ToLower(r.Method)]
	if !ok && r.Method == http.MethodOptions && r.Status == http.StatusNoContent && len(r.Body) == 0 {
		return nil // a preflight, which a gateway with origins answers
	}
	if !ok {
		if r.Header.Get("Allow") == "" {
			return errors.New("there is no Allow")
		}
		return c.checkElsewhere(r, http.StatusMethodNotAllowed, "method_not_allowed")
	}
	status := strconv.Itoa(r.Status)
	described, ok := op.Responses[status]
	if !ok {
		return fmt.Errorf("the status is not described: %.200s", r.Body)
	}
	return errors.Join(c.checkHeaders(r, described), c.checkBody(r, described))
}

// checkElsewhere checks the answer to a request that is no operation.
func (c *Contract) checkElsewhere(r Response, status int, code string) error {
	if r.Status != status {
		return fmt.Errorf("there is no such operation: %.200s", r.Body)
	}
	if r.Method == http.MethodHead {
		return nil
	}
	if media := r.Header.Get("Content-Type"); media != "application/problem+json" || !bytes.Contains(r.Body, []byte(`"code":"`+code+`"`)) {
		return fmt.Errorf("it is no problem %s: %.200s", code, r.Body)
	}
	return c.validateJSON("#/components/schemas/Problem", r.Body)
}

// checkHeaders wants every header of the response described, and every one that is required.
func (c *Contract) checkHeaders(r Response, described response) error {
	var errs []error
	for name, values := range r.Header {
		if slices.Contains(unlisted, name) || strings.HasPrefix(name, "Access-Control-") {
			continue
		}
		listed, ok := described.headers[name]
		if !ok {
			errs = append(errs, fmt.Errorf("the header %s is not described", name))
			continue
		}
		for _, value := range values {
			if err := c.validate(listed.schema, value); err != nil {
				errs = append(errs, fmt.Errorf("header %s: %w", name, err))
			}
		}
	}
	for name, listed := range described.headers {
		if listed.required && r.Header.Get(name) == "" {
			errs = append(errs, fmt.Errorf("there is no header %s", name))
		}
	}
	return errors.Join(errs...)
}

// resolve follows the reference that a part of the document may be, and returns the part and where it is.
func (c *Contract) resolve(raw json.RawMessage, at string) (part map[string]any, pointer string) {
	if json.Unmarshal(raw, &part) != nil {
		return nil, at
	}
	reference, ok := part["$ref"].(string)
	if !ok {
		return part, at
	}
	var node any = c.root
	for _, name := range strings.Split(strings.TrimPrefix(reference, "#/"), "/") {
		members, _ := node.(map[string]any)
		node = members[unescapes.Replace(name)]
	}
	part, _ = node.(map[string]any)
	return part, reference
}

// checkBody wants the body to be of a media type that is described, and to fit its schema.
func (c *Contract) checkBody(r Response, described response) error {
	declared := r.Header.Get("Content-Type")
	if len(described.Content) == 0 {
		if declared != "" || len(r.Body) > 0 {
			return fmt.Errorf("no body is described, and there is one of type %q", declared)
		}
		return nil
	}
	if declared == "" && len(r.Body) == 0 && r.Header.Get("Preference-Applied") == "return=minimal" {
		return nil // which a document cannot say of a status that has a body otherwise
	}
	media, _, err := mime.ParseMediaType(declared)
	if err != nil {
		return fmt.Errorf("Content-Type %q: %w", declared, err)
	}
	if _, ok := described.Content[media]; !ok {
		return fmt.Errorf("the media type %s is not described", media)
	}
	at := described.at + "/content/" + escape(media) + "/schema"
	switch {
	case r.Method == http.MethodHead:
		if len(r.Body) > 0 {
			return errors.New("there is a body")
		}
		return nil
	case r.Partial:
		return nil
	case media == "application/x-ndjson":
		for line := range bytes.Lines(r.Body) {
			if err := c.validateJSON(at, line); err != nil {
				return fmt.Errorf("line %.200s: %w", line, err)
			}
		}
		return nil
	case strings.HasSuffix(media, "json"):
		return c.validateJSON(at, r.Body)
	}
	return c.validate(at, string(r.Body))
}

// validateJSON holds a JSON text against the schema at a pointer.
func (c *Contract) validateJSON(pointer string, text []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("it is no JSON: %w", err)
	}
	return c.validate(pointer, value)
}

// validate holds a value against the schema at a pointer.
func (c *Contract) validate(pointer string, value any) error {
	schema, err := c.compile(pointer)
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// compile makes the schema at a pointer ready, once.
func (c *Contract) compile(pointer string) (*jsonschema.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if schema := c.compiled[pointer]; schema != nil {
		return schema, nil
	}
	schema, err := c.compiler.Compile(documentURL + pointer)
	if err == nil {
		c.compiled[pointer] = schema
	}
	return schema, err
}

// escape writes a name as a part of a JSON pointer in the fragment of a URL.
func escape(name string) string {
	return url.PathEscape(escapes.Replace(name))
}
