package main

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// direct is what services do without the gateway: each request takes two round trips with the plain drivers, one to
// MongoDB and one to MySQL. It is safe for concurrent use; all its clients share the pools, as those of one process do.
type direct struct {
	rows  *sql.DB
	index *mongo.Client
	// entries is the collection of the index.
	entries *mongo.Collection
	// nextID gives IDs away for nothing, where a real service would have to lease them.
	nextID atomic.Int64
}

// createDirectTable is the shape of the gateway's range tables, see store/rows_mysql.go.
const createDirectTable = `CREATE TABLE records_direct (
	id         BIGINT         NOT NULL PRIMARY KEY,
	biz_key    VARBINARY(512) NOT NULL,
	state      TINYINT        NOT NULL,
	version    BIGINT         NOT NULL,
	token      BINARY(16)     NOT NULL,
	created_at DATETIME(6)    NOT NULL,
	updated_at DATETIME(6)    NOT NULL,
	document   LONGTEXT       CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) ENGINE=InnoDB`

// Statements of the direct clients.
const (
	directInsert = "INSERT INTO records_direct (id, biz_key, state, version, token, created_at, updated_at, document) VALUES (?,?,0,1,?,?,?,?)"
	directSelect = "SELECT biz_key, version, updated_at, document FROM records_direct WHERE id = ? AND state = 0"
	directUpdate = "UPDATE records_direct SET version = version + 1, token = ?, updated_at = ?, document = ? WHERE id = ? AND biz_key = ? AND state = 0"
)

// directBatch is how many records the preparation stores at once.
const directBatch = 200

// Errors of answers that are not what they must be.
var (
	errWrongKey = errors.New("the record of another key came back")
	errNotOne   = errors.New("the write did not change one row")
)

// entry is what the index holds of a record.
type entry struct {
	Key string `bson:"_id"`
	ID  int64  `bson:"id"`
}

// openDirect connects to the two databases with at most so many connections to each.
func openDirect(rowsURL, indexURI string, connections int) (*direct, error) {
	rows, err := openMySQL(rowsURL, connections)
	if err != nil {
		return nil, err
	}
	index, err := openMongo(indexURI, connections)
	if err != nil {
		return nil, errors.Join(err, rows.Close())
	}
	return &direct{rows: rows, index: index, entries: index.Database(databaseOf(indexURI)).Collection("records")}, nil
}

// disconnect ends the connections. All that was written has been acknowledged.
func (d *direct) disconnect() {
	_ = d.rows.Close()
	_ = d.index.Disconnect(context.Background())
}

// fill makes the table and stores records up to a number, many at once.
func (d *direct) fill(ctx context.Context, data *dataset, upTo int64) error {
	if _, err := d.rows.ExecContext(ctx, createDirectTable); err != nil {
		return fmt.Errorf("direct: %w", err)
	}
	for data.next.Load() < upTo {
		var entries []entry
		var args []any
		for range min(directBatch, upTo-data.next.Load()) {
			number, id, now := data.next.Add(1)-1, d.nextID.Add(1), time.Now().UTC()
			entries = append(entries, entry{keyOf(number), id})
			args = append(args, id, []byte(keyOf(number)), newToken(), now, now, string(appendDocument(nil, number, data.documentBytes, 0)))
		}
		if _, err := d.entries.InsertMany(ctx, entries); err != nil {
			return fmt.Errorf("direct: %w", err)
		}
		// Safety: the text that is repeated is constant.
		many := directInsert + strings.Repeat(",(?,?,0,1,?,?,?,?)", len(entries)-1)
		if _, err := d.rows.ExecContext(ctx, many, args...); err != nil {
			return fmt.Errorf("direct: %w", err)
		}
	}
	data.stored = upTo
	return nil
}

// newToken stands for the token that a service would keep with its write.
func newToken() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, rand.Uint64()), rand.Uint64())
}

// create implements client: the entry, then the row.
func (d *direct) create(ctx context.Context, key string, document []byte) error {
	id, now := d.nextID.Add(1), time.Now().UTC()
	if _, err := d.entries.InsertOne(ctx, entry{key, id}); err != nil {
		return err
	}
	_, err := d.rows.ExecContext(ctx, directInsert, id, []byte(key), newToken(), now, now, string(document))
	return err
}

// find looks up the ID of a key.
func (d *direct) find(ctx context.Context, key string) (int64, error) {
	var e entry
	err := d.entries.FindOne(ctx, bson.D{{Key: "_id", Value: key}}).Decode(&e)
	return e.ID, err
}

// read implements client: the entry, then the row, whose key must be the one asked for.
func (d *direct) read(ctx context.Context, key string) error {
	id, err := d.find(ctx, key)
	if err != nil {
		return err
	}
	var (
		have, document []byte
		version        int64
		updatedAt      time.Time
	)
	if err := d.rows.QueryRowContext(ctx, directSelect, id).Scan(&have, &version, &updatedAt, &document); err != nil {
		return err
	}
	if string(have) != key || len(document) == 0 {
		return errWrongKey
	}
	return nil
}

// update implements client: the entry, then the row if it is the key's.
func (d *direct) update(ctx context.Context, key string, document []byte) error {
	id, err := d.find(ctx, key)
	if err != nil {
		return err
	}
	result, err := d.rows.ExecContext(ctx, directUpdate, newToken(), time.Now().UTC(), string(document), id, []byte(key))
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return errors.Join(errNotOne, err)
	}
	return nil
}

// close implements client. The pools are shared, so there is nothing to close.
func (d *direct) close() {}
