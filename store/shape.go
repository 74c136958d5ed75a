package store

import (
	"strings"

	"keyrange/store/sqldb"
	"keyrange/store/typed"
)

// ownColumns are the columns that every range table has, in the order in which every statement lists them.
const ownColumns = "id, biz_key, state, version, token, created_at, updated_at, expires_at, group_key, document"

// ownColumnCount is how many they are.
const ownColumnCount = 10

// column is a column that a collection has besides.
type column struct {
	name string
	// mysql and sqlite are its definition after the name, which must let it be NULL.
	mysql, sqlite string
}

// shape is what the range tables of a collection have besides what all have. Names of columns come from config, which
// keeps them to letters, digits and underscores.
type shape struct {
	columns []column
	// layout says which members of a document the columns are for; nil for a collection that keeps documents whole.
	layout *typed.Layout
	// group is the member of a document that holds its group; "" for none. Grouped tables find the rows of a group by an index.
	group string
	// names lists all columns, places a placeholder for each, and sets an assignment for each of columns, with a comma
	// before it.
	names, places, sets string
}

// newShape makes the texts of a shape.
func newShape(group string, columns ...column) *shape {
	s := &shape{columns: columns, group: group, names: ownColumns, places: "(?" + strings.Repeat(",?", ownColumnCount+len(columns)-1) + ")"}
	for _, c := range columns {
		s.names += ", `" + c.name + "`"
		s.sets += ", `" + c.name + "` = ?"
	}
	return s
}

// grouped reports whether rows are found by their group.
func (s *shape) grouped() bool { return s.group != "" }

// shapeOf is the shape of a collection.
func shapeOf(c Collection) *shape {
	columns := make([]column, len(c.Columns))
	for i, typedColumn := range c.Columns {
		columns[i] = column{typedColumn.Name, typedColumn.Type.MySQL(), typedColumn.Type.SQLite()}
	}
	s := newShape(c.Group, columns...)
	if len(columns) > 0 {
		s.layout = typed.NewLayout(c.KeyMember, c.Columns, c.KeepUnknown)
	}
	return s
}

// width is how many columns there are.
func (s *shape) width() int { return ownColumnCount + len(s.columns) }

// schema is the shapes of the collections, by name.
type schema map[string]*shape

// plain is the shape of a collection of which nothing is declared.
var plain = newShape("")

// of returns the shape of a range table.
func (s schema) of(table string) *shape {
	if found := s.known(table); found != nil {
		return found
	}
	return plain
}

// known is the shape of a range table of a collection that config has; nil for another one.
func (s schema) known(table string) *shape {
	if i := strings.LastIndex(table, "_r"); i > 0 {
		return s[table[:i]]
	}
	return nil
}

// definitions are the declared columns and the index of a new table, each with a comma before it.
func (s *shape) definitions(engine sqldb.Engine) string {
	var text strings.Builder
	for _, c := range s.columns {
		definition := c.mysql
		if engine == sqldb.SQLite {
			definition = c.sqlite
		}
		text.WriteString(",\n\t`" + c.name + "` " + definition)
	}
	if s.grouped() && engine == sqldb.MySQL {
		text.WriteString(",\n\tKEY " + groupIndex + " (group_key, id, expires_at)")
	}
	return text.String()
}

// arguments are the cells of a row for a statement; of a fence, which has none, all NULL.
func (s *shape) arguments(cells []any) []any {
	if cells == nil {
		return make([]any, len(s.columns))
	}
	return cells
}

// destinations adds to the destinations of the own columns those of the cells of a row.
func (s *shape) destinations(own []any, r *row) []any {
	if len(s.columns) == 0 {
		return own
	}
	r.cells, r.layout = make([]any, len(s.columns)), s.layout
	for i := range r.cells {
		own = append(own, &r.cells[i])
	}
	return own
}

// groupArgument is a group as an argument; NULL for none.
func groupArgument(group string) any {
	if group == "" {
		return nil
	}
	return []byte(group)
}
