package typed

import (
	"encoding/base64"
	"errors"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// errForeign is a value that no gateway has stored in a column of the type: somebody changed the row or the column.
var errForeign = errors.New("the stored value is none of the column's type")

// Decode adds the JSON of a value to dst: what Encode made, or what a driver read, which must not be nil. A value longer or
// larger than the type allows is none of its faults, because a column may be made wider while gateways run; one
// that can not be shown exactly is an error.
func (t Type) Decode(dst []byte, cell any) ([]byte, error) {
	if raw, ok := cell.([]byte); ok && !t.isBinary() {
		cell = string(raw)
	}
	switch v := cell.(type) {
	case int64:
		return t.decodeInteger(dst, v)
	case uint64:
		if t.isBigUnsigned() {
			return strconv.AppendUint(dst, v, 10), nil
		}
		if v <= math.MaxInt64 {
			return t.decodeInteger(dst, int64(v))
		}
	case float64:
		if t.kind == kindDouble && !math.IsInf(v, 0) && !math.IsNaN(v) {
			return appendFloat(dst, v), nil
		}
	case time.Time:
		return t.decodeMoment(dst, v)
	case []byte: // of a binary type
		dst = append(dst, '"')
		return append(base64.StdEncoding.AppendEncode(dst, v), '"'), nil
	case string:
		return t.decodeText(dst, v)
	}
	return nil, errForeign
}

func (t Type) decodeInteger(dst []byte, v int64) ([]byte, error) {
	switch {
	case t.kind == kindBool && (v == 0 || v == 1):
		return strconv.AppendBool(dst, v == 1), nil
	case t.isInteger():
		return strconv.AppendInt(dst, v, 10), nil
	}
	return nil, errForeign
}

// decodeMoment shows a date or a time that a driver has read as one, in UTC.
func (t Type) decodeMoment(dst []byte, v time.Time) ([]byte, error) {
	unit := int(math.Pow10(9 - t.scale)) // nanoseconds
	switch {
	case v.Year() < minYear || v.Year() > maxYear || v.Nanosecond()%unit != 0:
	case t.kind == kindDate && v.Truncate(24*time.Hour).Equal(v):
		return v.AppendFormat(dst, `"`+dateLayout+`"`), nil
	case t.isMoment():
		layout := `"2006-01-02T15:04:05`
		if t.scale > 0 {
			layout += ".000000000"[:1+t.scale]
		}
		return append(v.AppendFormat(dst, layout), `Z"`...), nil
	}
	return nil, errForeign
}

var storedMoment = regexp.MustCompile(`^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,6})?$`)

func (t Type) decodeText(dst []byte, v string) ([]byte, error) {
	switch {
	case t.isText():
		if quoted, err := jsontext.AppendQuote(dst, v); err == nil {
			return quoted, nil
		}
	case t.kind == kindJSON:
		if jsontext.Value(v).IsValid() {
			return append(dst, v...), nil
		}
	case t.kind == kindDecimal:
		if d, ok := parseDecimal([]byte(v)); ok && d.fraction() <= t.scale && d.whole() <= maxPrecision {
			return d.appendText(dst, t.scale), nil
		}
	case t.isBigUnsigned():
		if n, err := strconv.ParseUint(v, 10, 64); err == nil {
			return strconv.AppendUint(dst, n, 10), nil
		}
	case t.kind == kindTime:
		if text, err := t.encodeTime(v); err == nil {
			return append(append(append(dst, '"'), text.(string)...), '"'), nil
		}
	case t.kind == kindDate:
		if at, err := time.Parse(dateLayout, v); err == nil && dateSyntax.MatchString(v) {
			return t.decodeMoment(dst, at)
		}
	case t.isMoment():
		if at, err := time.Parse(momentLayout, v); err == nil && storedMoment.MatchString(v) {
			return t.decodeMoment(dst, at)
		}
	}
	return nil, errForeign
}
