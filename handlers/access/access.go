// Package access says who a request comes from and what that client may do: API keys and tokens (JWT), roles per collection,
// a prefix that keys must have, and limits. It knows no HTTP framework.
package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
)

// Reasons for a refusal. Each error of this package that a client is to see matches exactly one; its text never holds a
// credential or a record's key.
var (
	// ErrUnauthenticated: the credential is not one that is known, or is no longer or not yet valid.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrForbidden: the client is known and may not do this.
	ErrForbidden = errors.New("forbidden")
	// ErrLimited: the client has as many requests as it may have; the same request passes later.
	ErrLimited = errors.New("rate limited")
	// ErrNoSigningKeys: the keys that tokens are checked with have never been fetched, so that no token can be judged.
	ErrNoSigningKeys = errors.New("signing keys unavailable")
)

// MaxCredentialBytes is the longest credential that is looked at; a longer one is refused unread.
const MaxCredentialBytes = 16 << 10

// Client is who a request comes from. It is never changed.
type Client struct {
	// Name is for logs and messages.
	Name  string
	roles Roles
	// keyPrefix starts every key that the client may touch; empty for all keys.
	keyPrefix string
	// meter counts its requests; nil for a client without limits.
	meter *meter
}

// Allow is nil when the client has the role, or a higher one, on the collection.
func (c *Client) Allow(collection string, role Role) error {
	if c.roles.On(collection) < role {
		where := "this collection"
		if collection == AnyCollection {
			where = "all collections (*)"
		}
		return fmt.Errorf("%w: the client %s has no %s role for %s", ErrForbidden, c.Name, role, where)
	}
	return nil
}

// AllowKey is nil when the client may touch the record under a key, which must have been decoded.
func (c *Client) AllowKey(key string) error {
	if !strings.HasPrefix(key, c.keyPrefix) {
		return fmt.Errorf("%w: the client %s may only use keys with its key_prefix", ErrForbidden, c.Name)
	}
	return nil
}

// Confined says that the client may not touch every key, so that a request that does not name its keys is not for it.
func (c *Client) Confined() bool { return c.keyPrefix != "" }

// Guard knows the clients. It is safe for concurrent use.
type Guard struct {
	clients atomic.Pointer[Clients]
	tokens  atomic.Pointer[Tokens]
}

// NewGuard makes a guard; nil for what there is none of.
func NewGuard(clients *Clients, tokens *Tokens) *Guard {
	g := &Guard{}
	g.Replace(clients, tokens)
	return g
}

// Replace puts other clients and tokens in force. A client of the same name keeps what its limits have counted so far, and
// requests under way end as the client that they began as. One call at a time.
func (g *Guard) Replace(clients *Clients, tokens *Tokens) {
	if clients != nil {
		clients.inherit(g.clients.Load())
	}
	g.clients.Store(clients)
	g.tokens.Store(tokens)
}

// Authenticate returns the client that a credential belongs to: an API key, or a token of three parts with dots between
// them, which no key has.
func (g *Guard) Authenticate(ctx context.Context, credential string) (*Client, error) {
	if len(credential) > MaxCredentialBytes {
		return nil, fmt.Errorf("%w: the credential is too long", ErrUnauthenticated)
	}
	clients, tokens := g.clients.Load(), g.tokens.Load()
	if tokens != nil && strings.Count(credential, ".") == 2 {
		return tokens.verify(ctx, credential)
	}
	if clients == nil {
		return nil, fmt.Errorf("%w: the credential is no token (JWT), and there are no API keys here", ErrUnauthenticated)
	}
	return clients.find(credential)
}
