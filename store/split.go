package store

import (
	"errors"
	"fmt"
	"strings"

	"keyrange/store/typed"
)

// splitDocument is a document in columns, with the document that a read will make of it.
type splitDocument struct {
	typed.Row
	document []byte
}

// isOf reports whether it was made for that document, and not for one that has been replaced since.
func (s *splitDocument) isOf(document []byte) bool {
	return s != nil && len(document) == len(s.document) && &document[0] == &s.document[0]
}

// split puts the document of a write into the columns of its collection, if it has any, and makes it what a read will
// return. The error matches ErrMember or ErrTooLarge. Doing it twice changes nothing.
func (s *Store) split(collection, key string, content *Content) error {
	shape := s.shapes[collection]
	if shape == nil || shape.layout == nil || content.split.isOf(content.Document) {
		return nil
	}
	r, err := shape.layout.Split(content.Document)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMember, err)
	}
	// The names of the columns are in each statement.
	if n, limit := int64(r.Bytes()+len(shape.names)+len(shape.sets)), s.MaxDocumentBytes(); n > limit {
		return fmt.Errorf("%w: in its columns it has %d bytes, the smallest node takes %d", ErrTooLarge, n, limit)
	}
	document, err := shape.layout.Join(key, r)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err) // a defect of this program: what was made cannot be read
	}
	content.Document, content.split = document, &splitDocument{r, document}
	return nil
}

// MemberOf is the detail of an ErrMember for the client: which member, and what is wrong with it, without its value. It is
// "" for other errors.
func MemberOf(err error) string {
	var member *typed.MemberError
	if !errors.As(err, &member) {
		return ""
	}
	return "The " + member.Error() + "."
}

// toColumns replaces the document of a row that is about to be written by its cells and the members without a column.
func (s *Store) toColumns(collection string, state rowState, key string, content *Content, cells *[]any) error {
	if state != live {
		return nil
	}
	if err := s.split(collection, key, content); err != nil {
		return err
	}
	if content.split.isOf(content.Document) {
		*cells, content.Document = content.split.Cells, content.split.Rest
	}
	return nil
}

// reservedColumns are names that InnoDB keeps for itself.
var reservedColumns = []string{"db_row_id", "db_trx_id", "db_roll_ptr", "fts_doc_id", "my_row_id"}

// OwnColumn reports whether range tables have, or cannot have, a column of that name whatever a collection declares.
func OwnColumn(name string) bool {
	for _, own := range append(strings.Split(ownColumns, ", "), reservedColumns...) {
		if strings.EqualFold(own, name) {
			return true
		}
	}
	return false
}

// What the own columns take, in bytes of a row and of its page (see typed.CheckWidth): 8 of id, 514 of biz_key, 1 of state,
// 8 of version, 16 of token, 24 of the times, 256 of group_key and 12 of document; in a page at most 42 of each that is
// longer. The rest is what InnoDB adds, and room for a column or two more.
const (
	ownRowBytes  = 1000
	ownPageBytes = 300
)

// CheckColumns says why MySQL would not make a table with these columns.
func CheckColumns(columns []typed.Column) error {
	types := make([]typed.Type, len(columns))
	for i, c := range columns {
		types[i] = c.Type
	}
	return typed.CheckWidth(types, ownRowBytes, ownPageBytes)
}
