package servers

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxyChunkBytes is how much is forwarded at once.
const proxyChunkBytes = 32 << 10

// Proxy stands between a test and a TCP server and injects network faults. It knows no protocol: faults are triggered
// by bytes that the client sends, such as the text of a SQL statement or the name of a MongoDB command. It is safe for
// concurrent use and ends with its test.
type Proxy struct {
	target   string
	listener net.Listener
	done     chan struct{} // closed when the proxy closes
	tasks    sync.WaitGroup
	accepted atomic.Int64

	mu      sync.Mutex
	stall   chan struct{} // closed on Resume; nil while traffic flows
	delay   time.Duration // what each request waits on its way to the server
	refuse  bool
	faults  []*fault
	clients map[*link]struct{}
}

// fault waits for bytes from a client and happens once.
type fault struct {
	match    []byte
	swallow  bool // let the request through and drop the answer, instead of dropping the request
	happened chan struct{}
}

// link is one client connection and its connection to the server.
type link struct {
	client, server net.Conn

	mu       sync.Mutex
	swallows *fault // set from the request on, until the server begins to answer
}

// NewProxy listens on a free port of the loopback interface and forwards to targetAddr (host:port) until the test ends.
func NewProxy(t testing.TB, targetAddr string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p := &Proxy{target: targetAddr, listener: listener, done: make(chan struct{}), clients: map[*link]struct{}{}}
	p.tasks.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// NewProxyFor starts a proxy to the server that rawURL names, and returns it with the URL that leads through it.
func NewProxyFor(t testing.TB, rawURL string) (p *Proxy, throughURL string) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" {
		t.Fatal("proxy: the URL names no single host")
	}
	p = NewProxy(t, u.Host)
	return p, replaceHost(t, rawURL, p.Addr())
}

// replaceHost returns the URL with another host and port, which is a single server.
func replaceHost(t testing.TB, rawURL, host string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal("the URL cannot be parsed")
	}
	u.Host = host
	if u.Scheme == "mongodb" {
		// Otherwise the driver asks a replica set for its members and goes to them past the proxy.
		query := u.Query()
		query.Set("directConnection", "true")
		u.RawQuery = query.Encode()
	}
	return u.String()
}

// Addr is the address to connect to instead of the server's.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SwallowReply makes the next request that contains match reach the server, drops the server's answer to it and cuts
// that connection, once. The channel is closed when that has happened.
func (p *Proxy) SwallowReply(match []byte) <-chan struct{} {
	return p.arm(&fault{match: match, swallow: true, happened: make(chan struct{})})
}

// CutBefore cuts the connection on which the next request that contains match arrives, before the server sees the bytes
// that match, once. The channel is closed when that has happened.
func (p *Proxy) CutBefore(match []byte) <-chan struct{} {
	return p.arm(&fault{match: match, happened: make(chan struct{})})
}

// arm adds a fault that the next matching request meets.
func (p *Proxy) arm(f *fault) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f.happened
}

// Stall holds all traffic back in both directions, and closes nothing, until Resume. Connections are still accepted.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stall == nil {
		p.stall = make(chan struct{})
	}
}

// Resume lets what Stall held back through, even of clients that have gone away meanwhile.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stall != nil {
		close(p.stall)
		p.stall = nil
	}
}

// Refuse closes all connections and those that arrive, until it is called with false.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
	if refuse {
		p.cutAllLocked()
	}
}

// Reset resets all connections, once, and accepts new ones.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.clients {
		l.reset()
	}
}

// Delay makes each request wait on its way to the server, until it is called with 0: a network with that round-trip time.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Accepted counts the connections that clients have opened so far, refused ones among them.
func (p *Proxy) Accepted() int64 { return p.accepted.Load() }

// cutAllLocked cuts all links; p.mu is held.
func (p *Proxy) cutAllLocked() {
	for l := range p.clients {
		l.cut()
	}
}

// close cuts everything and waits for the goroutines.
func (p *Proxy) close() {
	p.mu.Lock()
	close(p.done)
	_ = p.listener.Close() // the port is free in any case
	p.cutAllLocked()
	p.mu.Unlock()
	p.tasks.Wait()
}

