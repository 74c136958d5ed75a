package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"slices"
)

// Clients are the clients with API keys. Only inherit changes them.
type Clients struct {
	byKey map[digest]keyed
	// list has each client once, in the order of the file.
	list []*clientEntry
}

// keyed is one key of a client.
type keyed struct {
	sum    digest
	client *Client
}

// clientEntry is a client as the file has it.
type clientEntry struct {
	client *Client
	sums   []digest
	limits Limits
}

// find returns the client that a key belongs to. The key is hashed before anything is compared, so that the time it takes
// says nothing about the keys; the hash decides in constant time.
func (c *Clients) find(key string) (*Client, error) {
	sum := digest(sha256.Sum256([]byte(key)))
	found, ok := c.byKey[sum]
	if !ok || subtle.ConstantTimeCompare(found.sum[:], sum[:]) != 1 {
		return nil, fmt.Errorf("%w: the API key is unknown", ErrUnauthenticated)
	}
	return found.client, nil
}

// inherit takes over the meters of earlier clients with the same names, and then sets their limits.
func (c *Clients) inherit(earlier *Clients) {
	for _, entry := range c.list {
		if was := earlier.named(entry.client.Name); was != nil {
			entry.client.meter = was.client.meter
		}
		entry.client.meter.set(entry.limits)
	}
}

// named is the client of that name; nil when there is none.
func (c *Clients) named(name string) *clientEntry {
	if c == nil {
		return nil
	}
	i := slices.IndexFunc(c.list, func(e *clientEntry) bool { return e.client.Name == name })
	if i < 0 {
		return nil
	}
	return c.list[i]
}

// Changes lists what differs from earlier clients, a line for each client; it tells nothing of keys.
func (c *Clients) Changes(earlier *Clients) (lines []string) {
	for _, entry := range c.list {
		was := earlier.named(entry.client.Name)
		switch {
		case was == nil:
			lines = append(lines, "client "+entry.client.Name+": added")
		case !entry.equal(was):
			lines = append(lines, "client "+entry.client.Name+": changed")
		}
	}
	if earlier != nil {
		for _, was := range earlier.list {
			if c.named(was.client.Name) == nil {
				lines = append(lines, "client "+was.client.Name+": removed")
			}
		}
	}
	return lines
}
