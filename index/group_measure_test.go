package index

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"keyrange/test/servers"
)

// TestMeasureGroups compares two ways to find the records of a group: a directory with an entry for each group and range, and
// entries that carry their group, with a compound index. Both must find what there is; how long they take is printed.
// GATEWAY_TEST_LONG makes the groups larger.
func TestMeasureGroups(t *testing.T) {
	count := 256
	if os.Getenv("GATEWAY_TEST_LONG") != "" {
		count = 25_600
	}
	x := open(t, servers.FreshMongo(t), Options{}).(*mongoIndex)
	ctx := t.Context()
	const batch = 64
	timed := func(what string, n int, work func(i int) error) {
		t.Helper()
		began := time.Now()
		for i := range n {
			if err := work(i); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		t.Logf("%-60s %8.1f us", what, float64(time.Since(began).Microseconds())/float64(n))
	}
	insert := func(collection string, fields func(i int) bson.D) func(int) error {
		return func(b int) error {
			documents := make([]any, batch)
			for k := range documents {
				documents[k] = fields(b*batch + k)
			}
			_, err := x.db.Collection(collection).InsertMany(ctx, documents, options.InsertMany().SetOrdered(false))
			return err
		}
	}
	entry := func(i int) bson.D {
		return bson.D{{Key: "_id", Value: fmt.Sprintf("k%d", i*7919%1_000_003)}, {Key: "id", Value: int64(i)}}
	}
	groupOf := func(i int) string {
		if i%2 == 0 {
			return "large"
		}
		return fmt.Sprintf("g%d", i/12)
	}
	timed("entries, per batch of 64", count/batch, insert("plain", entry))
	timed("directory entries of new groups, per batch of 64", count/batch, insert("plain.groups", func(i int) bson.D {
		return bson.D{{Key: "_id", Value: fmt.Sprintf("g%d\x00%019d", i, 1)}, {Key: "id", Value: int64(1)}}
	}))
	if _, err := x.db.Collection("carrying").Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "g", Value: 1}, {Key: "id", Value: 1}}}); err != nil {
		t.Fatal(err)
	}
	timed("entries that carry their group, per batch of 64", count/batch, insert("carrying", func(i int) bson.D {
		return append(entry(i), bson.E{Key: "g", Value: groupOf(i)})
	}))
	timed("directory: the ranges of a group", 200, func(i int) error {
		group := fmt.Sprintf("g%d\x00", i)
		found, err := x.Scan(ctx, "plain.groups", group, 4)
		if err == nil && (len(found) == 0 || found[0].ID != 1 || !strings.HasPrefix(found[0].Key, group)) {
			err = fmt.Errorf("the directory gives %v for group %d", found, i)
		}
		return err
	})
	page := func(want int, group func(i int) string) func(int) error {
		return func(i int) error {
			cursor, err := x.db.Collection("carrying").Find(ctx, bson.D{{Key: "g", Value: group(i)}, {Key: "id", Value: bson.D{{Key: "$gt", Value: 0}}}},
				options.Find().SetSort(bson.D{{Key: "id", Value: 1}}).SetLimit(100).SetBatchSize(101))
			if err != nil {
				return err
			}
			var all []document
			if err := cursor.All(ctx, &all); err != nil {
				return err
			}
			if len(all) != want {
				return fmt.Errorf("group %s: %d entries, want %d", group(i), len(all), want)
			}
			return nil
		}
	}
	timed("compound index: 100 IDs of a group of 6", 100, page(6, func(i int) string { return fmt.Sprintf("g%d", i%20) }))
	timed(fmt.Sprintf("compound index: 100 IDs of a group of %d", count/2), 20, page(100, func(int) string { return "large" }))
}
