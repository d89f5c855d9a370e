package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/fencesql"
	"github.com/lastword/lastword/internal/sqldb"
)

// Place is a guarded database. It implements fence.Place and is safe for concurrent
// use. Most programs use a [Fence]; a Place alone is enough to look things up, also
// in a database that this process may only read.
type Place struct {
	db        *sql.DB
	name      string
	engine    fencesql.Engine
	memory    bool
	isolation sql.IsolationLevel
	seen      fencesql.Memory      // what was committed last
	stmts     map[string]*sql.Stmt // prepared by the pool once per connection
	// mark and marked set and release the savepoint of a transaction on SQLite.
	mark, marked string

	protects protection
	now      func() time.Time // for people
}

var _ fence.Place[*Tx] = (*Place)(nil)

// OpenPlace looks at the database and returns it as a place. name tells it apart
// from every other place that the process uses; "" takes "sqlite:" and the path of
// the file, or "postgresql:", the server's own identity and the name of the database. It
// refuses, with one line of [lastword.CodeInvalid] or [lastword.CodeUnavailable], a
// database that is neither SQLite nor PostgreSQL, is damaged, or lacks the tables of
// [Init]. It writes nothing.
func OpenPlace(ctx context.Context, db *sql.DB, name string) (*Place, error) {
	const op = "open fence"
	engine, err := engineOf(ctx, op, db)
	if err != nil {
		return nil, err
	}
	if err := fencesql.CheckSchema(ctx, op, engine, db, engine.Schema(), engine.Closing().Schema()); err != nil {
		return nil, err
	}
	p := &Place{db: db, name: name, engine: engine, now: time.Now} //nolint:forbidigo // the one place where the clock for people is taken
	if err := p.look(ctx); err != nil {
		return nil, fencesql.Explain(engine, op, err)
	}
	if _, err := p.lookForProtection(ctx); err != nil {
		return nil, fencesql.Explain(engine, op, err)
	}
	if err := p.prepare(ctx); err != nil {
		return nil, fencesql.Explain(engine, op, errors.Join(err, p.Close()))
	}
	return p, nil
}

// memories numbers the databases that have no file.
var memories atomic.Uint64

// look finds the file, or the server, behind the pool.
func (p *Place) look(ctx context.Context) error {
	if _, ok := p.engine.(fencesql.PostgreSQL); ok {
		server, err := fencesql.Identity(ctx, fencesql.Plain{Querier: p.db})
		if p.name == "" {
			p.name = server
		}
		return err
	}
	var file string
	row := p.db.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'")
	if err := row.Scan(&file); err != nil {
		return err
	}
	p.memory = file == ""
	if p.name == "" && p.memory {
		file = fmt.Sprintf("memory:%d", memories.Add(1))
	}
	if p.name == "" {
		p.name = "sqlite:" + file
	}
	return nil
}

func (p *Place) prepare(ctx context.Context) error {
	p.stmts = map[string]*sql.Stmt{}
	hot := p.engine.Hot()
	if p.lite() {
		savepoint := newSavepoint()
		p.mark, p.marked = sqlMark+savepoint, sqlMarked+savepoint
		hot = append(hot, sqlPass, sqlClosePass, p.mark, p.marked)
	}
	for _, text := range hot {
		err := sqldb.Backoff{}.Retry(ctx, p.engine, func(ctx context.Context) error {
			stmt, err := p.db.PrepareContext(ctx, text)
			if err == nil {
				p.stmts[text] = stmt
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Close gives up the prepared statements. The database stays open: it is the
// caller's.
func (p *Place) Close() error {
	var errs []error
	for _, stmt := range p.stmts {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(errs...)
}

// Name is "sqlite:" and the path of the file, or "postgresql:", the server and the
// database, unless [OpenPlace] was told another.
func (p *Place) Name() string { return p.name }

// Find is the receipt of an operation. It moves nothing (R21): it is one SELECT.
func (p *Place) Find(ctx context.Context, key fence.Key, operation string) (r lastword.Receipt, found bool, err error) {
	err = p.reading(ctx, "lookup", key, func(ctx context.Context, c fencesql.Conn) (err error) {
		r, found, err = fencesql.Find(ctx, p.engine, c, key, operation)
		return err
	})
	return r, found, err
}

// Inspect reads the record and what was noted beside it, all of one moment. It takes
// no lock.
func (p *Place) Inspect(ctx context.Context, key fence.Key) (found fence.Inspection, err error) {
	err = p.reading(ctx, "status", key, func(ctx context.Context, c fencesql.Conn) (err error) {
		found, err = fencesql.Inspect(ctx, p.engine, c, key)
		return err
	})
	return found, err
}

// Records are the resources of domain that have a record, in byte order.
func (p *Place) Records(ctx context.Context, domain string, after lastword.Resource, limit int) (found []lastword.Resource, err error) {
	err = p.reading(ctx, "records", fence.Key{Domain: domain}, func(ctx context.Context, c fencesql.Conn) (err error) {
		found, err = fencesql.Records(ctx, p.engine, c, domain, after, limit)
		return err
	})
	return found, err
}

// Domains are the domains of which the database has a record, a receipt or a refusal of
// a resource.
func (p *Place) Domains(ctx context.Context, r lastword.Resource) (found []string, err error) {
	err = p.reading(ctx, "domains", fence.Key{Resource: r}, func(ctx context.Context, c fencesql.Conn) (err error) {
		found, err = fencesql.Domains(ctx, p.engine, c, r)
		return err
	})
	return found, err
}

// Windows are the domains in which a window after a restore is open (R20).
func (p *Place) Windows(ctx context.Context) (found []string, err error) {
	err = p.reading(ctx, "windows", fence.Key{}, func(ctx context.Context, c fencesql.Conn) (err error) {
		found, err = fencesql.Windows(ctx, p.engine, c)
		return err
	})
	return found, err
}

// Bundle is the newest trust bundle that was brought to this database (R13).
func (p *Place) Bundle(ctx context.Context, domain string) (newest fence.BundleFloor, err error) {
	err = p.reading(ctx, "bundle", fence.Key{Domain: domain}, func(ctx context.Context, c fencesql.Conn) (err error) {
		newest, err = fencesql.Bundle(ctx, p.engine, c, domain)
		return err
	})
	return newest, err
}

// reading runs fn in a transaction that sees one moment and writes nothing.
func (p *Place) reading(ctx context.Context, op string, key fence.Key, fn func(context.Context, fencesql.Conn) error) error {
	opts := &sql.TxOptions{ReadOnly: true}
	if _, ok := p.engine.(fencesql.PostgreSQL); ok {
		opts.Isolation = sql.LevelRepeatableRead
	}
	err := sqldb.Backoff{}.Retry(ctx, p.engine, func(ctx context.Context) error {
		tx, err := p.db.BeginTx(ctx, opts)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // it only read
		return fn(ctx, p.conn(tx))
	})
	return p.fail(op, key, err)
}

// fail is the one line for an error of the engine, with the resource in it.
func (p *Place) fail(op string, key fence.Key, err error) error {
	return fencesql.Fail(p.engine, op, key, err)
}
