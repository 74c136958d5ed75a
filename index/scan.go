package index

import (
	"context"
	"database/sql"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Scan implements Index, along the primary key.
func (s *sqliteIndex) Scan(ctx context.Context, collection, after string, limit int) ([]Entry, error) {
	entries := make([]Entry, 0, limit)
	err := s.db.Query(ctx, func(rows *sql.Rows) error {
		var key []byte
		var e Entry
		if err := rows.Scan(&key, &e.ID); err != nil {
			return err
		}
		e.Key = string(key)
		entries = append(entries, e)
		return nil
	}, "SELECT key, id FROM "+entriesTable(collection)+" WHERE key > ? ORDER BY key LIMIT ?", []byte(after), limit)
	if err != nil {
		return nil, translate(ctx, "scan entries", err, 0)
	}
	return entries, nil
}

// Scan implements Index. A walk along _id stays flat however many entries there are; strings compare byte by byte there,
// because the collection has no collation.
func (m *mongoIndex) Scan(ctx context.Context, collection, after string, limit int) ([]Entry, error) {
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: after}}}}
	// A batch size above the limit saves a second round trip.
	how := options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(int64(limit)).SetBatchSize(int32(limit + 1))
	entries := make([]Entry, 0, limit)
	cursor, err := m.db.Collection(collection).Find(ctx, filter, how)
	if err != nil {
		return nil, translate(ctx, "scan entries", err, 0)
	}
	defer func() { _ = cursor.Close(ctx) }() // all that it had was read, or its error says why not
	for cursor.Next(ctx) {
		key, isString := cursor.Current.Lookup("_id").StringValueOK()
		id, isInteger := cursor.Current.Lookup("id").AsInt64OK()
		if !isString || !isInteger {
			return nil, translate(ctx, "scan entries", errForeign, 0)
		}
		entries = append(entries, Entry{key, id})
	}
	if err := cursor.Err(); err != nil {
		return nil, translate(ctx, "scan entries", err, 0)
	}
	return entries, nil
}
