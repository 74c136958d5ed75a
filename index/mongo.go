package index

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// Defaults that the URI or Options may change, except for the time that Close takes.
const (
	mongoDefaultDatabase    = "keyrange"
	mongoDefaultConnections = 16 // measured: 4 to 16 do as well as 200
	// mongoSelectionTimeout bounds the wait for a primary, long enough for an election's usual second or two.
	mongoSelectionTimeout = 3 * time.Second
	mongoConnectTimeout   = 2 * time.Second
	mongoCloseTimeout     = 5 * time.Second
)

// mongoIndex keeps the entries of each collection in the collection of that name of one database.
type mongoIndex struct {
	client   *mongo.Client
	pool     *mongoPool
	db       *mongo.Database
	location string
	// allowStandalone is as in Options.
	allowStandalone bool
	// about is the answer of a server that may be used; nil until then.
	about   atomic.Pointer[string]
	closing sync.Once
	closed  error
}

// document is an entry as it is stored.
type document struct {
	Key string `bson:"_id"`
	ID  int64  `bson:"id"`
}

// newMongo makes the client, which connects when it is used.
func newMongo(uri string, opts Options) (Index, error) {
	clientOpts, err := mongoOptions(uri, opts)
	if err != nil {
		return nil, err
	}
	pool := &mongoPool{most: int(*clientOpts.MaxPoolSize)}
	clientOpts.SetPoolMonitor(&event.PoolMonitor{Event: pool.told})
	client, err := mongo.Connect(clientOpts)
	if err != nil {
		return nil, errMongoURI
	}
	db := client.Database(mongoDatabase(uri))
	location := "mongodb://" + strings.Join(clientOpts.Hosts, ",") + "/" + db.Name()
	return &mongoIndex{client: client, pool: pool, db: db, location: location, allowStandalone: opts.AllowStandalone}, nil
}

// errMongoURI stands for everything that the driver says about a URI, because it likes to quote it.
var errMongoURI = errors.New("index: not a valid MongoDB URI: want mongodb://user:password@host:port/database; percent-encode special " +
	"characters in the user name and the password, and see the driver's manual for the parameters; mongodb+srv also needs DNS to answer")

// mongoOptions turns a URI into the driver's options. What the record protocol relies on is set last, so that no
// parameter of the URI can weaken it.
func mongoOptions(uri string, opts Options) (*options.ClientOptions, error) {
	if err := checkMongoFiles(uri); err != nil {
		return nil, err
	}
	o := options.Client().ApplyURI(uri)
	if err := o.Validate(); err != nil {
		return nil, errMongoURI
	}
	if opts.Connections <= 0 {
		opts.Connections = mongoDefaultConnections
	}
	if o.ServerSelectionTimeout == nil {
		o.SetServerSelectionTimeout(mongoSelectionTimeout)
	}
	if o.ConnectTimeout == nil {
		o.SetConnectTimeout(mongoConnectTimeout)
	}
	journal := true
	o.SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journal})
	o.SetReadConcern(readconcern.Majority())
	o.SetReadPreference(readpref.Primary())
	o.SetMaxPoolSize(uint64(opts.Connections))
	o.SetMonitor(&event.CommandMonitor{Started: countSend})
	if err := o.Validate(); err != nil {
		return nil, errMongoURI
	}
	return o, nil
}

// mongoDatabase is the database that a valid URI names, or the default. net/url does not parse several hosts.
func mongoDatabase(uri string) string {
	_, rest, _ := strings.Cut(uri, "://")
	rest, _, _ = strings.Cut(rest, "?")
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	_, name, _ := strings.Cut(rest, "/")
	if plain, err := url.PathUnescape(name); err == nil && plain != "" {
		return plain
	}
	return mongoDefaultDatabase
}

