package handlers

import "time"

// Served tells of a request that was answered.
type Served struct {
	// Route is the pattern of the path, like /v1/:collection; "" when there is none.
	Route, Method string
	// Collection is empty where the request was about none that exists.
	Collection string
	Status     int
	// Code is that of the problem document; "" when there was none.
	Code string
	Took time.Duration
	// Items counts the results of a bulk request, Failed those of them that were errors.
	Items, Failed int
}

// served describes the request of an exchange that ends.
func (x *exchange) served(took time.Duration, err error) Served {
	s := Served{
		Route: x.route, Method: x.Request().Method, Status: x.Response().Status, Took: took, Items: x.items, Failed: x.failed,
	}
	if x.collection != nil {
		s.Collection = x.collection.Name
	}
	if err != nil {
		line, _ := statusOf(err)
		s.Code = line.code
	}
	return s
}
