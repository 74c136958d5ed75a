package handlers

import (
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/labstack/echo/v4"
)

// uiFiles is the operators' page: plain files that ask for nothing but each other and the endpoints of this listener.
//
//go:embed ui
var uiFiles embed.FS

// uiPolicy lets the page load and ask nothing but its own listener, and nobody put it into a frame.
const uiPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// uiTypes are the media types of the files by extension.
var uiTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// toPage leads to the page. The address is relative, so that it holds behind a proxy that adds to the path.
func toPage(_ context.Context, x *exchange) error {
	x.Response().Header().Set(echo.HeaderLocation, "ui/")
	return x.send(http.StatusPermanentRedirect, nil)
}

// page serves a file of the operators' page. Browsers ask each time whether theirs is still the right one.
func page(_ context.Context, x *exchange) error {
	name := strings.TrimPrefix(x.Request().URL.Path, patternUI+"/")
	if name == "" {
		name = "index.html"
	}
	content, err := uiFiles.ReadFile("ui/" + name)
	if err != nil {
		return errRoute
	}
	header := x.Response().Header()
	header.Set(echo.HeaderContentType, uiTypes[path.Ext(name)])
	header.Set(echo.HeaderContentSecurityPolicy, uiPolicy)
	header.Set(echo.HeaderXContentTypeOptions, "nosniff")
	header.Set(echo.HeaderReferrerPolicy, "no-referrer")
	header.Set(echo.HeaderCacheControl, "no-cache")
	etag := fmt.Sprintf(`"%x"`, sha256.Sum256(content))[:18] + `"`
	header.Set(headerETag, etag)
	if x.Request().Header.Get("If-None-Match") == etag {
		x.Response().WriteHeader(http.StatusNotModified)
		return nil
	}
	return x.send(http.StatusOK, content)
}
