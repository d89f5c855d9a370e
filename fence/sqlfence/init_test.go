package sqlfence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/sqlfence"
)

// oneLine checks an error that a person will read.
func oneLine(tb testing.TB, name string, err error, code lastword.Code) {
	tb.Helper()
	var e *lastword.Error
	switch {
	case !errors.As(err, &e) || e.Code != code:
		tb.Errorf("%s: %v, want %s", name, err, code)
	case strings.Contains(err.Error(), "\n") || e.Hint == "" || e.Op == "":
		tb.Errorf("%s: %q is not one line with a way out", name, err)
	default:
		tb.Logf("%s: %v", name, err)
	}
}

func TestInitRunsAtOnceAndAgain(t *testing.T) { // KF-38 (1), within one process; the processes are in TestEightProcesses…
	path := filepath.Join(t.TempDir(), "app.db")
	var all sync.WaitGroup
	for range 8 {
		db := openDB(t, path, "_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(1)")
		all.Go(func() {
			if err := sqlfence.Init(t.Context(), db); err != nil {
				t.Error(err)
				return
			}
			f, err := sqlfence.New(t.Context(), db, newSeal(t).config())
			if err != nil {
				t.Error(err)
				return
			}
			_ = f.Close()
		})
	}
	all.Wait()
	db := openDB(t, path, durable)
	if n := count(t, db, `SELECT count(*) FROM lastword_schema WHERE name = 'fence' AND version = ?`, sqlfence.Steps()); n != 1 {
		t.Errorf("%d rows of the schema", n)
	}
}

