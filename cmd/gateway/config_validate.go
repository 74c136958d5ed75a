package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"keyrange/rangeshard"
)

// Bounds of numbers. A step's upper bound keeps a crash from burning more than a million IDs, a range's lower bound
// leaves room for segments, and its upper bound keeps the last of ten million ranges below 2^63.
const (
	minRequestTimeout, maxRequestTimeout = 100 * time.Millisecond, 10 * time.Minute
	maxShutdownGrace                     = 10 * time.Minute
	minBodyBytes, maxBodyBytes           = 1 * kibibyte, 64 * mebibyte
	maxBulkBytes                         = 1 * gibibyte
	maxRequests                          = 1_000_000
	// maxCacheBytes keeps a slip of the unit from taking all memory.
	maxCacheBytes  = 64 * 1024 * mebibyte
	maxConnections = 10_000
	maxOpenRanges  = 1000
	// maxIssuers leaves each of them an ID in the smallest range.
	maxIssuers                 = 9
	maxStep                    = 1_000_000
	minRangeSize, maxRangeSize = 10, 1_000_000_000_000
	maxSweepRate               = 1_000_000
	// The upper bound is a month: a sweep is also what deletes old fences.
	minSweepInterval, maxSweepInterval = time.Second, 30 * 24 * time.Hour
)

var (
	collectionName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,31}$`)
	keyMember      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	nodeName       = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,62}$`)
	logLevels      = []string{"debug", "info", "warn", "error"}
)

// validateConfig checks every rule that needs no connection.
func validateConfig(cfg *Config, f *faults) {
	checkServer(cfg, f)
	f.check(slices.Contains(logLevels, cfg.Log.Level), "log.level", "must be "+strings.Join(logLevels, ", "), cfg.Log.Level)
	between(f, "log.slow_request", cfg.Log.SlowRequest, 0, maxRequestTimeout)
	checkTraces(cfg.Traces, f)
	checkCollections(cfg.Collections, f)
	checkIDs(cfg.IDs, f)
	between(f, "ranges.size", cfg.Ranges.Size, minRangeSize, maxRangeSize)
	between(f, "ranges.warn_percent", cfg.Ranges.WarnPercent, 1, 100)
	between(f, "ranges.alarm_percent", cfg.Ranges.AlarmPercent, 1, 100)
	f.check(cfg.Ranges.WarnPercent <= cfg.Ranges.AlarmPercent || f.isDropped("ranges.warn_percent"), "ranges.alarm_percent",
		fmt.Sprintf("must be at least ranges.warn_percent, %d", cfg.Ranges.WarnPercent), cfg.Ranges.AlarmPercent)
	between(f, "sweeper.rows_per_second", cfg.Sweeper.RowsPerSecond, 0, maxSweepRate)
	between(f, "sweeper.interval", cfg.Sweeper.Interval, minSweepInterval, maxSweepInterval)
	between(f, "index.connections", cfg.Index.Connections, 1, maxConnections)
	between(f, "cache.max_bytes", cfg.Cache.MaxBytes, 0, maxCacheBytes)
	checkNodes(cfg.Nodes, f)
	checkRanges(cfg, f)
	checkDatabases(cfg, f)
	checkAccess(cfg, f)
}

// between checks that a value lies within bounds, both included.
func between[T cmp.Ordered](f *faults, key string, value, lo, hi T) {
	f.check(lo <= value && value <= hi, key, fmt.Sprintf("must be %v to %v", lo, hi), value)
}

// distinct checks that no two values are the same. Case is ignored: table names may lose it.
func distinct(f *faults, keys, values []string) {
	first := map[string]string{} // key by value
	for i, value := range values {
		folded := strings.ToLower(value)
		if earlier, repeated := first[folded]; repeated {
			f.reject(keys[i], "is the same name as "+earlier+" (case is ignored)", value)
			continue
		}
		first[folded] = keys[i]
	}
}

