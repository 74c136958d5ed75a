package gateway

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"

	"keyrange/test/contract"
)

// violations are the responses of all tests of a package that were not as the document of the API says. They fail the
// run rather than a test: a client under load takes an error for a lost answer.
var violations struct {
	sync.Mutex
	texts []string
}

// shownViolations bounds how many are printed.
const shownViolations = 20

// operators are the first parts of the paths that are on the operators' listener only, which is not in the document.
var operators = []string{"/admin", "/debug", "/metrics", "/ui"}

// Checked is a transport that holds each response of a gateway against the document of its API.
func Checked(transport http.RoundTripper) http.RoundTripper {
	return &contract.Transport{
		RoundTripper: transport,
		Report: func(err error) {
			violations.Lock()
			defer violations.Unlock()
			violations.texts = append(violations.texts, err.Error())
		},
		Skip: func(request *http.Request) bool {
			path := request.URL.Path + request.URL.Opaque
			for _, prefix := range operators {
				if strings.HasPrefix(path, prefix) {
					return true
				}
			}
			return false
		},
	}
}

// reported prints the violations and returns the exit code of the run.
func reported(code int) int {
	violations.Lock()
	defer violations.Unlock()
	for i, text := range violations.texts {
		if i == shownViolations {
			break
		}
		fmt.Fprintln(os.Stderr, "FAIL:", text)
	}
	if n := len(violations.texts); n > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: %d responses were not as the document of the API says\n", n)
		return max(code, 1)
	}
	return code
}
