package bench

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/bench/load"
)

// bareCommits is the limit of W3: the rows that the authority writes for an acquire and
// a release, in the authority's own tables, by a loop that does nothing but commit what
// is waiting in one transaction. It decides nothing, signs nothing and keeps nothing in
// memory. The rows are copies of what a real authority wrote, so they change with it.
type bareCommits struct {
	db   *sql.DB
	conn *sql.Conn
	work chan *bareWrite
	over chan struct{}

	update, put statement
	acquired    rows
	released    rows
}

// rows are a record and a request as a table has them.
type rows struct{ record, request table }

type table struct {
	columns []string
	values  []any
}

// bareWrite is one step: a record and a request.
type bareWrite struct {
	record, request []any
	done            chan error
}

const (
	// As the store has it: the log is folded into the file after 32 MiB.
	pragmas = "_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=wal_autocheckpoint(8000)"
	// mostAtOnce is how many steps one transaction may hold.
	mostAtOnce = 1024
)

func openBareCommits(ctx context.Context, dir string) (_ *bareCommits, err error) {
	b := &bareCommits{work: make(chan *bareWrite, mostAtOnce), over: make(chan struct{})}
	if b.db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "authority.db")+"?"+pragmas); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.db.Close())
		}
	}()
	if err := b.learn(ctx, dir); err != nil {
		return nil, err
	}
	if b.conn, err = b.db.Conn(ctx); err != nil {
		return nil, err
	}
	if err := b.conn.Raw(b.prepare); err != nil {
		return nil, err
	}
	go b.loop()
	return b, nil
}

// learn lets a real authority write one acquire and one release, and copies the rows.
func (b *bareCommits) learn(ctx context.Context, dir string) (err error) {
	e, err := openEmbedded(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	// The second tenure of a resource is like all that follow: it has a previous one.
	for n := range 2 {
		lock := &calledLock{authority: e, count: n, request: lastword.AcquireRequest{Resource: template, Owner: templateOwner, TTL: lockTTL}}
		if err := lock.Lock(ctx); err != nil {
			return err
		}
		if b.acquired, err = b.rows(ctx, lock.request.RequestID); err != nil {
			return err
		}
		if err := lock.Unlock(ctx); err != nil {
			return err
		}
		if b.released, err = b.rows(ctx, lock.request.RequestID); err != nil {
			return err
		}
	}
	return nil
}

const (
	template      = "bare/cycle-00"
	templateOwner = "client-00"
)

func (b *bareCommits) rows(ctx context.Context, request string) (r rows, err error) {
	if r.record, err = readRow(ctx, b.db, `SELECT * FROM lastword_record WHERE resource = ?`, template); err != nil {
		return r, err
	}
	r.request, err = readRow(ctx, b.db, `SELECT * FROM lastword_request WHERE resource = ? AND request_id = ?`, template, request)
	return r, err
}

func readRow(ctx context.Context, db *sql.DB, query string, args ...any) (t table, err error) {
	found, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	if t.columns, err = found.Columns(); err != nil {
		return t, err
	}
	if !found.Next() {
		return t, errors.Join(fmt.Errorf("no row for %q", query), found.Err())
	}
	t.values = make([]any, len(t.columns))
	into := make([]any, len(t.columns))
	for i := range into {
		into[i] = &t.values[i]
	}
	return t, found.Scan(into...)
}

// set changes a column of a copy.
func (t table) set(values []any, column string, v any) {
	values[slices.Index(t.columns, column)] = v
}

// prepare makes the statements below database/sql, as the store does.
func (b *bareCommits) prepare(conn any) error {
	record, request := b.acquired.record.columns, b.acquired.request.columns
	if len(record) == 0 || record[0] != "resource" {
		return errors.New("the record's first column is not its resource")
	}
	update := "UPDATE lastword_record SET " + strings.Join(record[1:], " = ?, ") + " = ? WHERE resource = ? AND revision = ?"
	var changes []string
	for _, c := range request {
		if !slices.Contains([]string{"resource", "owner", "request_id"}, c) {
			changes = append(changes, c+" = excluded."+c)
		}
	}
	put := "INSERT INTO lastword_request (" + strings.Join(request, ", ") + ") VALUES (?" + strings.Repeat(", ?", len(request)-1) + ")" +
		" ON CONFLICT (resource, owner, request_id) DO UPDATE SET " + strings.Join(changes, ", ")
	return errors.Join(b.update.prepare(conn, update), b.put.prepare(conn, put))
}

// statement is one that is executed without database/sql in between.
type statement struct {
	sqldriver.StmtExecContext
	arguments []sqldriver.NamedValue
}

func (s *statement) prepare(conn any, query string) error {
	preparer, ok := conn.(sqldriver.ConnPrepareContext)
	if !ok {
		return errors.New("the driver cannot prepare")
	}
	prepared, err := preparer.PrepareContext(context.Background(), query)
	if err != nil {
		return fmt.Errorf("prepare %q: %w", query, err)
	}
	if s.StmtExecContext, ok = prepared.(sqldriver.StmtExecContext); !ok {
		return errors.New("the driver cannot execute")
	}
	s.arguments = make([]sqldriver.NamedValue, strings.Count(query, "?"))
	for i := range s.arguments {
		s.arguments[i].Ordinal = i + 1
	}
	return nil
}

func (s *statement) run(values []any) error {
	for i, v := range values {
		s.arguments[i].Value = v
	}
	result, err := s.ExecContext(context.Background(), s.arguments)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("%d rows were written, %w", n, err)
	}
	return nil
}