func checkServer(cfg *Config, f *faults) {
	checkListen(f, "server", cfg.Server.Listen, cfg.Server.AllowPublic || asks(cfg.Auth, cfg.Server.TLS))
	checkListen(f, "admin", cfg.Admin.Listen, cfg.Admin.AllowPublic || asks(cfg.Auth, cfg.Admin.TLS))
	f.check(!sameAddress(cfg.Server.Listen, cfg.Admin.Listen) || f.isDropped("server.listen"), "admin.listen",
		"must not be the address of server.listen", cfg.Admin.Listen)
	between(f, "server.request_timeout", cfg.Server.RequestTimeout, minRequestTimeout, maxRequestTimeout)
	between(f, "server.shutdown_grace", cfg.Server.ShutdownGrace, 0, maxShutdownGrace)
	between(f, "server.max_body_bytes", cfg.Server.MaxBodyBytes, minBodyBytes, maxBodyBytes)
	between(f, "server.max_bulk_bytes", cfg.Server.MaxBulkBytes, minBodyBytes, maxBulkBytes)
	between(f, "server.max_requests", cfg.Server.MaxRequests, 1, maxRequests)
	between(f, "server.max_request_bytes", cfg.Server.MaxRequestBytes, minBodyBytes, maxCacheBytes)
	f.check(cfg.Server.MaxBulkBytes >= cfg.Server.MaxBodyBytes || f.isDropped("server.max_body_bytes"), "server.max_bulk_bytes",
		fmt.Sprintf("must be at least server.max_body_bytes, %v", cfg.Server.MaxBodyBytes), cfg.Server.MaxBulkBytes)
}

// checkListen checks the address of a listener, and that it is not public by accident.
func checkListen(f *faults, section, listen string, mayBePublic bool) {
	key := section + ".listen"
	host, port, ok := splitListen(listen)
	f.check(ok, key, "must be host:port, such as 127.0.0.1:8080, with a port number up to 65535", listen)
	if ok && !mayBePublic {
		f.check(isLoopback(host), key, fmt.Sprintf("is not a loopback address, and the gateway asks nobody who they are: whoever reaches "+
			"the port could use it; set auth.keys_file, listen on 127.0.0.1:%s, or set %s.allow_public: true behind something that does ask", port, section), listen)
	}
}

