package idsegment

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"keyrange/store/sqldb"
)

// Job is work on the records of a group that a fleet has taken on: it is kept here, in the first issuer's database, so that
// it outlives the gateway that does it. One gateway does it at a time, and loses it when it does not keep it.
type Job struct {
	// ID is at most 32 bytes, unique for ever.
	ID string
	// Collection and Group say what it is about. There is one job that is not done about a group at most.
	Collection, Group string
	// Round counts how often it was asked for before it was done.
	Round int64
	// Upto is the highest ID that it is about, 0 when that has not been noted; At the one that it has come to.
	Upto, At int64
	// Deleted is how many records are noted as deleted.
	Deleted int64
	// StartedAt and FinishedAt are from the database's clock; FinishedAt is zero as long as it is not done.
	StartedAt, FinishedAt time.Time
}

// Done reports whether the job has ended.
func (j Job) Done() bool { return !j.FinishedAt.IsZero() }

const (
	jobTable = "gateway_job"
	// jobsKept is how long jobs that are done are remembered.
	jobsKept = 7 * 24 * time.Hour
)

// The column open is 1 as long as the job is not done and NULL afterwards, so that done ones do not count as duplicates.
// Times are milliseconds since 1970.
const (
	createJobsMySQL = `CREATE TABLE IF NOT EXISTS gateway_job (
		id          VARBINARY(32)  NOT NULL PRIMARY KEY,
		collection  VARBINARY(64)  NOT NULL,
		group_key   VARBINARY(255) NOT NULL,
		open        TINYINT        NULL,
		round       BIGINT         NOT NULL,
		upto        BIGINT         NOT NULL,
		at          BIGINT         NOT NULL,
		deleted     BIGINT         NOT NULL,
		holder      VARBINARY(64)  NOT NULL,
		expires_at  BIGINT         NOT NULL,
		started_at  BIGINT         NOT NULL,
		finished_at BIGINT         NOT NULL,
		changes     BIGINT         NOT NULL,
		UNIQUE KEY one_open (collection, group_key, open),
		KEY open (open)
	) ENGINE = InnoDB`
	createJobsSQLite = `CREATE TABLE IF NOT EXISTS gateway_job (
		id          BLOB    NOT NULL PRIMARY KEY,
		collection  BLOB    NOT NULL,
		group_key   BLOB    NOT NULL,
		open        INTEGER,
		round       INTEGER NOT NULL,
		upto        INTEGER NOT NULL,
		at          INTEGER NOT NULL,
		deleted     INTEGER NOT NULL,
		holder      BLOB    NOT NULL,
		expires_at  INTEGER NOT NULL,
		started_at  INTEGER NOT NULL,
		finished_at INTEGER NOT NULL,
		changes     INTEGER NOT NULL,
		UNIQUE (collection, group_key, open)
	) STRICT`
	jobColumns = "id, collection, group_key, round, upto, at, deleted, started_at, finished_at"
)

// StartJob takes a job on under a new id, or asks for another round of the one about the group that is not done, which is
// then given back. ErrUnavailable: it is not taken on. ErrUnknown: it may be. After both it is safe to try again.
func (i *Issuer) StartJob(ctx context.Context, id, collection, group string) (Job, error) {
	if err := i.createJobs(ctx); err != nil {
		return Job{}, err
	}
	now := i.turnDialect().now
	for asked := false; ; asked = true {
		_, err := i.db.Exec(ctx, "INSERT INTO gateway_job (id, collection, group_key, open, round, upto, at, deleted, holder, expires_at, started_at, finished_at, changes) "+
			"VALUES (?, ?, ?, 1, 1, 0, 0, 0, ?, 0, "+now+", 0, 0)", []byte(id), []byte(collection), []byte(group), []byte{})
		if err == nil {
			job, _, err := i.LookJob(ctx, id)
			return job, i.unsure("look at the job", true, err)
		}
		if !errors.Is(err, sqldb.ErrDuplicate) {
			return Job{}, i.unsure("take a job on", asked, err)
		}
		_, err = i.db.Exec(ctx, "UPDATE gateway_job SET round = round + 1, upto = 0, at = 0, expires_at = 0, changes = changes + 1 WHERE collection = ? AND group_key = ? AND open = 1",
			[]byte(collection), []byte(group))
		if err != nil {
			return Job{}, i.unsure("ask for a job again", asked, err)
		}
		jobs, err := i.jobs(ctx, "WHERE collection = ? AND group_key = ? AND open = 1", []byte(collection), []byte(group))
		if err != nil || len(jobs) > 0 {
			return append(jobs, Job{})[0], i.unsure("look at the job", true, err)
		}
		// It has just been done: this one is new.
	}
}

// unsure translates an error of a step of StartJob. asked says that an earlier step may have taken the job on.
func (i *Issuer) unsure(op string, asked bool, err error) error {
	switch {
	case err == nil:
		return nil
	case !asked && !errors.Is(err, sqldb.ErrUnknown):
		return i.translate(op, err)
	}
	return fmt.Errorf("%s at %s: %w: %s", op, i.Describe(), ErrUnknown, err.Error())
}

