package pgxfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/fencetest"
	"github.com/lastword/lastword/fence/pgxfence"
	"github.com/lastword/lastword/internal/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

const business = `CREATE TABLE doc (resource text COLLATE "C" PRIMARY KEY, value text NOT NULL);
CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, resource text NOT NULL, operation text NOT NULL, value text NOT NULL)`

// database is the URL of a database with the empty tables of the fence and of a
// business.
func database(tb postgrestest.TB) string {
	return postgrestest.Lend(tb, "pgxfence", func(ctx context.Context, db *sql.DB) error {
		if _, err := db.ExecContext(ctx, business); err != nil {
			return err
		}
		var dsn string
		if err := db.QueryRowContext(ctx, "SELECT current_database()").Scan(&dsn); err != nil {
			return err
		}
		pool, err := pgxpool.New(ctx, postgrestest.DSN(postgrestest.Server(tb).Addr, dsn))
		if err != nil {
			return err
		}
		defer pool.Close()
		return pgxfence.Init(ctx, pool)
	}, reset)
}

func reset(ctx context.Context, db *sql.DB) error {
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

func openPool(tb fencetest.TB, dsn string) *pgxpool.Pool {
	pool, err := pgxpool.New(tb.Context(), dsn)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

func openPlace(tb fencetest.TB, pool *pgxpool.Pool) *pgxfence.Place {
	p, err := pgxfence.OpenPlace(tb.Context(), pool, "")
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	return p
}

func TestEveryFormPassesTheKit(t *testing.T) { // KF-01 SQL form, KF-09, KF-28, KF-32, KF-33
	levels := []string{"read committed", "serializable"}
	if raceOn || testing.Short() {
		levels = levels[:1]
	}
	for _, level := range levels {
		for _, form := range []string{"apply", "send"} {
			t.Run(form+", "+level, func(t *testing.T) {
				fencetest.Run(t, fencetest.Harness{Open: func(tb fencetest.TB) fencetest.Subject { return subject(tb, level, form == "send") }})
			})
		}
	}
}

func writes(resource lastword.Resource, operation, value string) []pgxfence.Statement {
	return []pgxfence.Statement{
		{SQL: `INSERT INTO doc VALUES ($1, $2) ON CONFLICT (resource) DO UPDATE SET value = excluded.value`, Args: []any{string(resource), value}},
		{SQL: `INSERT INTO effect (resource, operation, value) VALUES ($1, $2, $3)`, Args: []any{string(resource), operation, value}},
	}
}

func write(ctx context.Context, tx pgx.Tx, resource lastword.Resource, operation, value string) error {
	for _, s := range writes(resource, operation, value) {
		if _, err := tx.Exec(ctx, s.SQL, s.Args...); err != nil {
			return err
		}
	}
	return nil
}

func readBack(ctx context.Context, pool *pgxpool.Pool, resource lastword.Resource) (value string, effects []fencetest.Effect, err error) {
	err = pool.QueryRow(ctx, `SELECT value FROM doc WHERE resource = $1`, string(resource)).Scan(&value)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", nil, err
	}
	rows, err := pool.Query(ctx, `SELECT operation, value FROM effect WHERE resource = $1 ORDER BY id`, string(resource))
	if err != nil {
		return "", nil, err
	}
	effects, err = pgx.CollectRows(rows, pgx.RowToStructByPos[fencetest.Effect])
	return value, effects, err
}

// subject is two handles at one place. sending writes with Send.
func subject(tb fencetest.TB, level string, sending bool) fencetest.Subject {
	dsn := database(tb) + "&default_transaction_isolation=" + strings.ReplaceAll(level, " ", "%20")
	pool := openPool(tb, dsn)
	first, second := openPlace(tb, pool), openPlace(tb, openPool(tb, dsn))
	s := fencetest.Of(parts(pool, first, second))
	if sending {
		s.Apply, s.Second.Apply = sends(first), sends(second)
	}
	return s
}

// sends makes the guarded writes of the kit with Send.
func sends(p *pgxfence.Place) func(context.Context, *fence.Gate, fence.Call, fencetest.Write) (lastword.Receipt, error) {
	return func(ctx context.Context, g *fence.Gate, c fence.Call, w fencetest.Write) (lastword.Receipt, error) {
		return pgxfence.SendAfter(ctx, g, p, c, func(ctx context.Context) ([]byte, error) {
			if w.Then != nil {
				return w.Result, w.Then(ctx)
			}
			return w.Result, nil
		}, writes(w.Resource, c.Mutation.Operation, w.Value)...)
	}
}

func parts(pool *pgxpool.Pool, first, second *pgxfence.Place) fencetest.Parts[*pgxfence.Tx] {
	return fencetest.Parts[*pgxfence.Tx]{
		Place: first, Second: second,
		Write: func(ctx context.Context, tx *pgxfence.Tx, resource lastword.Resource, operation, value string) error {
			return write(ctx, tx.Pgx(), resource, operation, value)
		},
		Read: func(ctx context.Context, resource lastword.Resource) (string, []fencetest.Effect, error) {
			return readBack(ctx, pool, resource)
		},
		Begin: func(ctx context.Context) (*pgxfence.Tx, func(bool) error, error) {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return nil, nil, err
			}
			return first.Join(tx), func(commit bool) error {
				if commit {
					return tx.Commit(ctx)
				}
				return tx.Rollback(ctx)
			}, nil
		},
		Prune: func(ctx context.Context, key fence.Key, operation string) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err1 := tx.Exec(ctx, `DELETE FROM lastword.receipt WHERE domain = $1 AND resource = $2 AND operation = $3`,
					key.Domain, string(key.Resource), operation)
				_, err2 := tx.Exec(ctx, `INSERT INTO lastword.tombstone VALUES ($1, $2, $3, '')`,
					key.Domain, string(key.Resource), lastword.DigestOf([]byte(operation)).String())
				return errors.Join(err1, err2)
			})
		},
		Close: func(ctx context.Context, key fence.Key, next lastword.Token) error {
			return first.Transact(ctx, key, func(ctx context.Context, tx *pgxfence.Tx) error {
				rec, _, err := tx.Load(ctx, key, "")
				if err != nil {
					return err
				}
				return tx.Store(ctx, key, rec, fence.Closed(rec, next), nil)
			})
		},
		Lose: func(ctx context.Context, key fence.Key) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, fmt.Sprintf(`ALTER TABLE lastword.fence DISABLE TRIGGER never_deleted;
DELETE FROM lastword.fence WHERE domain = '%s' AND resource = '%s'; ALTER TABLE lastword.fence ENABLE ALWAYS TRIGGER never_deleted`, key.Domain, key.Resource))
				return err
			})
		},
		Shadow: func(ctx context.Context, key fence.Key) error {
			_, err := pool.Exec(ctx, `INSERT INTO lastword.rollout (domain, prefix, shadow, since) VALUES ($1, $2, 1, '')`, key.Domain, string(key.Resource))
			return err
		},
		Enforce: func(ctx context.Context, key fence.Key) error {
			_, err := pool.Exec(ctx, `UPDATE lastword.rollout SET shadow = 0 WHERE domain = $1 AND prefix = $2`, key.Domain, string(key.Resource))
			return err
		},
		Image: func(ctx context.Context) (string, error) { return image(ctx, pool) },
	}
}