// greet asks the server what it is, until it has answered once, and refuses one that keeps entries on a single machine
// unless that is allowed.
func (m *mongoIndex) greet(ctx context.Context) error {
	if m.about.Load() != nil {
		return nil
	}
	var hello struct {
		SetName string `bson:"setName"`
		Message string `bson:"msg"`
	}
	var build struct {
		Version  string `bson:"version"`
		FerretDB struct {
			Version string `bson:"version"`
		} `bson:"ferretdb"`
	}
	if err := m.ask(ctx, "hello", &hello); err != nil {
		return translate(ctx, "open the index "+m.location, err, 0)
	}
	if err := m.ask(ctx, "buildInfo", &build); err != nil {
		return translate(ctx, "open the index "+m.location, err, 0)
	}
	shape := "standalone"
	switch {
	case hello.SetName != "":
		shape = "replica set " + hello.SetName
	case hello.Message == "isdbgrid":
		shape = "sharded cluster"
	case !m.allowStandalone:
		return fmt.Errorf("index: %s is a standalone server, which can lose entries that it has acknowledged: "+
			"use a replica set, or accept that with index.allow_standalone", m.location)
	}
	engine := "MongoDB " + build.Version
	if v := build.FerretDB.Version; v != "" {
		engine = fmt.Sprintf("FerretDB %s (speaks %s)", strings.TrimPrefix(v, "v"), engine)
	}
	about := fmt.Sprintf("%s, %s, at %s", engine, shape, m.location)
	m.about.Store(&about)
	return nil
}

// ask runs a command without arguments and decodes its answer.
func (m *mongoIndex) ask(ctx context.Context, command string, answer any) error {
	return m.client.Database("admin").RunCommand(ctx, bson.D{{Key: command, Value: 1}}).Decode(answer)
}

// sendsKey finds the counter of a write in its context.
type sendsKey struct{}

// countSend is told by the driver each time that it is about to send a command. That is the one sure sign: a failure to
// select a server or to get a connection comes before it, and it shows the attempts that the driver makes by itself.
func countSend(ctx context.Context, _ *event.CommandStartedEvent) {
	if sends, ok := ctx.Value(sendsKey{}).(*atomic.Int32); ok {
		sends.Add(1)
	}
}

// write runs one write and says how often it was sent.
func write(ctx context.Context, run func(ctx context.Context) error) (sends int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err // the driver would count it as sent
	}
	var counter atomic.Int32
	err = run(context.WithValue(ctx, sendsKey{}, &counter))
	return int(counter.Load()), err
}

// Prepare implements Index. Servers would make the collection with the first insert; several at once are not sound
// everywhere.
func (m *mongoIndex) Prepare(ctx context.Context, collection string) error {
	if err := m.greet(ctx); err != nil {
		return err
	}
	sends, err := write(ctx, func(ctx context.Context) error { return m.db.CreateCollection(ctx, collection) })
	var answer mongo.CommandError
	if errors.As(err, &answer) && answer.Code == mongoNamespaceExists {
		return nil
	}
	return translate(ctx, "prepare the index", err, sends)
}

// Insert implements Index.
func (m *mongoIndex) Insert(ctx context.Context, collection string, entries []Entry) []error {
	if len(entries) == 0 {
		return nil
	}
	order := byKey(entries)
	documents := make([]document, len(entries))
	for at, i := range order {
		documents[at] = document(entries[i])
	}
	sends, err := write(ctx, func(ctx context.Context) error {
		_, err := m.db.Collection(collection).InsertMany(ctx, documents, options.InsertMany().SetOrdered(false))
		return err
	})
	results := make([]error, len(entries))
	for at, err := range itemResults(ctx, "insert entry", err, sends, len(entries)) {
		results[order[at]] = err
	}
	return results
}

// byKey lists the positions of entries in the order of their keys; of equal keys the first stays first. Two batches that
// touch the same keys in opposite order can deadlock in the server (DocumentDB does).
func byKey(entries []Entry) []int {
	order := make([]int, len(entries))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(entries[a].Key, entries[b].Key) })
	return order
}

