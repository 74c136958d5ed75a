package access

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"
)

// signer makes tokens with one key.
type signer struct {
	kid    string
	method jwt.SigningMethod
	key    crypto.Signer
}

// newSigner makes a key for ES256, RS256 or EdDSA.
func newSigner(t *testing.T, kid string, method jwt.SigningMethod) signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch method {
	case jwt.SigningMethodES256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jwt.SigningMethodRS256:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	default:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return signer{kid, method, key}
}

// jwks is a document with the public keys of signers.
func jwks(t *testing.T, signers ...signer) []byte {
	t.Helper()
	storage := jwkset.NewMemoryStorage()
	for _, s := range signers {
		key, err := jwkset.NewJWKFromKey(s.key.Public(), jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: s.kid}})
		if err != nil {
			t.Fatal(err)
		}
		_ = storage.KeyWrite(t.Context(), key) // in memory it does not fail
	}
	document, err := storage.JSONPublic(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// claims are those of a good token, with changes; nil takes a claim out.
func claims(changes jwt.MapClaims) jwt.MapClaims {
	all := jwt.MapClaims{
		"iss": "https://id.example", "aud": "keyrange", "sub": "shop", "exp": time.Now().Add(time.Minute).Unix(),
		"roles": map[string]any{"orders": "write"},
	}
	for name, value := range changes {
		all[name] = value
		if value == nil {
			delete(all, name)
		}
	}
	return all
}

// sign makes a token.
func (s signer) sign(t *testing.T, c jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(s.method, c)
	token.Header["kid"] = s.kid
	text, err := token.SignedString(s.key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// testRules take what claims makes.
var testRules = TokenRules{Issuer: "https://id.example", Audience: "keyrange", Algorithms: []string{"RS256", "ES256", "EdDSA"}, RolesClaim: "roles"}

// TestTokens: good tokens of each kind of key are taken, with their subject and roles.
func TestTokens(t *testing.T) {
	signers := []signer{newSigner(t, "e", jwt.SigningMethodES256), newSigner(t, "r", jwt.SigningMethodRS256), newSigner(t, "d", jwt.SigningMethodEdDSA)}
	tokens, err := NewTokens(testRules, jwks(t, signers...))
	if err != nil {
		t.Fatal(err)
	}
	guard := NewGuard(nil, tokens)
	for _, s := range signers {
		for name, changes := range map[string]jwt.MapClaims{
			"plain": nil, "several audiences": {"aud": []string{"x", "keyrange"}}, "within the leeway": {"exp": time.Now().Add(-tokenLeeway / 2).Unix(), "nbf": time.Now().Add(tokenLeeway / 2).Unix()},
		} {
			client, err := guard.Authenticate(t.Context(), s.sign(t, claims(changes)))
			if err != nil {
				t.Errorf("%s, %s: %v", s.kid, name, err)
				continue
			}
			if client.Name != "shop" || client.Allow("orders", Write) != nil || client.Allow("records", Read) == nil {
				t.Errorf("%s, %s: %+v", s.kid, name, client)
			}
			if leave, err := client.Enter(); err != nil || leave == nil {
				t.Errorf("enter: %v", err)
			}
		}
	}
}

// TestTokensRefused: whatever is wrong with a token, it is refused, and the reason holds nothing of it.
func TestTokensRefused(t *testing.T) {
	known, other := newSigner(t, "e", jwt.SigningMethodES256), newSigner(t, "e", jwt.SigningMethodES256)
	unpinned := newSigner(t, "r", jwt.SigningMethodRS256)
	rules := testRules
	rules.Algorithms = []string{"ES256"}
	tokens, err := NewTokens(rules, jwks(t, known, unpinned))
	if err != nil {
		t.Fatal(err)
	}
	guard := NewGuard(nil, tokens)
	hmac := func(secret []byte) string {
		token := jwt.NewWithClaims(jwt.SigningMethodHS256, claims(nil))
		token.Header["kid"] = "e"
		text, _ := token.SignedString(secret)
		return text
	}
	none, _ := jwt.NewWithClaims(jwt.SigningMethodNone, claims(nil)).SignedString(jwt.UnsafeAllowNoneSignatureType)
	good := known.sign(t, claims(nil))
	body := strings.Split(known.sign(t, claims(jwt.MapClaims{"sub": "sentinel"})), ".")[1]
	parts := strings.Split(good, ".")
	for name, c := range map[string]struct{ token, want string }{
		"another key":          {other.sign(t, claims(nil)), "the signature of the token is not valid"},
		"an unknown key id":    {signer{"x", known.method, known.key}.sign(t, claims(nil)), "signed with an unknown key"},
		"not pinned":           {unpinned.sign(t, claims(nil)), "the signature of the token is not valid"},
		"HMAC, public key":     {hmac(jwks(t, known)), "the signature of the token is not valid"},
		"none":                 {none, "the signature of the token is not valid"},
		"another body":         {parts[0] + "." + body + "." + parts[2], "the signature of the token is not valid"},
		"no signature":         {parts[0] + "." + parts[1] + ".", "the signature of the token is not valid"},
		"no token":             {"sentinel.a.b", "the token is malformed"},
		"expired":              {known.sign(t, claims(jwt.MapClaims{"exp": time.Now().Add(-2 * tokenLeeway).Unix()})), "the token has expired"},
		"not yet":              {known.sign(t, claims(jwt.MapClaims{"nbf": time.Now().Add(2 * tokenLeeway).Unix()})), "the token is not valid yet"},
		"no expiry":            {known.sign(t, claims(jwt.MapClaims{"exp": nil})), "lacks one of iss, aud and exp"},
		"no issuer":            {known.sign(t, claims(jwt.MapClaims{"iss": nil})), "lacks one of iss, aud and exp"},
		"no audience":          {known.sign(t, claims(jwt.MapClaims{"aud": nil})), "lacks one of iss, aud and exp"},
		"another issuer":       {known.sign(t, claims(jwt.MapClaims{"iss": "https://id.example/"})), "another issuer"},
		"another audience":     {known.sign(t, claims(jwt.MapClaims{"aud": "sentinel"})), "another audience"},
		"no subject":           {known.sign(t, claims(jwt.MapClaims{"sub": nil})), "no subject"},
		"a subject too long":   {known.sign(t, claims(jwt.MapClaims{"sub": strings.Repeat("sentinel", 20)})), "no subject"},
		"a subject not text":   {known.sign(t, claims(jwt.MapClaims{"sub": 7})), "no subject"},
		"an expiry not a time": {known.sign(t, claims(jwt.MapClaims{"exp": "sentinel"})), "not valid"},
	} {
		client, err := guard.Authenticate(t.Context(), c.token)
		if client != nil || !errors.Is(err, ErrUnauthenticated) || !strings.Contains(fmt.Sprint(err), c.want) || strings.Contains(fmt.Sprint(err), "sentinel") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if _, err := guard.Authenticate(t.Context(), good); err != nil {
		t.Errorf("the good one: %v", err)
	}
	if _, err := guard.Authenticate(t.Context(), "key"); err == nil || !strings.Contains(err.Error(), "no API keys here") {
		t.Errorf("an API key: %v", err)
	}
}

// TestJWKSFaults: a document without keys is refused, and nothing of it is repeated.
func TestJWKSFaults(t *testing.T) {
	for _, text := range []string{"", "{}", `{"keys":[]}`, `{"keys":[{"kty":"sentinel"}]}`, `{"keys":[{"kty":"RSA","n":"sentinel!"}]}`, "sentinel"} {
		if _, err := NewTokens(testRules, []byte(text)); err == nil || strings.Contains(err.Error(), "sentinel") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// keyServer serves a JWKS document that can change or fail.
type keyServer struct {
	*httptest.Server
	document atomic.Pointer[[]byte]
	fetches  atomic.Int64
}

func newKeyServer(t *testing.T, document []byte) *keyServer {
	t.Helper()
	s := &keyServer{}
	s.document.Store(&document)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.fetches.Add(1)
		if text := *s.document.Load(); text != nil {
			_, _ = w.Write(text)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(s.Close)
	return s
}

// fetching makes tokens by the keys of a server until the test ends.
func fetching(t *testing.T, url string, unknown rate.Limit) (tokens *Tokens, log *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	log = new(bytes.Buffer)
	tokens, err := fetchTokens(ctx, testRules, url, slog.New(slog.NewTextHandler(log, nil)), unknown)
	if err != nil {
		t.Fatal(err)
	}
	return tokens, log
}

// TestFetchTokens: keys come from a URL, are remembered, and a new one is fetched when a token names it.
func TestFetchTokens(t *testing.T) {
	first, second := newSigner(t, "1", jwt.SigningMethodES256), newSigner(t, "2", jwt.SigningMethodES256)
	server := newKeyServer(t, jwks(t, first))
	tokens, _ := fetching(t, server.URL, rate.Inf)
	for range 20 {
		if _, err := tokens.verify(t.Context(), first.sign(t, claims(nil))); err != nil {
			t.Fatal(err)
		}
	}
	if n := server.fetches.Load(); n != 1 {
		t.Errorf("%d fetches for 20 tokens", n)
	}
	if _, err := tokens.verify(t.Context(), second.sign(t, claims(nil))); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("an unknown key: %v", err)
	}
	rotated := jwks(t, second)
	server.document.Store(&rotated)
	if _, err := tokens.verify(t.Context(), second.sign(t, claims(nil))); err != nil {
		t.Errorf("after the change: %v", err)
	}
	if _, err := tokens.verify(t.Context(), first.sign(t, claims(nil))); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("a key taken out: %v", err)
	}
	var none []byte
	server.document.Store(&none)
	if _, err := tokens.verify(t.Context(), second.sign(t, claims(nil))); err != nil {
		t.Errorf("the server is down: %v", err)
	}
}

// TestFetchTokensBounded: made-up key ids do not make the gateway fetch again and again.
func TestFetchTokensBounded(t *testing.T) {
	known := newSigner(t, "1", jwt.SigningMethodES256)
	server := newKeyServer(t, jwks(t, known))
	tokens, _ := fetching(t, server.URL, rate.Every(unknownKeyInterval))
	for i := range 50 {
		if _, err := tokens.verify(t.Context(), signer{fmt.Sprint("x", i), known.method, known.key}.sign(t, claims(nil))); !errors.Is(err, ErrUnauthenticated) {
			t.Fatal(err)
		}
	}
	if n := server.fetches.Load(); n != 2 {
		t.Errorf("%d fetches for 50 unknown keys", n)
	}
}

// TestFetchTokensDown: without keys no token can be judged, which is said; they come when the server answers.
func TestFetchTokensDown(t *testing.T) {
	known := newSigner(t, "1", jwt.SigningMethodES256)
	server := newKeyServer(t, nil)
	tokens, log := fetching(t, server.URL, rate.Inf)
	token := known.sign(t, claims(nil))
	if _, err := tokens.verify(t.Context(), token); !errors.Is(err, ErrNoSigningKeys) {
		t.Errorf("while it is down: %v", err)
	}
	if !strings.Contains(log.String(), "the keys for tokens cannot be fetched") {
		t.Errorf("log: %s", log)
	}
	huge, _ := json.Marshal(map[string]any{"pad": strings.Repeat("x", signingKeysBytes), "keys": []any{}})
	server.document.Store(&huge)
	if _, err := tokens.verify(t.Context(), token); !errors.Is(err, ErrNoSigningKeys) {
		t.Errorf("a huge document: %v", err)
	}
	document := jwks(t, known)
	server.document.Store(&document)
	if _, err := tokens.verify(t.Context(), token); err != nil {
		t.Errorf("when it is up: %v", err)
	}
}
