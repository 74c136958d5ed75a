package handlers

import (
	"net/url"
	"strings"

	"keyrange/store"
)

// splitTarget takes the path of a record or collection apart, still escaped but for the name of the collection. Echo's
// own parameters are of no use here: it routes on whichever of the two paths of net/url there is, and so gives the
// same parameter for a%2Fb and a%252Fb.
func splitTarget(escapedPath string) (collection, escapedKey string, err error) {
	name, escapedKey, _ := strings.Cut(strings.TrimPrefix(escapedPath, "/v1/"), "/")
	if collection, err = url.PathUnescape(name); err != nil {
		return "", "", errCollection
	}
	return collection, escapedKey, nil
}

// decodeKey turns the key of a path into the key itself, decoding once, and checks it.
func decodeKey(escaped string) (string, error) {
	if strings.Contains(escaped, "/") {
		return "", refuse(errInvalidKey, "the key contains a slash: write it as %%2F")
	}
	key, err := url.PathUnescape(escaped)
	if err != nil {
		return "", refuse(errInvalidKey, "the key has a malformed percent escape")
	}
	return key, checkKey(key)
}

// checkKey applies the store's rules for keys.
func checkKey(key string) error {
	if err := store.CheckKey(key); err != nil {
		return refuse(errInvalidKey, "%s", strings.TrimPrefix(err.Error(), store.ErrInvalid.Error()+": "))
	}
	return nil
}

// location is the path of a record, for the Location header.
func location(collection, key string) string {
	escaped := url.PathEscape(key)
	if key == "." || key == ".." {
		// Clients resolve dot segments before they send, so these keys only arrive escaped.
		escaped = strings.ReplaceAll(key, ".", "%2E")
	}
	return "/v1/" + url.PathEscape(collection) + "/" + escaped
}
