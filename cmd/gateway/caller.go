package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// callerOptions are the flags of a command that calls a gateway over HTTP: who it is, and whom it trusts.
type callerOptions struct{ keyFile, caFile, certFile, certKeyFile string }

// addTo adds the flags to a command's.
func (o *callerOptions) addTo(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.keyFile, "key-file", "", "file with the API key or token to send")
	flags.StringVar(&o.caFile, "ca-file", "", "file with the authorities to trust for https, in PEM (default: those of the system)")
	flags.StringVar(&o.certFile, "cert-file", "", "file with the certificate to show, in PEM; with --cert-key-file")
	flags.StringVar(&o.certKeyFile, "cert-key-file", "", "file with its private key, in PEM")
}

// requireFlags makes a command refuse to run without flags that it has.
func requireFlags(command *cobra.Command, names ...string) {
	for _, name := range names {
		if err := command.MarkFlagRequired(name); err != nil {
			panic(err) // only for a flag that was not declared
		}
	}
}

// transport makes connections of its own by the flags. Its error names the flag and nothing that is in a file.
func (o callerOptions) transport() (*http.Transport, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if o.caFile != "" {
		text, err := os.ReadFile(o.caFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(text) {
			return nil, errors.New("--ca-file: has no certificate in PEM")
		}
		transport.TLSClientConfig.RootCAs = roots
	}
	if (o.certFile == "") != (o.certKeyFile == "") {
		return nil, errors.New("--cert-file and --cert-key-file go together")
	}
	if o.certFile != "" {
		pair, err := tls.LoadX509KeyPair(o.certFile, o.certKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--cert-file: %w", err)
		}
		transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	return transport, nil
}

// key is the API key or token; empty without one.
func (o callerOptions) key() (Secret, error) {
	if o.keyFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(o.keyFile)
	if err != nil {
		return "", fmt.Errorf("--key-file: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" || strings.ContainsAny(key, " \t\r\n") {
		return "", errors.New("--key-file: must hold one key and nothing else")
	}
	return Secret(key), nil
}

// client calls a gateway by the flags and follows no redirects, which might lead the key elsewhere.
func (o callerOptions) client(transport *http.Transport) (*http.Client, error) {
	key, err := o.key()
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Transport:     keyTransport{transport, key},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// keyTransport sends the key with each request.
type keyTransport struct {
	*http.Transport
	key Secret
}

// RoundTrip implements http.RoundTripper.
func (t keyTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if t.key != "" {
		request = request.Clone(request.Context())
		request.Header.Set("Authorization", "Bearer "+t.key.Reveal())
	}
	return t.Transport.RoundTrip(request)
}