// image is every row of every table, in the order of the tables' keys. The transaction
// that passed last is left out: it is no number of ours.
func image(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	var all strings.Builder
	for _, table := range []string{
		"to_jsonb(t) FROM doc t ORDER BY resource", "to_jsonb(t) FROM effect t ORDER BY id", "to_jsonb(t) - 'passed' FROM lastword.fence t ORDER BY domain, resource",
		"to_jsonb(t) FROM lastword.receipt t ORDER BY domain, resource, operation", "to_jsonb(t) FROM lastword.tombstone t ORDER BY domain, resource, operation_digest",
		"to_jsonb(t) FROM lastword.refusal t ORDER BY domain, resource, verdict", "to_jsonb(t) FROM lastword.quarantine t ORDER BY domain, resource, claimant, place",
		"to_jsonb(t) FROM lastword.restored t ORDER BY domain", "to_jsonb(t) FROM lastword.act t ORDER BY number",
		"to_jsonb(t) FROM lastword.rollout t ORDER BY domain, prefix",
	} {
		rows, err := pool.Query(ctx, "SELECT "+strings.Replace(table, " FROM", " #>> '{}' FROM", 1))
		if err != nil {
			return "", err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return "", err
		}
		for _, line := range lines {
			fmt.Fprintf(&all, "%s %s\n", table, line)
		}
	}
	return all.String(), nil
}
