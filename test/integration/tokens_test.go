package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"keyrange/test/gateway"
)

// TestTokens: a gateway fetches the keys of an issuer, also when that is away at the start, and takes its tokens beside API
// keys.
func TestTokens(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	part := base64.RawURLEncoding.EncodeToString
	var up atomic.Bool
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		fmt.Fprintf(w, `{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","use":"sig","kid":"one","x":%q,"y":%q}]}`, part(point[1:33]), part(point[33:]))
	}))
	defer issuer.Close()
	token := func(roles any, life time.Duration) string {
		made := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
			"iss": "https://id.example", "aud": "keyrange", "sub": "service-7", "exp": time.Now().Add(life).Unix(), "https://id.example/roles": roles,
		})
		made.Header["kid"] = "one"
		text, err := made.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return "Authorization: Bearer " + text
	}
	config := tiny(goodCollections, goodSize, goodNodes) + fmt.Sprintf("auth: {keys_file: clients.yaml, jwt: {issuer: 'https://id.example', audience: keyrange, jwks_url: %q, "+
		"roles_claim: 'https://id.example/roles'}}\n", issuer.URL)
	folder := gateway.WriteConfig(t, config)
	put(t, folder, "clients.yaml", keysOf("shop", "records: read"))
	g := gateway.StartIn(t, folder)
	writer := token([]string{"records:write"}, time.Minute)
	if a := g.Expect(t, http.StatusServiceUnavailable, "PUT", "/v1/records/a", "{}", writer); a.Code() != "signing_keys_unavailable" || a.Header.Get("Retry-After") == "" {
		t.Errorf("while the issuer is away: %s", a.Body)
	}
	g.Expect(t, http.StatusNotFound, "GET", "/v1/records/a", "", "X-API-Key: shop-key")
	g.Stop(t)
	up.Store(true)
	g = gateway.StartIn(t, folder)
	g.Expect(t, http.StatusCreated, "PUT", "/v1/records/a", "{}", writer)
	g.Expect(t, http.StatusOK, "GET", "/v1/records/a", "", token(map[string]string{"*": "read"}, time.Minute))
	g.Expect(t, http.StatusForbidden, "PUT", "/v1/records/a", "{}", token(map[string]string{"*": "read"}, time.Minute))
	g.Expect(t, http.StatusForbidden, "GET", "/v1/records/a", "", token(nil, time.Minute))
	g.Expect(t, http.StatusUnauthorized, "GET", "/v1/records/a", "", token([]string{"records:write"}, -time.Hour))
	g.Expect(t, http.StatusUnauthorized, "GET", "/v1/records/a", "", writer[:len(writer)-4]+"AAAA")
	g.Expect(t, http.StatusOK, "GET", "/v1/records/a", "", "X-API-Key: shop-key")
	g.Stop(t)
	if log := g.Output.String(); !strings.Contains(log, `"client":"service-7"`) || strings.Contains(log, "eyJ") {
		t.Errorf("log:\n%s", log)
	}
}
