package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/fencetest"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/internal/postgrestest"
)

const pgBusiness = `CREATE TABLE doc (resource text COLLATE "C" PRIMARY KEY, value text NOT NULL);
CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, resource text NOT NULL, operation text NOT NULL, value text NOT NULL)`

// pgDatabase is the URL of a database with the empty tables of the fence and of a
// business.
func pgDatabase(tb postgrestest.TB) string {
	return postgrestest.Lend(tb, "sqlfence", func(ctx context.Context, db *sql.DB) error {
		if _, err := db.ExecContext(ctx, pgBusiness); err != nil {
			return err
		}
		return sqlfence.Init(ctx, db)
	}, pgReset)
}

func pgReset(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `BEGIN; ALTER TABLE lastword.fence DISABLE TRIGGER USER; ALTER TABLE lastword.act DISABLE TRIGGER USER;
ALTER TABLE lastword.rollout DISABLE TRIGGER USER;
DELETE FROM doc; DELETE FROM effect; DELETE FROM lastword.fence; DELETE FROM lastword.receipt; DELETE FROM lastword.tombstone;
DELETE FROM lastword.refusal; DELETE FROM lastword.quarantine; DELETE FROM lastword.restored; DELETE FROM lastword.act;
DELETE FROM lastword.rollout; DELETE FROM lastword.pass; DELETE FROM lastword.bypass; DELETE FROM lastword.bundle;
ALTER TABLE lastword.fence ENABLE ALWAYS TRIGGER never_lowered, ENABLE ALWAYS TRIGGER never_deleted, ENABLE ALWAYS TRIGGER never_truncated;
ALTER TABLE lastword.act ENABLE ALWAYS TRIGGER never_changed, ENABLE ALWAYS TRIGGER never_deleted, ENABLE ALWAYS TRIGGER never_truncated;
ALTER TABLE lastword.rollout ENABLE ALWAYS TRIGGER one_way, ENABLE ALWAYS TRIGGER never_deleted, ENABLE ALWAYS TRIGGER never_truncated;
COMMIT`)
	return err
}

func TestPostgreSQLPassesTheKit(t *testing.T) { // KF-01 SQL form, KF-09, KF-28, KF-32, KF-33
	levels := []string{"read committed", "serializable"}
	if raceOn || testing.Short() {
		levels = levels[:1]
	}
	for _, level := range levels {
		t.Run(level, func(t *testing.T) { fencetest.Run(t, pgHarness(level)) })
	}
}

func pgHarness(level string) fencetest.Harness {
	return fencetest.Harness{Open: func(tb fencetest.TB) fencetest.Subject { return pgSubject(tb, level) }}
}

// pgHandle is one pool and one place, as one process would have them. Every transaction
// of the pool has the isolation level.
func pgHandle(tb fencetest.TB, dsn, level string) (*sql.DB, *sqlfence.Place) {
	db, err := sql.Open("pgx", dsn+"&default_transaction_isolation="+strings.ReplaceAll(level, " ", "%20"))
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	p, err := sqlfence.OpenPlace(tb.Context(), db, "")
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(func() { _ = p.Close() })
	return db, p
}

func pgWrite(ctx context.Context, tx execer, resource lastword.Resource, operation, value string) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO doc VALUES ($1, $2) ON CONFLICT (resource) DO UPDATE SET value = excluded.value`, string(resource), value); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO effect (resource, operation, value) VALUES ($1, $2, $3)`, string(resource), operation, value)
	return err
}

func pgReadBack(ctx context.Context, db *sql.DB, resource lastword.Resource) (value string, effects []fencetest.Effect, err error) {
	err = db.QueryRowContext(ctx, `SELECT value FROM doc WHERE resource = $1`, string(resource)).Scan(&value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", nil, err
	}
	rows, err := db.QueryContext(ctx, `SELECT operation, value FROM effect WHERE resource = $1 ORDER BY id`, string(resource))
	if err != nil {
		return "", nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var e fencetest.Effect
		if err := rows.Scan(&e.Operation, &e.Value); err != nil {
			return "", nil, err
		}
		effects = append(effects, e)
	}
	return value, effects, rows.Err()
}

