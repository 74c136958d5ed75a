package idsegment

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"keyrange/store/sqldb"
)

// Identity says which issuer of which cluster a database is: Number, from 1, of Of. The zero Identity is that of a
// database that no gateway has used.
type Identity struct {
	Cluster    string
	Number, Of int
}

// String is for logs and errors.
func (id Identity) String() string {
	if id == (Identity{}) {
		return "no issuer yet"
	}
	return fmt.Sprintf("issuer %d of %d of the cluster %q", id.Number, id.Of, id.Cluster)
}

// Identity returns what the database says of itself, which may be another issuer than the one that it was opened as. It
// writes nothing.
func (i *Issuer) Identity(ctx context.Context) (Identity, error) {
	if exists, err := i.exists(ctx, clusterTable); err != nil || !exists {
		return Identity{}, err
	}
	return i.identity(ctx)
}

// JoinCluster creates the tables that are missing and returns the id of the cluster that the issuer belongs to. The
// first caller's proposal (1 to 64 bytes) is stored for good, with the issuer's number; concurrent callers all get the one
// that was stored. ErrMismatch: the database is another issuer, or one of another number of issuers.
func (i *Issuer) JoinCluster(ctx context.Context, propose string) (string, error) {
	if err := checkCluster(propose); err != nil {
		return "", err
	}
	if err := i.createTables(ctx); err != nil {
		return "", err
	}
	stored, err := i.identity(ctx)
	if err != nil {
		return "", err
	}
	if stored == (Identity{}) {
		_, err = i.db.Exec(ctx, "INSERT INTO id_cluster (one, cluster, issuer_no, issuers) VALUES (1, ?, ?, ?)",
			[]byte(propose), i.number, i.of)
		if err != nil && !errors.Is(err, sqldb.ErrDuplicate) {
			return "", i.translate("store the cluster id", err)
		}
		if stored, err = i.identity(ctx); err != nil {
			return "", err
		}
	}
	if err := i.recognise(stored); err != nil {
		return "", fmt.Errorf("join the cluster %q: %w", propose, err)
	}
	return stored.Cluster, nil
}

// checkCluster refuses what is no cluster id.
func checkCluster(id string) error {
	if id == "" || len(id) > nameMaxBytes {
		return fmt.Errorf("cluster id %q: want 1 to %d bytes", id, nameMaxBytes)
	}
	return nil
}

// createTables creates the tables that are missing.
func (i *Issuer) createTables(ctx context.Context) error {
	for _, table := range i.dialect.tables {
		// Looking first lets a user without the right to create tables, or a read-only server, do once they exist.
		exists, err := i.exists(ctx, table.name)
		if err != nil {
			return err
		}
		if exists {
			continue
		}
		if _, err := i.db.Exec(ctx, table.create); err != nil {
			return i.translate("create the table "+table.name, err)
		}
	}
	return nil
}

// exists reports whether the database has the table.
func (i *Issuer) exists(ctx context.Context, table string) (bool, error) {
	exists, err := i.db.TableExists(ctx, table)
	if err != nil {
		return false, i.translate("look for the table "+table, err)
	}
	return exists, nil
}

// identity reads the stored identity, zero when there is none yet. The table must exist.
func (i *Issuer) identity(ctx context.Context) (Identity, error) {
	var stored Identity
	err := i.db.Query(ctx, func(rows *sql.Rows) error {
		var cluster []byte
		if err := rows.Scan(&cluster, &stored.Number, &stored.Of); err != nil {
			return err
		}
		stored.Cluster = string(cluster)
		return nil
	}, "SELECT cluster, issuer_no, issuers FROM id_cluster WHERE one = 1")
	if err != nil {
		return Identity{}, i.translate("read the cluster id", err)
	}
	return stored, nil
}

// recognise returns ErrMismatch when the database is not the issuer that it was opened as.
func (i *Issuer) recognise(stored Identity) error {
	if stored.Number == i.number && stored.Of == i.of {
		return nil
	}
	return fmt.Errorf("%w: the database at %s is %s, here it is issuer %d of %d", ErrMismatch, i.Describe(), stored, i.number, i.of)
}