// accept serves clients until the listener closes.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.accepted.Add(1)
		p.tasks.Go(func() { p.serve(client) })
	}
}

// serve forwards both directions of one connection until both have ended.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return // the client sees its connection closed, as with a server that is down
	}
	defer server.Close()
	l := &link{client: client, server: server}
	if !p.register(l) {
		return
	}
	defer p.forget(l)
	var directions sync.WaitGroup
	directions.Go(func() { p.forward(l, client, server, p.request(l)) })
	directions.Go(func() { p.forward(l, server, client, l.reply) })
	directions.Wait()
}

// register makes the link known to Refuse and close, and reports whether it may live.
func (p *Proxy) register(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return false
	default:
	}
	if p.refuse {
		return false
	}
	p.clients[l] = struct{}{}
	return true
}

// forget ends what register began.
func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.clients, l)
}

// forward copies one direction. inspect sees each chunk before it is written and reports whether it may pass; the
// connection is cut when it may not.
func (p *Proxy) forward(l *link, from, to net.Conn, inspect func(chunk []byte) bool) {
	chunk := make([]byte, proxyChunkBytes)
	for {
		n, err := from.Read(chunk)
		p.waitWhileStalled()
		if n > 0 {
			if !inspect(chunk[:n]) {
				l.cut()
				return
			}
			if _, err := to.Write(chunk[:n]); err != nil {
				l.cut()
				return
			}
		}
		if errors.Is(err, io.EOF) {
			// The other direction may still carry an answer.
			if half, ok := to.(*net.TCPConn); ok {
				_ = half.CloseWrite() // it is closed as a whole in a moment in any case
			}
			return
		}
		if err != nil {
			l.cut()
			return
		}
	}
}

// waitWhileStalled blocks until traffic may flow or the proxy closes.
func (p *Proxy) waitWhileStalled() {
	for {
		p.mu.Lock()
		stall := p.stall
		p.mu.Unlock()
		if stall == nil {
			return
		}
		select {
		case <-stall:
		case <-p.done:
			return
		}
	}
}

// waitDelay lets a request wait, or the proxy close.
func (p *Proxy) waitDelay() {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	if delay <= 0 {
		return
	}
	select {
	case <-time.After(delay):
	case <-p.done:
	}
}

// request returns the inspection of what a client sends. A match may be spread over several chunks, so the end of what
// was seen is kept.
func (p *Proxy) request(l *link) func(chunk []byte) bool {
	var seen []byte
	return func(chunk []byte) bool {
		p.waitDelay()
		seen = append(seen, chunk...)
		f, keep := p.trigger(seen)
		if f != nil {
			seen = nil
			if !f.swallow {
				close(f.happened)
				return false
			}
			l.swallow(f)
		}
		seen = seen[max(0, len(seen)-keep):]
		return true
	}
}

// trigger takes the first armed fault whose bytes were seen, and says how many bytes the next look has to repeat.
func (p *Proxy) trigger(seen []byte) (happens *fault, keep int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, f := range p.faults {
		if bytes.Contains(seen, f.match) {
			p.faults = append(p.faults[:i:i], p.faults[i+1:]...)
			return f, 0
		}
		keep = max(keep, len(f.match)-1)
	}
	return nil, keep
}

// swallow drops the next answer of the server.
func (l *link) swallow(f *fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.swallows = f
}

// reply inspects what the server sends: the first bytes after a swallowed request prove that the server ran it.
func (l *link) reply([]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.swallows == nil {
		return true
	}
	close(l.swallows.happened)
	l.swallows = nil
	return false
}

// reset is cut, but that both ends see a reset instead of an end.
func (l *link) reset() {
	for _, conn := range []net.Conn{l.client, l.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // it may be closed already
		}
	}
	l.cut()
}

// cut closes both connections; it may be called more than once.
func (l *link) cut() {
	_ = l.client.Close() // nothing can be lost that was not meant to be
	_ = l.server.Close()
}