func pgSubject(tb fencetest.TB, level string) fencetest.Subject {
	dsn := pgDatabase(tb)
	db, place := pgHandle(tb, dsn, level)
	_, second := pgHandle(tb, dsn, level)
	return fencetest.Of(fencetest.Parts[*sqlfence.Tx]{
		Place: place, Second: second,
		Write: func(ctx context.Context, tx *sqlfence.Tx, resource lastword.Resource, operation, value string) error {
			return pgWrite(ctx, tx.SQL(), resource, operation, value)
		},
		Read: func(ctx context.Context, resource lastword.Resource) (string, []fencetest.Effect, error) {
			return pgReadBack(ctx, db, resource)
		},
		Begin: func(ctx context.Context) (*sqlfence.Tx, func(bool) error, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return nil, nil, err
			}
			return place.Join(tx), func(commit bool) error {
				if commit {
					return tx.Commit()
				}
				return tx.Rollback()
			}, nil
		},
		Prune: func(ctx context.Context, key fence.Key, operation string) error {
			return inTx(ctx, db, func(tx *sql.Tx) error {
				_, err1 := tx.ExecContext(ctx, `DELETE FROM lastword.receipt WHERE domain = $1 AND resource = $2 AND operation = $3`,
					key.Domain, string(key.Resource), operation)
				_, err2 := tx.ExecContext(ctx, `INSERT INTO lastword.tombstone VALUES ($1, $2, $3, '')`,
					key.Domain, string(key.Resource), lastword.DigestOf([]byte(operation)).String())
				return errors.Join(err1, err2)
			})
		},
		Close: func(ctx context.Context, key fence.Key, next lastword.Token) error {
			return place.Transact(ctx, key, func(ctx context.Context, tx *sqlfence.Tx) error {
				rec, _, err := tx.Load(ctx, key, "")
				if err != nil {
					return err
				}
				return tx.Store(ctx, key, rec, fence.Closed(rec, next), nil)
			})
		},
		Lose: func(ctx context.Context, key fence.Key) error {
			return inTx(ctx, db, func(tx *sql.Tx) error {
				_, err1 := tx.ExecContext(ctx, `ALTER TABLE lastword.fence DISABLE TRIGGER never_deleted`)
				_, err2 := tx.ExecContext(ctx, `DELETE FROM lastword.fence WHERE domain = $1 AND resource = $2`, key.Domain, string(key.Resource))
				_, err3 := tx.ExecContext(ctx, `ALTER TABLE lastword.fence ENABLE ALWAYS TRIGGER never_deleted`)
				return errors.Join(err1, err2, err3)
			})
		},
		Shadow: func(ctx context.Context, key fence.Key) error {
			return place.Shadow(ctx, key.Domain, string(key.Resource), rollingOut)
		},
		Enforce: func(ctx context.Context, key fence.Key) error {
			_, err := place.Enforce(ctx, key.Domain, string(key.Resource), rollingOut)
			return err
		},
		Image: func(ctx context.Context) (string, error) { return pgImage(ctx, db) },
	})
}

// pgImage is every row of every table, in the order of the tables' keys. The
// transaction that passed last is left out: it is no number of ours.
func pgImage(ctx context.Context, db *sql.DB) (string, error) {
	var all strings.Builder
	for _, table := range []string{
		"to_jsonb(t) FROM doc t ORDER BY resource", "to_jsonb(t) FROM effect t ORDER BY id", "to_jsonb(t) - 'passed' FROM lastword.fence t ORDER BY domain, resource",
		"to_jsonb(t) FROM lastword.receipt t ORDER BY domain, resource, operation", "to_jsonb(t) FROM lastword.tombstone t ORDER BY domain, resource, operation_digest",
		"to_jsonb(t) FROM lastword.refusal t ORDER BY domain, resource, verdict", "to_jsonb(t) FROM lastword.quarantine t ORDER BY domain, resource, claimant, place",
		"to_jsonb(t) FROM lastword.restored t ORDER BY domain", "to_jsonb(t) FROM lastword.rollout t ORDER BY domain, prefix", "to_jsonb(t) FROM lastword.act t ORDER BY number",
		"to_jsonb(t) FROM lastword.rollout t ORDER BY domain, prefix",
	} {
		rows, err := db.QueryContext(ctx, "SELECT "+table)
		if err != nil {
			return "", err
		}
		for rows.Next() {
			var row string
			if err := rows.Scan(&row); err != nil {
				return "", err
			}
			fmt.Fprintf(&all, "%s %s\n", table, row)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return "", err
		}
	}
	return all.String(), nil
}
