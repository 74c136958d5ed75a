package main

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// envPrefix starts the name of each variable that overrides a key. The two underscores keep the variables that
	// Kubernetes makes for a service called gateway (GATEWAY_PORT, ...) apart.
	envPrefix = "GATEWAY__"
	// envSeparator stands between the levels of a key, because one underscore is part of key names.
	envSeparator = "__"
)

// environment is a process environment by variable name.
type environment map[string]string

// parseEnviron reads what os.Environ returns; the last value of a name counts.
func parseEnviron(environ []string) environment {
	env := environment{}
	for _, one := range environ {
		name, value, _ := strings.Cut(one, "=")
		env[name] = value
	}
	return env
}

// override is one variable that sets one scalar key.
type override struct {
	variable string
	steps    []string // what follows the prefix, level by level
	text     string
}

// applyEnvironment changes the merged settings, which hold all keys, as the environment says.
func applyEnvironment(merged settings, env environment, f *faults) {
	for _, o := range overrides(env) {
		o.section(f, merged, reflect.TypeFor[Config](), "", o.steps)
	}
}

// overrides lists the variables with the prefix so that elements of a list come in the order of their index: each that
// is appended makes room for the next.
func overrides(env environment) []override {
	byOrder := map[string]override{}
	for name, text := range env {
		rest, ok := strings.CutPrefix(name, envPrefix)
		if !ok {
			continue
		}
		steps := strings.Split(rest, envSeparator)
		order := slices.Clone(steps)
		for i, step := range order {
			order[i] = fmt.Sprintf("%10s", step) // aligns numbers
		}
		byOrder[strings.Join(order, " ")+name] = override{name, steps, text}
	}
	var out []override
	for _, order := range slices.Sorted(maps.Keys(byOrder)) {
		out = append(out, byOrder[order])
	}
	return out
}

// refuse records a fault of the variable itself.
func (o override) refuse(f *faults, rule string) {
	f.at(origin{variable: o.variable}, rule)
}

// section sets the key that steps name within a section of the struct type.
func (o override) section(f *faults, in settings, typ reflect.Type, path string, steps []string) {
	if len(steps) == 0 {
		o.refuse(f, path+" is a section; name one of its keys: "+strings.ToUpper(strings.Join(keysOf(typ), ", ")))
		return
	}
	key := strings.ToLower(steps[0])
	field, known := fieldOf(typ, key)
	if !known || steps[0] != strings.ToUpper(key) {
		names := make([]string, 0, typ.NumField())
		for _, name := range keysOf(typ) {
			names = append(names, strings.ToUpper(name))
		}
		o.refuse(f, fmt.Sprintf("no config key has this name: unknown level %q%s", steps[0], didYouMean(steps[0], names)))
		return
	}
	full, rest := joinKey(path, key), steps[1:]
	switch field.Type.Kind() {
	case reflect.Struct:
		o.section(f, in[key].(settings), field.Type, full, rest)
	case reflect.Slice:
		in[key] = o.element(f, in[key].([]any), field.Type.Elem(), full, rest)
	default:
		o.scalar(f, in, field.Type, full, key, rest)
	}
}

var indexSyntax = regexp.MustCompile(`^(0|[1-9][0-9]{0,5})$`)

// element sets a key of a list's element, which may be the one past the end, and returns the list.
func (o override) element(f *faults, list []any, typ reflect.Type, path string, steps []string) []any {
	if len(steps) == 0 || !indexSyntax.MatchString(steps[0]) {
		o.refuse(f, path+" is a list; the index of an element, from 0, must follow: "+envName(path)+"__0__...")
		return list
	}
	index, _ := strconv.Atoi(steps[0]) // the syntax leaves nothing to fail
	if index > len(list) {
		o.refuse(f, fmt.Sprintf("%s has %d elements, so the next index is %d", path, len(list), len(list)))
		return list
	}
	full := fmt.Sprintf("%s[%d]", path, index)
	if index == len(list) {
		list = append(list, newElement(typ))
		f.origins[full] = origin{variable: o.variable}
	}
	o.section(f, list[index].(settings), typ, full, steps[1:])
	return list
}

func (o override) scalar(f *faults, in settings, typ reflect.Type, path, key string, steps []string) {
	if len(steps) > 0 {
		o.refuse(f, path+" has no keys below it")
		return
	}
	f.origins[path] = origin{variable: o.variable}
	delete(f.dropped, path)
	value, err := parseScalar(typ, o.text)
	if err != nil {
		f.drop(path, fmt.Sprintf("%s (got %s)", err, shown(o.text)))
		return
	}
	in[key] = value
}

// envName is the variable that overrides a key such as nodes[0].dsn.
func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", envSeparator, "[", envSeparator, "]", "").Replace(key))
}
