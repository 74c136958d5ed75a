package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
)

// redacted stands for a secret wherever one would be shown.
const redacted = "***"

// Secret is text that only Reveal shows; every way of printing or encoding it gives ***.
type Secret string

// Reveal returns the secret itself, for whoever connects with it.
func (s Secret) Reveal() string { return string(s) }

// String hides the secret from %s, %v and Stringer users.
func (s Secret) String() string { return redacted }

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return redacted }

// Format hides the secret from the verbs that look past String, such as %x and %d.
func (s Secret) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(redacted)) }

// MarshalText hides the secret from YAML, XML and map keys.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON hides the secret from JSON.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// LogValue hides the secret from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// fileSuffix ends the name of the key beside a secret's that names a file with the secret.
const fileSuffix = "_file"

// secretReader replaces what config says about secrets by the secrets.
type secretReader struct {
	*faults
	folder string // of the config file
	env    environment
}

// resolveSecrets gives each secret its final value: from its file, or with each ${NAME} replaced from the environment.
func resolveSecrets(cfg *Config, configPath string, env environment, f *faults) {
	r := secretReader{f, filepath.Dir(configPath), env}
	r.section(reflect.ValueOf(cfg).Elem(), "")
}

func (r secretReader) section(v reflect.Value, path string) {
	for i := range v.NumField() {
		value := v.Field(i)
		key := v.Type().Field(i).Tag.Get(keyTag)
		full := joinKey(path, key)
		switch {
		case value.Type() == secretType:
			value.SetString(r.resolve(value.String(), siblingFile(v, key), full))
		case value.Kind() == reflect.Struct:
			r.section(value, full)
		case value.Kind() == reflect.Slice:
			for j := range value.Len() {
				r.section(value.Index(j), fmt.Sprintf("%s[%d]", full, j))
			}
		}
	}
}

// siblingFile is the value of the _file key beside a secret's key; "" when there is none.
func siblingFile(v reflect.Value, key string) string {
	field, ok := fieldOf(v.Type(), key+fileSuffix)
	if !ok {
		return ""
	}
	return v.FieldByIndex(field.Index).String()
}

// resolve returns the secret that text or file stands for, or "" after a fault. A default gives way to a file.
func (r secretReader) resolve(text, file, key string) string {
	var err error
	switch {
	case file != "" && text != "" && r.given(key):
		err = fmt.Errorf("give either this or %s, not both", key+fileSuffix)
	case file != "":
		key += fileSuffix
		text, err = r.read(file)
	default:
		text, err = r.expand(text)
	}
	if err != nil {
		r.add(key, err.Error())
		name := strings.TrimSuffix(key, fileSuffix)
		r.dropped[name], r.dropped[name+fileSuffix] = true, true
		return ""
	}
	return text
}

// read returns the trimmed text of a secret's file; a relative path starts at the folder of the config file.
func (r secretReader) read(file string) (string, error) {
	path := file
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.folder, path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the file: %w (got %s)", causeOf(err), shown(file))
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		return "", fmt.Errorf("the file is empty (got %s)", shown(file))
	}
	return text, nil
}

var (
	// referenceSyntax finds $${ (an escaped ${), a whole ${NAME}, and a ${ that is neither.
	referenceSyntax = regexp.MustCompile(`\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{`)
	wholeReference  = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`)
)

// expand replaces each ${NAME} of a URL by the variable's value: as it is when it is the whole URL, or part of a
// sqlite:// path, which knows no escapes; percent-encoded within any other URL, so that a password needs no care.
func (r secretReader) expand(text string) (string, error) {
	verbatim := wholeReference.MatchString(text) || strings.HasPrefix(strings.ToLower(text), "sqlite://")
	var faults []string
	expanded := referenceSyntax.ReplaceAllStringFunc(text, func(match string) string {
		name := strings.TrimSuffix(strings.TrimPrefix(match, "${"), "}")
		value, ok := r.env[name]
		switch {
		case match == "$${":
			return "${"
		case match == "${":
			faults = append(faults, "a ${ without a variable name and }; write $${ where it is meant as it is")
		case !ok:
			faults = append(faults, "the environment variable "+name+" is not set")
		case value == "":
			faults = append(faults, "the environment variable "+name+" is empty")
		case verbatim:
			return value
		}
		return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
	})
	if len(faults) > 0 {
		return "", errors.New(strings.Join(faults, "; "))
	}
	return expanded, nil
}