// createJobs makes the table when it is missing, and forgets jobs that were done long ago.
func (i *Issuer) createJobs(ctx context.Context) error {
	exists, err := i.exists(ctx, jobTable)
	if err != nil {
		return err
	}
	if !exists {
		create := createJobsMySQL
		if i.db.Engine() == sqldb.SQLite {
			create = createJobsSQLite
		}
		if _, err := i.db.Exec(ctx, create); err != nil {
			return i.translate("create the table "+jobTable, err)
		}
	}
	_, err = i.db.Exec(ctx, "DELETE FROM gateway_job WHERE open IS NULL AND finished_at < "+i.turnDialect().now+" - ?", jobsKept.Milliseconds())
	if err != nil {
		return i.translate("forget old jobs", err)
	}
	return nil
}

// LookJob says how a job is; not found when there is none, or it was done long ago.
func (i *Issuer) LookJob(ctx context.Context, id string) (job Job, found bool, err error) {
	if exists, err := i.exists(ctx, jobTable); err != nil || !exists {
		return Job{}, false, err
	}
	jobs, err := i.jobs(ctx, "WHERE id = ?", []byte(id))
	if err != nil || len(jobs) == 0 {
		return Job{}, false, err
	}
	return jobs[0], true, nil
}

// TakeJob gives the holder a job that nobody does and that is about one of the collections, for a while: a new one, or else the one
// that has been free for the longest time; not ok when there is none. After ErrUnavailable it may have been taken.
func (i *Issuer) TakeJob(ctx context.Context, holder string, life time.Duration, collections ...string) (job Job, ok bool, err error) {
	if len(collections) == 0 {
		return Job{}, false, nil
	}
	if exists, err := i.exists(ctx, jobTable); err != nil || !exists {
		return Job{}, false, err
	}
	now := i.turnDialect().now
	about := make([]any, len(collections))
	for k, collection := range collections {
		about[k] = []byte(collection)
	}
	free, err := i.jobs(ctx, "WHERE open = 1 AND expires_at <= "+now+" AND collection IN (?"+strings.Repeat(",?", len(about)-1)+") ORDER BY expires_at, started_at, id LIMIT 1", about...)
	if err != nil || len(free) == 0 {
		return Job{}, false, err
	}
	ok, err = i.changeJob(ctx, "take a job", "holder = ?, expires_at = "+now+" + ?", "open = 1 AND expires_at <= "+now,
		[]any{[]byte(holder), life.Milliseconds()}, free[0].ID)
	if err != nil || !ok {
		return Job{}, false, err
	}
	return i.LookJob(ctx, free[0].ID)
}

// KeepJob notes how far the holder has come with a job, and keeps it for a while longer; anybody may take it then. Not ok: it is
// another gateway's, or it was asked for again, and nothing is noted.
func (i *Issuer) KeepJob(ctx context.Context, holder string, job Job, life time.Duration) (ok bool, err error) {
	return i.changeJob(ctx, "keep a job", "upto = ?, at = ?, deleted = ?, expires_at = "+i.turnDialect().now+" + ?", "open = 1 AND round = ? AND holder = ?",
		[]any{job.Upto, job.At, job.Deleted, life.Milliseconds()}, job.ID, job.Round, []byte(holder))
}

// EndJob notes that the holder has done a job. Not ok is as of KeepJob.
func (i *Issuer) EndJob(ctx context.Context, holder string, job Job) (ok bool, err error) {
	return i.changeJob(ctx, "end a job", "deleted = ?, open = NULL, finished_at = "+i.turnDialect().now, "open = 1 AND round = ? AND holder = ?",
		[]any{job.Deleted}, job.ID, job.Round, []byte(holder))
}

// LeaveJobs lets anybody take the jobs that the holder has.
func (i *Issuer) LeaveJobs(ctx context.Context, holder string) error {
	if exists, err := i.exists(ctx, jobTable); err != nil || !exists {
		return err
	}
	if _, err := i.db.Exec(ctx, "UPDATE gateway_job SET expires_at = 0 WHERE open = 1 AND holder = ?", []byte(holder)); err != nil {
		return i.translate("leave the jobs", err)
	}
	return nil
}

// changeJob changes a job under a condition. The count of changes makes every success change the row, which is what MySQL
// counts as affected.
func (i *Issuer) changeJob(ctx context.Context, op, set, where string, values []any, id string, args ...any) (bool, error) {
	result, err := i.db.Exec(ctx, "UPDATE gateway_job SET "+set+", changes = changes + 1 WHERE id = ? AND "+where, append(append(values, []byte(id)), args...)...)
	if err != nil {
		return false, i.translate(op, err)
	}
	changed, err := result.RowsAffected()
	if err != nil {
		return false, i.translate(op, err)
	}
	return changed == 1, nil
}

// jobs reads jobs. The table must exist.
func (i *Issuer) jobs(ctx context.Context, where string, args ...any) (found []Job, err error) {
	err = i.db.Query(ctx, func(rows *sql.Rows) error {
		var id, collection, group []byte
		var started, finished int64
		var j Job
		if err := rows.Scan(&id, &collection, &group, &j.Round, &j.Upto, &j.At, &j.Deleted, &started, &finished); err != nil {
			return err
		}
		j.ID, j.Collection, j.Group, j.StartedAt = string(id), string(collection), string(group), time.UnixMilli(started).UTC()
		if finished > 0 {
			j.FinishedAt = time.UnixMilli(finished).UTC()
		}
		found = append(found, j)
		return nil
	}, fmt.Sprintf("SELECT %s FROM gateway_job %s", jobColumns, where), args...)
	if err != nil {
		return nil, i.translate("read the jobs", err)
	}
	return found, nil
}
