package main

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"keyrange/store"
	"keyrange/store/typed"
)

const (
	// maxColumns is what fits a page of InnoDB, unless the columns are of text.
	maxColumns = 200
	// maxMemberBytes bounds the name of a member with a column.
	maxMemberBytes = 128
)

// checkColumns checks the columns of a collection, whose key is path.
func checkColumns(c CollectionConfig, path string, f *faults) {
	f.check(c.UnknownMembers == unknownRefuse || c.UnknownMembers == unknownKeep, path+".unknown_members", "must be refuse or keep", c.UnknownMembers)
	f.check(len(c.Columns) <= maxColumns, path+".columns", fmt.Sprintf("must list at most %d columns", maxColumns), len(c.Columns))
	members, whole := map[string]string{}, true // keys by member
	var keys, names []string
	for i, column := range c.Columns {
		at := fmt.Sprintf("%s.columns[%d]", path, i)
		f.check(isMemberName(column.Name), at+".name", fmt.Sprintf("must be the name of a member, 1 to %d bytes without control characters", maxMemberBytes), column.Name)
		f.check(column.Name != c.Key, at+".name", "is the member with the key, which has a column already", column.Name)
		if first, repeated := members[column.Name]; repeated {
			f.reject(at+".name", "is the same member as "+first, column.Name)
		} else {
			members[column.Name] = at + ".name"
		}
		if key, ok := checkColumnName(column, at, f); ok {
			keys, names = append(keys, key), append(names, columnName(column))
		}
		whole = checkColumnType(column, at, f) && whole
		checkColumnUse(c, column, at, f)
	}
	distinct(f, keys, names)
	if !whole {
		return
	}
	if err := store.CheckColumns(columnsOf(c)); err != nil {
		f.add(path+".columns", err.Error())
	}
}

// isMemberName reports whether a member of that name can have a column.
func isMemberName(name string) bool {
	return name != "" && len(name) <= maxMemberBytes && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// columnName is the name of the column of a member.
func columnName(c ColumnConfig) string { return cmp.Or(c.Column, c.Name) }

// checkColumnName checks the name of a column, and returns the key that it comes from.
func checkColumnName(c ColumnConfig, at string, f *faults) (key string, ok bool) {
	key, hint := at+".column", ""
	if c.Column == "" {
		key, hint = at+".name", "; name the column in "+at+".column"
	}
	name := columnName(c)
	switch {
	case c.Name == "" && c.Column == "": // said already
		return key, false
	case !keyMember.MatchString(name):
		f.reject(key, "must be a letter or _ and up to 63 letters, digits or _ to name a column"+hint, name)
		return key, false
	case store.OwnColumn(name):
		f.reject(key, fmt.Sprintf("is the name of a column that the gateway or the database has; set %s.column to another name, such as record_%s", at, strings.ToLower(name)), name)
		return key, false
	}
	return key, true
}

// checkColumnType checks the type and the default of a column, and reports whether the type is one.
func checkColumnType(c ColumnConfig, at string, f *faults) bool {
	t, err := typed.ParseType(c.Type)
	if err != nil {
		f.reject(at+".type", err.Error(), c.Type)
		return false
	}
	if c.Default != "" {
		if _, err := t.Default(c.Default); err != nil {
			f.reject(at+".default", fmt.Sprintf("%s, as %s", err, t), c.Default)
		}
	}
	return true
}

// checkColumnUse checks the column of a member that means something to the gateway. It looks at documents as they are sent, so
// that a column must give the member back as it was, and must not fill it in.
func checkColumnUse(c CollectionConfig, column ColumnConfig, at string, f *faults) {
	t, err := typed.ParseType(column.Type)
	if err != nil || column.Name == "" {
		return // said already
	}
	switch column.Name {
	case c.Group:
		f.check(t.IsInteger() || t.KeepsText(), at+".type", "must be an integer, a char, a varchar or a text, because the member holds the group", column.Type)
		f.check(column.Default == "", at+".default", "must be empty, because the member holds the group: without it a record is in none", column.Default)
	case c.TTL:
		f.check(t.IsInteger(), at+".type", "must be an integer, because the member holds the time to live", column.Type)
		f.check(column.Default == "", at+".default", "must be empty, because the member holds the time to live: without it a record lives for ever", column.Default)
	}
}

// columnsOf lists the columns of a collection as the store knows them. The config was validated, so nothing fails.
func columnsOf(c CollectionConfig) []typed.Column {
	var all []typed.Column
	for _, column := range c.Columns {
		t, _ := typed.ParseType(column.Type)
		one := typed.Column{Member: column.Name, Name: columnName(column), Type: t, Required: column.Required}
		if column.Default != "" {
			one.Default, _ = t.Default(column.Default)
		}
		all = append(all, one)
	}
	return all
}
