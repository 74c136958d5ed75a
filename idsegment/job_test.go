package idsegment

import (
	"testing"
	"time"
)

// TestJob: a job is done by one gateway at a time, goes on with the next one when that stops keeping it, begins anew when it
// is asked for again, and is remembered when it is done.
func TestJob(t *testing.T) {
	onFresh(t, func(t *testing.T, a, b *Issuer) {
		ctx := t.Context()
		if _, found, err := a.LookJob(ctx, "j1"); found || err != nil {
			t.Errorf("before any: %v, %v", found, err)
		}
		take := func(issuer *Issuer, holder string, life time.Duration, want string) Job {
			t.Helper()
			job, ok, err := issuer.TakeJob(ctx, holder, life, "other", "c")
			if err != nil || ok != (want != "") || job.ID != want {
				t.Fatalf("%s takes %+v, %v, %v; want %q", holder, job, ok, err, want)
			}
			return job
		}
		take(a, "a", time.Hour, "")
		start := func(issuer *Issuer, id, group, want string, round int64) {
			t.Helper()
			job, err := issuer.StartJob(ctx, id, "c", group)
			if err != nil || job.ID != want || job.Round != round || job.Group != group || job.Collection != "c" || job.Done() || job.StartedAt.IsZero() {
				t.Errorf("start %s: %+v, %v", id, job, err)
			}
		}
		start(a, "j1", "g\xff", "j1", 1)
		job := take(b, "b", time.Hour, "j1")
		take(a, "a", time.Hour, "")
		keep := func(issuer *Issuer, holder string, job Job, life time.Duration, want bool) {
			t.Helper()
			if ok, err := issuer.KeepJob(ctx, holder, job, life); ok != want || err != nil {
				t.Errorf("%s keeps a job: %v, %v", holder, ok, err)
			}
		}
		job.Upto, job.At, job.Deleted = 9, 4, 3
		keep(a, "a", job, time.Hour, false)
		keep(b, "b", job, time.Hour, true)
		keep(b, "b", job, time.Hour, true) // although nothing has changed
		keep(b, "b", job, -time.Second, true)
		if got := take(a, "a", time.Hour, "j1"); got.At != 4 || got.Upto != 9 || got.Deleted != 3 {
			t.Errorf("the next one finds %+v", got)
		}
		keep(b, "b", job, time.Hour, false)
		if ok, err := b.EndJob(ctx, "b", job); ok || err != nil {
			t.Errorf("ended by the one before: %v, %v", ok, err)
		}
		start(b, "j2", "g\xff", "j1", 2)
		keep(a, "a", job, time.Hour, false) // it begins anew
		job = take(b, "b", time.Hour, "j1")
		if job.At != 0 || job.Upto != 0 || job.Round != 2 {
			t.Errorf("anew: %+v", job)
		}
		start(b, "j3", "other", "j3", 1)
		job.Deleted = 7
		if ok, err := b.EndJob(ctx, "b", job); !ok || err != nil {
			t.Errorf("end: %v, %v", ok, err)
		}
		if got, found, err := a.LookJob(ctx, "j1"); !found || err != nil || !got.Done() || got.Deleted != 7 {
			t.Errorf("done: %+v, %v, %v", got, found, err)
		}
		start(a, "j4", "g\xff", "j4", 1)
		third := take(a, "a", time.Hour, "j3")
		keep(a, "a", third, 0, true)
		if err := a.LeaveJobs(ctx, "nobody"); err != nil {
			t.Error(err)
		}
		if job, ok, err := b.TakeJob(ctx, "b", time.Hour, "other"); ok || err != nil {
			t.Errorf("of another collection: %+v, %v", job, err)
		}
		if job, ok, err := b.TakeJob(ctx, "b", time.Hour); ok || err != nil {
			t.Errorf("of no collection: %+v, %v", job, err)
		}
		take(b, "b", time.Hour, "j4") // the one that nobody has had yet comes first
		take(b, "b", time.Hour, "j3")
		if err := a.LeaveJobs(ctx, "b"); err != nil {
			t.Error(err)
		}
		take(a, "a", time.Hour, "j3")
		take(a, "a", time.Hour, "j4")
		take(a, "a", time.Hour, "")
	})
}
