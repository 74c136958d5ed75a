package index

import (
	"context"
	"time"
)

// Observed is an index that tells of each call: what it was, how long it took, and what became of it. Of a call for several
// entries that is the first error.
func Observed(ix Index, observe func(operation string, took time.Duration, err error)) Index {
	return &observed{ix, observe}
}

type observed struct {
	Index
	observe func(operation string, took time.Duration, err error)
}

// done tells of a call that ends.
func (o *observed) done(operation string, began time.Time, err *error) {
	o.observe(operation, time.Since(began), *err)
}

func (o *observed) Insert(ctx context.Context, collection string, entries []Entry) []error {
	began := time.Now()
	errs := o.Index.Insert(ctx, collection, entries)
	var first error
	for _, err := range errs {
		if err != nil {
			first = err
			break
		}
	}
	o.observe("insert", time.Since(began), first)
	return errs
}

func (o *observed) Find(ctx context.Context, collection string, keys []string) (ids map[string]int64, err error) {
	defer o.done("find", time.Now(), &err)
	return o.Index.Find(ctx, collection, keys)
}

func (o *observed) Scan(ctx context.Context, collection, after string, limit int) (entries []Entry, err error) {
	defer o.done("scan", time.Now(), &err)
	return o.Index.Scan(ctx, collection, after, limit)
}

func (o *observed) Replace(ctx context.Context, collection, key string, old, new int64) (replaced bool, err error) {
	defer o.done("replace", time.Now(), &err)
	return o.Index.Replace(ctx, collection, key, old, new)
}

func (o *observed) Remove(ctx context.Context, collection string, entries []Entry) (err error) {
	defer o.done("remove", time.Now(), &err)
	return o.Index.Remove(ctx, collection, entries)
}

func (o *observed) Ping(ctx context.Context) (err error) {
	defer o.done("ping", time.Now(), &err)
	return o.Index.Ping(ctx)
}
