package access

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain fails the run when a goroutine outlives it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sumOf is the SHA-256 of a key as a file has it.
func sumOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// parse reads a file of keys for the collections orders and records.
func parse(t *testing.T, text string) *Clients {
	t.Helper()
	clients, err := ParseClients([]byte(text), []string{"orders", "records"})
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

// shop is a file with one client that has two keys.
func shop(more string) string {
	return fmt.Sprintf("clients:\n  - name: shop\n    keys: [%s, %s]\n    roles: {orders: write, '*': read}\n%s", sumOf("old"), sumOf("new"), more)
}

// TestKeys: both keys of a client are known while one is replaced, in YAML and in JSON; nothing else is.
func TestKeys(t *testing.T) {
	json := fmt.Sprintf(`{"clients": [{"name": "shop", "keys": [%q, %q], "roles": {"orders": "write", "*": "read"}}]}`, sumOf("old"), strings.ToUpper(sumOf("new")))
	for _, text := range []string{shop(""), json} {
		guard := NewGuard(parse(t, text), nil)
		for _, key := range []string{"old", "new"} {
			client, err := guard.Authenticate(t.Context(), key)
			if err != nil || client.Name != "shop" {
				t.Errorf("key %s: %+v, %v", key, client, err)
			}
		}
		for _, key := range []string{"", "Old", "old ", "ol", sumOf("old"), "a.b.c", strings.Repeat("x", MaxCredentialBytes+1)} {
			if client, err := guard.Authenticate(t.Context(), key); !errors.Is(err, ErrUnauthenticated) || client != nil {
				t.Errorf("key %.20q: %+v, %v", key, client, err)
			}
		}
	}
}

// TestNewKey: a made key is long, new each time, and has its own sum.
func TestNewKey(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		key, sum := NewKey()
		if seen[key] || len(key) != 46 || strings.ContainsAny(key, ". ") || hex.EncodeToString(sum[:]) != sumOf(key) {
			t.Fatalf("%s, %x", key, sum)
		}
		seen[key] = true
	}
}

// TestRoles: a higher role includes the lower ones, and a collection's own role counts before that of all.
func TestRoles(t *testing.T) {
	client := &Client{Name: "c", roles: Roles{"orders": Write, AnyCollection: Admin, "records": Read}}
	for _, c := range []struct {
		collection string
		most       Role
	}{{"orders", Write}, {"records", Read}, {"other", Admin}, {AnyCollection, Admin}} {
		for _, role := range []Role{Read, Write, Admin} {
			if err := client.Allow(c.collection, role); (err == nil) != (role <= c.most) || err != nil && !errors.Is(err, ErrForbidden) {
				t.Errorf("%s on %s: %v", role, c.collection, err)
			}
		}
	}
	if err := (&Client{Name: "c", roles: Roles{"orders": Admin}}).Allow("records", Read); err == nil || err.Error() != "forbidden: the client c has no read role for this collection" {
		t.Errorf("without a role: %v", err)
	}
}

// TestRolesOfClaim: every form of roles in a token; what is unknown gives nothing, least of all more.
func TestRolesOfClaim(t *testing.T) {
	for _, c := range []struct {
		claim             any
		orders, other, on Role
	}{
		{map[string]any{"orders": "write", "*": "read"}, Write, Read, Read},
		{map[string]any{"orders": "none", "*": "admin"}, None, Admin, Admin},
		{map[string]any{"orders": 7, "*": "Admin"}, None, None, None},
		{[]any{"orders:read", "offline_access", "orders:write", "*:read", 7}, Write, Read, Read},
		{[]any{"orders:owner", "*:write"}, None, Write, Write},
		{"openid orders:admin", Admin, None, None},
		{nil, None, None, None}, {true, None, None, None}, {[]any{}, None, None, None}, {"admin", None, None, None},
	} {
		roles := rolesOfClaim(c.claim)
		if roles.On("orders") != c.orders || roles.On("other") != c.other || roles.On(AnyCollection) != c.on {
			t.Errorf("%v gives %v", c.claim, roles)
		}
	}
}

