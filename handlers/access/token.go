package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"
)

// Algorithms are the signatures that a token may have. They are all asymmetric: whoever can check a token cannot make one.
var Algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

const (
	// tokenLeeway is how far the clocks of the issuer and the gateway may be apart.
	tokenLeeway = 30 * time.Second
	// signingKeysTimeout bounds one fetch of the signing keys, and signingKeysBytes what it may bring.
	signingKeysTimeout = 5 * time.Second
	signingKeysBytes   = 1 << 20
	// signingKeysInterval is the time between two fetches. A token with an unknown key id asks for one at once, at most every
	// unknownKeyInterval: anybody can make such tokens.
	signingKeysInterval = 15 * time.Minute
	unknownKeyInterval  = time.Minute
	// maxSubjectBytes bounds the name of a client that comes from a token.
	maxSubjectBytes = 128
)

// TokenRules are what a token must fulfil.
type TokenRules struct {
	// Issuer and Audience must be in the token, as iss and aud.
	Issuer, Audience string
	// Algorithms are some of the variable Algorithms.
	Algorithms []string
	// RolesClaim is the member of the token that has the roles.
	RolesClaim string
}

// Tokens checks tokens (JWT).
type Tokens struct {
	rules  TokenRules
	parser *jwt.Parser
	keys   keyfunc.Keyfunc
}

// NewTokens checks tokens by the keys of a JWKS document.
func NewTokens(rules TokenRules, jwks []byte) (*Tokens, error) {
	keys, err := keyfunc.NewJWKSetJSON(jwks)
	if err != nil {
		return nil, errors.New("is not a JWKS document with public keys") // the cause may quote a private one
	}
	if all, err := keys.Storage().KeyReadAll(context.Background()); err != nil || len(all) == 0 {
		return nil, errors.New("has no key that can be used")
	}
	return newTokens(rules, keys), nil
}

// FetchTokens checks tokens by the keys of the JWKS document at a URL, which is fetched now and then until ctx ends. When the
// first fetch fails there are no keys until one succeeds.
func FetchTokens(ctx context.Context, rules TokenRules, url string, logger *slog.Logger) (*Tokens, error) {
	return fetchTokens(ctx, rules, url, logger, rate.Every(unknownKeyInterval))
}

// fetchTokens is FetchTokens with a rate of fetches for unknown key ids.
func fetchTokens(ctx context.Context, rules TokenRules, url string, logger *slog.Logger, unknown rate.Limit) (*Tokens, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	context.AfterFunc(ctx, transport.CloseIdleConnections)
	keys, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{url}, keyfunc.Override{
		Client: &http.Client{
			Transport: boundedTransport{transport}, Timeout: signingKeysTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		HTTPTimeout: signingKeysTimeout, RefreshInterval: signingKeysInterval,
		RefreshUnknownKID: rate.NewLimiter(unknown, 1), RateLimitWaitMax: signingKeysTimeout,
		RefreshErrorHandlerFunc: func(string) func(context.Context, error) {
			return func(_ context.Context, err error) {
				logger.Warn("the keys for tokens cannot be fetched", "url", url, "cause", err.Error())
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return newTokens(rules, keys), nil
}

// boundedTransport cuts answers off that are too long.
type boundedTransport struct{ http.RoundTripper }

// RoundTrip bounds the body of the answer.
func (t boundedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, signingKeysBytes)
	}
	return response, err
}

func newTokens(rules TokenRules, keys keyfunc.Keyfunc) *Tokens {
	return &Tokens{rules: rules, keys: keys, parser: jwt.NewParser(
		jwt.WithValidMethods(rules.Algorithms), jwt.WithIssuer(rules.Issuer), jwt.WithAudience(rules.Audience),
		jwt.WithExpirationRequired(), jwt.WithLeeway(tokenLeeway))}
}

// tokenFaults are what a client may know of a token that is refused, in the order of their weight.
var tokenFaults = []struct {
	kind error
	text string
}{
	{jwt.ErrTokenMalformed, "the token is malformed"},
	{jwt.ErrTokenUnverifiable, "the token is signed with an unknown key"},
	{jwt.ErrTokenSignatureInvalid, "the signature of the token is not valid"},
	{jwt.ErrTokenExpired, "the token has expired"},
	{jwt.ErrTokenNotValidYet, "the token is not valid yet"},
	{jwt.ErrTokenUsedBeforeIssued, "the token is not valid yet"},
	{jwt.ErrTokenInvalidIssuer, "the token is of another issuer"},
	{jwt.ErrTokenInvalidAudience, "the token is for another audience"},
	{jwt.ErrTokenRequiredClaimMissing, "the token lacks one of iss, aud and exp"},
}

// verify returns the client of a token: its subject, with the roles that the token has.
func (t *Tokens) verify(ctx context.Context, token string) (*Client, error) {
	claims := jwt.MapClaims{}
	_, err := t.parser.ParseWithClaims(token, claims, t.keys.KeyfuncCtx(ctx))
	if err != nil {
		return nil, t.fault(ctx, err)
	}
	subject, err := claims.GetSubject()
	if err != nil || subject == "" || len(subject) > maxSubjectBytes || !utf8.ValidString(subject) {
		return nil, fmt.Errorf("%w: the token has no subject (sub) of 1 to %d bytes", ErrUnauthenticated, maxSubjectBytes)
	}
	return &Client{Name: subject, roles: rolesOfClaim(claims[t.rules.RolesClaim])}, nil
}

// fault says why a token is refused, without what the libraries quote of it.
func (t *Tokens) fault(ctx context.Context, err error) error {
	if errors.Is(err, jwt.ErrTokenUnverifiable) {
		if all, readErr := t.keys.Storage().KeyReadAll(ctx); readErr != nil || len(all) == 0 {
			return ErrNoSigningKeys
		}
	}
	for _, known := range tokenFaults {
		if errors.Is(err, known.kind) {
			return fmt.Errorf("%w: %s", ErrUnauthenticated, known.text)
		}
	}
	return fmt.Errorf("%w: the token is not valid", ErrUnauthenticated)
}
