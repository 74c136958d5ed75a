package main

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
)

// Bytes is a size in bytes.
type Bytes int64

const (
	kibibyte Bytes = 1 << 10
	mebibyte Bytes = 1 << 20
	gibibyte Bytes = 1 << 30
)

// String is the size in the largest binary unit that leaves no fraction, as a config file may say it.
func (b Bytes) String() string {
	switch {
	case b == 0:
	case b%gibibyte == 0:
		return strconv.FormatInt(int64(b/gibibyte), 10) + "GiB"
	case b%mebibyte == 0:
		return strconv.FormatInt(int64(b/mebibyte), 10) + "MiB"
	case b%kibibyte == 0:
		return strconv.FormatInt(int64(b/kibibyte), 10) + "KiB"
	}
	return strconv.FormatInt(int64(b), 10)
}

// Ratio is a share, from 0 to 1.
type Ratio float64

// The types of scalar keys that are more than their kind.
var (
	durationType = reflect.TypeFor[time.Duration]()
	bytesType    = reflect.TypeFor[Bytes]()
	ratioType    = reflect.TypeFor[Ratio]()
	secretType   = reflect.TypeFor[Secret]()
)

var (
	decimalSyntax  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	octalSyntax    = regexp.MustCompile(`^[-+]?0[0-9]+$`)
	ratioSyntax    = regexp.MustCompile(`^(0|1|0\.[0-9]+|1\.0+)$`)
	durationSyntax = regexp.MustCompile(`^((0|[1-9][0-9]*)(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`)
	bytesSyntax    = regexp.MustCompile(`^(0|[1-9][0-9]*) ?(B|kB|KB|MB|GB|KiB|MiB|GiB)?$`)
)

// scalarRule says in words what a scalar of the type looks like.
func scalarRule(typ reflect.Type) string {
	switch {
	case typ == durationType:
		return "must be a duration with its unit, such as 500ms, 5s or 2m"
	case typ == bytesType:
		return "must be a size, such as 1MiB, 500kB or a plain decimal number of bytes"
	case typ == ratioType:
		return "must be a plain decimal number from 0 to 1, such as 0.01"
	case typ == wordsType:
		return "must be a list, such as [a, b]"
	case typ.Kind() == reflect.Bool:
		return "must be true or false"
	case isNumber(typ):
		return "must be a plain decimal number, such as 10000"
	}
	return "must be text"
}

// isNumber reports whether the type is a number without a unit.
func isNumber(typ reflect.Type) bool {
	return (typ.Kind() == reflect.Int || typ.Kind() == reflect.Int64) && typ != durationType && typ != bytesType
}

// parseScalar makes a value of the type from its text in a file or the environment. The error is the rule that the
// text breaks; it does not repeat the text. There is one notation for each value: what other readers of YAML could
// take for something else is refused.
func parseScalar(typ reflect.Type, text string) (any, error) {
	switch {
	case typ == secretType:
		return Secret(text), nil
	case typ == wordsType:
		return Words(text), nil
	case typ.Kind() == reflect.String:
		return text, nil
	case octalSyntax.MatchString(text):
		return nil, fmt.Errorf("has a leading zero, which YAML would read as octal; it %s", scalarRule(typ))
	case typ == durationType:
		return parseDuration(text)
	case typ == bytesType:
		return parseBytes(text)
	case typ == ratioType:
		return parseRatio(text)
	case typ.Kind() == reflect.Bool:
		return parseBool(text)
	case isNumber(typ):
		return parseNumber(typ, text)
	}
	return nil, fmt.Errorf("has the type %s, which this program cannot read", typ)
}

func parseNumber(typ reflect.Type, text string) (any, error) {
	if !decimalSyntax.MatchString(text) {
		return nil, errors.New(scalarRule(typ))
	}
	number, err := strconv.ParseInt(text, 10, typ.Bits())
	if err != nil {
		return nil, fmt.Errorf("must fit in %d bits", typ.Bits())
	}
	return reflect.ValueOf(number).Convert(typ).Interface(), nil
}

func parseBool(text string) (any, error) {
	if text != "true" && text != "false" {
		return nil, errors.New(scalarRule(reflect.TypeFor[bool]()))
	}
	return text == "true", nil
}

func parseRatio(text string) (any, error) {
	ratio, err := strconv.ParseFloat(text, 64)
	if err != nil || !ratioSyntax.MatchString(text) {
		return nil, errors.New(scalarRule(ratioType))
	}
	return Ratio(ratio), nil
}

func parseDuration(text string) (any, error) {
	if !durationSyntax.MatchString(text) {
		return nil, errors.New(scalarRule(durationType))
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil, errors.New("must be shorter than 292 years")
	}
	return d, nil
}

func parseBytes(text string) (any, error) {
	if !bytesSyntax.MatchString(text) {
		return nil, errors.New(scalarRule(bytesType))
	}
	size, err := humanize.ParseBytes(text)
	if err != nil || size > math.MaxInt64 {
		return nil, errors.New("must fit in 63 bits")
	}
	return Bytes(size), nil
}
