// Command client makes the calls of the README at a gateway, through the client that is generated from the gateway's own
// document. It is built by a test, which generates package api first.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"keyrange/test/client/api"
)

const (
	collection = "records"
	order      = "order-7f3a"
	// grouped is a collection whose records have groups, by their member customer.
	grouped = "orders"
)

func main() {
	client, err := api.NewClientWithResponses(os.Args[1])
	if err == nil {
		err = errors.Join(run(context.Background(), client)...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// record makes a document.
func record(key *string, members map[string]any) api.Record {
	return api.Record{Key: key, AdditionalProperties: members}
}

// run makes the calls and returns what is not as the README says.
func run(ctx context.Context, client *api.ClientWithResponses) (faults []error) {
	check := func(call string, err error, ok bool, answer any) {
		if err != nil || !ok {
			faults = append(faults, fmt.Errorf("%s: %v, %+v", call, err, answer))
		}
	}
	first, customer := `"1-1"`, "c-17"

	put, err := client.PutRecordWithResponse(ctx, collection, order, nil, record(nil, map[string]any{"total": 12.5}))
	check("create under a key", err, err == nil && put.JSON201 != nil && *put.JSON201.Key == order && put.Headers201.ETag == first && put.Headers201.Location == "/v1/records/order-7f3a", put)

	get, err := client.GetRecordWithResponse(ctx, collection, order, nil)
	check("read", err, err == nil && get.JSON200 != nil && get.JSON200.AdditionalProperties["total"] == 12.5 && get.Headers200.ETag == first, get)

	var one api.Batch
	err = one.FromRecord(record(nil, map[string]any{"total": 3}))
	check("a body of one record", err, true, nil)
	post, err := client.PostCollectionWithResponse(ctx, collection, nil, one)
	check("create under a made key", err, err == nil && post.JSON201 != nil && *post.JSON201.Key != "", post)

	put, err = client.PutRecordWithResponse(ctx, collection, order, &api.PutRecordParams{IfMatch: &first}, record(nil, map[string]any{"total": 14}))
	check("replace", err, err == nil && put.JSON200 != nil && put.Headers200.ETag == `"1-2"`, put)

	put, err = client.PutRecordWithResponse(ctx, collection, order, &api.PutRecordParams{IfMatch: &first}, record(nil, map[string]any{"total": 15}))
	check("replace an old version", err, err == nil && put.ApplicationproblemJSON412 != nil && put.ApplicationproblemJSON412.Code == "precondition_failed", put)

	taken := order
	err = one.FromRecord(record(&taken, nil))
	check("a body of one record", err, true, nil)
	post, err = client.PostCollectionWithResponse(ctx, collection, nil, one)
	check("create under a key that is taken", err, err == nil && post.ApplicationproblemJSON409 != nil && post.ApplicationproblemJSON409.Code == "record_exists", post)

	slash := "a/b"
	err = one.FromRecords(api.Records{record(&slash, nil), record(&taken, nil)})
	check("a body of many records", err, true, nil)
	post, err = client.PostCollectionWithResponse(ctx, collection, nil, one)
	var bulk api.BulkAnswer
	if err == nil && post.JSON200 != nil {
		bulk, err = post.JSON200.AsBulkAnswer()
	}
	check("create many", err, len(bulk.Results) == 2 && bulk.Results[0].Status == http.StatusCreated && bulk.Results[1].Error != nil && bulk.Results[1].Error.Code == "record_exists", bulk)

	get, err = client.GetRecordWithResponse(ctx, collection, slash, nil)
	check("a slash in a key", err, err == nil && get.JSON200 != nil && *get.JSON200.Key == slash, get)

	many, err := client.GetCollectionWithResponse(ctx, collection, &api.GetCollectionParams{Key: &[]string{slash, "nobody"}})
	var found api.ManyAnswer
	if err == nil && many.JSON200 != nil {
		found, err = many.JSON200.AsManyAnswer()
	}
	check("read several", err, len(found.Items) == 1 && len(found.Missing) == 1, found)

	most := 2
	listed, err := client.GetCollectionWithResponse(ctx, collection, &api.GetCollectionParams{Limit: &most})
	var page api.Page
	if err == nil && listed.JSON200 != nil {
		page, err = listed.JSON200.AsPage()
	}
	check("list", err, len(page.Items) == most && page.Next != nil && listed.Headers200.Link != nil, page)

	patched, err := client.PatchRecordWithApplicationMergePatchPlusJSONBodyWithResponse(ctx, collection, order, nil, map[string]any{"paid": true})
	check("change", err, err == nil && patched.JSON200 != nil && patched.JSON200.AdditionalProperties["paid"] == true, patched)

	ttl := 60
	put, err = client.PutRecordWithResponse(ctx, grouped, "o-1", &api.PutRecordParams{TTL: &ttl}, record(nil, map[string]any{"customer": customer}))
	check("create with an expiry", err, err == nil && put.JSON201 != nil && put.Headers201.RecordExpires != nil, put)

	number, none := true, 0
	listed, err = client.GetCollectionWithResponse(ctx, grouped, &api.GetCollectionParams{Group: &customer, Count: &number, Limit: &none})
	if err == nil && listed.JSON200 != nil {
		page, err = listed.JSON200.AsPage()
	}
	check("count a group", err, page.Count != nil && *page.Count == 1, page)

	deleting, err := client.DeleteGroupWithResponse(ctx, grouped, &api.DeleteGroupParams{Group: customer})
	check("delete a group", err, err == nil && deleting.JSON202 != nil && deleting.JSON202.Group == customer && deleting.JSON202.FinishedAt == nil, deleting)

	if deleting != nil && deleting.JSON202 != nil {
		looked, err := client.GetCollectionWithResponse(ctx, grouped, &api.GetCollectionParams{Deletion: &deleting.JSON202.Id})
		var deletion api.GroupDeletion
		if err == nil && looked.JSON200 != nil {
			deletion, err = looked.JSON200.AsGroupDeletion()
		}
		check("look at the deletion", err, deletion.Id == deleting.JSON202.Id, deletion)
	}

	gone, err := client.DeleteRecordWithResponse(ctx, collection, order, nil)
	check("delete", err, err == nil && gone.StatusCode() == http.StatusNoContent, gone)

	get, err = client.GetRecordWithResponse(ctx, collection, order, nil)
	check("read what is gone", err, err == nil && get.ApplicationproblemJSON404 != nil && get.ApplicationproblemJSON404.Code == "record_not_found", get)

	ready, err := client.GetReadinessWithResponse(ctx, nil)
	check("readiness", err, err == nil && ready.JSON200 != nil && ready.JSON200.Status == "ready", ready)
	return faults
}
