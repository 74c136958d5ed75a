package typed

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Encode makes the argument for a driver of a JSON value in its own text, without white space around it, which must not be
// null. The argument is the same for every engine: int64, float64, string or []byte. The error says what is wrong
// with the value, after its name, and never quotes it.
func (t Type) Encode(value []byte) (any, error) {
	v := jsontext.Value(value)
	switch {
	case t.kind == kindJSON:
		if int64(len(value)) > int64(t.maxBytes()) {
			return nil, fmt.Errorf("must have at most %d bytes", t.maxBytes())
		}
		return string(value), nil
	case t.kind == kindBool:
		return encodeBool(v.Kind())
	case t.kind <= kindDouble:
		if v.Kind() != jsontext.KindNumber {
			return nil, errors.New("must be a number")
		}
		return t.encodeNumber(value)
	}
	if v.Kind() != jsontext.KindString {
		return nil, errors.New("must be a string")
	}
	unquoted, err := jsontext.AppendUnquote(make([]byte, 0, len(value)), v)
	if err != nil {
		return nil, errors.New("must be a string of valid UTF-8")
	}
	text := string(unquoted)
	switch {
	case t.isText():
		return text, t.checkText(text)
	case t.isBinary():
		return t.encodeBinary(text)
	case t.kind == kindDate:
		return encodeDate(text)
	case t.kind == kindTime:
		return t.encodeTime(text)
	}
	return t.encodeMoment(text)
}

func encodeBool(k jsontext.Kind) (any, error) {
	switch k {
	case jsontext.KindTrue:
		return int64(1), nil
	case jsontext.KindFalse:
		return int64(0), nil
	}
	return nil, errors.New("must be true or false")
}

func (t Type) encodeNumber(value []byte) (any, error) {
	d, ok := parseDecimal(value)
	switch {
	case !ok:
		return nil, errors.New("must be a number")
	case t.kind == kindDouble:
		return encodeDouble(value, d)
	case t.kind == kindDecimal && d.whole() > t.size-t.scale:
		return nil, fmt.Errorf("must have at most %d digits before the point", t.size-t.scale)
	case t.kind == kindDecimal && d.fraction() > t.scale:
		return nil, fmt.Errorf("must have at most %d digits after the point", t.scale)
	case t.kind == kindDecimal:
		return string(d.appendText(nil, t.scale)), nil
	case d.fraction() > 0:
		return nil, errors.New("must be an integer")
	case t.isBigUnsigned():
		return encodeBigUnsigned(d)
	}
	lo, hi := t.bounds()
	const digits = 19 // of the largest int64
	n, err := int64(0), error(nil)
	if d.whole() <= digits {
		n, err = strconv.ParseInt(string(d.appendText(nil, 0)), 10, 64)
	}
	if d.whole() > digits || err != nil || n < lo || n > hi {
		return nil, fmt.Errorf("must be from %d to %d", lo, hi)
	}
	return n, nil
}

func encodeBigUnsigned(d decimal) (any, error) {
	const digits = 20 // of the largest uint64
	err := error(nil)
	if d.whole() <= digits {
		text := string(d.appendText(nil, 0))
		if _, err = strconv.ParseUint(text, 10, 64); err == nil {
			return text, nil
		}
	}
	return nil, errors.New("must be from 0 to 18446744073709551615")
}

// encodeDouble refuses a number that a double would change.
func encodeDouble(value []byte, d decimal) (any, error) {
	f, err := strconv.ParseFloat(string(value), 64)
	if err != nil {
		return nil, errors.New("is out of the range of a double")
	}
	if kept, _ := parseDecimal(strconv.AppendFloat(nil, f, 'e', -1, 64)); !kept.equal(d) {
		return nil, errors.New("has more digits than a double keeps, which would be lost: make it a decimal")
	}
	if f == 0 {
		return float64(0), nil // there is no negative zero
	}
	return f, nil
}

func (t Type) checkText(text string) error {
	switch t.kind {
	case kindChar, kindVarchar:
		if n := utf8.RuneCountInString(text); n > t.size {
			return fmt.Errorf("has %d characters, at most %d are allowed", n, t.size)
		}
		if t.kind == kindChar && strings.HasSuffix(text, " ") {
			return errors.New("must not end with a space, which a char does not keep: make it a varchar")
		}
	default:
		if len(text) > t.maxBytes() {
			return fmt.Errorf("has %d bytes, at most %d are allowed", len(text), t.maxBytes())
		}
	}
	return nil
}

func (t Type) encodeBinary(text string) (any, error) {
	// The decoder would pass over line breaks.
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return nil, errors.New("must be base64, with padding and without line breaks")
	}
	switch {
	case t.kind == kindBinary && len(data) != t.size:
		return nil, fmt.Errorf("has %d bytes, a binary(%d) has exactly %d: make it a varbinary", len(data), t.size, t.size)
	case len(data) > t.longest():
		return nil, fmt.Errorf("has %d bytes, at most %d are allowed", len(data), t.longest())
	}
	return data, nil
}

