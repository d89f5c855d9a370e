package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/realservers"
	"github.com/lastword/lastword/internal/sqldb"
)

// postgres is one server for all tests of the package, started by the first that asks.
var postgres struct {
	once   sync.Once
	server *realservers.Server
	err    error
	number int
}

func TestMain(m *testing.M) {
	code := m.Run()
	if postgres.server != nil {
		if err := postgres.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// openPostgreSQL is a fresh database on it. Without a server the test fails.
func openPostgreSQL(t *testing.T) *sql.DB {
	t.Helper()
	postgres.once.Do(func() {
		postgres.server, postgres.err = realservers.PostgreSQL(context.Background(), realservers.Config{})
	})
	if postgres.err != nil {
		t.Fatal(postgres.err)
	}
	admin, err := sql.Open("pgx", postgres.server.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	postgres.number++
	name := fmt.Sprintf("d%d", postgres.number)
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", "postgres://postgres@"+postgres.server.Addr+"/"+name+"?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// pgSchema is what schema is on SQLite: two steps, the second one not repeatable.
var pgSchema = sqldb.Schema{Name: "test", Tables: []string{"lastword_test"}, Steps: [][]string{
	{"CREATE TABLE lastword.test (v integer)", "INSERT INTO lastword.test VALUES (1)"},
	{"UPDATE lastword.test SET v = v + 1"},
}}

func TestEightInstancesMigratePostgreSQLAtOnce(t *testing.T) { // KF-38
	db := openPostgreSQL(t)
	mustExec(t, db, "ALTER DATABASE "+databaseName(t, db)+" SET default_transaction_isolation = 'serializable'")
	db.SetMaxIdleConns(0) // so that every connection has it
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			err := (sqldb.Backoff{}).Retry(t.Context(), sqldb.PostgreSQL{}, func(ctx context.Context) error {
				c, err := db.Conn(ctx)
				if err != nil {
					return err
				}
				defer c.Close()
				return sqldb.Migrate(ctx, sqldb.PostgreSQL{}, c, pgSchema)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var v int
	if err := db.QueryRowContext(t.Context(), "SELECT v FROM lastword.test").Scan(&v); err != nil || v != 2 {
		t.Errorf("the second step ran to %d, %v; want once, 2", v, err)
	}
}

func databaseName(t *testing.T, db *sql.DB) (name string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

func mustExec(t *testing.T, q sqldb.Querier, statement string) {
	t.Helper()
	if _, err := q.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func TestAPostgreSQLThatIsNotOursIsRefusedAndNotTouched(t *testing.T) {
	for name, before := range map[string]string{
		"a clash":         "CREATE SCHEMA lastword; CREATE TABLE lastword.test (x int)",
		"newer":           "CREATE SCHEMA lastword; CREATE TABLE lastword.schema (name text, version integer); INSERT INTO lastword.schema VALUES ('test', 9)",
		"a missing table": "CREATE SCHEMA lastword; CREATE TABLE lastword.schema (name text, version integer); INSERT INTO lastword.schema VALUES ('test', 2)",
	} {
		c := conn(t, openPostgreSQL(t))
		mustExec(t, c, before)
		tables, _ := sqldb.PostgreSQL{}.Tables(t.Context(), c)
		if err := sqldb.Migrate(t.Context(), sqldb.PostgreSQL{}, c, pgSchema); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if after, _ := (sqldb.PostgreSQL{}).Tables(t.Context(), c); fmt.Sprint(after) != fmt.Sprint(tables) {
			t.Errorf("%s: tables %v became %v", name, tables, after)
		}
	}
}

func TestARoleWithoutRightsSeesThatNothingIsToBeDone(t *testing.T) {
	db := openPostgreSQL(t)
	c := conn(t, db)
	if err := sqldb.Migrate(t.Context(), sqldb.PostgreSQL{}, c, pgSchema); err != nil {
		t.Fatal(err)
	}
	role := "r_" + databaseName(t, db)
	mustExec(t, c, "CREATE ROLE "+role+"; GRANT USAGE ON SCHEMA lastword TO "+role+"; GRANT SELECT ON lastword.schema TO "+role)
	mustExec(t, c, "SET ROLE "+role)
	if err := sqldb.Migrate(t.Context(), sqldb.PostgreSQL{}, c, pgSchema); err != nil {
		t.Error(err)
	}
	later := pgSchema
	later.Steps = append(later.Steps[:2:2], []string{"UPDATE lastword.test SET v = 3"})
	if err := sqldb.Migrate(t.Context(), sqldb.PostgreSQL{}, c, later); (sqldb.PostgreSQL{}).Class(err) != sqldb.CannotOpen {
		t.Errorf("a step without the right: %v", err)
	}
}

// stated is an error of a PostgreSQL driver.
type stated string

func (s stated) SQLState() string { return string(s) }
func (s stated) Error() string    { return "state " + string(s) }

func TestPostgreSQLErrorsAreSortedBySQLSTATE(t *testing.T) {
	d := sqldb.PostgreSQL{}
	for state, want := range map[string]struct {
		class      sqldb.Class
		rolledBack bool
	}{
		"40001": {sqldb.Busy, true}, "40P01": {sqldb.Busy, true}, "55P03": {sqldb.Busy, false}, "40003": {sqldb.Other, false},
		"23505": {sqldb.Constraint, true}, "23503": {sqldb.Constraint, true}, "P0001": {sqldb.Other, true}, "22003": {sqldb.Other, true},
		"53100": {sqldb.Full, false}, "53200": {sqldb.Full, false}, "53300": {sqldb.Unreachable, false},
		"57P01": {sqldb.Unreachable, false}, "57P02": {sqldb.Unreachable, false}, "57P03": {sqldb.Unreachable, false},
		"08006": {sqldb.Unreachable, false}, "08P01": {sqldb.Unreachable, false}, "57014": {sqldb.Interrupted, false},
		"58030": {sqldb.IO, false}, "XX000": {sqldb.IO, false}, "25006": {sqldb.ReadOnly, false},
		"42501": {sqldb.CannotOpen, true}, "28P01": {sqldb.CannotOpen, false}, "3D000": {sqldb.CannotOpen, false},
		"": {sqldb.Other, false}, "nonsense": {sqldb.Other, false},
	} {
		err := fmt.Errorf("wrapped: %w", stated(state))
		if got := d.Class(err); got != want.class {
			t.Errorf("%s is %v, want %v", state, got, want.class)
		}
		if got := d.RolledBack(err); got != want.rolledBack {
			t.Errorf("%s at COMMIT proves the roll-back: %v, want %v", state, got, want.rolledBack)
		}
	}
	if d.RolledBack(nil) || d.RolledBack(context.DeadlineExceeded) || d.Class(nil) != sqldb.Other {
		t.Error("an error without a code proves nothing")
	}
	if !d.RolledBack(errors.New("commit unexpectedly resulted in rollback")) {
		t.Error("a COMMIT that was answered with ROLLBACK did not happen")
	}
}

func TestATransactionOnPostgreSQLIsWholeOrNothing(t *testing.T) {
	db := openPostgreSQL(t)
	c := conn(t, db)
	mustExec(t, c, "CREATE TABLE t (x int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)")
	insert := func(x int, fail error) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.ExecContext(ctx, fmt.Sprintf("INSERT INTO t VALUES (%d)", x))
			return errors.Join(err, fail)
		}
	}
	if outcome, err := sqldb.Transact(t.Context(), sqldb.PostgreSQL{}, c, insert(1, errors.New("no"))); outcome != sqldb.RolledBack || err == nil {
		t.Errorf("a failing transaction: %v, %v", outcome, err)
	}
	if outcome, err := sqldb.Transact(t.Context(), sqldb.PostgreSQL{}, c, insert(2, nil)); outcome != sqldb.Committed || err != nil {
		t.Errorf("a good transaction: %v, %v", outcome, err)
	}
	if outcome, err := sqldb.Transact(t.Context(), sqldb.PostgreSQL{}, c, insert(2, nil)); outcome != sqldb.RolledBack || err == nil {
		t.Errorf("a constraint at COMMIT: %v, %v", outcome, err)
	}
	if outcome, err := sqldb.Transact(t.Context(), sqldb.PostgreSQL{}, c, func(ctx context.Context) error {
		_, err := c.ExecContext(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
		return err
	}); outcome != sqldb.RolledBack || err == nil {
		t.Errorf("a connection lost before COMMIT: %v, %v", outcome, err)
	}
	c = conn(t, db)
	if outcome, err := sqldb.Transact(t.Context(), sqldb.PostgreSQL{}, c, func(ctx context.Context) error {
		_, _ = c.ExecContext(ctx, "SELECT 1 / 0") // nobody looks, and COMMIT would say nothing
		return nil
	}); outcome != sqldb.RolledBack || sqldb.SQLState(err) != "25P02" {
		t.Errorf("a transaction that has failed: %v, %v", outcome, err)
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(&n); err != nil || n != 1 {
		t.Errorf("rows: %d, %v", n, err)
	}
}
