package k6

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/grafana/sobek"
)

// builtinNames are the modules of k6 that there are, and what they export.
var builtinNames = map[string]string{
	"k6":           "check, fail, group, sleep",
	"k6/http":      "get, post, put, patch, del, head, request, batch, expectedStatuses",
	"k6/metrics":   "Counter, Gauge, Rate, Trend",
	"k6/execution": "scenario, vu, instance",
}

// builtins makes the modules of k6 for this VU, by name.
func (v *vu) builtins() map[string]any {
	return map[string]any{
		"k6":           map[string]any{"check": v.check, "fail": v.fail, "group": v.group, "sleep": v.sleep},
		"k6/http":      v.http(),
		"k6/metrics":   v.customMetrics(),
		"k6/execution": v.execution(),
	}
}

// console keeps what the script logs.
func (v *vu) console() map[string]any {
	say := func(values ...any) { v.run.say(strings.TrimSuffix(fmt.Sprintln(values...), "\n")) }
	return map[string]any{"log": say, "info": say, "warn": say, "error": say}
}

// tags adds those of the scenario to those given. k6 takes strings, numbers and booleans as values.
func (v *vu) tags(given sobek.Value, more map[string]string) map[string]string {
	tags := map[string]string{}
	if v.playing != nil && v.stage == "vu" {
		tags["scenario"] = v.playing.name
	}
	for name, value := range more {
		tags[name] = value
	}
	if isNone(given) {
		return tags
	}
	object := given.ToObject(v.runtime)
	for _, name := range object.Keys() {
		value := object.Get(name)
		if _, nested := value.(*sobek.Object); nested || isNone(value) {
			v.refuse("tag %s: not a string", name)
		}
		tags[name] = value.String()
	}
	return tags
}

func isNone(value sobek.Value) bool {
	return value == nil || sobek.IsUndefined(value) || sobek.IsNull(value)
}

// check is k6's check: each predicate is a sample of the metric checks.
func (v *vu) check(call sobek.FunctionCall) sobek.Value {
	all := true
	sets := call.Argument(1).ToObject(v.runtime)
	for _, name := range sets.Keys() {
		passed := sets.Get(name)
		if predicate, ok := sobek.AssertFunction(passed); ok {
			result, err := predicate(sobek.Undefined(), call.Argument(0))
			if err != nil {
				panic(err)
			}
			passed = result
		}
		all = all && passed.ToBoolean()
		v.run.metrics.add("checks", number(passed.ToBoolean()), v.tags(call.Argument(2), map[string]string{"check": name}))
	}
	return v.runtime.ToValue(all)
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func (v *vu) fail(message string) { v.refuse("%s", message) }

func (v *vu) group(_ string, function sobek.Callable) (sobek.Value, error) {
	return function(sobek.Undefined())
}

func (v *vu) sleep(seconds float64) {
	_ = pause(v.ctx, min(longestSleep, time.Duration(seconds*float64(time.Second)))) // what comes next meets the end, too
}

// customMetrics are the constructors of metrics, which work in the init stage only.
func (v *vu) customMetrics() map[string]any {
	constructor := func(kind string) any {
		return func(call sobek.ConstructorCall) *sobek.Object {
			if v.stage != "init" {
				v.refuse("metrics are made in the init stage")
			}
			m, err := v.run.metrics.declare(call.Argument(0).String(), kind, call.Argument(1).ToBoolean())
			if err != nil {
				panic(v.runtime.NewGoError(err))
			}
			add := func(call sobek.FunctionCall) sobek.Value {
				if v.stage == "init" {
					v.refuse("metric %s: values cannot be added in the init stage", m.name)
				}
				value := call.Argument(0).ToFloat()
				if math.IsNaN(value) {
					v.refuse("metric %s: %s is not a number", m.name, call.Argument(0))
				}
				m.add(value, v.tags(call.Argument(1), nil))
				return sobek.Undefined()
			}
			_ = call.This.Set("name", m.name) // a new object takes it
			_ = call.This.Set("add", add)
			return nil
		}
	}
	return map[string]any{
		"Counter": constructor(counterType), "Gauge": constructor(gaugeType), "Rate": constructor(rateType), "Trend": constructor(trendType),
	}
}

// execution is what the script can ask of its own run.
func (v *vu) execution() *sobek.Object {
	return v.object(map[string]func() any{
		"vu": constant(v.object(map[string]func() any{
			"idInTest":            func() any { return v.id },
			"idInInstance":        func() any { return v.id },
			"iterationInInstance": func() any { return v.iteration },
			"iterationInScenario": func() any { return v.inScenario },
		})),
		"scenario": constant(v.object(map[string]func() any{
			"name":            func() any { return v.scenario().name },
			"executor":        func() any { return v.scenario().Executor },
			"startTime":       func() any { return v.scenario().began.UnixMilli() },
			"progress":        func() any { return min(1, time.Since(v.scenario().began).Seconds()/v.scenario().length().Seconds()) },
			"iterationInTest": func() any { return v.scenario().started.Load() - 1 },
		})),
		"instance": constant(v.object(map[string]func() any{
			"vusInitialized": func() any { return v.run.poolSize() },
		})),
	})
}

func constant(value any) func() any { return func() any { return value } }

// scenario is the present one; there is none outside the VU stage.
func (v *vu) scenario() *playing {
	if v.stage != "vu" {
		v.refuse("there is no scenario in the %s stage", v.stage)
	}
	return v.playing
}

// object makes an object whose members are computed at each look.
func (v *vu) object(getters map[string]func() any) *sobek.Object {
	o := v.runtime.NewObject()
	for name, get := range getters {
		getter := v.runtime.ToValue(func(sobek.FunctionCall) sobek.Value { return v.runtime.ToValue(get()) })
		if err := o.DefineAccessorProperty(name, getter, nil, sobek.FLAG_FALSE, sobek.FLAG_TRUE); err != nil {
			panic(err)
		}
	}
	return o
}
