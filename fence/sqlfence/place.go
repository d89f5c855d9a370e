package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/sqldb"
)

// Place is a guarded database. It implements fence.Place and is safe for concurrent
// use. Most programs use a [Fence]; a Place alone is enough to look things up, also
// in a database that this process may only read.
type Place struct {
	db     *sql.DB
	name   string
	memory bool
	stmts  statements
}

var _ fence.Place[*Tx] = (*Place)(nil)

// statements are prepared by the pool once per connection.
type statements struct {
	lock, begin, load, insert, update, updateNumber, insertReceipt, receipt *sql.Stmt
}

// OpenPlace looks at the database and returns it as a place. name tells it apart
// from every other place that the process uses; "" takes "sqlite:" and the path of
// the file. It refuses, with one line of [lastword.CodeInvalid] or
// [lastword.CodeUnavailable], a database that is not SQLite, is damaged, or lacks the
// tables of [Init]. It writes nothing.
func OpenPlace(ctx context.Context, db *sql.DB, name string) (*Place, error) {
	const op = "open fence"
	if err := checkEngine(ctx, op, db); err != nil {
		return nil, err
	}
	if err := checkSchema(ctx, op, db); err != nil {
		return nil, err
	}
	p := &Place{db: db, name: name}
	if err := p.look(ctx); err != nil {
		return nil, explain(op, err)
	}
	if err := p.prepare(ctx); err != nil {
		return nil, explain(op, errors.Join(err, p.Close()))
	}
	return p, nil
}

// memories numbers the databases that have no file.
var memories atomic.Uint64

// look finds the file behind the pool.
func (p *Place) look(ctx context.Context) error {
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
	for _, s := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&p.stmts.lock, sqlLock}, {&p.stmts.begin, "BEGIN"}, {&p.stmts.load, sqlLoad}, {&p.stmts.insert, sqlInsert}, {&p.stmts.update, sqlUpdate}, {&p.stmts.updateNumber, sqlUpdateNumber},
		{&p.stmts.insertReceipt, sqlInsertReceipt}, {&p.stmts.receipt, sqlReceipt},
	} {
		err := sqldb.Backoff{}.Retry(ctx, dialect, func(ctx context.Context) (err error) {
			*s.stmt, err = p.db.PrepareContext(ctx, s.text)
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
	s := p.stmts
	for _, stmt := range []*sql.Stmt{s.lock, s.begin, s.load, s.insert, s.update, s.updateNumber, s.insertReceipt, s.receipt} {
		if stmt != nil {
			errs = append(errs, stmt.Close())
		}
	}
	return errors.Join(errs...)
}

// Name is "sqlite:" and the path of the file, unless [OpenPlace] was told another.
func (p *Place) Name() string { return p.name }

// Find is the receipt of an operation. It moves nothing (R21): it is one SELECT.
func (p *Place) Find(ctx context.Context, key fence.Key, operation string) (r lastword.Receipt, found bool, err error) {
	err = sqldb.Backoff{}.Retry(ctx, dialect, func(ctx context.Context) error {
		row := p.stmts.receipt.QueryRowContext(ctx, key.Domain, string(key.Resource), operation)
		r, err = scanReceipt(row, key, operation)
		found = err == nil
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return lastword.Receipt{}, false, p.fail("lookup", key, err)
	}
	return r, found, nil
}

// fail is the one line for an error of the engine, with the resource in it.
func (p *Place) fail(op string, key fence.Key, err error) error {
	err = explain(op, err)
	var e *lastword.Error
	if errors.As(err, &e) && e.Resource == "" && e.Op != "" {
		e.Resource = key.Resource
	}
	return err
}