// loop commits what is waiting, all of it at once.
func (b *bareCommits) loop() {
	defer close(b.over)
	var batch []*bareWrite
	for first := range b.work {
		batch = append(batch[:0], first)
		for more := true; more && len(batch) < mostAtOnce; {
			select {
			case w, ok := <-b.work:
				if more = ok; ok {
					batch = append(batch, w)
				}
			default:
				more = false
			}
		}
		err := b.commit(batch)
		for _, w := range batch {
			w.done <- err
		}
	}
}

func (b *bareCommits) commit(batch []*bareWrite) error {
	ctx := context.Background()
	if _, err := b.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := b.conn.Raw(func(any) error {
		for _, w := range batch {
			if err := b.update.run(w.record); err != nil {
				return fmt.Errorf("record: %w", err)
			}
			if err := b.put.run(w.request); err != nil {
				return fmt.Errorf("request: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		_, undo := b.conn.ExecContext(ctx, "ROLLBACK")
		return errors.Join(err, undo)
	}
	_, err = b.conn.ExecContext(ctx, "COMMIT")
	return err
}

func (b *bareCommits) Close() error {
	close(b.work)
	<-b.over
	return errors.Join(b.conn.Close(), b.db.Close())
}

// Locks are the two writes of a cycle; nobody is kept out.
func (b *bareCommits) Locks(ctx context.Context, keys []string) ([]load.Lock, func() error, error) {
	var locks []load.Lock
	for i, key := range keys {
		l := &bareLock{b: b, key: key, owner: fmt.Sprint("client-", i), done: make(chan error, 1)}
		if err := l.create(ctx); err != nil {
			return nil, nil, err
		}
		locks = append(locks, l)
	}
	return locks, func() error { return nil }, nil
}

// Keep is not what this is for.
func (b *bareCommits) Keep(context.Context, int, time.Duration) (load.Kept, error) {
	return nil, errors.New("a bare loop keeps nothing alive")
}

type bareLock struct {
	b          *bareCommits
	key, owner string
	revision   int64
	count      int
	done       chan error
}

// create inserts the record that the cycles update.
func (l *bareLock) create(ctx context.Context) error {
	t := l.b.released.record
	values := slices.Clone(t.values)
	t.set(values, "resource", l.key)
	l.revision = 1
	t.set(values, "revision", l.revision)
	_, err := l.b.db.ExecContext(ctx, "INSERT INTO lastword_record VALUES (?"+strings.Repeat(", ?", len(values)-1)+")", values...)
	return err
}

func (l *bareLock) Lock(context.Context) error {
	l.count++
	return l.write(l.b.acquired)
}

func (l *bareLock) Unlock(context.Context) error { return l.write(l.b.released) }

// write is the template's rows, with this lock's names and numbers.
func (l *bareLock) write(r rows) error {
	id := requestID(l.owner, l.count)
	record := slices.Clone(r.record.values)
	r.record.set(record, "revision", l.revision+1)
	r.record.set(record, "owner", l.owner)
	r.record.set(record, "request_id", id)
	request := slices.Clone(r.request.values)
	r.request.set(request, "resource", l.key)
	r.request.set(request, "owner", l.owner)
	r.request.set(request, "request_id", id)
	l.b.work <- &bareWrite{record: append(record[1:], l.key, l.revision), request: request, done: l.done}
	l.revision++
	return <-l.done
}
