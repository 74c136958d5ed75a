package handlers

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"keyrange/store"
)

// Header names of RFC 7240.
const (
	headerPrefer            = "Prefer"
	headerPreferenceApplied = "Preference-Applied"
)

// returnMinimal is the preference of a client that does not want the record back that it has just sent.
const returnMinimal = "return=minimal"

// prefersMinimal tells whether a request prefers an answer without the record. Of several return preferences the first
// counts.
func prefersMinimal(header http.Header) bool {
	for _, line := range header[headerPrefer] {
		for preference := range strings.SplitSeq(line, ",") {
			token, _, _ := strings.Cut(preference, ";")
			name, value, _ := strings.Cut(token, "=")
			if strings.EqualFold(strings.TrimSpace(name), "return") {
				return strings.EqualFold(strings.Trim(value, " \t\""), "minimal")
			}
		}
	}
	return false
}

// sendWritten answers a write with the record as it is stored now, or without it where the client prefers that: 200 is
// 204 then.
func (x *exchange) sendWritten(status int, rec store.Record) error {
	x.describe(rec)
	if !prefersMinimal(x.Request().Header) {
		return x.sendRecord(status, rec)
	}
	header := x.Response().Header()
	header[headerPreferenceApplied] = []string{returnMinimal}
	if status == http.StatusOK {
		x.Response().WriteHeader(http.StatusNoContent)
		return nil
	}
	header[echo.HeaderContentLength] = []string{"0"}
	x.Response().WriteHeader(status)
	return nil
}