func TestAnOlderSchemaIsUpgradedOnceAndKeepsItsRecords(t *testing.T) { // KF-38 (1)
	db, path := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	mustPut(t, f, s.holder("r", "a", 41), "r", "op", "v")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	next := []string{`ALTER TABLE lastword_fence ADD COLUMN extra INTEGER NOT NULL DEFAULT 0`, `UPDATE lastword_fence SET extra = extra + 1`}
	var all sync.WaitGroup
	for range 8 {
		other := openDB(t, path, durable)
		all.Go(func() {
			if err := sqlfence.InitWith(t.Context(), other, next); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var extra, token int
	if err := db.QueryRowContext(t.Context(), `SELECT extra, fence FROM lastword_fence`).Scan(&extra, &token); err != nil || extra != 1 || token != 41 {
		t.Errorf("upgraded %d times, fence %d, %v", extra, token, err)
	}
	// The program of before does not run on what it does not know.
	_, err := sqlfence.New(t.Context(), db, s.config())
	oneLine(t, "newer schema", err, lastword.CodeInvalid)
	oneLine(t, "newer schema, init", sqlfence.Init(t.Context(), db), lastword.CodeInvalid)
}

func TestAMigrationThatFailsHalfwayLeavesTheOldVersion(t *testing.T) { // X38
	db, _ := database(t)
	if err := sqlfence.InitWith(t.Context(), db, []string{`ALTER TABLE lastword_fence ADD COLUMN extra INTEGER`, `rubbish`}); err == nil {
		t.Fatal("rubbish went through")
	}
	if n := count(t, db, `SELECT count(*) FROM pragma_table_info('lastword_fence') WHERE name = 'extra'`); n != 0 {
		t.Error("half a step stayed")
	}
	if f, err := sqlfence.New(t.Context(), db, newSeal(t).config()); err != nil {
		t.Error(err)
	} else {
		_ = f.Close()
	}
}

func TestWhatIsNoGuardedDatabaseIsRefusedWithOneLine(t *testing.T) {
	ctx, cfg := t.Context(), newSeal(t).config()
	dir := t.TempDir()
	open := func(path string) error {
		f, err := sqlfence.New(ctx, openDB(t, path, durable), cfg)
		if err == nil {
			_ = f.Close()
		}
		return err
	}

	foreign := filepath.Join(dir, "foreign.db")
	mustExec(t, openDB(t, foreign, durable), `CREATE TABLE customers (id INTEGER PRIMARY KEY)`)
	err := open(foreign)
	oneLine(t, "another program's file", err, lastword.CodeInvalid)
	if !strings.Contains(err.Error(), "fence init") {
		t.Errorf("no word of fence init: %v", err)
	}

	squatter := filepath.Join(dir, "squatter.db")
	mustExec(t, openDB(t, squatter, durable), `CREATE TABLE lastword_fence (x)`)
	oneLine(t, "a table of our name", sqlfence.Init(ctx, openDB(t, squatter, durable)), lastword.CodeInvalid)

	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	plain := func(path string) *sql.DB { return openDB(t, path, "") }
	oneLine(t, "garbage, init", sqlfence.Init(ctx, plain(garbage)), lastword.CodeInvalid)
	_, err = sqlfence.New(ctx, plain(garbage), cfg)
	oneLine(t, "garbage", err, lastword.CodeInvalid)
	oneLine(t, "a directory", sqlfence.Init(ctx, plain(dir)), lastword.CodeUnavailable)
	oneLine(t, "a path that leads nowhere", sqlfence.Init(ctx, plain(filepath.Join(dir, "no", "such", "x.db"))), lastword.CodeUnavailable)
	oneLine(t, "no database", sqlfence.Init(ctx, nil), lastword.CodeInvalid)
	_, err = sqlfence.New(ctx, nil, cfg)
	oneLine(t, "no database, new", err, lastword.CodeInvalid)

	closed := plain(filepath.Join(dir, "closed.db"))
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	oneLine(t, "a closed pool", sqlfence.Init(ctx, closed), lastword.CodeUnavailable)

	oneLine(t, "another engine", sqlfence.Init(ctx, sql.OpenDB(otherEngine{})), lastword.CodeInvalid)
	if _, err := sqlfence.New(ctx, plain(foreign), sqlfence.Config{}); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("an empty configuration: %v", err)
	}

	lost, _ := database(t)
	mustExec(t, lost, `DROP TABLE lastword_receipt`)
	_, err = sqlfence.New(ctx, lost, cfg)
	oneLine(t, "a table is gone", err, lastword.CodeInvalid)
}

// otherEngine is a database that is not SQLite.
type otherEngine struct{}

func (otherEngine) Connect(context.Context) (driver.Conn, error) { return otherEngine{}, nil }
func (otherEngine) Driver() driver.Driver                        { return nil }
func (otherEngine) Begin() (driver.Tx, error)                    { return nil, errors.New("no") }
func (otherEngine) Close() error                                 { return nil }
func (otherEngine) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("function sqlite_version() does not exist")
}

func TestADatabaseThatCannotBeWrittenToIsRefusedAtTheStart(t *testing.T) { // KF-38 (2)
	_, path := database(t)
	for name, options := range map[string]string{
		"mode=ro":    "mode=ro&" + durable,
		"query_only": durable + "&_pragma=query_only(1)",
	} {
		readOnly := openDB(t, path, options)
		_, err := sqlfence.New(t.Context(), readOnly, newSeal(t).config())
		oneLine(t, name, err, lastword.CodeUnavailable)
		oneLine(t, name+", init of a new file", sqlfence.Init(t.Context(), openDB(t, filepath.Join(t.TempDir(), "new.db"), options)), lastword.CodeUnavailable)
	}
}

func TestAFullDatabaseRefusesAndRecovers(t *testing.T) { // KF-38 (2), X19
	db, _ := database(t)
	db.SetMaxOpenConns(1)
	s := newSeal(t)
	f := guard(t, db, s.config())
	h := s.holder("r", "a", 1)
	mustPut(t, f, h, "r", "first", "v")
	mustExec(t, db, `PRAGMA max_page_count = 1`) // no page more than there are
	big := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO effect (resource, operation, value) VALUES ('r', 'big', hex(zeroblob(100000)))`)
		return err
	}
	_, err := f.Apply(t.Context(), h, "big", []byte("big"), big)
	// SQLite has rolled it back, and nothing proves that: unknown, with the cause.
	if !errors.Is(err, lastword.ErrUnknownOutcome) || !strings.Contains(err.Error(), "database or disk is full") || count(t, db, `SELECT count(*) FROM effect`) != 1 {
		t.Errorf("a big effect: %v", err)
	}
	// Small ones go on until the fence's own rows find no room.
	n := 0
	for ; n < 1000; n++ {
		m := lastword.Mutation{Grant: h.grant, Operation: strings.Repeat("x", 400) + string(rune('a'+n%26)) + strings.Repeat("y", n/26), Payload: lastword.DigestOf([]byte("v"))}
		_, err = f.ApplyMutation(t.Context(), "r", m, func(context.Context, *sql.Tx) error { return nil })
		if err != nil {
			break
		}
	}
	oneLine(t, "full", err, lastword.CodeUnavailable)
	if got := count(t, db, `SELECT count(*) FROM lastword_receipt`); got != n+1 {
		t.Errorf("%d receipts for %d acknowledged writes", got, n+1)
	}
	if got := count(t, db, `SELECT last_seq FROM lastword_fence`); got != n+1 {
		t.Errorf("last_seq is %d after %d acknowledged writes", got, n+1)
	}
	mustExec(t, db, `PRAGMA max_page_count = 100000`)
	m := lastword.Mutation{Grant: h.grant, Operation: "after", Payload: lastword.DigestOf([]byte("v"))}
	if r, err := f.ApplyMutation(t.Context(), "r", m, func(context.Context, *sql.Tx) error { return nil }); err != nil || r.Seq != uint64(n)+2 {
		t.Errorf("after room was made: %+v %v", r, err)
	}
}

func TestADatabaseInMemoryIsAPlaceOfItsOwn(t *testing.T) {
	names := map[string]bool{}
	for range 2 {
		db, err := sql.Open("sqlite", ":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		db.SetMaxOpenConns(1) // each connection would be another database
		mustExec(t, db, business)
		if err := sqlfence.Init(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		s := newSeal(t)
		f := guard(t, db, s.config())
		mustPut(t, f, s.holder("r", "b", 2), "r", "op", "v")
		if _, err := put(t.Context(), f, s.holder("r", "a", 1), "r", "late", "w"); !errors.Is(err, lastword.ErrStale) {
			t.Errorf("late: %v", err)
		}
		names[f.Place().Name()] = true
		verify(t, db)
	}
	if len(names) != 2 {
		t.Errorf("two databases are called %v", names)
	}
}

func TestInitRefusesAnAuthoritysStore(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "store.db"), durable)
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE lastword_header (x)`); err != nil {
		t.Fatal(err)
	}
	oneLine(t, "an authority's store", sqlfence.Init(t.Context(), db), lastword.CodeInvalid)
	if n := count(t, db, `SELECT count(*) FROM sqlite_schema WHERE name LIKE 'lastword_fence%'`); n != 0 {
		t.Error("tables were made in it")
	}
}
