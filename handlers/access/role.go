package access

import (
	"maps"
	"slices"
	"strings"
)

// Role is what a client may do with a collection. A higher one includes the lower ones.
type Role int

const (
	// None may do nothing.
	None Role = iota
	// Read may read records.
	Read
	// Write may also create, change and delete them.
	Write
	// Admin may also do what touches many records at once, and for all collections use the operators' listener.
	Admin
)

// AnyCollection stands for every collection that has no role of its own.
const AnyCollection = "*"

// roleNames are the names of the roles in files and tokens.
var roleNames = map[string]Role{"read": Read, "write": Write, "admin": Admin}

// String is the name of the role in files and tokens.
func (r Role) String() string {
	for name, role := range roleNames {
		if role == r {
			return name
		}
	}
	return "none"
}

// Roles are those of one client by collection.
type Roles map[string]Role

// On is the role on a collection: its own, or else that of AnyCollection.
func (r Roles) On(collection string) Role {
	if role, ok := r[collection]; ok {
		return role
	}
	return r[AnyCollection]
}

// rolesOfClaim reads the roles in a token: {"orders": "write", "*": "read"}, or ["orders:write", "*:read"], or the words of
// such a list in one text. What is no role gives none: an identity provider lists many other things. A collection with an
// unknown role has none, even when AnyCollection has one; named twice in a list, it has the higher role.
func rolesOfClaim(claim any) Roles {
	roles := Roles{}
	switch claim := claim.(type) {
	case map[string]any:
		for _, collection := range slices.Sorted(maps.Keys(claim)) {
			name, _ := claim[collection].(string) // anything else is no role
			roles[collection] = roleNames[name]
		}
	case []any:
		for _, one := range claim {
			text, _ := one.(string)
			roles.addWord(text)
		}
	case string:
		for word := range strings.FieldsSeq(claim) {
			roles.addWord(word)
		}
	}
	return roles
}

// addWord adds "collection:role"; a word without a colon is none of ours.
func (r Roles) addWord(word string) {
	if collection, name, ok := strings.Cut(word, ":"); ok {
		r[collection] = max(r[collection], roleNames[name])
	}
}
