package main

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"keyrange/handlers/access"
)

// AuthConfig is how clients say who they are. Without a file of keys and without tokens nobody is asked.
type AuthConfig struct {
	// KeysFile has the clients with API keys, see access.ParseClients. A relative path starts at the folder of the config file.
	KeysFile string    `mapstructure:"keys_file"`
	JWT      JWTConfig `mapstructure:"jwt"`
}

// JWTConfig is which tokens are taken; none without an Issuer.
type JWTConfig struct {
	// Issuer and Audience are what iss and aud of a token must be.
	Issuer   string `mapstructure:"issuer"`
	Audience string `mapstructure:"audience"`
	// JWKSFile or JWKSURL has the public keys. A relative path starts at the folder of the config file.
	JWKSFile string `mapstructure:"jwks_file"`
	JWKSURL  string `mapstructure:"jwks_url"`
	// Algorithms are some of access.Algorithms.
	Algorithms Words `mapstructure:"algorithms"`
	// RolesClaim is the member of a token that has its roles.
	RolesClaim string `mapstructure:"roles_claim"`
}

// TLSConfig is the certificate of a listener; without a CertFile it speaks plain HTTP. Relative paths start at the folder of
// the config file.
type TLSConfig struct {
	// CertFile and KeyFile are the certificate with its chain and its private key, in PEM.
	CertFile string `mapstructure:"cert_file"`
	KeyFile  string `mapstructure:"key_file"`
	// ClientCAFile has the authorities, in PEM, one of which must have signed the certificate of every client (mTLS).
	ClientCAFile string `mapstructure:"client_ca_file"`
}

// CORSConfig is which web pages may use the API.
type CORSConfig struct {
	// Origins are exact, such as https://app.example.com; "*" alone is any.
	Origins Words `mapstructure:"origins"`
}

// defaultJWT holds for a gateway that takes tokens.
var defaultJWT = JWTConfig{Algorithms: "RS256,ES256,EdDSA", RolesClaim: "roles"}

// enabled reports whether clients are asked who they are.
func (c AuthConfig) enabled() bool { return c.KeysFile != "" || c.JWT.enabled() }

// enabled reports whether tokens are taken.
func (c JWTConfig) enabled() bool {
	return c.Issuer != "" || c.Audience != "" || c.JWKSFile != "" || c.JWKSURL != ""
}

// enabled reports whether the listener speaks TLS.
func (c TLSConfig) enabled() bool { return c.CertFile != "" || c.KeyFile != "" || c.ClientCAFile != "" }

// checkAccess checks who may use the listeners, and the files that say so.
func checkAccess(cfg *Config, f *faults) {
	checkJWT(cfg.Auth.JWT, f)
	checkTLS(f, "server.tls", cfg.Server.TLS)
	checkTLS(f, "admin.tls", cfg.Admin.TLS)
	checkOrigins(cfg.Server.CORS.Origins, f)
	for _, text := range cfg.Server.TrustedProxies.List() {
		_, err := parseNetwork(text)
		f.check(err == nil, "server.trusted_proxies", "must be networks of proxies, such as 10.1.0.0/16 or 192.0.2.7/32", text)
	}
	readGates(cfg, folderOf(f.file), f.add)
}

func checkJWT(c JWTConfig, f *faults) {
	algorithms := c.Algorithms.List()
	pinned := len(algorithms) > 0
	for _, one := range algorithms {
		pinned = pinned && slices.Contains(access.Algorithms, one)
	}
	f.check(pinned, "auth.jwt.algorithms", "must list some of "+strings.Join(access.Algorithms, ", "), string(c.Algorithms))
	f.check(c.RolesClaim != "", "auth.jwt.roles_claim", "must name a member of the token", c.RolesClaim)
	if !c.enabled() {
		return
	}
	f.check(c.Issuer != "", "auth.jwt.issuer", "is missing: it must be the iss of the tokens", c.Issuer)
	f.check(c.Audience != "", "auth.jwt.audience", "is missing: it must be the aud of the tokens", c.Audience)
	switch {
	case c.JWKSFile == "" && c.JWKSURL == "":
		f.add("auth.jwt.jwks_url", "is missing: give it or auth.jwt.jwks_file, for the public keys")
	case c.JWKSFile != "" && c.JWKSURL != "":
		f.add("auth.jwt.jwks_url", "give either this or auth.jwt.jwks_file, not both")
	case c.JWKSURL != "":
		u, err := url.Parse(c.JWKSURL)
		ok := err == nil && u.Host != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Hostname()))
		if !ok {
			f.add("auth.jwt.jwks_url", "must be an https:// URL without a user name; http:// only on loopback")
		}
	}
}

func checkTLS(f *faults, section string, c TLSConfig) {
	if c.enabled() {
		f.check(c.CertFile != "", section+".cert_file", "is missing, as the other keys of "+section+" are set", c.CertFile)
		f.check(c.KeyFile != "", section+".key_file", "is missing, as the other keys of "+section+" are set", c.KeyFile)
	}
}

// checkOrigins holds origins to the form in which browsers send them, because they are compared as text.
func checkOrigins(origins Words, f *faults) {
	const key = "server.cors.origins"
	for _, origin := range origins.List() {
		u, err := url.Parse(origin)
		exact := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.Scheme+"://"+u.Host == origin &&
			strings.ToLower(origin) == origin && !strings.ContainsAny(origin, "*?@")
		if !exact && (origin != "*" || string(origins) != "*") && !f.isDropped(key) {
			f.add(key, fmt.Sprintf(`must be origins as browsers send them, such as https://app.example.com or http://localhost:3000, or "*" alone (got %q)`, origin))
		}
	}
}

// parseNetwork reads a network of proxies. One that is everybody would let anybody say any address.
func parseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if err == nil && (network.Bits() == 0 || network.Masked() != network || network.Addr().Is4In6()) {
		err = errors.New("not a network")
	}
	return network, err
}

// trustedProxies are the networks of proxies of a valid config.
func trustedProxies(cfg *Config) (networks []netip.Prefix) {
	for _, text := range cfg.Server.TrustedProxies.List() {
		if network, err := parseNetwork(text); err == nil {
			networks = append(networks, network)
		}
	}
	return networks
}

// asks reports whether a listener finds out who its clients are: by keys or tokens, or by their certificates.
func asks(auth AuthConfig, c TLSConfig) bool { return auth.enabled() || c.ClientCAFile != "" }

// guardsAdmin reports whether the operators' listener asks for the admin role: when others than this machine reach it.
func guardsAdmin(cfg *Config) bool {
	host, _, _ := splitListen(cfg.Admin.Listen) // the config was validated
	return cfg.Auth.enabled() && !isLoopback(host)
}

// tokenRules are what tokens must fulfil by config.
func tokenRules(c JWTConfig) access.TokenRules {
	return access.TokenRules{Issuer: c.Issuer, Audience: c.Audience, Algorithms: c.Algorithms.List(), RolesClaim: c.RolesClaim}
}
