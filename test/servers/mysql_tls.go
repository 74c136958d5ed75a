package servers

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// NewMySQLTLS listens on a free port of the loopback interface, speaks TLS with a config in the name of a MySQL server, and
// forwards to that server, over TLS too. The server is one that has TLS. It returns the address.
func NewMySQLTLS(t testing.TB, target string, config *tls.Config) string {
	t.Helper()
	return listenTLS(t, func(client net.Conn) (net.Conn, net.Conn, error) {
		server, err := net.Dial("tcp", target)
		if err != nil {
			return nil, nil, err
		}
		a, b, err := upgradeMySQL(client, server, config)
		if err != nil {
			_ = server.Close()
			return nil, nil, err
		}
		return a, b, nil
	})
}

// NewTLS is NewMySQLTLS for a protocol that begins with TLS, in front of a server that speaks plain text.
func NewTLS(t testing.TB, target string, config *tls.Config) string {
	t.Helper()
	return listenTLS(t, func(client net.Conn) (net.Conn, net.Conn, error) {
		secure := tls.Server(client, config)
		if err := secure.Handshake(); err != nil {
			return nil, nil, err
		}
		server, err := net.Dial("tcp", target)
		if err != nil {
			return nil, nil, err
		}
		return secure, server, nil
	})
}

// MySQLCertificate asks a MySQL server for its certificate and writes it to a file, in PEM.
func MySQLCertificate(t testing.TB, target string) (file string) {
	t.Helper()
	server, err := net.Dial("tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := readPacket(server); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Write(sslRequest); err != nil {
		t.Fatal(err)
	}
	secure := tls.Client(server, anyCertificate)
	if err := secure.Handshake(); err != nil {
		t.Fatalf("%s has no TLS: %v", target, err)
	}
	file = filepath.Join(t.TempDir(), "server.pem")
	cert := secure.ConnectionState().PeerCertificates[0]
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// anyCertificate trusts a test server, whose certificate nobody knows.
var anyCertificate = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // on loopback

// sslRequest asks a MySQL server for TLS: a packet of 32 bytes with the flags for protocol 4.1, secure connections and TLS.
var sslRequest = append([]byte{32, 0, 0, 1, 0x00, 0x8a, 0, 0, 0, 0, 0, 1, 45}, make([]byte, 23)...)

// upgradeMySQL passes the greeting and the request for TLS on and then speaks TLS on both sides.
func upgradeMySQL(client, server net.Conn, config *tls.Config) (a, b *tls.Conn, err error) {
	greeting, err := readPacket(server)
	if err != nil {
		return nil, nil, err
	}
	if _, err = client.Write(greeting); err != nil {
		return nil, nil, err
	}
	request, err := readPacket(client)
	if err != nil {
		return nil, nil, err
	}
	if len(request) != len(sslRequest) {
		return nil, nil, errors.New("the client does not ask for TLS")
	}
	if _, err = server.Write(request); err != nil {
		return nil, nil, err
	}
	a, b = tls.Server(client, config), tls.Client(server, anyCertificate)
	if err = a.Handshake(); err != nil {
		return nil, nil, err
	}
	return a, b, b.Handshake()
}

// readPacket reads one packet of MySQL's protocol with its header.
func readPacket(from io.Reader) ([]byte, error) {
	header := make([]byte, 4)
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, err
	}
	packet := make([]byte, 4+(int(header[0])|int(header[1])<<8|int(header[2])<<16))
	copy(packet, header)
	_, err := io.ReadFull(from, packet[4:])
	return packet, err
}

// listenTLS passes connections on until the test ends; open makes the two ends of one of them.
func listenTLS(t testing.TB, open func(client net.Conn) (a, b net.Conn, err error)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	var all []net.Conn
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, conn := range all {
			_ = conn.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			all = append(all, client)
			mu.Unlock()
			running.Go(func() {
				defer client.Close()
				a, b, err := open(client)
				if err != nil {
					return
				}
				defer b.Close()
				running.Go(func() { _, _ = io.Copy(b, a); _ = b.Close(); _ = client.Close() })
				_, _ = io.Copy(a, b)
			})
		}
	})
	return listener.Addr().String()
}
