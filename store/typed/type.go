// Package typed turns members of JSON documents into values of SQL columns and back, without loss and alike on every engine.
// It talks to no database.
package typed

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// kind is a family of types; within one, size, scale and unsigned tell types apart.
type kind int8

const (
	kindBool kind = iota + 1
	kindTinyint
	kindSmallint
	kindMediumint
	kindInt
	kindBigint
	kindDecimal
	kindDouble
	kindChar
	kindVarchar
	kindTinytext
	kindText
	kindMediumtext
	kindLongtext
	kindDate
	kindTime
	kindDatetime
	kindTimestamp
	kindBinary
	kindVarbinary
	kindTinyblob
	kindBlob
	kindMediumblob
	kindLongblob
	kindJSON
)

// Type is the type of a column. The zero value is none.
type Type struct {
	kind     kind
	unsigned bool
	// size is the n of CHAR(n) in characters, of BINARY(n) in bytes, and the digits of a DECIMAL.
	size int
	// scale is the digits after the point: of a DECIMAL, or of the seconds of a time.
	scale int
}

// Bounds of MySQL.
const (
	maxChar        = 255
	maxVarchar     = 16383 // of 4 bytes each in a row of 65,535
	maxVarbinary   = 65533
	maxPrecision   = 65
	maxScale       = 30
	maxFraction    = 6
	defaultDecimal = 10
	bytesPerChar   = 4 // utf8mb4
)

// rule is what a family of types is called and may have in parentheses.
type rule struct {
	kind kind
	// canonical is the name that config and information_schema agree on.
	canonical string
	// least and most bound the one number in parentheses, which is needed when least is 1; both 0 for none.
	least, most int
}

// rules are the types by name; aliases have lines of their own.
var rules = map[string]rule{
	"bool": {kindBool, "bool", 0, 0}, "boolean": {kindBool, "bool", 0, 0},
	"tinyint": {kindTinyint, "tinyint", 0, 0}, "smallint": {kindSmallint, "smallint", 0, 0}, "mediumint": {kindMediumint, "mediumint", 0, 0},
	"int": {kindInt, "int", 0, 0}, "integer": {kindInt, "int", 0, 0}, "bigint": {kindBigint, "bigint", 0, 0},
	"decimal": {kindDecimal, "decimal", 0, 0}, "numeric": {kindDecimal, "decimal", 0, 0},
	"double": {kindDouble, "double", 0, 0}, "float": {kindDouble, "double", 0, 0},
	"char": {kindChar, "char", 1, maxChar}, "varchar": {kindVarchar, "varchar", 1, maxVarchar},
	"tinytext": {kindTinytext, "tinytext", 0, 0}, "text": {kindText, "text", 0, 0}, "mediumtext": {kindMediumtext, "mediumtext", 0, 0}, "longtext": {kindLongtext, "longtext", 0, 0},
	"date": {kindDate, "date", 0, 0}, "time": {kindTime, "time", 0, maxFraction}, "datetime": {kindDatetime, "datetime", 0, maxFraction}, "timestamp": {kindTimestamp, "timestamp", 0, maxFraction},
	"binary": {kindBinary, "binary", 1, maxChar}, "varbinary": {kindVarbinary, "varbinary", 1, maxVarbinary},
	"tinyblob": {kindTinyblob, "tinyblob", 0, 0}, "blob": {kindBlob, "blob", 0, 0}, "mediumblob": {kindMediumblob, "mediumblob", 0, 0}, "longblob": {kindLongblob, "longblob", 0, 0},
	"json": {kindJSON, "json", 0, 0},
}

// names are the canonical names.
var names = func() map[kind]string {
	all := map[kind]string{}
	for _, r := range rules {
		all[r.kind] = r.canonical
	}
	return all
}()

// typeSyntax is a name, up to two numbers, and a sign.
var typeSyntax = regexp.MustCompile(`^([a-z]+)(?: ?\( ?([0-9]{1,5}) ?(?:, ?([0-9]{1,5}) ?)?\))?( unsigned)?$`)

