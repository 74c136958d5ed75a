package k6

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grafana/sobek"
)

// requestTimeout is k6's default.
const requestTimeout = time.Minute

// statuses is what expectedStatuses returns: the statuses that are no failures.
type statuses struct{ all []int }

// http is the module k6/http.
func (v *vu) http() map[string]any {
	with := func(method string) func(sobek.FunctionCall) sobek.Value {
		return func(call sobek.FunctionCall) sobek.Value {
			return v.request(method, call.Argument(0), call.Argument(1), call.Argument(2))
		}
	}
	without := func(method string) func(sobek.FunctionCall) sobek.Value {
		return func(call sobek.FunctionCall) sobek.Value {
			return v.request(method, call.Argument(0), nil, call.Argument(1))
		}
	}
	return map[string]any{
		"get": without(http.MethodGet), "head": without(http.MethodHead),
		"post": with(http.MethodPost), "put": with(http.MethodPut), "patch": with(http.MethodPatch), "del": with(http.MethodDelete),
		"request": func(call sobek.FunctionCall) sobek.Value {
			return v.request(call.Argument(0).String(), call.Argument(1), call.Argument(2), call.Argument(3))
		},
		"batch":            v.batch,
		"expectedStatuses": func(all ...int) *statuses { return &statuses{all} },
	}
}

// batch sends requests given as [method, url, body, params], one after another.
func (v *vu) batch(call sobek.FunctionCall) sobek.Value {
	var answers []any
	requests := call.Argument(0).ToObject(v.runtime)
	for _, i := range requests.Keys() {
		one := requests.Get(i).ToObject(v.runtime)
		answers = append(answers, v.request(one.Get("0").String(), one.Get("1"), one.Get("2"), one.Get("3")))
	}
	return v.runtime.NewArray(answers...)
}

// parameters are those of one request.
type parameters struct {
	headers  http.Header
	tags     sobek.Value
	timeout  time.Duration
	expected *statuses
}

// parameters reads the params of a request. What is not known is refused.
func (v *vu) parameters(given sobek.Value) parameters {
	p := parameters{headers: http.Header{}, timeout: requestTimeout}
	if isNone(given) {
		return p
	}
	object := given.ToObject(v.runtime)
	for _, name := range object.Keys() {
		value := object.Get(name)
		switch name {
		case "headers":
			headers := value.ToObject(v.runtime)
			for _, header := range headers.Keys() {
				p.headers.Set(header, headers.Get(header).String())
			}
		case "tags":
			p.tags = value
		case "timeout":
			length, err := time.ParseDuration(value.String())
			if err != nil {
				v.refuse("timeout: %v", err)
			}
			p.timeout = length
		case "redirects":
			if value.ToInteger() != 0 {
				v.refuse("redirects are not followed here")
			}
		case "responseCallback":
			expected, ok := value.Export().(*statuses)
			if !ok {
				v.refuse("responseCallback: not made by expectedStatuses")
			}
			p.expected = expected
		default:
			v.refuse("request parameter %s is not known", name)
		}
	}
	return p
}

// request sends one request and waits for the answer. Without one the status is 0.
func (v *vu) request(method string, url, body, params sobek.Value) sobek.Value {
	if v.stage == "init" || v.stage == "handleSummary" {
		v.refuse("no requests in the %s stage", v.stage)
	}
	content := ""
	if !isNone(body) {
		text, ok := body.Export().(string)
		if !ok {
			v.refuse("a body is a string here")
		}
		content = text
	}
	p := v.parameters(params)
	ctx, cancel := context.WithTimeout(v.ctx, p.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url.String(), strings.NewReader(content))
	if err != nil {
		v.refuse("%v", err)
	}
	request.Header = p.headers
	began := time.Now()
	answer := v.answer(request)
	took := float64(time.Since(began)) / float64(time.Millisecond)
	answer["timings"] = map[string]any{"duration": took}

	status := answer["status"].(int)
	expected := status >= 200 && status < 400
	if p.expected != nil {
		expected = slices.Contains(p.expected.all, status)
	}
	tags := v.tags(p.tags, map[string]string{
		"method": method, "status": strconv.Itoa(status), "expected_response": strconv.FormatBool(expected), "name": url.String(),
	})
	v.run.metrics.add("http_reqs", 1, tags)
	v.run.metrics.add("http_req_duration", took, tags)
	v.run.metrics.add("http_req_failed", number(!expected), tags)
	return v.runtime.ToValue(answer)
}

// answer is the response as JavaScript sees it.
func (v *vu) answer(request *http.Request) map[string]any {
	answer := map[string]any{"status": 0, "body": nil, "headers": map[string]any{}, "error": "", "url": request.URL.String()}
	answer["json"] = func() sobek.Value {
		text, _ := answer["body"].(string)
		value, err := v.parse(text)
		if err != nil {
			panic(v.runtime.NewGoError(err))
		}
		return value
	}
	response, err := v.run.client.Do(request)
	if err != nil {
		answer["error"] = err.Error()
		return answer
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		answer["error"] = err.Error()
		return answer
	}
	headers := map[string]any{}
	for name, values := range response.Header {
		headers[name] = strings.Join(values, ", ")
	}
	answer["status"], answer["body"], answer["headers"] = response.StatusCode, string(body), headers
	return answer
}
