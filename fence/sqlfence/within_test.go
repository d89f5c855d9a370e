package sqlfence_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/sqlfence"
)

func begin(tb testing.TB, db *sql.DB) *sql.Tx {
	tb.Helper()
	tx, err := db.BeginTx(tb.Context(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func TestWithinIsProvisionalUntilTheCallerCommits(t *testing.T) {
	db, _ := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	h := s.holder("r", "a", 1)
	for i, commit := range []bool{false, true} {
		tx := begin(t, db)
		r, err := f.Within(t.Context(), tx, h, "op", []byte("v"))
		if err != nil || r.Verdict != lastword.Applied || r.Seq != 1 {
			t.Fatalf("within %d: %+v %v", i, r, err)
		}
		if err := write(t.Context(), tx, "r", "op", "v"); err != nil {
			t.Fatal(err)
		}
		if _, found, err := f.Lookup(t.Context(), "r", "op"); err != nil || found {
			t.Errorf("the receipt is visible before COMMIT: %v %v", found, err)
		}
		if commit {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, found, err := f.Lookup(t.Context(), "r", "op"); err != nil || found != commit {
			t.Errorf("after commit=%v: found %v, %v", commit, found, err)
		}
	}
	tx := begin(t, db)
	if r, err := f.Within(t.Context(), tx, h, "op", []byte("v")); err != nil || r.Verdict != lastword.Replayed {
		t.Errorf("again: %+v %v", r, err)
	}
	verify(t, db)
}

func TestARefusalWithinLeavesItsEvidenceForLater(t *testing.T) { // R16b
	db, _ := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	mustPut(t, f, s.holder("r", "b", 2), "r", "b1", "v")
	tx := begin(t, db)
	if _, err := f.Within(t.Context(), tx, s.holder("r", "a", 1), "a1", []byte("late")); !errors.Is(err, lastword.ErrStale) {
		t.Fatalf("within: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := f.Gate().Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if in, err := f.Inspect(t.Context(), "r"); err != nil || in.Refusals[lastword.StaleOwner] != 1 || in.Record.Fence != 2 {
		t.Errorf("inspect: %+v %v", in, err)
	}
	verify(t, db)
}

func TestADeferredTransactionTakesTheLockBeforeItReads(t *testing.T) { // R16
	db, path := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	mustPut(t, f, s.holder("r", "a", 1), "r", "a1", "v")
	tx := begin(t, db)
	if _, err := f.Within(t.Context(), tx, s.holder("r", "b", 2), "b1", []byte("w")); err != nil {
		t.Fatal(err)
	}
	other := openDB(t, path, "_pragma=busy_timeout(0)")
	if _, err := other.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err == nil {
		t.Error("somebody else got the write lock too")
	}
}

func TestATransactionThatReadTooEarlyMustBeRunAgain(t *testing.T) { // R16: SQLITE_BUSY_SNAPSHOT
	db, path := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	h := s.holder("r", "a", 1)
	mustPut(t, f, h, "r", "a1", "v")

	tx := begin(t, db)
	var n int
	if err := tx.QueryRowContext(t.Context(), `SELECT count(*) FROM doc`).Scan(&n); err != nil { // its snapshot is taken
		t.Fatal(err)
	}
	other := guard(t, openDB(t, path, durable), s.config())
	mustPut(t, other, s.holder("r", "b", 2), "r", "b1", "w") // and outdated

	_, err := f.Within(t.Context(), tx, h, "a2", []byte("x"))
	if !errors.Is(err, sqlfence.ErrRetryTransaction) || !errors.Is(err, lastword.ErrUnavailable) ||
		errors.Is(err, lastword.ErrStale) || errors.Is(err, lastword.ErrUnknownOutcome) {
		t.Fatalf("within: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Within(t.Context(), begin(t, db), h, "a2", []byte("x")); !errors.Is(err, lastword.ErrStale) {
		t.Errorf("run again, it must see the newer fence: %v", err)
	}
	verify(t, db)
}

func TestALockThatSomebodyElseHoldsMeansRunAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	db := openDB(t, path, "_pragma=busy_timeout(1)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err := sqlfence.Init(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	s := newSeal(t)
	f := guard(t, db, s.config())
	defer held(t, openDB(t, path, durable))()
	if _, err := f.Within(t.Context(), begin(t, db), s.holder("r", "a", 1), "op", nil); !errors.Is(err, sqlfence.ErrRetryTransaction) {
		t.Errorf("within: %v", err)
	}
}

func TestATransactionThatIsNotOursIsRefused(t *testing.T) {
	db, path := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	ended := begin(t, db)
	if err := ended.Rollback(); err != nil {
		t.Fatal(err)
	}
	for name, tx := range map[string]*sql.Tx{"nil": nil, "of another pool": begin(t, openDB(t, path, durable)), "ended": ended} {
		_, err := f.Within(t.Context(), tx, s.holder("r", "a", 1), "op", []byte("v"))
		var e *lastword.Error
		if !errors.As(err, &e) || errors.Is(err, lastword.ErrUnknownOutcome) {
			t.Errorf("%s: %v", name, err)
		}
		t.Log(err)
	}
}