// ParseType reads a type as MySQL's CREATE TABLE would, in any case: decimal(10,2), VARCHAR(200), bigint unsigned. The
// error says what is wrong and does not repeat the text.
func ParseType(text string) (Type, error) {
	parts := typeSyntax.FindStringSubmatch(strings.ToLower(strings.TrimSpace(text)))
	if parts == nil {
		return Type{}, errors.New("is no type such as decimal(10,2), varchar(200) or bigint unsigned")
	}
	r, ok := rules[parts[1]]
	if !ok {
		return Type{}, errors.New("is no type that columns can have: bool, tinyint to bigint [unsigned], decimal, double, char, varchar, text, date, time, " +
			"datetime, timestamp, binary, varbinary, blob and json are, and tiny, medium and long ones of text and blob")
	}
	t := Type{kind: r.kind, unsigned: parts[4] != ""}
	if t.unsigned && (t.kind < kindTinyint || t.kind > kindBigint) {
		return Type{}, errors.New("can not be unsigned: only integers can")
	}
	if t.kind == kindDecimal {
		return t.withPrecision(parts[2], parts[3])
	}
	switch n, err := strconv.Atoi(parts[2]); {
	case parts[3] != "", parts[2] != "" && r.most == 0:
		return Type{}, fmt.Errorf("has numbers in parentheses that %s does not take", r.canonical)
	case parts[2] == "" && r.least > 0:
		return Type{}, fmt.Errorf("needs its length, %s(1) to %s(%d)", r.canonical, r.canonical, r.most)
	case parts[2] == "":
	case err != nil || n < r.least || n > r.most:
		return Type{}, fmt.Errorf("must be %s(%d) to %s(%d)", r.canonical, r.least, r.canonical, r.most)
	case r.least == 0:
		t.scale = n
	default:
		t.size = n
	}
	return t, nil
}

// withPrecision is a DECIMAL with its two numbers, which may be missing.
func (t Type) withPrecision(precision, scale string) (Type, error) {
	t.size = defaultDecimal
	if precision != "" {
		t.size, _ = strconv.Atoi(precision) // the syntax leaves nothing to fail
	}
	if scale != "" {
		t.scale, _ = strconv.Atoi(scale)
	}
	if t.size < 1 || t.size > maxPrecision || t.scale > maxScale || t.scale > t.size {
		return Type{}, fmt.Errorf("must be decimal(p,s) with p from 1 to %d and s from 0 to %d and at most p", maxPrecision, maxScale)
	}
	return t, nil
}

// String is the type as config can say it.
func (t Type) String() string {
	text := names[t.kind]
	switch {
	case t.kind == kindDecimal:
		text += fmt.Sprintf("(%d,%d)", t.size, t.scale)
	case t.size > 0:
		text += fmt.Sprintf("(%d)", t.size)
	case t.scale > 0:
		text += fmt.Sprintf("(%d)", t.scale)
	}
	if t.unsigned {
		text += " unsigned"
	}
	return text
}

// isInteger reports whether cells are int64: all integers but the one that does not fit.
func (t Type) isInteger() bool {
	return t.kind >= kindTinyint && t.kind <= kindBigint && !t.isBigUnsigned()
}

// isBigUnsigned is the integer that is kept as text, because the other 63 bits are all that drivers and SQLite have.
func (t Type) isBigUnsigned() bool { return t.kind == kindBigint && t.unsigned }

// IsInteger reports whether the values are integers, and KeepsText whether they are texts. Both come back as they were sent.
func (t Type) IsInteger() bool { return t.kind >= kindTinyint && t.kind <= kindBigint }

// KeepsText is as said for IsInteger.
func (t Type) KeepsText() bool { return t.isText() }

func (t Type) isText() bool { return t.kind >= kindChar && t.kind <= kindLongtext }

func (t Type) isBinary() bool { return t.kind >= kindBinary && t.kind <= kindLongblob }

// isMoment is a date with a time.
func (t Type) isMoment() bool { return t.kind == kindDatetime || t.kind == kindTimestamp }

// maxBytes is the longest value of a TEXT or BLOB in bytes.
func (t Type) maxBytes() int {
	switch t.kind {
	case kindTinytext, kindTinyblob:
		return 1<<8 - 1
	case kindText, kindBlob:
		return 1<<16 - 1
	case kindMediumtext, kindMediumblob:
		return 1<<24 - 1
	}
	return 1<<32 - 1
}
