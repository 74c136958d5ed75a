package main

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"

	"keyrange/rangeshard"
)

// difference is how a config differs from the running one. Each of its lines is about one key; none holds a secret.
type difference struct {
	// changes can be made while the gateway runs.
	changes []string
	// refusals can not; each names both values. A single one stands in the way of all changes.
	refusals []string
	// grows says that nodes, their ranges, drains or databases are among the changes, which make another fleet.
	grows bool
}

// Keys of any node or issuer, as patternOf writes them.
const (
	patternNode        = "nodes[]"
	patternIssuer      = "ids.issuers[]"
	patternGroup       = "collections[].group"
	patternColumn      = "collections[].columns[]"
	patternNodeName    = "nodes[].name"
	patternNodeRanges  = "nodes[].ranges"
	patternConnections = "nodes[].connections"
	patternDrain       = "nodes[].drain"
	patternDSN         = "nodes[].dsn"
	patternDSNFile     = "nodes[].dsn_file"
)

// hotKeys can change while the gateway runs. So can the lists of nodes and of their ranges, which may only grow.
var hotKeys = []string{
	"server.request_timeout",
	"server.max_body_bytes",
	"server.max_bulk_bytes",
	"server.max_requests",
	"server.max_request_bytes",
	"log.level",
	"log.slow_request",
	"ids.order",
	"ids.open_ranges",
	"ids.high_level_percent",
	"ranges.warn_percent",
	"ranges.alarm_percent",
	"sweeper.rows_per_second",
	"sweeper.interval",
	patternConnections,
	patternDrain,
	patternDSN,
	patternDSNFile,
}

// fleetKeys are those of the hot keys that make another fleet.
var fleetKeys = []string{patternDrain, patternDSN, patternDSNFile}

// coldReasons say more than coldReason of keys that no restart changes either, or not that easily.
var coldReasons = map[string]string{
	"ranges.size":     "can never change once a record is stored",
	patternGroup:      "needs a restart, and can never change once a record is stored",
	patternIssuer:     "the number of issuers changes only by gateway issuers rebuild, with all gateways stopped",
	patternNode:       "a node can not be dropped, its rows are stored on it",
	patternNodeName:   "a node can not be renamed, nor take another place without a restart",
	patternColumn:     "needs a restart, and a column can not be dropped while tables have it",
	patternNodeRanges: "a node never gives ranges away, their rows are stored on it",
}

// coldReason is why any other key does not change.
const coldReason = "needs a restart"

var indexInKey = regexp.MustCompile(`\[[0-9]+\]`)

// patternOf is a key without the indexes in it: nodes[].ranges for nodes[1].ranges.
func patternOf(key string) string { return indexInKey.ReplaceAllString(key, "[]") }

// compareConfigs compares two valid configs key by key. Nodes are compared by their place in the list.
func compareConfigs(running, next *Config) difference {
	var d difference
	d.section(reflect.ValueOf(*running), reflect.ValueOf(*next), "")
	return d
}

// section compares the keys of a section.
func (d *difference) section(running, next reflect.Value, path string) {
	for i := range running.NumField() {
		key := joinKey(path, running.Type().Field(i).Tag.Get(keyTag))
		was, is := running.Field(i), next.Field(i)
		switch was.Kind() {
		case reflect.Struct:
			d.section(was, is, key)
		case reflect.Slice:
			d.list(was, is, key)
		default:
			if was.Interface() != is.Interface() {
				d.scalar(was.Interface(), is.Interface(), key)
			}
		}
	}
}

// list compares lists by place, and reports what one of them has more.
func (d *difference) list(running, next reflect.Value, path string) {
	for i := range max(running.Len(), next.Len()) {
		key := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case i >= next.Len():
			d.refuse(key, describeElement(running.Index(i)), "none")
		case i < running.Len():
			d.section(running.Index(i), next.Index(i), key)
		case patternOf(key) == patternNode:
			d.grows = true
			d.changes = append(d.changes, fmt.Sprintf("%s: appended (%s)", key, describeElement(next.Index(i))))
		default:
			d.refuse(key, "none", describeElement(next.Index(i)))
		}
	}
}

// scalar records a key whose value differs.
func (d *difference) scalar(was, is any, key string) {
	pattern := patternOf(key)
	grown := pattern == patternNodeRanges && coversRanges(is.(string), was.(string))
	if !grown && !slices.Contains(hotKeys, pattern) {
		d.refuse(key, was, is)
		return
	}
	d.grows = d.grows || grown || slices.Contains(fleetKeys, pattern)
	if pattern == patternDSN { // a secret
		d.changes = append(d.changes, key+": changed")
		return
	}
	d.changes = append(d.changes, fmt.Sprintf("%s: %v -> %v", key, was, is))
}

// refuse records a key that keeps its value, with why.
func (d *difference) refuse(key string, was, is any) {
	reason, ok := coldReasons[patternOf(key)]
	if !ok {
		reason = coldReason
	}
	for _, value := range []*any{&was, &is} {
		if *value == "" {
			*value = `""`
		}
	}
	d.refusals = append(d.refusals, fmt.Sprintf("%s: %s (running %v, config says %v)", key, reason, was, is))
}

// coversRanges reports whether a list of ranges has all those of another; both were validated.
func coversRanges(list, other string) bool {
	all, err := rangeshard.ParseRanges(list)
	some, otherErr := rangeshard.ParseRanges(other)
	return err == nil && otherErr == nil && all.Covers(some)
}

// describeElement names an element of a list.
func describeElement(element reflect.Value) string {
	switch e := element.Interface().(type) {
	case NodeConfig:
		return fmt.Sprintf("%s, ranges %s", e.Name, e.Ranges)
	case CollectionConfig:
		return e.Name
	case ColumnConfig:
		return e.Name
	}
	return "one"
}