// splitListen cuts host:port; the host may be empty, which listens on all addresses.
func splitListen(listen string) (host, port string, ok bool) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || !decimalSyntax.MatchString(port) {
		return "", "", false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return host, port, err == nil && !strings.ContainsAny(host, " /@")
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// sameAddress reports whether two listeners would fight over one port. Port 0 takes a free one.
func sameAddress(a, b string) bool {
	hostA, portA, okA := splitListen(a)
	hostB, portB, okB := splitListen(b)
	if !okA || !okB || portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || isWildcard(hostA) || isWildcard(hostB) ||
		isLoopback(hostA) && isLoopback(hostB) && (hostA == "localhost" || hostB == "localhost")
}

func isWildcard(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.IsUnspecified()
}

func checkCollections(collections []CollectionConfig, f *faults) {
	f.check(len(collections) > 0, "collections", "must list at least one collection", "an empty list")
	var keys, names []string
	for i, c := range collections {
		name, key := fmt.Sprintf("collections[%d].name", i), fmt.Sprintf("collections[%d].key", i)
		f.check(collectionName.MatchString(c.Name), name, "must be a letter and up to 31 letters, digits or _", c.Name)
		f.check(keyMember.MatchString(c.Key), key, "must be a letter or _ and up to 63 letters, digits or _", c.Key)
		group := fmt.Sprintf("collections[%d].group", i)
		f.check(c.Group == "" || keyMember.MatchString(c.Group), group, "must be a letter or _ and up to 63 letters, digits or _", c.Group)
		f.check(c.Group == "" || c.Group != c.Key || f.isDropped(key), group, "must not be the member of the key", c.Group)
		checkColumns(c, fmt.Sprintf("collections[%d]", i), f)
		if c.TTL != "" {
			ttl := fmt.Sprintf("collections[%d].ttl", i)
			f.check(keyMember.MatchString(c.TTL), ttl, "must be a letter or _ and up to 63 letters, digits or _, or empty", c.TTL)
			f.check(c.TTL != c.Key, ttl, "must differ from the key member", c.TTL)
			f.check(c.TTL != c.Group, ttl, "must differ from the group member, which never changes", c.TTL)
		}
		if collectionName.MatchString(c.Name) {
			keys, names = append(keys, name), append(names, c.Name)
		}
	}
	distinct(f, keys, names)
}

func checkIDs(ids IDsConfig, f *faults) {
	f.check(ids.Order == orderStrict || ids.Order == orderSpread, "ids.order", "must be strict, spread", ids.Order)
	// With one, what to do while its node is down would be the question of order strict.
	between(f, "ids.open_ranges", ids.OpenRanges, 2, maxOpenRanges)
	between(f, "ids.high_level_percent", ids.HighLevelPercent, 1, 100)
	f.check(1 <= len(ids.Issuers) && len(ids.Issuers) <= maxIssuers, "ids.issuers", fmt.Sprintf("must list 1 to %d issuers", maxIssuers), len(ids.Issuers))
	between(f, "ids.step.min", ids.Step.Min, 1, maxStep)
	between(f, "ids.step.max", ids.Step.Max, 1, maxStep)
	f.check(ids.Step.Min <= ids.Step.Max || f.isDropped("ids.step.min"), "ids.step.max",
		fmt.Sprintf("must be at least ids.step.min, %d", ids.Step.Min), ids.Step.Max)
}

func checkNodes(nodes []NodeConfig, f *faults) {
	f.check(len(nodes) > 0, "nodes", "must list at least one node", "an empty list")
	var keys, names []string
	for i, node := range nodes {
		name := fmt.Sprintf("nodes[%d].name", i)
		ok := nodeName.MatchString(node.Name)
		f.check(ok, name, "must be a lower-case letter or digit and up to 62 lower-case letters, digits, . or -", node.Name)
		between(f, fmt.Sprintf("nodes[%d].connections", i), node.Connections, 1, maxConnections)
		if ok {
			keys, names = append(keys, name), append(names, node.Name)
		}
	}
	distinct(f, keys, names)
}

// rangesKey names the ranges of a node.
func rangesKey(node int) string { return fmt.Sprintf("nodes[%d].ranges", node) }

// checkRanges proves the range map, once each part of it can be read.
func checkRanges(cfg *Config, f *faults) {
	size := cfg.Ranges.Size
	if size < minRangeSize || size > maxRangeSize {
		size = minRangeSize // stands in for a size that has been refused, so that the rest of the map is still proved
	}
	whole := len(cfg.Nodes) > 0
	nodes := make([]rangeshard.Node, len(cfg.Nodes))
	for i, node := range cfg.Nodes {
		key := rangesKey(i)
		ranges, err := rangeshard.ParseRanges(node.Ranges)
		if err != nil {
			f.reject(key, `must be a list of ranges, each once, such as "1", "2-5" or "2-5,9"`, node.Ranges)
		}
		whole = whole && err == nil && !f.isDropped(key)
		// Named after its key, so that the faults of the map name keys.
		nodes[i] = rangeshard.Node{Name: key, Ranges: ranges}
	}
	if !whole {
		return
	}
	if _, err := rangeshard.NewMap(size, nodes); err != nil {
		addMapFaults(cfg, err, f)
	}
}

// addMapFaults files each fault of a map under the ranges of its node.
func addMapFaults(cfg *Config, err error, f *faults) {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		for _, one := range several.Unwrap() {
			addMapFaults(cfg, one, f)
		}
		return
	}
	var one *rangeshard.Fault
	if !errors.As(err, &one) || one.Node < 0 {
		f.add("nodes", err.Error())
		return
	}
	f.reject(rangesKey(one.Node), one.Message, cfg.Nodes[one.Node].Ranges)
}
