package main

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// rawServer serves a handler that answers 204 as a gateway's listeners do, and returns its address.
func rawServer(t *testing.T, change func(*http.Server)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), slog.New(slog.DiscardHandler))
	change(server)
	done := make(chan error, 1)
	go func() { done <- serveOn(server, listener, nil) }()
	t.Cleanup(func() {
		_ = server.Close() // the listener with it
		<-done
	})
	return listener.Addr().String()
}

// TestHeaderLimit: headers that are too large are refused, whatever they are, and keys by the hundred fit.
func TestHeaderLimit(t *testing.T) {
	address := rawServer(t, func(*http.Server) {})
	for text, want := range map[string]string{
		"GET /" + strings.Repeat("k", maxHeaderBytes/2) + " HTTP/1.1\r\nHost: h\r\n\r\n":                           "HTTP/1.1 204",
		"GET / HTTP/1.1\r\nHost: h\r\nX-Long: " + strings.Repeat("x", maxHeaderBytes/2) + "\r\n\r\n":               "HTTP/1.1 204",
		"GET /" + strings.Repeat("k", 2*maxHeaderBytes) + " HTTP/1.1\r\nHost: h\r\n\r\n":                           "HTTP/1.1 431",
		"GET / HTTP/1.1\r\nHost: h\r\nX-Long: " + strings.Repeat("x", 2*maxHeaderBytes) + "\r\n\r\n":               "HTTP/1.1 431",
		"GET / HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("X-Many: some value\r\n", maxHeaderBytes/10) + "\r\n\r\n": "HTTP/1.1 431",
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // a plain connection takes it
		go func() { _, _ = conn.Write([]byte(text)) }()        // a refusal may come before all is sent
		line, _ := bufio.NewReader(conn).ReadString('\n')
		if !strings.HasPrefix(line, want) {
			t.Errorf("%.40q of %d bytes: %q, want %s", text, len(text), line, want)
		}
		_ = conn.Close()
	}
}

// TestSlowHeaders: a client that sends its headers byte by byte, or nothing at all, is let go, and so is an idle one.
func TestSlowHeaders(t *testing.T) {
	if server := newHTTPServer(nil, slog.New(slog.DiscardHandler)); server.ReadHeaderTimeout != headerTimeout || server.IdleTimeout != keepAlive || server.MaxHeaderBytes != maxHeaderBytes {
		t.Errorf("the bounds of a listener are %v, %v, %d", server.ReadHeaderTimeout, server.IdleTimeout, server.MaxHeaderBytes)
	}
	const short = 100 * time.Millisecond
	address := rawServer(t, func(s *http.Server) { s.ReadHeaderTimeout, s.IdleTimeout = short, short })
	for _, start := range []string{"", "GET / HTTP/1.1\r\nX-Slow: ", "GET / HTTP/1.1\r\nHost: h\r\n\r\n"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // a plain connection takes it
		if _, err := fmt.Fprint(conn, start); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		if strings.Contains(start, "Slow") {
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(short / 10):
						_, _ = conn.Write([]byte("x")) // until it is cut off
					}
				}
			}()
		}
		began := time.Now()
		for reader := bufio.NewReader(conn); ; {
			if _, err = reader.ReadByte(); err != nil {
				break
			}
		}
		close(stop)
		if took := time.Since(began); strings.Contains(err.Error(), "timeout") || took > 9*time.Second {
			t.Errorf("%q: %v after %s", start, err, took)
		}
		_ = conn.Close()
	}
}
