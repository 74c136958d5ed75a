package main

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"keyrange/handlers"
)

// requestBuckets, in seconds, reach from a cached read to the longest deadline of a request.
var requestBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// knownMethods bound the label "method", which clients could fill with anything.
var knownMethods = map[string]bool{"GET": true, "HEAD": true, "POST": true, "PUT": true, "PATCH": true, "DELETE": true, "OPTIONS": true}

// observeRequests registers the metrics of requests and returns what is to be told of each.
func observeRequests(registry prometheus.Registerer) func(handlers.Served) {
	labels := []string{"route", "method", "collection"}
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "gateway_http_request_duration_seconds", Help: "Time from the first byte of a request to the last of its answer.", Buckets: requestBuckets,
	}, labels)
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gateway_http_requests_total", Help: "Requests that were answered.",
	}, append(labels, "status"))
	problems := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gateway_http_problems_total", Help: "Requests that were answered with a problem document, by its code.",
	}, []string{"route", "method", "collection", "code"})
	items := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gateway_http_bulk_items_total", Help: "Results of bulk requests.",
	}, []string{"collection", "result"})
	registry.MustRegister(duration, requests, problems, items)
	return func(s handlers.Served) {
		method := s.Method
		if !knownMethods[method] {
			method = "other"
		}
		route := s.Route
		if route == "" {
			route = "none"
		}
		duration.WithLabelValues(route, method, s.Collection).Observe(s.Took.Seconds())
		requests.WithLabelValues(route, method, s.Collection, strconv.Itoa(s.Status)).Inc()
		if s.Code != "" {
			problems.WithLabelValues(route, method, s.Collection, s.Code).Inc()
		}
		if s.Items > 0 {
			items.WithLabelValues(s.Collection, "ok").Add(float64(s.Items - s.Failed))
			items.WithLabelValues(s.Collection, "failed").Add(float64(s.Failed))
		}
	}
}