// itemResults spreads the error of a batch over its n items.
func itemResults(ctx context.Context, op string, err error, sends, n int) []error {
	results := make([]error, n)
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) {
		fill(results, translate(ctx, op, err, sends))
		return results
	}
	if bulk.WriteConcernError != nil {
		fill(results, translate(ctx, op, err, sends))
	}
	for _, item := range bulk.WriteErrors {
		if item.Index < 0 || item.Index >= n {
			fill(results, translate(ctx, op, err, sends)) // the answer makes no sense, so nothing in it is certain
			return results
		}
		results[item.Index] = translate(ctx, op, item.WriteError, sends)
	}
	return results
}

// Find implements Index.
func (m *mongoIndex) Find(ctx context.Context, collection string, keys []string) (map[string]int64, error) {
	found := make(map[string]int64, len(keys))
	var err error
	switch len(keys) {
	case 0:
		return found, nil
	case 1:
		var d document
		err = m.db.Collection(collection).FindOne(ctx, bson.D{{Key: "_id", Value: keys[0]}}).Decode(&d)
		if errors.Is(err, mongo.ErrNoDocuments) {
			return found, nil
		}
		found[d.Key] = d.ID
	default:
		err = m.findMany(ctx, collection, keys, found)
	}
	if err != nil {
		return nil, translate(ctx, "find entries", err, 0)
	}
	return found, nil
}

// findMany adds the entries of the keys to found.
func (m *mongoIndex) findMany(ctx context.Context, collection string, keys []string, found map[string]int64) error {
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: keys}}}}
	// A batch size above the number of keys saves a second round trip.
	cursor, err := m.db.Collection(collection).Find(ctx, filter, options.Find().SetBatchSize(int32(len(keys)+1)))
	if err != nil {
		return err
	}
	defer func() { _ = cursor.Close(ctx) }() // all that it had was read, or its error says why not
	for cursor.Next(ctx) {
		// Read in place: decoding by reflection would cost more than all else here.
		key, isString := cursor.Current.Lookup("_id").StringValueOK()
		id, isInteger := cursor.Current.Lookup("id").AsInt64OK()
		if !isString || !isInteger {
			return errForeign
		}
		found[key] = id
	}
	return cursor.Err()
}

// errForeign means that somebody else writes to the collection.
var errForeign = errors.New("the collection holds documents that are no entries")

// Replace implements Index.
func (m *mongoIndex) Replace(ctx context.Context, collection, key string, old, new int64) (bool, error) {
	var matched int64
	sends, err := write(ctx, func(ctx context.Context) error {
		result, err := m.db.Collection(collection).UpdateOne(ctx,
			bson.D{{Key: "_id", Value: key}, {Key: "id", Value: old}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "id", Value: new}}}})
		if err == nil {
			matched = result.MatchedCount
		}
		return err
	})
	return matched == 1, translate(ctx, "replace entry", err, sends)
}

// Remove implements Index, as one command with a statement per entry.
func (m *mongoIndex) Remove(ctx context.Context, collection string, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	deletes := make([]mongo.WriteModel, len(entries))
	for at, i := range byKey(entries) {
		deletes[at] = mongo.NewDeleteOneModel().SetFilter(document(entries[i]))
	}
	sends, err := write(ctx, func(ctx context.Context) error {
		_, err := m.db.Collection(collection).BulkWrite(ctx, deletes, options.BulkWrite().SetOrdered(false))
		return err
	})
	return translate(ctx, "remove entries", err, sends)
}

// Ping implements Index.
func (m *mongoIndex) Ping(ctx context.Context) error {
	if m.about.Load() == nil {
		return m.greet(ctx)
	}
	return translate(ctx, "ping the index", m.client.Ping(ctx, readpref.Primary()), 0)
}

// Describe implements Index.
func (m *mongoIndex) Describe() string {
	if about := m.about.Load(); about != nil {
		return *about
	}
	return m.location
}

// Close implements Index. Requests on their way have a few seconds to end.
func (m *mongoIndex) Close() error {
	m.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), mongoCloseTimeout)
		defer cancel()
		m.closed = translate(ctx, "close the index", m.client.Disconnect(ctx), 0)
	})
	return m.closed
}