// TestKeyPrefix compares bytes.
func TestKeyPrefix(t *testing.T) {
	clients := parse(t, shop("    key_prefix: shop/ü-\n"))
	client, _ := clients.find("old")
	for key, want := range map[string]bool{"shop/ü-1": true, "shop/ü-": true, "shop/ü": false, "Shop/ü-1": false, "shop/u\u0308-1": false, "": false, "shop%2Fü-1": false} {
		if err := client.AllowKey(key); (err == nil) != want || err != nil && strings.Contains(err.Error(), "ü") {
			t.Errorf("%q: %v", key, err)
		}
	}
	if !client.Confined() || (&Client{}).Confined() {
		t.Error("Confined is wrong")
	}
}

// TestLimitRate: a burst passes, then the client is told how long to wait.
func TestLimitRate(t *testing.T) {
	client, _ := parse(t, shop("    requests_per_second: 0.01\n    burst: 3\n")).find("old")
	for i := range 3 {
		leave, err := client.Enter()
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		leave()
	}
	for range 2 { // a refused request costs nothing
		_, err := client.Enter()
		var limited *LimitedError
		if !errors.As(err, &limited) || !errors.Is(err, ErrLimited) || limited.RetryAfter > 100*time.Second || limited.RetryAfter < 90*time.Second {
			t.Errorf("after the burst: %v", err)
		}
	}
	if client.meter.underWay.Load() != 0 {
		t.Error("refused requests are counted as under way")
	}
}

// TestLimitConcurrent: what is under way is counted, over a change of the file too.
func TestLimitConcurrent(t *testing.T) {
	guard := NewGuard(parse(t, shop("    concurrent: 2\n")), nil)
	client, _ := guard.Authenticate(t.Context(), "old")
	leave, err := client.Enter()
	second, secondErr := client.Enter()
	if err != nil || secondErr != nil {
		t.Fatal(err, secondErr)
	}
	if _, err := client.Enter(); !errors.Is(err, ErrLimited) {
		t.Errorf("the third: %v", err)
	}
	guard.Replace(parse(t, shop("    concurrent: 1\n")), nil)
	second()
	client, _ = guard.Authenticate(t.Context(), "old")
	if _, err := client.Enter(); !errors.Is(err, ErrLimited) {
		t.Errorf("one is under way since before the change: %v", err)
	}
	leave()
	if leave, err = client.Enter(); err != nil {
		t.Fatal(err)
	}
	leave()
	guard.Replace(parse(t, shop("")), nil)
	client, _ = guard.Authenticate(t.Context(), "old")
	for range 100 {
		if _, err := client.Enter(); err != nil {
			t.Fatal("without a limit: ", err)
		}
	}
}

// TestReplace: a key that is taken out is refused at once, and the lines say what has changed.
func TestReplace(t *testing.T) {
	other := fmt.Sprintf("  - {name: other, keys: [%s], roles: {orders: read}}\n", sumOf("other"))
	before, after := parse(t, shop(other)), parse(t, strings.Replace(shop("  - {name: third, keys: ["+sumOf("x")+"], roles: {orders: read}}\n"), sumOf("old")+", ", "", 1))
	guard := NewGuard(before, nil)
	guard.Replace(after, nil)
	if _, err := guard.Authenticate(t.Context(), "old"); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("the old key: %v", err)
	}
	if _, err := guard.Authenticate(t.Context(), "new"); err != nil {
		t.Errorf("the new key: %v", err)
	}
	if got := fmt.Sprint(after.Changes(before)); got != "[client shop: changed client third: added client other: removed]" {
		t.Error(got)
	}
	if got := parse(t, shop(other)).Changes(before); got != nil {
		t.Error(got)
	}
	if got := fmt.Sprint(before.Changes(nil)); got != "[client shop: added client other: added]" {
		t.Error(got)
	}
}
