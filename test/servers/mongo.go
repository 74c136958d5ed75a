package servers

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// MongoServer is the MongoDB-protocol server that answered.
type MongoServer struct {
	// URI names no database.
	URI string
	// Version says what runs there, for instance "MongoDB 7.0.14".
	Version string
}

// Host returns the host and port of the server.
func (s MongoServer) Host() string { return hostOf(s.URI) }

// Mongo returns the server of GATEWAY_TEST_MONGO. It fails the test when the variable is not set or the server does not
// answer.
func Mongo(t testing.TB) MongoServer {
	t.Helper()
	found, err := askMongo()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// askMongo asks the server once in the life of the test binary.
var askMongo = sync.OnceValues(func() (MongoServer, error) {
	uri := os.Getenv(EnvMongo)
	if uri == "" {
		return MongoServer{}, notSet(EnvMongo)
	}
	var info struct {
		Version  string `bson:"version"`
		FerretDB struct {
			Version string `bson:"version"`
		} `bson:"ferretdb"`
	}
	err := mongoAdmin(uri, func(ctx context.Context, client *mongo.Client) error {
		return client.Database("admin").RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info)
	})
	if err != nil {
		return MongoServer{}, noAnswer(EnvMongo, uri, err)
	}
	s := MongoServer{URI: uri, Version: "MongoDB " + info.Version}
	if info.FerretDB.Version != "" {
		s.Version = fmt.Sprintf("DocumentDB through FerretDB %s (speaks %s)", strings.TrimPrefix(info.FerretDB.Version, "v"), s.Version)
	}
	return s, nil
})

// FreshMongo returns a URI with the name of a database that does not exist yet, and drops it when the test ends.
func FreshMongo(t testing.TB) string {
	t.Helper()
	s := Mongo(t)
	name := freshName()
	u, err := url.Parse(s.URI)
	if err != nil {
		t.Fatalf("%s is not a URI with one host", EnvMongo)
	}
	u.Path = "/" + name
	t.Cleanup(func() {
		err := mongoAdmin(s.URI, func(ctx context.Context, client *mongo.Client) error {
			return client.Database(name).Drop(ctx)
		})
		if err != nil {
			t.Errorf("%s: drop the database %s: %v", s.Host(), name, err)
		}
	})
	return u.String()
}

// mongoAdmin connects to the server and disconnects again, so that no goroutine outlives the call.
func mongoAdmin(uri string, fn func(ctx context.Context, client *mongo.Client) error) error {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	defer func() { _ = client.Disconnect(ctx) }() // nothing is left to lose
	return fn(ctx, client)
}
