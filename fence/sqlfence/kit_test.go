package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/fencetest"
	"github.com/lastword/lastword/fence/sqlfence"
)

func TestSQLitePassesTheKit(t *testing.T) {
	modes := map[string]string{"deferred": durable, "immediate": "_txlock=immediate&" + durable}
	if raceOn {
		delete(modes, "immediate")
	}
	for name, options := range modes {
		t.Run(name, func(t *testing.T) { fencetest.Run(t, harness(options)) })
	}
}

func harness(options string) fencetest.Harness {
	return fencetest.Harness{Open: func(tb fencetest.TB) fencetest.Subject { return subject(tb, options) }}
}

// handle is one pool and one place, as one process would have them.
func handle(tb fencetest.TB, path, options string) (*sql.DB, *sqlfence.Place) {
	db, err := sql.Open("sqlite", dsn(path, options))
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(tb.Context(), strings.ReplaceAll(business, "CREATE TABLE", "CREATE TABLE IF NOT EXISTS")); err != nil {
		tb.Fatalf("business tables: %v", err)
	}
	if err := sqlfence.Init(tb.Context(), db); err != nil {
		tb.Fatalf("init: %v", err)
	}
	p, err := sqlfence.OpenPlace(tb.Context(), db, "")
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(func() { _ = p.Close() })
	return db, p
}

func subject(tb fencetest.TB, options string) fencetest.Subject {
	path := filepath.Join(tb.TempDir(), "app.db")
	db, place := handle(tb, path, options)
	_, second := handle(tb, path, options)
	return fencetest.Of(fencetest.Parts[*sqlfence.Tx]{
		Place: place, Second: second,
		Write: func(ctx context.Context, tx *sqlfence.Tx, resource lastword.Resource, operation, value string) error {
			return write(ctx, tx.SQL(), resource, operation, value)
		},
		Read: func(ctx context.Context, resource lastword.Resource) (string, []fencetest.Effect, error) {
			return readBack(ctx, db, resource)
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
				_, err1 := tx.ExecContext(ctx, `DELETE FROM lastword_receipt WHERE domain = ? AND resource = ? AND operation = ?`,
					key.Domain, string(key.Resource), operation)
				_, err2 := tx.ExecContext(ctx, `INSERT INTO lastword_tombstone VALUES (?, ?, ?, '')`,
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
				_, err1 := tx.ExecContext(ctx, `DROP TRIGGER IF EXISTS lastword_fence_never_deleted`)
				_, err2 := tx.ExecContext(ctx, `DELETE FROM lastword_fence WHERE domain = ? AND resource = ?`, key.Domain, string(key.Resource))
				return errors.Join(err1, err2)
			})
		},
		Shadow: func(ctx context.Context, key fence.Key) error {
			return place.Shadow(ctx, key.Domain, string(key.Resource), rollingOut)
		},
		Enforce: func(ctx context.Context, key fence.Key) error {
			_, err := place.Enforce(ctx, key.Domain, string(key.Resource), rollingOut)
			return err
		},
		Image: func(ctx context.Context) (string, error) { return image(ctx, db) },
	})
}

// rollingOut is whoever begins and ends a roll-out.
var rollingOut = fence.Act{Operator: "anna", Reason: "a roll-out", At: wall}

func inTx(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func readBack(ctx context.Context, db *sql.DB, resource lastword.Resource) (value string, effects []fencetest.Effect, err error) {
	err = db.QueryRowContext(ctx, `SELECT value FROM doc WHERE resource = ?`, string(resource)).Scan(&value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", nil, err
	}
	rows, err := db.QueryContext(ctx, `SELECT operation, value FROM effect WHERE resource = ? ORDER BY id`, string(resource))
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

// image is every row of every table, in the order of the tables' keys.
func image(ctx context.Context, db *sql.DB) (string, error) {
	var all strings.Builder
	for _, table := range []string{
		"doc ORDER BY resource", "effect ORDER BY id", "lastword_fence ORDER BY 1, 2", "lastword_receipt ORDER BY 1, 2, 3",
		"lastword_tombstone ORDER BY 1, 2, 3", "lastword_refusal ORDER BY 1, 2, 3", "lastword_quarantine ORDER BY 1, 2, 3, 4",
		"lastword_restored ORDER BY 1", "lastword_act ORDER BY 1", "lastword_protected ORDER BY 1", "lastword_rollout ORDER BY 1, 2", "lastword_pass ORDER BY 1, 2",
	} {
		rows, err := db.QueryContext(ctx, "SELECT * FROM "+table)
		if err != nil {
			return "", err
		}
		columns, err := rows.Columns()
		if err != nil {
			return "", err
		}
		values, targets := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			targets[i] = &values[i]
		}
		for rows.Next() {
			if err := rows.Scan(targets...); err != nil {
				return "", err
			}
			fmt.Fprintf(&all, "%s %q\n", table, values)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return "", err
		}
	}
	return all.String(), nil
}
