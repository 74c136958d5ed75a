package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// TestServersAnswer says which servers the tests of this module run on, and fails when one of them is away.
func TestServersAnswer(t *testing.T) {
	say := func(host, version string) {
		t.Logf("servers: %s %s", host, version)
		fmt.Printf("servers: %s %s\n", host, version)
	}
	for _, s := range MySQL(t) {
		names := map[string]string{MySQLKind: "MySQL", MariaDBKind: "MariaDB"}
		say(s.Host(), names[s.Kind]+" "+s.Version)
	}
	mongo := Mongo(t)
	say(mongo.Host(), mongo.Version)
	for _, env := range []string{EnvMariaDB, EnvFerretDB} {
		switch path := os.Getenv(env); path {
		case "":
			say("private servers:", "MISSING, "+env+" is not set: tests that need one will fail")
		case NoPrivate:
			say("private servers:", "none, as "+env+" says: proxies imitate those that are killed and stopped, the tests of read-only, full and small servers do not run")
		default:
			say("private servers:", path)
		}
	}
}

// TestFreshDatabases: every helper gives a database of its own.
func TestFreshDatabases(t *testing.T) {
	seen := map[string]bool{}
	urls := append(Nodes(t, 4), FreshMongo(t), FreshMongo(t))
	for _, e := range SQLEngines(t) {
		urls = append(urls, e.Fresh(t), e.Fresh(t))
	}
	for _, u := range urls {
		if seen[u] {
			t.Errorf("%s was given twice", u)
		}
		seen[u] = true
	}
}

// echoServer answers each line with the same line.
func echoServer(t *testing.T) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// line is a client that talks in lines.
type line struct {
	net.Conn
	in *bufio.Reader
}

// dialLine connects through the proxy.
func dialLine(t *testing.T, p *Proxy) *line {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &line{Conn: conn, in: bufio.NewReader(conn)}
}

// say sends the text and returns the next line of the answer.
func (l *line) say(text string, patience time.Duration) (string, error) {
	if _, err := io.WriteString(l, text); err != nil {
		return "", err
	}
	return l.hear(patience)
}

// hear returns the next line that comes within the given time.
func (l *line) hear(patience time.Duration) (string, error) {
	_ = l.SetReadDeadline(time.Now().Add(patience))
	return l.in.ReadString('\n')
}

// TestProxyFaults: each fault cuts the connection that it meets, once, and leaves others alone.
func TestProxyFaults(t *testing.T) {
	const patience = 5 * time.Second
	p := NewProxy(t, echoServer(t))
	for name, arm := range map[string]func([]byte) <-chan struct{}{"SwallowReply": p.SwallowReply, "CutBefore": p.CutBefore} {
		t.Run(name, func(t *testing.T) {
			other, victim := dialLine(t, p), dialLine(t, p)
			happened := arm([]byte("INSERT INTO x"))
			// The match is spread over two writes.
			if answer, err := victim.say("first\nINSERT ", patience); err != nil || answer != "first\n" {
				t.Fatalf("before the fault: %q, %v", answer, err)
			}
			if answer, err := victim.say("INTO x\n", patience); err == nil && strings.Contains(answer, "x") {
				t.Fatalf("the reply came through: %q", answer)
			}
			select {
			case <-happened:
			case <-time.After(patience):
				t.Fatal("the fault did not happen")
			}
			for _, l := range []*line{other, dialLine(t, p)} {
				if answer, err := l.say("INSERT INTO x\n", patience); err != nil || answer != "INSERT INTO x\n" {
					t.Errorf("after the fault: %q, %v", answer, err)
				}
			}
		})
	}
}

// TestProxyStall: nothing passes and nothing closes until Resume, and then everything comes.
func TestProxyStall(t *testing.T) {
	const patience = 5 * time.Second
	p := NewProxy(t, echoServer(t))
	l := dialLine(t, p)
	if _, err := l.say("one\n", patience); err != nil {
		t.Fatal(err)
	}
	p.Stall()
	_, err := l.say("two\n", 50*time.Millisecond)
	if e, ok := errors.AsType[net.Error](err); !ok || !e.Timeout() {
		t.Fatalf("stalled: %v, want a timeout", err)
	}
	p.Resume()
	if answer, err := l.hear(patience); err != nil || answer != "two\n" {
		t.Errorf("resumed: %q, %v", answer, err)
	}
}

// TestProxyDelay: each request waits, and nothing does when that is over.
func TestProxyDelay(t *testing.T) {
	const patience, delay = 5 * time.Second, 100 * time.Millisecond
	p := NewProxy(t, echoServer(t))
	l := dialLine(t, p)
	p.Delay(delay)
	start := time.Now()
	for range 3 {
		if _, err := l.say("one\n", patience); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 3*delay {
		t.Errorf("three round trips took %v with a delay of %v", took, delay)
	}
	p.Delay(0)
	if _, err := l.say("two\n", patience); err != nil {
		t.Error(err)
	}
	if n := p.Accepted(); n != 1 {
		t.Errorf("%d connections accepted, want 1", n)
	}
}

// TestProxyReset: connections end and new ones are served.
func TestProxyReset(t *testing.T) {
	const patience = 5 * time.Second
	p := NewProxy(t, echoServer(t))
	old := dialLine(t, p)
	if _, err := old.say("one\n", patience); err != nil {
		t.Fatal(err)
	}
	p.Reset()
	if answer, err := old.say("two\n", patience); err == nil {
		t.Errorf("reset, and answered %q", answer)
	}
	if _, err := dialLine(t, p).say("three\n", patience); err != nil {
		t.Error(err)
	}
}

// TestPrivateServers: a server of one's own can be stopped, killed and started again, and keeps what it has acknowledged.
func TestPrivateServers(t *testing.T) {
	t.Cleanup(RemoveTemplates)
	t.Run("MariaDB", func(t *testing.T) {
		p := PrivateMariaDB(t, MariaDBOptions{})
		dsn := p.Fresh(t)
		table := dsn[strings.LastIndex(dsn, "/")+1:] + ".kept"
		p.Exec(t, "CREATE TABLE "+table+" (id INT PRIMARY KEY)", "INSERT INTO "+table+" VALUES (1)")
		p.Stop(t)
		p.Continue(t)
		p.Kill(t)
		p.Restart(t)
		p.Exec(t, "DELETE FROM "+table+" WHERE id = 1", "INSERT INTO "+table+" VALUES (1)")
	})
	t.Run("MongoDB", func(t *testing.T) {
		p := PrivateMongo(t)
		through, _ := p.FreshIndex(t)
		ping := func() error {
			return mongoAdmin(through, func(ctx context.Context, client *mongo.Client) error { return client.Ping(ctx, nil) })
		}
		p.Kill(t)
		p.Restart(t)
		p.Stop(t)
		p.Continue(t)
		if err := ping(); err != nil {
			t.Error(err)
		}
	})
}

// TestProxyRefuse: old and new connections are closed until the proxy accepts again.
func TestProxyRefuse(t *testing.T) {
	const patience = 5 * time.Second
	p := NewProxy(t, echoServer(t))
	old := dialLine(t, p)
	if _, err := old.say("one\n", patience); err != nil {
		t.Fatal(err)
	}
	p.Refuse(true)
	for _, l := range []*line{old, dialLine(t, p)} {
		if answer, err := l.say("two\n", patience); err == nil {
			t.Errorf("refused, and answered %q", answer)
		}
	}
	p.Refuse(false)
	if _, err := dialLine(t, p).say("three\n", patience); err != nil {
		t.Errorf("accepting again: %v", err)
	}
}
