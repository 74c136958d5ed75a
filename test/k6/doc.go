// Package k6 runs the load scripts of scripts/k6 against a gateway, on an engine of its own: k6 is not a dependency. The engine
// knows the modules, executors and options that the scripts use, and refuses everything else.
//
// What it imitates: an engine per VU, which is used again for later scenarios; init, setup, VU and teardown stages; scenarios
// that start by the clock and drop iterations when no VU is free; tags, sub-metrics and thresholds; handleSummary.
package k6
