package index

import (
	"context"
	"database/sql"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"keyrange/store/sqldb"
)

// The name of the place for the stamp is none that a collection can have.
const (
	mongoStampCollection = "gateway.stamp"
	createStampSQLite    = "CREATE TABLE IF NOT EXISTS gateway_stamp (one INTEGER NOT NULL PRIMARY KEY, cluster TEXT NOT NULL)"
)

// mongoStamp is the stamp as it is stored.
type mongoStamp struct {
	ID      string `bson:"_id"`
	Cluster string `bson:"cluster"`
}

// mongoStampID is the key of the only stamp.
const mongoStampID = "cluster"

// Stamp implements Index.
func (s *sqliteIndex) Stamp(ctx context.Context) (cluster string, err error) {
	if err := s.Ping(ctx); err != nil {
		return "", err
	}
	exists, err := s.db.TableExists(ctx, "gateway_stamp")
	if err == nil && exists {
		err = s.db.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&cluster) }, "SELECT cluster FROM gateway_stamp WHERE one = 1")
	}
	return cluster, translate(ctx, "read the stamp", err, 0)
}

// SetStamp implements Index.
func (s *sqliteIndex) SetStamp(ctx context.Context, cluster string) (string, error) {
	if stored, err := s.Stamp(ctx); stored != "" || err != nil {
		return stored, err
	}
	_, err := s.db.Exec(ctx, createStampSQLite)
	if err == nil {
		_, err = s.db.Exec(ctx, "INSERT INTO gateway_stamp (one, cluster) VALUES (1, ?)", cluster)
	}
	if err != nil && !errors.Is(err, sqldb.ErrDuplicate) {
		return "", translate(ctx, "write the stamp", err, 0)
	}
	return s.Stamp(ctx)
}

// Stamp implements Index.
func (m *mongoIndex) Stamp(ctx context.Context) (string, error) {
	if err := m.greet(ctx); err != nil {
		return "", err
	}
	var stored mongoStamp
	err := m.db.Collection(mongoStampCollection).FindOne(ctx, bson.D{{Key: "_id", Value: mongoStampID}}).Decode(&stored)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return "", nil
	}
	return stored.Cluster, translate(ctx, "read the stamp", err, 0)
}

// SetStamp implements Index, by an insert that is refused when there is a stamp.
func (m *mongoIndex) SetStamp(ctx context.Context, cluster string) (string, error) {
	if stored, err := m.Stamp(ctx); stored != "" || err != nil {
		return stored, err
	}
	sends, err := write(ctx, func(ctx context.Context) error {
		_, err := m.db.Collection(mongoStampCollection).InsertOne(ctx, mongoStamp{mongoStampID, cluster})
		return err
	})
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return "", translate(ctx, "write the stamp", err, sends)
	}
	return m.Stamp(ctx)
}