// Texts of dates and times.
const (
	dateLayout   = "2006-01-02"
	momentLayout = "2006-01-02 15:04:05"
	// minYear and maxYear are what MySQL supports.
	minYear, maxYear = 1000, 9999
	// maxTimeHours is MySQL's range of TIME: that many hours, 59 minutes and 59 seconds either way.
	maxTimeHours = 838
)

// lastTimestamp is the last second of a TIMESTAMP, which begins with the second after the epoch.
var lastTimestamp = time.Date(2038, 1, 19, 3, 14, 7, 0, time.UTC)

// The notations that are taken. time.Parse alone takes more than RFC 3339 allows.
var (
	dateSyntax   = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)
	momentSyntax = regexp.MustCompile(`^(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}:\d{2})(?:\.(\d+))?(Z|[+-]\d{2}:\d{2})$`)
	timeSyntax   = regexp.MustCompile(`^(-?)(\d{2,3}):([0-5]\d):([0-5]\d)(?:\.(\d+))?$`)
)

func encodeDate(text string) (any, error) {
	t, err := time.Parse(dateLayout, text)
	switch {
	case !dateSyntax.MatchString(text) || err != nil:
		return nil, errors.New("must be a date, YYYY-MM-DD")
	case t.Year() < minYear:
		return nil, fmt.Errorf("must be from the year %d on", minYear)
	}
	return text, nil
}

// encodeMoment turns an RFC 3339 time into the text of a DATETIME in UTC.
func (t Type) encodeMoment(text string) (any, error) {
	parts := momentSyntax.FindStringSubmatch(text)
	if parts == nil {
		return nil, errors.New("must be an RFC 3339 time, YYYY-MM-DDTHH:MM:SSZ")
	}
	fraction, err := t.fraction(parts[3])
	if err != nil {
		return nil, err
	}
	at, err := time.Parse(time.RFC3339, parts[1]+"T"+parts[2]+parts[4])
	if err != nil {
		return nil, errors.New("must be an RFC 3339 time that exists")
	}
	at = at.UTC()
	switch {
	case t.kind == kindTimestamp && (at.Unix() < 1 || at.After(lastTimestamp) || at.Equal(lastTimestamp) && strings.Trim(fraction, ".0") != ""):
		return nil, errors.New("must be from 1970-01-01T00:00:01Z to 2038-01-19T03:14:07Z: make it a datetime")
	case at.Year() < minYear || at.Year() > maxYear:
		return nil, fmt.Errorf("must be in the years %d to %d, in UTC", minYear, maxYear)
	}
	return at.Format(momentLayout) + fraction, nil
}

// encodeTime turns a TIME, which may be a negative or a long duration, into the text that MySQL shows.
func (t Type) encodeTime(text string) (any, error) {
	parts := timeSyntax.FindStringSubmatch(text)
	if parts == nil {
		return nil, errors.New("must be a time, HH:MM:SS, of at most 838 hours")
	}
	fraction, err := t.fraction(parts[5])
	if err != nil {
		return nil, err
	}
	hours, _ := strconv.Atoi(parts[2])
	minutes, seconds := parts[3], parts[4]
	at := fmt.Sprintf("%02d:%s:%s", hours, minutes, seconds)
	zero := strings.Trim(fraction, ".0") == ""
	if hours > maxTimeHours || at == "838:59:59" && !zero {
		return nil, errors.New("must be from -838:59:59 to 838:59:59")
	}
	if at == "00:00:00" && zero {
		return at + fraction, nil // there is no negative zero
	}
	return parts[1] + at + fraction, nil
}

// fraction is the fraction of a second as the type shows it, with its point, from its digits. Digits that would be lost
// are refused, not rounded.
func (t Type) fraction(digits string) (string, error) {
	digits = strings.TrimRight(digits, "0")
	switch {
	case len(digits) > t.scale:
		return "", fmt.Errorf("must have at most %d digits after the point of the seconds", t.scale)
	case t.scale == 0:
		return "", nil
	}
	return "." + digits + strings.Repeat("0", t.scale-len(digits)), nil
}

// Default makes the argument for a driver of a default value as config says it: JSON, but text without quotes.
func (t Type) Default(text string) (any, error) {
	value := []byte(text)
	switch quoted, err := jsontext.AppendQuote(nil, text); {
	case t.kind > kindDouble && t.kind != kindJSON && err != nil:
		return nil, errors.New("must be valid UTF-8")
	case t.kind > kindDouble && t.kind != kindJSON:
		value = quoted
	case !jsontext.Value(text).IsValid() || strings.TrimSpace(text) != text || text == "null":
		return nil, errors.New("must be a JSON value")
	}
	return t.Encode(value)
}
