package typed

import (
	"fmt"
	"strings"
)

// Mark is in the comment of each column that a gateway has made on a MySQL server, so that a column which config has lost
// is told from one that somebody else added.
const Mark = "member"

// markJSON is Mark for a JSON column, which is a LONGTEXT to the server.
const markJSON = Mark + ", JSON"

// markSQLite is Mark in front of the type of a SQLite column. SQLite takes any words there and guesses from those after it
// how to store values.
const markSQLite = "MEMBER "

// MySQL is the definition of a column of the type that may be NULL.
//
// JSON is LONGTEXT: MySQL's own type would put members into another order, round numbers and merge what is spelt in two
// ways. A CHECK with JSON_VALID is left out, because adding one copies the table.
func (t Type) MySQL() string {
	text, mark := strings.ToUpper(t.String()), Mark
	if t.kind == kindJSON {
		text, mark = "LONGTEXT", markJSON
	}
	if t.isText() || t.kind == kindJSON {
		text += " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
	}
	return text + " NULL COMMENT '" + mark + "'"
}

// SQLite is the definition of a column of the type. It says what MySQL would store, and its last word how SQLite does:
// what SQLite would round or reorder is text.
func (t Type) SQLite() string {
	name, numbers, _ := strings.Cut(strings.ToUpper(t.String()), "(")
	if numbers != "" {
		numbers = "(" + numbers
	}
	switch {
	case t.isBigUnsigned():
		name = "UNSIGNED TEXT" // without INT in it, which would win
	case t.kind == kindBool:
		name += " INTEGER"
	case t.kind == kindDecimal, t.kind == kindJSON, t.kind >= kindDate && t.kind <= kindTimestamp:
		name += " TEXT"
	case t.kind == kindBinary, t.kind == kindVarbinary:
		name += " BLOB"
	}
	return markSQLite + name + numbers
}

// Stored is a column as a database describes it.
type Stored struct {
	// Type is the type; zero for one that no member is kept in.
	Type Type
	// Text is the type in the words of the database.
	Text string
	// Marked says that a gateway has made the column for a member.
	Marked bool
}

// FromMySQL reads the column_type and column_comment of information_schema.
func FromMySQL(columnType, comment string) Stored {
	s := Stored{Text: columnType, Marked: comment == Mark || comment == markJSON}
	text := strings.ToLower(columnType)
	name, rest, found := strings.Cut(text, "(")
	_, after, _ := strings.Cut(rest, ")")
	switch r := rules[name]; {
	case text == "tinyint(1)":
		text = "bool"
	case found && r.kind >= kindTinyint && r.kind <= kindBigint: // a width to show, which means nothing
		text = name + after
	case comment == markJSON && text == "longtext":
		text = "json"
	case text == "float", text == "json", text == "bool": // what these mean here is something else
		return s
	}
	s.Type, _ = ParseType(text) // none when it fails
	return s
}

// FromSQLite reads the type of a column as it was declared.
func FromSQLite(declared string) Stored {
	s := Stored{Text: declared}
	var text string
	if text, s.Marked = strings.CutPrefix(declared, markSQLite); !s.Marked {
		return s
	}
	name, numbers, found := strings.Cut(text, "(")
	if name = strings.ToLower(name); name == "unsigned text" {
		name = "bigint unsigned"
	}
	for _, word := range []string{" integer", " text", " blob"} {
		name = strings.TrimSuffix(name, word)
	}
	if found {
		name += "(" + numbers
	}
	s.Type, _ = ParseType(name)
	return s
}

