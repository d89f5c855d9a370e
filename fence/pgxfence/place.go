package pgxfence

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/fencesql"
	"github.com/lastword/lastword/internal/protect"
	"github.com/lastword/lastword/internal/sqldb"
)

var engine fencesql.PostgreSQL

// Place is a guarded database. It implements fence.Place and is safe for concurrent
// use. Most programs use a [Fence].
type Place struct {
	pool     *pgxpool.Pool
	db       *sql.DB // over the pool; it keeps no connection
	name     string
	level    pgx.TxIsoLevel
	now      func() time.Time
	seen     fencesql.Memory
	triggers triggers
}

var _ fence.Place[*Tx] = (*Place)(nil)

// Init creates the tables, or brings older ones up to date; they are those of package
// sqlfence. Several processes may run it at once (KF-38).
func Init(ctx context.Context, pool *pgxpool.Pool) error {
	if pool == nil {
		return noPool("fence init")
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close() // the pool stays open
	if err := check(ctx, "fence init", pool); err != nil {
		return err
	}
	return fencesql.Init(ctx, engine, db, engine.Schema(), protect.PostgreSQL{}.Schema())
}

// OpenPlace looks at the database and returns it as a place. name tells it apart from
// every other place that the process uses; "" takes "postgresql:", the server's own
// identity and the name of the database. It refuses, with one line of
// [lastword.CodeInvalid] or [lastword.CodeUnavailable], what is no PostgreSQL 13 or
// later, or lacks the tables of [Init]. It writes nothing.
func OpenPlace(ctx context.Context, pool *pgxpool.Pool, name string) (*Place, error) {
	const op = "open fence"
	if pool == nil {
		return nil, noPool(op)
	}
	if err := check(ctx, op, pool); err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(pool)
	if err := fencesql.CheckSchema(ctx, op, engine, db, engine.Schema(), protect.PostgreSQL{}.Schema()); err != nil {
		return nil, err
	}
	p := &Place{pool: pool, db: db, name: name, now: time.Now} //nolint:forbidigo // for when the triggers are looked at; Config.Now replaces it
	if p.name == "" {
		var err error
		if p.name, err = fencesql.Identity(ctx, conn{pool}); err != nil {
			return nil, fencesql.Explain(engine, op, err)
		}
	}
	return p, nil
}

func noPool(op string) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Message: "the pool is nil", Hint: "make it with pgxpool.New"}
}

func check(ctx context.Context, op string, pool *pgxpool.Pool) error {
	var version string
	err := pool.QueryRow(ctx, "SELECT version()").Scan(&version)
	if err == nil && !fencesql.IsPostgreSQL(version) {
		return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Message: "the database is not PostgreSQL", Hint: "it says that it is " + version}
	}
	if err == nil {
		err = engine.Check(ctx, conn{pool})
	}
	return fencesql.Explain(engine, op, err)
}

// Name is "postgresql:", the server and the database, unless [OpenPlace] was told another.
func (p *Place) Name() string { return p.name }

// Find is the receipt of an operation. It moves nothing (R21): it is one SELECT.
func (p *Place) Find(ctx context.Context, key fence.Key, operation string) (r lastword.Receipt, found bool, err error) {
	err = p.reading(ctx, "lookup", key, func(ctx context.Context, c fencesql.Conn) (err error) {
		r, found, err = fencesql.Find(ctx, engine, c, key, operation)
		return err
	})
	return r, found, err
}

// Inspect reads the record and what was noted beside it, all of one moment. It takes no
// lock.
func (p *Place) Inspect(ctx context.Context, key fence.Key) (found fence.Inspection, err error) {
	err = p.reading(ctx, "status", key, func(ctx context.Context, c fencesql.Conn) (err error) {
		found, err = fencesql.Inspect(ctx, engine, c, key)
		return err
	})
	return found, err
}

// Records are the resources of domain that have a record, in byte order.
func (p *Place) Records(ctx context.Context, domain string, after lastword.Resource, limit int) (found []lastword.Resource, err error) {
	err = p.reading(ctx, "records", fence.Key{Domain: domain}, func(ctx context.Context, c fencesql.Conn) (err error) {
		found, err = fencesql.Records(ctx, engine, c, domain, after, limit)
		return err
	})
	return found, err
}

// Bundle is the newest trust bundle that was brought to this database (R13).
func (p *Place) Bundle(ctx context.Context, domain string) (newest fence.BundleFloor, err error) {
	err = p.reading(ctx, "bundle", fence.Key{Domain: domain}, func(ctx context.Context, c fencesql.Conn) (err error) {
		newest, err = fencesql.Bundle(ctx, engine, c, domain)
		return err
	})
	return newest, err
}

// reading runs fn in a transaction that sees one moment and writes nothing.
func (p *Place) reading(ctx context.Context, op string, key fence.Key, fn func(context.Context, fencesql.Conn) error) error {
	err := sqldb.Backoff{}.Retry(ctx, engine, func(ctx context.Context) error {
		tx, err := p.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
		if err != nil {
			return err
		}
		err = fn(ctx, conn{tx})
		return errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
	})
	return p.fail(op, key, err)
}

// Settle waits until every transaction has ended that is open in the database when it is
// called, for 10 s at most: one from before may not see what an operator has changed since.
// It then fails with [lastword.CodeUnavailable] and names some of them.
func (p *Place) Settle(ctx context.Context, op string) error {
	return p.fail(op, fence.Key{}, fencesql.Settle(ctx, engine, conn{p.pool}, op))
}

func (p *Place) fail(op string, key fence.Key, err error) error {
	return fencesql.Fail(engine, op, key, err)
}
