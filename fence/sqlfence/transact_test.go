package sqlfence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/sqlfence"
)

// Result codes of SQLite.
const (
	codeBusy         = 5
	codeBusySnapshot = 5 | 2<<8
	codeLocked       = 6
	codeIOSync       = 10 | 4<<8
	codeFull         = 13
	codeProtocol     = 15
)

// faultyDatabase is database with a hook around its driver.
func faultyDatabase(tb testing.TB, options string) (*sql.DB, *faulty, *seal, *sqlfence.Fence) {
	tb.Helper()
	db, hooks := openFaulty(tb, filepath.Join(tb.TempDir(), "app.db"), options)
	mustExec(tb, db, business)
	if err := sqlfence.Init(tb.Context(), db); err != nil {
		tb.Fatal(err)
	}
	// The place has seen the bundle, so that the first COMMIT is the write's.
	mustExec(tb, db, `INSERT INTO lastword_bundle (domain, sequence, min_epoch) VALUES ('`+domain+`', 1, 0)`)
	s := newSeal(tb)
	return db, hooks, s, guard(tb, db, s.config())
}

func TestEngineTroubleBeforeCommitRepeatsTheWholeTransactionUnderOneOperation(t *testing.T) { // R16, X24, X29
	points := map[string]func(event) bool{
		"begin":               func(e event) bool { return e.op == "begin" && !e.after },
		"begin, reply lost":   func(e event) bool { return e.op == "begin" && e.after },
		"lock":                func(e event) bool { return e.is("exec", "WHERE FALSE") && !e.after },
		"load":                func(e event) bool { return e.is("query", "pragma_synchronous") && !e.after },
		"effect":              func(e event) bool { return e.is("exec", "INTO effect") && !e.after },
		"effect, reply lost":  func(e event) bool { return e.is("exec", "INTO effect") && e.after },
		"record":              func(e event) bool { return e.is("exec", "INTO main.lastword_fence") && !e.after },
		"receipt, reply lost": func(e event) bool { return e.is("exec", "INTO main.lastword_receipt") && e.after },
		"commit, busy":        func(e event) bool { return e.op == "commit" && !e.after },
	}
	for name, at := range points {
		for trouble, err := range map[string]error{
			"busy": engineError(codeBusy), "snapshot": engineError(codeBusySnapshot), "locked": engineError(codeLocked),
			"protocol": engineError(codeProtocol), "bad connection": driver.ErrBadConn,
		} {
			if name == "commit, busy" && trouble == "bad connection" {
				continue // that one is unknown
			}
			t.Run(name+"/"+trouble, func(t *testing.T) {
				t.Parallel()
				db, hooks, s, f := faultyDatabase(t, durable)
				fired := 0
				hooks.set(func(e event) error {
					if at(e) && fired < 2 {
						fired++
						return err
					}
					return nil
				})
				r, got := put(t.Context(), f, s.holder("r", "a", 1), "r", "op", "v")
				if got != nil || r.Verdict != lastword.Applied || r.Seq != 1 {
					t.Errorf("apply: %+v %v", r, got)
				}
				if fired != 2 {
					t.Errorf("the fault fired %d times", fired)
				}
				if n := count(t, db, `SELECT count(*) FROM effect WHERE operation = 'op'`); n != 1 {
					t.Errorf("%d effects", n)
				}
				verify(t, db)
			})
		}
	}
}

func TestACommitWhoseFateIsOpenIsUnknownAndIsSettled(t *testing.T) { // P5, X28, R22
	for name, tc := range map[string]struct {
		err   error
		after bool // the commit happened
	}{
		"connection lost before":       {driver.ErrBadConn, false},
		"connection lost after":        {driver.ErrBadConn, true},
		"fsync failed, written":        {engineError(codeIOSync), true},
		"fsync failed, nothing there":  {engineError(codeIOSync), false},
		"disk full":                    {engineError(codeFull), false},
		"context ended in COMMIT":      {context.DeadlineExceeded, true},
		"an error nobody has heard of": {errors.New("?"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, hooks, s, f := faultyDatabase(t, durable)
			h, fired := s.holder("r", "a", 1), 0
			hooks.set(func(e event) error {
				if e.op == "commit" && e.after == tc.after {
					fired++
					return tc.err
				}
				return nil
			})
			_, err := put(t.Context(), f, h, "r", "op", "v")
			if !errors.Is(err, lastword.ErrUnknownOutcome) || errors.Is(err, lastword.ErrStale) || fired != 1 {
				t.Fatalf("apply: %v, fired %d", err, fired)
			}
			hooks.set(nil)
			_, found, err := f.Lookup(t.Context(), "r", "op")
			if err != nil || found != tc.after {
				t.Errorf("lookup: %v %v", found, err)
			}
			r, err := put(t.Context(), f, h, "r", "op", "v")
			want := map[bool]lastword.Verdict{false: lastword.Applied, true: lastword.Replayed}[tc.after]
			if err != nil || r.Verdict != want || r.Seq != 1 {
				t.Errorf("again: %+v %v", r, err)
			}
			mustPut(t, f, h, "r", "op2", "w")
			verify(t, db)
		})
	}
}