// Holds reports whether a column of a MySQL server that has type t can be used as one of the wanted type: it takes each
// value of it, and gives each value back as the wanted type would.
func (t Type) Holds(wanted Type) bool {
	same := t == wanted
	switch {
	case t.isInteger() && wanted.isInteger():
		lo, hi := t.bounds()
		wantedLo, wantedHi := wanted.bounds()
		return lo <= wantedLo && hi >= wantedHi
	case t.kind == kindDecimal && wanted.kind == kindDecimal:
		return t.scale == wanted.scale && t.size >= wanted.size
	case t.kind == kindVarchar && (wanted.kind == kindVarchar || wanted.kind == kindChar),
		t.kind == kindVarbinary && (wanted.kind == kindVarbinary || wanted.kind == kindBinary):
		return t.size >= wanted.size
	case t.kind >= kindTinytext && t.isText() && wanted.isText(), t.kind >= kindTinyblob && t.isBinary() && wanted.isBinary():
		return t.maxBytes() >= wanted.longest()
	}
	return same
}

// StoredAlike reports whether SQLite keeps values of both types in the same way, and either gives those of the other back.
// How long or large a value may be is not SQLite's concern.
func (t Type) StoredAlike(other Type) bool {
	switch {
	case t.isInteger():
		return other.isInteger()
	case t.isText():
		return other.isText()
	case t.isBinary():
		return other.isBinary()
	case t.kind == kindDecimal:
		return other.kind == kindDecimal && t.scale == other.scale
	}
	return t == other
}

// longest is the length of the longest value of a text or binary type in bytes.
func (t Type) longest() int {
	switch t.kind {
	case kindChar, kindVarchar:
		return t.size * bytesPerChar
	case kindBinary, kindVarbinary:
		return t.size
	}
	return t.maxBytes()
}

// Limits of a row in bytes: that of MySQL, and that of a page of InnoDB, which a row without its long values must fit
// twice. The latter has some bytes to spare.
const (
	maxRowBytes  = 65535
	maxPageBytes = 8000
	// keptInPage is what a page keeps at most of a value that may be stored elsewhere.
	keptInPage = 40
	// longInPage is how long a CHAR must be, in bytes, to be stored elsewhere.
	longInPage = 768
)

// rowBytes is what the type takes of a row at most, and of its page at least.
func (t Type) rowBytes() (row, page int) {
	fixed := 0
	switch t.kind {
	case kindBool, kindTinyint:
		fixed = 1
	case kindSmallint:
		fixed = 2
	case kindMediumint, kindDate:
		fixed = 3
	case kindInt:
		fixed = 4
	case kindBigint, kindDouble:
		fixed = 8
	case kindDecimal:
		fixed = decimalBytes(t.size-t.scale) + decimalBytes(t.scale)
	case kindTime:
		fixed = 3 + (t.scale+1)/2
	case kindTimestamp:
		fixed = 4 + (t.scale+1)/2
	case kindDatetime:
		fixed = 5 + (t.scale+1)/2
	case kindBinary:
		fixed = t.size
	case kindChar:
		if t.longest() < longInPage {
			return t.longest() + 2, t.longest() + 2
		}
		return t.longest() + 2, keptInPage + 2
	case kindVarchar, kindVarbinary:
		return t.longest() + 2, min(t.longest(), keptInPage) + 2
	default:
		return 12, keptInPage + 2
	}
	return fixed, fixed
}

// decimalBytes is what a number of digits takes: 4 bytes for 9 of them.
func decimalBytes(digits int) int {
	rest := [...]int{0, 1, 1, 2, 2, 3, 3, 4, 4}
	return digits/9*4 + rest[digits%9]
}

// CheckWidth says why columns of these types, beside others that take so many bytes of a row and of its page, make a row that
// MySQL would refuse.
func CheckWidth(types []Type, row, page int) error {
	for _, t := range types {
		r, p := t.rowBytes()
		row, page = row+r, page+p
	}
	nulls := (len(types) + 7) / 8
	row, page = row+nulls, page+nulls
	switch {
	case row > maxRowBytes:
		return fmt.Errorf("a row would have up to %d bytes, MySQL takes %d: each character of a varchar counts 4, text and blob count 12 whatever they hold", row, maxRowBytes)
	case page > maxPageBytes:
		return fmt.Errorf("a row would have up to %d bytes in its page, where %d fit: there are too many columns of text", page, maxPageBytes)
	}
	return nil
}
