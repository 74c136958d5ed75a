package index

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
)

// mongoFiles are the parameters of a MongoDB URI that name files; their names ignore case.
var mongoFiles = []string{"tlsCAFile", "tlsCertificateKeyFile", "tlsCertificateFile", "tlsPrivateKeyFile"}

// checkMongoFiles says which file of a URI cannot be read, because the driver's own words cannot be shown: they quote the URI.
func checkMongoFiles(uri string) error {
	_, query, _ := strings.Cut(uri, "?")
	params, _ := url.ParseQuery(query) // what it does not take is for the driver to judge
	for param, values := range params {
		for _, file := range mongoFiles {
			if !strings.EqualFold(param, file) {
				continue
			}
			_, err := os.ReadFile(values[0])
			var path *fs.PathError
			if errors.As(err, &path) { // without the path, which may be the rest of a password
				return fmt.Errorf("index: %s of the MongoDB URI cannot be read: %w", file, path.Err)
			}
		}
	}
	return nil
}