func TestAReaderInTheWayOfCommitIsNotUnknown(t *testing.T) { // R16: rollback journal, COMMIT needs the readers gone
	db, hooks, s, f := faultyDatabase(t, "_pragma=busy_timeout(1)&_pragma=journal_mode(truncate)&_pragma=synchronous(full)")
	reader, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Exec(`SELECT * FROM doc`); err != nil {
		t.Fatal(err)
	}
	rows, err := reader.Query(`SELECT name FROM sqlite_schema`)
	if err != nil || !rows.Next() {
		t.Fatal(err)
	}
	refused := 0
	hooks.set(func(e event) error {
		if e.op == "commit" && !e.after {
			if refused++; refused == 3 { // two COMMITs have failed
				return errors.Join(rows.Close(), reader.Rollback())
			}
		}
		return nil
	})
	mustPut(t, f, s.holder("r", "a", 1), "r", "op", "v")
	if refused < 3 {
		t.Errorf("COMMIT was tried %d times", refused)
	}
	verify(t, db)
}

func TestADeferredConstraintFailsTheWriteForCertain(t *testing.T) {
	db, _, s, f := faultyDatabase(t, durable+"&_pragma=foreign_keys(1)")
	mustExec(t, db, `CREATE TABLE parent (id INTEGER PRIMARY KEY); CREATE TABLE child (p INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)`)
	_, err := f.Apply(t.Context(), s.holder("r", "a", 1), "op", []byte("v"), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO child VALUES (7)`)
		return err
	})
	if !errors.Is(err, lastword.ErrInvalid) || errors.Is(err, lastword.ErrUnknownOutcome) {
		t.Errorf("apply: %v", err)
	}
	if n := count(t, db, `SELECT (SELECT count(*) FROM child) + (SELECT count(*) FROM lastword_fence)`); n != 0 {
		t.Errorf("%d rows stayed", n)
	}
	mustPut(t, f, s.holder("r", "a", 1), "r", "op", "v")
}

// held takes the write lock on a connection of its own.
func held(tb testing.TB, db *sql.DB) (release func()) {
	tb.Helper()
	conn, err := db.Conn(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := conn.ExecContext(tb.Context(), "BEGIN IMMEDIATE"); err != nil {
		tb.Fatal(err)
	}
	return func() {
		if _, err := conn.ExecContext(context.WithoutCancel(tb.Context()), "ROLLBACK"); err != nil {
			tb.Error(err)
		}
		_ = conn.Close()
	}
}

func TestALockedDatabaseEndsWithTheDeadlineAndIsNoVerdict(t *testing.T) { // KF-22, X27
	for _, options := range []string{durable, "_txlock=immediate&" + durable, "_pragma=busy_timeout(0)&_pragma=journal_mode(wal)&_pragma=synchronous(full)"} {
		path := filepath.Join(t.TempDir(), "app.db")
		db := openDB(t, path, options)
		mustExec(t, db, business)
		if err := sqlfence.Init(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		s := newSeal(t)
		f := guard(t, db, s.config())
		h := s.holder("r", "a", 1)
		release := held(t, openDB(t, path, durable))
		for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
			"deadline": func(c context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(c, 100*time.Millisecond)
			},
			"cancel": func(c context.Context) (context.Context, context.CancelFunc) {
				c, cancel := context.WithCancel(c)
				time.AfterFunc(100*time.Millisecond, cancel)
				return c, cancel
			},
			"over before": func(c context.Context) (context.Context, context.CancelFunc) {
				c, cancel := context.WithCancel(c)
				cancel()
				return c, cancel
			},
		} {
			ctx, cancel := end(t.Context())
			start := time.Now()
			ran := false
			_, err := f.Apply(ctx, h, "op", []byte("v"), func(context.Context, *sql.Tx) error { ran = true; return nil })
			took := time.Since(start)
			cancel()
			if !errors.Is(err, lastword.ErrUnavailable) || errors.Is(err, lastword.ErrUnknownOutcome) || ran {
				t.Errorf("%s, %s: %v, ran %v", options, name, err, ran)
			}
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				t.Errorf("%s, %s: the context is not in %v", options, name, err)
			}
			if took > 1500*time.Millisecond { // the busy_timeout is 2 s
				t.Errorf("%s, %s: took %v", options, name, took)
			}
		}
		release()
		mustPut(t, f, h, "r", "op", "v")
	}
}

func TestADeadlineThatPassesInTheEffectIsCertain(t *testing.T) {
	db, _, s, f := faultyDatabase(t, durable)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := f.Apply(ctx, s.holder("r", "a", 1), "op", []byte("v"), func(ctx context.Context, tx *sql.Tx) error {
		err := write(ctx, tx, "r", "op", "v")
		cancel()
		return err
	})
	if !errors.Is(err, lastword.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("apply: %v", err)
	}
	if n := count(t, db, `SELECT (SELECT count(*) FROM effect) + (SELECT count(*) FROM lastword_fence)`); n != 0 {
		t.Errorf("%d rows stayed", n)
	}
}

// SQLite rolls a transaction back by itself when it interrupts a statement that writes: it
// is not told as certain, since an effect that had ended it before looks the same.
func TestAStatementOfAnEffectThatIsInterruptedIsUnknownAndLeavesNothing(t *testing.T) {
	db, _, s, f := faultyDatabase(t, durable)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := f.Apply(ctx, s.holder("r", "a", 1), "op", []byte("v"), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO effect (resource, operation, value) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 'r', 'op', i FROM n`)
		return err
	})
	if !errors.Is(err, lastword.ErrUnknownOutcome) || !strings.Contains(err.Error(), "SQLite has rolled it back") {
		t.Errorf("apply: %v", err)
	}
	if n := count(t, db, `SELECT (SELECT count(*) FROM effect) + (SELECT count(*) FROM lastword_fence)`); n != 0 {
		t.Errorf("%d rows stayed", n)
	}
	mustPut(t, f, s.holder("r", "a", 1), "r", "op", "v")
}

