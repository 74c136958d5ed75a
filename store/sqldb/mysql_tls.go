package sqldb

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
)

// Values of the parameter tls of a mysql:// URL that prove who the server is; the driver knows the others.
const (
	// tlsTrue checks the certificate and the host name in it.
	tlsTrue = "true"
	// tlsVerifyCA checks the certificate and no name: those that MySQL makes for itself have none.
	tlsVerifyCA = "verify-ca"
)

// Parameters of a mysql:// URL that name files in PEM, relative to the working directory.
const (
	paramTLS = "tls"
	// paramTLSCA has the authorities; without it those of the system count.
	paramTLSCA = "tls_ca"
	// paramTLSCert and paramTLSKey are the certificate of the client and its key.
	paramTLSCert = "tls_cert"
	paramTLSKey  = "tls_key"
)

// tlsFaults lists what is wrong with the TLS parameters.
func tlsFaults(query url.Values) (faults []string) {
	mode := query.Get(paramTLS)
	if !slices.Contains([]string{"", "false", tlsTrue, tlsVerifyCA, "skip-verify", "preferred"}, mode) {
		return []string{"tls must be true, verify-ca, false, skip-verify or preferred"}
	}
	if mode == tlsVerifyCA && query.Get(paramTLSCA) == "" {
		faults = append(faults, "tls=verify-ca needs tls_ca, a file with the authority")
	}
	if mode != tlsTrue && mode != tlsVerifyCA && (query.Has(paramTLSCA) || query.Has(paramTLSCert) || query.Has(paramTLSKey)) {
		faults = append(faults, "tls_ca, tls_cert and tls_key need tls=true or tls=verify-ca")
	}
	if (query.Get(paramTLSCert) == "") != (query.Get(paramTLSKey) == "") {
		faults = append(faults, "tls_cert and tls_key go together")
	}
	return faults
}

// mysqlTLS is the TLS config of a URL; nil when it is the driver's business, or nobody's. The files are read now, but for the
// client's certificate, which is read for each connection, so that a renewed one counts.
func mysqlTLS(query url.Values) (*tls.Config, error) {
	mode := query.Get(paramTLS)
	if mode != tlsTrue && mode != tlsVerifyCA {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := query.Get(paramTLSCA); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fileFault(paramTLSCA, err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, errors.New(paramTLSCA + ": the file has no certificate in PEM")
		}
	}
	if certFile, keyFile := query.Get(paramTLSCert), query.Get(paramTLSKey); certFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			if err != nil {
				return nil, fileFault(paramTLSCert+" and "+paramTLSKey, err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	if mode == tlsVerifyCA {
		config.InsecureSkipVerify = true // the name; the rest is checked here
		config.VerifyConnection = func(state tls.ConnectionState) error { return verifyChain(state, config.RootCAs) }
	}
	return config, nil
}

// verifyChain checks the certificate of a server as crypto/tls does, but for the name.
func verifyChain(state tls.ConnectionState, roots *x509.CertPool) error {
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, cert := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(options)
	return err
}

// fileFault says why a file of a parameter cannot be used. The path is left out: it may be the rest of a password.
func fileFault(param string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("%s: cannot be read: %w", param, err)
}
