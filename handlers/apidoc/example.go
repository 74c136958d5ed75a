package apidoc

import (
	_ "embed" // examples.json
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// examplesJSON is written by a test, which makes the calls: go test ./test/integration -run TestAPIDocument -update.
//
//go:embed examples.json
var examplesJSON []byte

// examples are the calls that the document shows.
var examples = func() (all []Example) {
	if err := json.Unmarshal(examplesJSON, &all); err != nil {
		panic(fmt.Sprintf("examples.json: %v", err)) // a test holds that it never is
	}
	return all
}()

// Example is a call and its answer. What differs each time is "..." in it.
type Example struct {
	Title  string `json:"title"`
	Method string `json:"method"`
	// Path is escaped, and has the query if there is one.
	Path string `json:"path"`
	// Headers of the request, "Name: value".
	Headers []string `json:"headers,omitempty"`
	Body    string   `json:"body,omitempty"`
	Status  int      `json:"status"`
	// AnswerHeaders are "Name: value".
	AnswerHeaders []string `json:"answer_headers,omitempty"`
	Answer        string   `json:"answer,omitempty"`
}

// Curl is the call as a command.
func (e Example) Curl() string {
	var b strings.Builder
	b.WriteString("curl -i")
	typed := false
	for _, h := range e.Headers {
		typed = typed || strings.HasPrefix(h, "Content-Type:")
	}
	data := "--json"
	if typed || e.Body == "" {
		data = "--data-binary"
	}
	switch {
	case e.Method == "HEAD":
		b.Reset()
		b.WriteString("curl -I")
	case e.Method == "GET" && e.Body == "", e.Method == "POST" && e.Body != "":
	default:
		b.WriteString(" -X " + e.Method)
	}
	b.WriteString(" 'localhost:8080" + e.Path + "'")
	for _, h := range e.Headers {
		b.WriteString(" \\\n  -H '" + h + "'")
	}
	if e.Body != "" {
		quoted := "'" + e.Body + "'"
		if strings.Contains(e.Body, "\n") {
			quoted = "$'" + strings.ReplaceAll(e.Body, "\n", `\n`) + "'"
		}
		b.WriteString(" \\\n  " + data + " " + quoted)
	}
	return b.String()
}

// AnswerText is the answer as HTTP shows it.
func (e Example) AnswerText() string {
	lines := append([]string{fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status))}, e.AnswerHeaders...)
	if e.Answer != "" {
		lines = append(lines, "", strings.TrimSuffix(e.Answer, "\n"))
	}
	return strings.Join(lines, "\n")
}

// Match tells whether an escaped path is one of a path template, whose last parameter takes all that is left.
func Match(template, escaped string) bool {
	escaped, _, _ = strings.Cut(escaped, "?")
	want := strings.Split(template, "/")
	for i, part := range want {
		parameter := strings.HasPrefix(part, "{")
		if i == len(want)-1 {
			return escaped == part || parameter && (i > 2 || !strings.Contains(escaped, "/"))
		}
		segment, rest, more := strings.Cut(escaped, "/")
		if !more || segment != part && !parameter {
			return false
		}
		escaped = rest
	}
	return false
}

// addExamples puts the bodies of calls and answers to the operations that they belong to.
func (d *Document) addExamples(all []Example) error {
	for i, e := range all {
		op, err := d.find(e)
		if err != nil {
			return fmt.Errorf("example %q: %w", e.Title, err)
		}
		name := "example" + strconv.Itoa(i+1)
		if err := addExample(at(op.node, "requestBody", "content"), name, e, e.Headers, e.Body); err != nil {
			return err
		}
		if err := addExample(at(op.node, "responses", strconv.Itoa(e.Status), "content"), name, e, e.AnswerHeaders, e.Answer); err != nil {
			return err
		}
	}
	return nil
}

// find is the operation that a call is one of.
func (d *Document) find(e Example) (operation, error) {
	for _, op := range d.operations() {
		if strings.EqualFold(op.method, e.Method) && Match(op.path, e.Path) {
			return op, nil
		}
	}
	return operation{}, errNoOperation
}

// addExample puts one body to its media type, unless its end is left out. One that is no JSON, like lines of it, is shown
// as text.
func addExample(content *yaml.Node, name string, e Example, headers []string, body string) error {
	if content == nil || body == "" || strings.HasSuffix(body, "...") {
		return nil
	}
	media := "application/json"
	for _, h := range headers {
		if value, ok := strings.CutPrefix(h, "Content-Type: "); ok {
			media, _, _ = strings.Cut(value, ";")
		}
	}
	typed := at(content, media)
	if typed == nil {
		return fmt.Errorf("example %q: the document has no %s there", e.Title, media)
	}
	value := text(body)
	if strings.HasSuffix(media, "json") && !strings.HasSuffix(media, "ndjson") {
		if !jsontext.Value(body).IsValid() {
			return nil // what a mistake looks like is no example of a body
		}
		var parsed yaml.Node // JSON is YAML
		if err := yaml.Unmarshal([]byte(body), &parsed); err != nil {
			return fmt.Errorf("example %q: %w", e.Title, err)
		}
		value = plain(parsed.Content[0])
	}
	set(ensure(typed, "examples"), name, object("summary", text(e.Title), "value", value))
	return nil
}