func TestADeadlineThatPassesInCommitDoesNotStopIt(t *testing.T) { // ctx never kills a COMMIT
	db, hooks, s, f := faultyDatabase(t, durable)
	ctx, cancel := context.WithCancel(t.Context())
	hooks.set(func(e event) error {
		if e.op == "commit" && !e.after {
			cancel()
			select {
			case <-hooks.begun.Done(): // a driver stops COMMIT when this ends
				t.Error("the end of the context reached COMMIT")
			case <-time.After(50 * time.Millisecond):
			}
		}
		return nil
	})
	r, err := put(ctx, f, s.holder("r", "a", 1), "r", "op", "v")
	if err != nil || r.Verdict != lastword.Applied {
		t.Errorf("apply: %+v %v", r, err)
	}
	verify(t, db)
}

func TestAPoolWithoutAFreeConnectionSaysThatNothingWasSent(t *testing.T) { // X28
	db, _, s, f := faultyDatabase(t, durable)
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := put(ctx, f, s.holder("r", "a", 1), "r", "op", "v"); !errors.Is(err, lastword.ErrUnavailable) || errors.Is(err, lastword.ErrUnknownOutcome) {
		t.Errorf("apply: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	mustPut(t, f, s.holder("r", "a", 1), "r", "op", "v")
}

func TestAnEffectThatGoesOnAfterARollbackGetsNoReceipt(t *testing.T) {
	db, _, s, f := faultyDatabase(t, durable)
	mustPut(t, f, s.holder("r", "a", 1), "r", "first", "v")
	for name, end := range map[string]string{
		"conflict rolled back": `INSERT OR ROLLBACK INTO doc SELECT * FROM doc`,
		"explicit rollback":    `ROLLBACK`,
		"explicit commit":      `COMMIT`,
	} {
		_, err := f.Apply(t.Context(), s.holder("r", "a", 2), "op", []byte("w"), func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.ExecContext(ctx, end) // an effect that ignores what it was told
			return nil
		})
		if !errors.Is(err, lastword.ErrUnknownOutcome) { // it may have been a COMMIT
			t.Errorf("%s: %v", name, err)
		}
		in, err := f.Inspect(t.Context(), "r")
		if err != nil || in.Record.Fence != 1 || count(t, db, `SELECT count(*) FROM lastword_receipt`) != 1 {
			t.Errorf("%s: the write was recorded: %+v %v", name, in.Record, err)
		}
	}
	mustPut(t, f, s.holder("r", "a", 2), "r", "op", "w") // the connections are clean
	verify(t, db)
}

// What an effect returns proves nothing of what it did before. A statement that has failed
// and left the transaction open is certain.
func TestAnEffectThatTellsOfARollbackByTheEngineIsUnknownAndOfAnotherErrorCertain(t *testing.T) {
	db, _, s, f := faultyDatabase(t, durable)
	mustPut(t, f, s.holder("r", "a", 1), "r", "first", "v")
	for or, unknown := range map[string]bool{"OR ROLLBACK": true, "OR ABORT": false, "OR FAIL": false} {
		_, err := f.Apply(t.Context(), s.holder("r", "a", 2), "op", []byte("w"), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT `+or+` INTO doc SELECT * FROM doc`)
			return err
		})
		if err == nil || errors.Is(err, lastword.ErrUnknownOutcome) != unknown {
			t.Errorf("%s: %v", or, err)
		}
	}
	mustPut(t, f, s.holder("r", "a", 2), "r", "op", "w")
	verify(t, db)
}

func TestAnEffectThatMeddlesWithTheRecordIsRefused(t *testing.T) { // R15: the row count decides
	db, _, s, f := faultyDatabase(t, durable)
	h := s.holder("r", "a", 1)
	mustPut(t, f, h, "r", "first", "v")
	for _, meddle := range []string{
		`UPDATE lastword_fence SET fence = fence + 1`, `UPDATE lastword_fence SET lease_id = 'x'`,
		`UPDATE lastword_fence SET last_seq = 9`, `UPDATE lastword_fence SET last_operation = 'x'`,
		`UPDATE lastword_fence SET grant_digest = ''`, `UPDATE lastword_fence SET root = 'x'`,
		`UPDATE lastword_fence SET last_payload = ''`, `UPDATE lastword_fence SET policy = 'latest'`,
		`UPDATE lastword_fence SET status_mode = 'query'`, `UPDATE lastword_fence SET frozen = 1`,
		`UPDATE lastword_fence SET step = 5`, `UPDATE lastword_fence SET bundle_sequence = 77`,
		`UPDATE lastword_fence SET min_epoch = 1`, `UPDATE lastword_fence SET min_policy_generation = 1`,
		`INSERT INTO lastword_receipt SELECT domain, resource, 'op', payload, fence, seq, lease_id, grant_digest, owner, caller, root, result, applied_at FROM lastword_receipt`,
	} {
		runs := 0
		_, err := f.Apply(t.Context(), h, "op", []byte("w"), func(ctx context.Context, tx *sql.Tx) error {
			runs++
			_, err := tx.ExecContext(ctx, meddle)
			return err
		})
		if !errors.Is(err, lastword.ErrInternal) || runs != 3 {
			t.Errorf("%s: %v after %d runs", meddle, err, runs)
		}
	}
	in, err := f.Inspect(t.Context(), "r")
	if err != nil || in.Record.Fence != 1 || in.Record.LastSeq != 1 {
		t.Errorf("the record: %+v %v", in.Record, err)
	}
	mustPut(t, f, h, "r", "op", "w")
	verify(t, db)
}

func TestNoConnectionThatCouldLoseACommitIsUsed(t *testing.T) {
	for options, fine := range map[string]bool{
		"journal_mode(wal) synchronous(full)":        true,
		"journal_mode(wal) synchronous(extra)":       true,
		"journal_mode(truncate) synchronous(full)":   true,
		"journal_mode(persist) synchronous(full)":    true,
		"journal_mode(delete) synchronous(extra)":    true,
		"journal_mode(delete) synchronous(full)":     false,
		"journal_mode(wal) synchronous(normal)":      false,
		"journal_mode(wal) synchronous(off)":         false,
		"journal_mode(truncate) synchronous(normal)": false,
		"journal_mode(memory) synchronous(full)":     false,
		"journal_mode(off) synchronous(full)":        false,
	} {
		var journal, synchronous string
		if _, err := fmt.Sscanf(options, "%s %s", &journal, &synchronous); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "app.db")
		db := openDB(t, path, "_pragma="+journal+"&_pragma="+synchronous)
		if err := sqlfence.Init(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		f, err := sqlfence.New(t.Context(), db, newSeal(t).config())
		if (err == nil) != fine || err != nil && !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%s: %v", options, err)
		}
		if err == nil {
			_ = f.Close()
		}
	}
}

func TestSettingsThatChangeLaterAreNoticedInTheTransaction(t *testing.T) {
	db, _, s, f := faultyDatabase(t, durable)
	db.SetMaxOpenConns(1)
	h := s.holder("r", "a", 1)
	mustPut(t, f, h, "r", "op", "v")
	mustExec(t, db, "PRAGMA synchronous = NORMAL")
	ran := false
	_, err := f.Apply(t.Context(), h, "op2", []byte("w"), func(context.Context, *sql.Tx) error { ran = true; return nil })
	if !errors.Is(err, lastword.ErrInvalid) || ran {
		t.Errorf("apply: %v, ran %v", err, ran)
	}
	mustExec(t, db, "PRAGMA synchronous = FULL")
	mustPut(t, f, h, "r", "op2", "w")
}
