package index

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gofrs/flock"
	"go.mongodb.org/mongo-driver/v2/bson"

	"keyrange/test/servers"
)

// secret is a password that no message may show.
const secret = "s3cr3t-p4ssword"

// checkSecret fails when the message of err shows the password.
func checkSecret(t *testing.T, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), secret) {
		t.Errorf("the password is in the message: %v", err)
	}
}

// TestOpenURI: a URI that cannot be meant is refused without repeating it.
func TestOpenURI(t *testing.T) {
	for _, uri := range []string{
		"", "index.db", "sqlite://", "sqlite://dir/", "mysql://root:" + secret + "@host/db", secret,
		"mongodb://", "mongodb://user:" + secret + "@", "mongodb://user:" + secret + "@host:port/db",
		"mongodb://user:" + secret + "%@host/db", "mongodb://user:" + secret + "@host/db?w=" + secret + "&retryWrites=" + secret,
		"mongodb://user:@" + secret + "@host/db", "mongodb://user:" + secret + "/@host/db",
	} {
		x, err := Open(testContext(t), uri, Options{})
		if err == nil {
			t.Errorf("%q was opened as %s", uri, x.Describe())
			_ = x.Close()
		}
		checkSecret(t, err)
	}
}

// TestMongoDatabase: the path names the database; without one it is the default.
func TestMongoDatabase(t *testing.T) {
	for uri, want := range map[string]string{
		"mongodb://host":                               "keyrange",
		"mongodb://host/":                              "keyrange",
		"mongodb://host/?w=1":                          "keyrange",
		"mongodb://host/orders":                        "orders",
		"mongodb://u:p@a:1,b:2,c:3/orders?w=1&x=/y@z":  "orders",
		"mongodb://u:p%2F%40@[::1]:27017/or%2Dders":    "or-ders",
		"mongodb+srv://u:p@cluster.example.com/orders": "orders",
	} {
		if got := mongoDatabase(uri); got != want {
			t.Errorf("%s: %q, want %q", uri, got, want)
		}
	}
}

// TestOpenUnreachable: a server that is down is found out soon, and its password stays secret.
func TestOpenUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close() // now nobody listens there
	ctx := testContext(t)
	_, err = Open(ctx, "mongodb://user:"+secret+"@"+addr+"/db", Options{})
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), addr) {
		t.Errorf("%v, want ErrUnavailable with the address", err)
	}
	if ctx.Err() != nil {
		t.Error("Open waited for its whole deadline")
	}
	checkSecret(t, err)
}

// TestOpenStandalone: a server that is no replica set is refused unless that is allowed, and the message says how.
func TestOpenStandalone(t *testing.T) {
	uri := servers.FreshMongo(t)
	x, err := Open(testContext(t), uri, Options{AllowStandalone: true})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	standalone := strings.Contains(x.Describe(), "standalone")
	strict, err := Open(testContext(t), uri, Options{})
	switch {
	case err == nil:
		defer strict.Close()
		if standalone {
			t.Errorf("opened %s", strict.Describe())
		}
	case !standalone || !strings.Contains(err.Error(), "index.allow_standalone"):
		t.Errorf("%s: %v, want a refusal of standalone servers that names index.allow_standalone", x.Describe(), err)
	}
}

// TestOpenFolderLock: a SQLite index that another process has open is refused.
func TestOpenFolderLock(t *testing.T) {
	folder := t.TempDir()
	other := flock.New(filepath.Join(folder, "gateway.lock"))
	if ok, err := other.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	uri := "sqlite://" + filepath.Join(folder, "index.db")
	if _, err := Open(testContext(t), uri, Options{}); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), folder) {
		t.Errorf("%v, want ErrUnavailable with the folder", err)
	}
	if err := other.Unlock(); err != nil {
		t.Fatal(err)
	}
	x, err := Open(testContext(t), uri, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

// onWire is how one element of a document looks on the wire.
func onWire(t *testing.T, element bson.E) []byte {
	t.Helper()
	raw, err := bson.Marshal(bson.D{element})
	if err != nil {
		t.Fatal(err)
	}
	return raw[4 : len(raw)-1] // between the length and the end
}

// TestMongoConcerns: no parameter of the URI weakens what the record protocol relies on. What is sent counts.
func TestMongoConcerns(t *testing.T) {
	proxy, uri := servers.NewProxyFor(t, servers.FreshMongo(t))
	for _, parameters := range []string{
		"w=0&readPreference=secondaryPreferred&journal=false",
		"w=1&readPreference=nearest&readConcernLevel=local",
		"wtimeoutMS=1&readConcernLevel=available&maxPoolSize=1",
	} {
		t.Run(parameters, func(t *testing.T) {
			uri := uri + "&" + parameters
			opts, err := mongoOptions(uri, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if mode := opts.ReadPreference.Mode().String(); mode != "primary" {
				t.Errorf("reads go to %s", mode)
			}
			if *opts.MaxPoolSize != mongoDefaultConnections {
				t.Errorf("%d connections", *opts.MaxPoolSize)
			}
			x := open(t, uri, Options{})
			written := proxy.SwallowReply(onWire(t, bson.E{Key: "writeConcern",
				Value: bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}}}))
			if err := insertOne(t, x, parameters, 1); !errors.Is(err, ErrUnknown) {
				t.Errorf("insert: %v, want the fault", err)
			}
			expectHappened(t, written, "write concern majority, journaled")
			read := proxy.CutBefore(onWire(t, bson.E{Key: "readConcern",
				Value: bson.D{{Key: "level", Value: "majority"}}}))
			// The driver reads once more by itself where it may.
			if _, err := x.Find(testContext(t), orders, []string{parameters}); err != nil && !errors.Is(err, ErrUnavailable) {
				t.Errorf("find: %v", err)
			}
			expectHappened(t, read, "read concern majority")
		})
	}
}

// expectHappened fails when a fault of the proxy has not happened by now.
func expectHappened(t *testing.T, happened <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-happened:
	default:
		t.Errorf("not on the wire: %s", what)
	}
}
