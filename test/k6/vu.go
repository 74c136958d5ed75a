package k6

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/grafana/sobek"
)

// longestSleep is what sleep is cut to: scripts pause for people, tests do not.
const longestSleep = 100 * time.Millisecond

// errInterrupted is an iteration that was still under way when its scenario was over.
var errInterrupted = errors.New("interrupted")

// vu is a virtual user: a JavaScript engine of its own. One goroutine at a time uses it.
type vu struct {
	id      int
	run     *run
	runtime *sobek.Runtime
	exports *sobek.Object
	// stage is init, setup, vu, teardown or handleSummary.
	stage string
	// ctx bounds its requests.
	ctx context.Context
	// data is what the VU functions get; nil before the first.
	data sobek.Value

	playing *playing
	// iteration counts over all scenarios, inScenario within the present one. Both begin at 0.
	iteration, inScenario int
}

// newVU loads the script into a new engine.
func (r *run) newVU(ctx context.Context, id int) (*vu, error) {
	v := &vu{id: id, run: r, runtime: sobek.New(), stage: "init", ctx: ctx, iteration: -1}
	builtin := v.builtins()
	if err := v.runtime.Set("__k6", builtin); err != nil {
		return nil, err
	}
	if err := v.runtime.Set("__ENV", r.env); err != nil {
		return nil, err
	}
	if err := v.runtime.Set("console", v.console()); err != nil {
		return nil, err
	}
	load := &loader{parsed: map[string]*sobek.SourceTextModuleRecord{}, paths: map[any]string{}}
	module, err := load.parse(r.script)
	if err != nil {
		return nil, err
	}
	if err := module.Link(); err != nil {
		return nil, err
	}
	promise := v.runtime.CyclicModuleRecordEvaluate(module, load.resolve)
	if promise.State() != sobek.PromiseStateFulfilled {
		return nil, fmt.Errorf("%s: %v", r.script, promise.Result())
	}
	v.exports = v.runtime.NamespaceObjectFor(module)
	return v, nil
}

// loader finds modules: those of k6 by name, others by their path.
type loader struct {
	parsed map[string]*sobek.SourceTextModuleRecord
	paths  map[any]string
}

// resolve implements sobek.HostResolveImportedModuleFunc.
func (l *loader) resolve(from any, name string) (sobek.ModuleRecord, error) {
	if names, ok := builtinNames[name]; ok {
		return l.keep(name, fmt.Sprintf("const m = globalThis.__k6[%q]; export default m; export const { %s } = m;", name, names))
	}
	if !strings.HasPrefix(name, "./") && !strings.HasPrefix(name, "../") {
		return nil, fmt.Errorf("there is no module %s here", name)
	}
	return l.parse(filepath.Join(filepath.Dir(l.paths[from]), name))
}

func (l *loader) parse(path string) (*sobek.SourceTextModuleRecord, error) {
	if module := l.parsed[path]; module != nil {
		return module, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return l.keep(path, string(text))
}

func (l *loader) keep(path, text string) (*sobek.SourceTextModuleRecord, error) {
	if module := l.parsed[path]; module != nil {
		return module, nil
	}
	module, err := sobek.ParseModule(path, text, l.resolve)
	if err != nil {
		return nil, err
	}
	l.parsed[path], l.paths[module] = module, path
	return module, nil
}

// begin makes the VU one of a scenario.
func (v *vu) begin(ctx context.Context, p *playing) { v.ctx, v.playing = ctx, p }

// iterate runs the function of the scenario once.
func (v *vu) iterate(inScenario int) error {
	v.iteration++
	v.inScenario = inScenario
	if v.data == nil {
		data, err := v.parse(v.run.data)
		if err != nil {
			return err
		}
		v.data = data
	}
	function := v.playing.Exec
	if function == "" {
		function = "default"
	}
	_, err := v.invoke(function, v.data)
	return err
}

// call calls an exported function with an argument in JSON.
func (v *vu) call(function, argument string) (sobek.Value, error) {
	data, err := v.parse(argument)
	if err != nil {
		return nil, err
	}
	return v.invoke(function, data)
}

func (v *vu) invoke(function string, argument sobek.Value) (sobek.Value, error) {
	callable, ok := sobek.AssertFunction(v.exports.Get(function))
	if !ok {
		return nil, fmt.Errorf("the script does not export a function %s", function)
	}
	result, err := callable(sobek.Undefined(), argument)
	if interrupted := (*sobek.InterruptedError)(nil); errors.As(err, &interrupted) {
		return nil, errInterrupted
	}
	return result, err
}

// parse makes a JavaScript value from JSON.
func (v *vu) parse(text string) (sobek.Value, error) { return v.json("parse", v.runtime.ToValue(text)) }

// stringify makes JSON from a JavaScript value; undefined is null.
func (v *vu) stringify(value sobek.Value) (string, error) {
	if value == nil || sobek.IsUndefined(value) {
		return "null", nil
	}
	text, err := v.json("stringify", value)
	if err != nil {
		return "", err
	}
	return text.String(), nil
}

func (v *vu) json(function string, argument sobek.Value) (sobek.Value, error) {
	callable, _ := sobek.AssertFunction(v.runtime.Get("JSON").ToObject(v.runtime).Get(function))
	return callable(sobek.Undefined(), argument)
}

// refuse ends the JavaScript that runs with an exception.
func (v *vu) refuse(form string, parts ...any) {
	panic(v.runtime.NewGoError(fmt.Errorf(form, parts...)))
}
