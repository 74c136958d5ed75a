package apidoc

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Problem is one code of errors, as the document describes it.
type Problem struct {
	Code, Title, Means string
	Status             int
	// Retry says that the response has Retry-After.
	Retry bool
}

// Problems lists the codes of errors in the order of the document.
func (d *Document) Problems() (all []Problem) {
	for code, p := range members(at(d.root, "components", "schemas", "ProblemCode", "x-codes")) {
		status, _ := strconv.Atoi(textAt(p, "status"))
		all = append(all, Problem{code, textAt(p, "title"), textAt(p, "means"), status, textAt(p, "retry") == "true"})
	}
	return all
}

// expand writes out what the source says once:
//   - the codes of errors become the values of ProblemCode;
//   - x-problems of an operation, a list of codes and of +groups of codes, becomes a response for each of their statuses,
//     beside the headers that the operation may give one of them;
//   - every operation takes X-Request-Id, and every response has it.
func (d *Document) expand() error {
	problems := d.Problems()
	var codes []string
	for _, p := range problems {
		codes = append(codes, p.Code)
	}
	set(at(d.root, "components", "schemas", "ProblemCode"), "enum", texts(codes))
	groups := drop(d.root, "x-problem-groups")
	for _, op := range d.operations() {
		named, err := inGroups(drop(op.node, "x-problems"), groups)
		if err != nil {
			return fmt.Errorf("%s %s: %w", op.method, op.path, err)
		}
		if err := addProblems(ensure(op.node, "responses"), problems, named); err != nil {
			return fmt.Errorf("%s %s: %w", op.method, op.path, err)
		}
		for _, response := range members(at(op.node, "responses")) {
			set(ensure(response, "headers"), "X-Request-Id", reference("#/components/headers/RequestID"))
		}
		parameters := at(op.node, "parameters")
		if parameters == nil {
			parameters = list()
			set(op.node, "parameters", parameters)
		}
		parameters.Content = append(parameters.Content, reference("#/components/parameters/RequestID"))
	}
	return nil
}

// inGroups lists codes, with those of a group in the place of its +name.
func inGroups(list, groups *yaml.Node) (codes []string, err error) {
	if list == nil {
		return nil, nil
	}
	for _, one := range list.Content {
		name, group := strings.CutPrefix(one.Value, "+")
		if !group {
			codes = append(codes, name)
			continue
		}
		found := at(groups, name)
		if found == nil {
			return nil, fmt.Errorf("x-problems: there is no group %s", name)
		}
		for _, code := range found.Content {
			codes = append(codes, code.Value)
		}
	}
	return codes, nil
}

// addProblems adds a response for each status that the codes have, and sorts the responses by status.
func addProblems(responses *yaml.Node, problems []Problem, codes []string) error {
	byStatus := map[int][]Problem{}
	for _, code := range codes {
		i := slices.IndexFunc(problems, func(p Problem) bool { return p.Code == code })
		if i < 0 {
			return fmt.Errorf("x-problems: there is no code %s", code)
		}
		if !slices.Contains(byStatus[problems[i].Status], problems[i]) {
			byStatus[problems[i].Status] = append(byStatus[problems[i].Status], problems[i])
		}
	}
	for status, some := range byStatus {
		name := strconv.Itoa(status)
		described := problemResponse(status, some)
		if there := at(responses, name); there != nil {
			if at(there, "description") != nil {
				return fmt.Errorf("x-problems: status %s has a response already", name)
			}
			if err := merge(described, there, name); err != nil {
				return err
			}
		}
		set(responses, name, described)
	}
	var names []string
	byName := map[string]*yaml.Node{}
	for name, response := range members(responses) {
		names, byName[name] = append(names, name), response
	}
	slices.Sort(names)
	responses.Content = nil
	for _, name := range names {
		set(responses, name, byName[name])
	}
	return nil
}

// problemResponse is the response of one status with the codes that it may have.
func problemResponse(status int, problems []Problem) *yaml.Node {
	var codes, lines []string
	retry := false
	for _, p := range problems {
		codes = append(codes, p.Code)
		lines = append(lines, "`"+p.Code+"`: "+p.Means)
		retry = retry || p.Retry
	}
	headers := object("Cache-Control", reference("#/components/headers/NoStore"))
	if retry || status == http.StatusTooManyRequests {
		set(headers, "Retry-After", reference("#/components/headers/RetryAfter"))
	}
	if status == http.StatusUnauthorized {
		set(headers, "WWW-Authenticate", reference("#/components/headers/WWWAuthenticate"))
	}
	if status == http.StatusConflict || status == http.StatusPreconditionFailed {
		set(headers, "ETag", reference("#/components/headers/ExistingETag"))
	}
	schema := reference("#/components/schemas/Problem")
	set(schema, "properties", object("code", object("enum", texts(codes))))
	return object("description", text(strings.Join(lines, "\n\n")), "headers", headers,
		"content", object("application/problem+json", object("schema", schema)))
}
