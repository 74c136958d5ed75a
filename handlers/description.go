package handlers

import (
	"context"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"keyrange/handlers/apidoc"
)

// description is what the gateway says about its API, made when it is first asked for.
type description struct {
	document []byte
	page     []byte
	// policy is the Content-Security-Policy of the page.
	policy string
}

// describeCollections makes the description of a gateway with these collections.
func describeCollections(collections []Collection) func() (description, error) {
	return sync.OnceValues(func() (d description, err error) {
		var names []string
		for _, c := range collections {
			names = append(names, c.Name)
		}
		document, err := apidoc.New(names...)
		if err != nil {
			return d, err
		}
		if d.document, err = document.JSON(); err != nil {
			return d, err
		}
		d.page, d.policy, err = document.Page()
		return d, err
	})
}

// openAPI answers with the description as a document for programs.
func (s *Server) openAPI(_ context.Context, x *exchange) error {
	d, err := s.description()
	if err != nil {
		return err
	}
	return x.sendDescription(mediaJSON, d.document)
}

// docs answers with the description as a page for people, which may load nothing.
func (s *Server) docs(_ context.Context, x *exchange) error {
	d, err := s.description()
	if err != nil {
		return err
	}
	header := x.Response().Header()
	header.Set(echo.HeaderContentSecurityPolicy, d.policy)
	header.Set(echo.HeaderXContentTypeOptions, "nosniff")
	return x.sendDescription("text/html; charset=utf-8", d.page)
}

// sendDescription answers with something that changes only with the gateway.
func (x *exchange) sendDescription(media string, body []byte) error {
	header := x.Response().Header()
	header.Set(echo.HeaderContentType, media)
	header.Set(echo.HeaderCacheControl, "no-cache")
	return x.send(http.StatusOK, body)
}
