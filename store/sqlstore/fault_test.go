package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/sqlstore"
)

// plan is what a driver does to the next statements of one text.
type plan struct {
	statement string
	code      int
	done      bool // the statement is carried out all the same
	times     int32
}

func (p *plan) hit(query string) bool {
	return p != nil && query == p.statement && atomic.AddInt32(&p.times, -1) >= 0
}

type resultCode int

func (c resultCode) Code() int     { return int(c) }
func (c resultCode) Error() string { return fmt.Sprintf("injected result code %d", int(c)) }

// faulty wraps the real driver.
type faulty struct {
	driver.Driver
	next atomic.Pointer[plan]
}

var faults = func() *faulty {
	db, err := sql.Open("sqlite", "")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	f := &faulty{Driver: db.Driver()}
	sql.Register("faulty", f)
	return f
}()

func (f *faulty) Open(name string) (driver.Conn, error) {
	conn, err := f.Driver.Open(name)
	return &faultyConn{conn, f}, err
}

type faultyConn struct {
	driver.Conn
	faults *faulty
}

func (c *faultyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.faults.execute(query, func() (driver.Result, error) {
		return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	})
}

// execute runs a statement, or does to it what is planned.
func (f *faulty) execute(query string, run func() (driver.Result, error)) (driver.Result, error) {
	p := f.next.Load()
	if !p.hit(query) {
		return run()
	}
	if p.done {
		if _, err := run(); err != nil {
			return nil, err
		}
	}
	return nil, resultCode(p.code)
}

func (c *faultyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *faultyConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &faultyStmt{stmt, query, c.faults}, nil
}

type faultyStmt struct {
	driver.Stmt
	query  string
	faults *faulty
}

func (s *faultyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.faults.execute(s.query, func() (driver.Result, error) {
		return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	})
}

func (s *faultyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func inject(t *testing.T, p plan) {
	t.Helper()
	faults.next.Store(&p)
	t.Cleanup(func() { faults.next.Store(nil) })
}

const (
	busy         = 5
	busySnapshot = 517
	ioFsync      = 10 | 4<<8
	full         = 13
)

// P5: an i/o error of COMMIT is neither success nor failure. The store is given up,
// because only recovery can tell, and recovery tells.
func TestAnIOErrorOfCommitIsUnknownAndTheStoreIsGivenUp(t *testing.T) {
	for _, done := range []bool{false, true} {
		t.Run(fmt.Sprint("carried out: ", done), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "authority.db")
			s := open(t, path, sqlstore.Config{Driver: "faulty"})
			commit(t, s, first, version("doc", 1))
			inject(t, plan{statement: "COMMIT", code: ioFsync, done: done, times: 1})
			_, err := s.Commit(t.Context(), version("doc", 2))
			if !errors.Is(err, lastword.ErrUnknownOutcome) || errors.Is(err, lastword.ErrUnavailable) {
				t.Errorf("commit: %v", err)
			}
			_, readErr := s.Read(t.Context(), store.Query{Resource: "doc"})
			_, commitErr := s.Commit(t.Context(), version("doc", 2))
			_, listErr := s.List(t.Context(), "", "", 1)
			for _, err := range []error{readErr, commitErr, listErr} {
				if !errors.Is(err, lastword.ErrUnavailable) || !strings.Contains(err.Error(), "start this process again") {
					t.Errorf("a call after it: %v", err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			want := uint64(1)
			if done {
				want = 2
			}
			if got := revision(t, open(t, path, sqlstore.Config{}), "doc"); got != want {
				t.Errorf("revision %d after it, want %d", got, want)
			}
		})
	}
}

// A full disk at COMMIT is unknown for its batch, and no reason to give up.
func TestAFullDiskAtCommitIsUnknownForItsBatchAlone(t *testing.T) {
	for _, done := range []bool{false, true} {
		s := open(t, filepath.Join(t.TempDir(), "authority.db"), sqlstore.Config{Driver: "faulty"})
		commit(t, s, first, version("doc", 1))
		inject(t, plan{statement: "COMMIT", code: full, done: done, times: 1})
		if _, err := s.Commit(t.Context(), version("doc", 2)); !errors.Is(err, lastword.ErrUnknownOutcome) {
			t.Errorf("commit: %v", err)
		}
		got := revision(t, s, "doc")
		if want := map[bool]uint64{false: 1, true: 2}[done]; got != want {
			t.Errorf("carried out %v: the store reads revision %d from memory, the file has %d", done, got, want)
		}
		commit(t, s, version("doc", got+1))
	}
}

// KF-22: busy and snapshot errors are repeated as a whole, and applied once.
func TestBusyErrorsAreRepeatedWhereverTheyArise(t *testing.T) {
	for _, code := range []int{busy, busySnapshot} {
		for _, statement := range []string{"BEGIN IMMEDIATE", "COMMIT"} {
			s := open(t, filepath.Join(t.TempDir(), "authority.db"), sqlstore.Config{Driver: "faulty"})
			commit(t, s, first, version("doc", 1))
			inject(t, plan{statement: statement, code: code, times: 7})
			commit(t, s, version("doc", 2))
			if got := revision(t, s, "doc"); got != 2 {
				t.Errorf("code %d of %s: revision %d", code, statement, got)
			}
		}
	}
}

// A driver may say that BEGIN failed when it worked; the transaction must not stay.
func TestABeginThatWorkedInSpiteOfItsErrorLeavesNoTransaction(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "authority.db"), sqlstore.Config{Driver: "faulty"})
	commit(t, s, first)
	inject(t, plan{statement: "BEGIN IMMEDIATE", code: 1, done: true, times: 1})
	if _, err := s.Commit(t.Context(), version("doc", 1)); !errors.Is(err, lastword.ErrUnavailable) {
		t.Errorf("commit: %v", err)
	}
	commit(t, s, version("doc", 1))
}

// KF-22: no call outlasts its deadline because of another program's lock, and what
// it leaves is certain.
func TestALockOfAnotherProgramEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "authority.db")
	s := open(t, path, sqlstore.Config{})
	commit(t, s, first, version("doc", 1))
	shell := other(t, path)
	run(t, shell, "BEGIN IMMEDIATE")
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := s.Commit(ctx, version("doc", 2))
	if !errors.Is(err, lastword.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another program has") {
		t.Errorf("commit: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a call of 150 ms took %v", took)
	}
	if got := revision(t, s, "doc"); got != 1 {
		t.Errorf("revision %d", got)
	}
	run(t, shell, "ROLLBACK")
	commit(t, s, version("doc", 2))
}
