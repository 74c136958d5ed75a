package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"keyrange/handlers/access"
)

// maxGateFileBytes bounds a file of keys or certificates.
const maxGateFileBytes = 16 << 20

// gates are what stands before the listeners: the clients and their keys, and the certificates. They come from files beside
// the config, which may change while the gateway runs.
type gates struct {
	// guard is nil when nobody is asked.
	guard *access.Guard
	// fetched checks tokens by keys from a URL; nil without one.
	fetched       *access.Tokens
	server, admin *tlsGate
	files         gateFiles
}

// gateFiles are what the files hold.
type gateFiles struct {
	clients       *access.Clients
	tokens        *access.Tokens
	server, admin *tls.Config
	// sums tell the contents apart, by the key that names the file.
	sums map[string][sha256.Size]byte
}

// tlsGate is a listener's certificate, which can be replaced while it listens.
type tlsGate struct{ current atomic.Pointer[tls.Config] }

// config is what a listener takes.
func (g *tlsGate) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: g.current.Load().NextProtos,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return g.current.Load(), nil },
	}
}

// folderOf is the folder at which relative paths in a config file start.
func folderOf(configPath string) string { return filepath.Dir(configPath) }

// gateFile is a file that a key of config names.
type gateFile struct{ key, path string }

// gateFilesOf lists the files that a config names for clients and certificates.
func gateFilesOf(cfg *Config, folder string) (all []gateFile) {
	for _, f := range []gateFile{
		{"auth.keys_file", cfg.Auth.KeysFile}, {"auth.jwt.jwks_file", cfg.Auth.JWT.JWKSFile},
		{"server.tls.cert_file", cfg.Server.TLS.CertFile}, {"server.tls.key_file", cfg.Server.TLS.KeyFile},
		{"server.tls.client_ca_file", cfg.Server.TLS.ClientCAFile},
		{"admin.tls.cert_file", cfg.Admin.TLS.CertFile}, {"admin.tls.key_file", cfg.Admin.TLS.KeyFile},
		{"admin.tls.client_ca_file", cfg.Admin.TLS.ClientCAFile},
	} {
		if f.path == "" {
			continue
		}
		if !filepath.IsAbs(f.path) {
			f.path = filepath.Join(folder, f.path)
		}
		all = append(all, f)
	}
	return all
}

// readGates reads all files. Each fault goes to add, with its key; none repeats what is in a file.
func readGates(cfg *Config, folder string, add func(key, rule string)) gateFiles {
	files, texts := gateFiles{sums: map[string][sha256.Size]byte{}}, map[string][]byte{}
	for _, f := range gateFilesOf(cfg, folder) {
		text, err := readBounded(f.path)
		if err != nil {
			add(f.key, fmt.Sprintf("cannot read the file: %s (got %s)", err, shown(f.path)))
			continue
		}
		texts[f.key], files.sums[f.key] = text, sha256.Sum256(text)
	}
	note := func(key string, err error) {
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				add(key, line)
			}
		}
	}
	var err error
	if text, ok := texts["auth.keys_file"]; ok {
		files.clients, err = access.ParseClients(text, collectionNames(cfg))
		note("auth.keys_file", err)
	}
	if text, ok := texts["auth.jwt.jwks_file"]; ok {
		files.tokens, err = access.NewTokens(tokenRules(cfg.Auth.JWT), text)
		note("auth.jwt.jwks_file", err)
	}
	files.server = readTLS("server.tls", cfg.Server.TLS, texts, note)
	files.admin = readTLS("admin.tls", cfg.Admin.TLS, texts, note)
	return files
}

// readBounded reads a file that should be small.
func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxGateFileBytes {
		return nil, errors.New("it is too large")
	}
	text, err := os.ReadFile(path)
	return text, causeOf(err)
}

// readTLS makes the TLS config of a listener from the texts of its files; nil for plain HTTP, and after a fault.
func readTLS(section string, c TLSConfig, texts map[string][]byte, note func(key string, err error)) *tls.Config {
	cert, haveCert := texts[section+".cert_file"]
	key, haveKey := texts[section+".key_file"]
	if !haveCert || !haveKey {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		note(section+".cert_file", fmt.Errorf("does not go with %s.key_file: %w", section, err))
		return nil
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if c.ClientCAFile == "" {
		return config
	}
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	config.SessionTicketsDisabled = true // a session must not outlive its client's authority
	if text, ok := texts[section+".client_ca_file"]; !ok || !config.ClientCAs.AppendCertsFromPEM(text) {
		if ok {
			note(section+".client_ca_file", errors.New("has no certificate in PEM"))
		}
		return nil
	}
	return config
}

// openGates reads the files of a config that was validated.
func openGates(cfg *Config, folder string) (*gates, error) {
	g := &gates{}
	files, err := loadGates(cfg, folder)
	if err != nil {
		return nil, err
	}
	if cfg.Auth.enabled() {
		g.guard = access.NewGuard(nil, nil)
	}
	if files.server != nil {
		g.server = &tlsGate{}
	}
	if files.admin != nil {
		g.admin = &tlsGate{}
	}
	g.apply(files)
	return g, nil
}

// loadGates is readGates with one error.
func loadGates(cfg *Config, folder string) (gateFiles, error) {
	var rules []string
	files := readGates(cfg, folder, func(key, rule string) { rules = append(rules, key+": "+rule) })
	if len(rules) > 0 {
		return files, errors.New(strings.Join(rules, "\n"))
	}
	return files, nil
}

// fetch begins to fetch the keys for tokens, where config has a URL for them, until ctx ends.
func (g *gates) fetch(ctx context.Context, cfg *Config, logger *slog.Logger) (err error) {
	if cfg.Auth.JWT.JWKSURL == "" {
		return nil
	}
	if g.fetched, err = access.FetchTokens(ctx, tokenRules(cfg.Auth.JWT), cfg.Auth.JWT.JWKSURL, logger); err != nil {
		return fmt.Errorf("auth.jwt.jwks_url: %w", err)
	}
	g.apply(g.files)
	return nil
}

// apply puts files in force that were read for the running config, or for one that names the same files.
func (g *gates) apply(files gateFiles) {
	if g.guard != nil {
		tokens := files.tokens
		if g.fetched != nil {
			tokens = g.fetched
		}
		g.guard.Replace(files.clients, tokens)
	}
	if g.server != nil {
		g.server.current.Store(files.server)
	}
	if g.admin != nil {
		g.admin.current.Store(files.admin)
	}
	g.files = files
}

// changes lists what differs from the files in force, without anything secret.
func (g *gates) changes(files gateFiles) (lines []string) {
	if files.clients != nil {
		for _, line := range files.clients.Changes(g.files.clients) {
			lines = append(lines, "auth.keys_file: "+line)
		}
	}
	for _, key := range []string{
		"auth.jwt.jwks_file", "server.tls.cert_file", "server.tls.key_file", "server.tls.client_ca_file",
		"admin.tls.cert_file", "admin.tls.key_file", "admin.tls.client_ca_file",
	} {
		if files.sums[key] != g.files.sums[key] {
			lines = append(lines, key+": the file has changed")
		}
	}
	return lines
}

// sumOfFiles tells the contents of files apart, and those that cannot be read.
func sumOfFiles(files []gateFile) (sum [sha256.Size]byte) {
	hash := sha256.New()
	for _, f := range files {
		text, err := readBounded(f.path)
		one := sha256.Sum256(text)
		if err != nil {
			one = sha256.Sum256([]byte("\x00" + err.Error()))
		}
		hash.Write(one[:])
	}
	return [sha256.Size]byte(hash.Sum(nil))
}
