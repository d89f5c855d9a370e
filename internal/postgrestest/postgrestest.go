// Package postgrestest gives tests a database of their own on a real PostgreSQL, which
// is started once for each test binary.
//
// # Guarantees
//
// A server that is not installed or does not start fails the test that asks for it.
// [Main] stops what was started.
//
// # Not guaranteed
//
// Databases of one binary share a server: a test that kills one starts its own.
package postgrestest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/lastword/lastword/internal/realservers"
)

// TB is what is needed of a test.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Fatalf(format string, args ...any)
}

var shared struct {
	once    sync.Once
	server  *realservers.Server
	err     error
	numbers atomic.Int64

	mu        sync.Mutex
	templates map[string]string
	free      map[string][]string // databases that were given back, by name
}

// Main runs the tests and stops the server. It is for TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }
func Main(m *testing.M) int {
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// Server is the server of this test binary.
func Server(tb TB) *realservers.Server {
	tb.Helper()
	shared.once.Do(func() {
		shared.templates, shared.free = map[string]string{}, map[string][]string{}
		shared.server, shared.err = realservers.PostgreSQL(context.Background(), realservers.Config{Settings: []string{"max_prepared_transactions=10"}})
		if shared.err == nil {
			fmt.Fprintf(os.Stderr, "postgresql %s at %s\n", shared.server.Version, shared.server.Addr)
		}
	})
	if shared.err != nil {
		tb.Fatalf("%v", shared.err)
	}
	return shared.server
}

// DSN is a URL of a database on a server.
func DSN(addr, database string) string {
	return "postgres://postgres@" + addr + "/" + database + "?sslmode=disable"
}

// Name is the database in a URL.
func Name(dsn string) string {
	name, _, _ := strings.Cut(dsn[strings.LastIndexByte(dsn, '/')+1:], "?")
	return name
}

// New is the URL of a new database, in which prepare has been done: once for each name,
// and copied for every further one.
func New(tb TB, name string, prepare func(ctx context.Context, db *sql.DB) error) string {
	tb.Helper()
	server := Server(tb)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	made := create(tb, server, name, prepare)
	tb.Cleanup(func() { drop(server.DSN, made) })
	return DSN(server.Addr, made)
}

// Lend is [New] for a test that leaves the tables as they are: afterwards reset empties
// them, and another test gets the database.
func Lend(tb TB, name string, prepare, reset func(ctx context.Context, db *sql.DB) error) string {
	tb.Helper()
	server := Server(tb)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var made string
	if free := shared.free[name]; len(free) > 0 {
		made, shared.free[name] = free[0], free[1:]
	} else {
		made = create(tb, server, name, prepare)
	}
	dsn := DSN(server.Addr, made)
	tb.Cleanup(func() {
		db, err := sql.Open("pgx", dsn)
		if err == nil {
			err = errors.Join(reset(context.Background(), db), db.Close())
		}
		if err != nil {
			tb.Fatalf("reset %s: %v", made, err)
		}
		shared.mu.Lock()
		defer shared.mu.Unlock()
		shared.free[name] = append(shared.free[name], made)
	})
	return dsn
}

func open(tb TB, dsn string) *sql.DB {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return db
}

// create copies the template of the name, which the first call makes.
func create(tb TB, server *realservers.Server, name string, prepare func(ctx context.Context, db *sql.DB) error) string {
	admin := open(tb, server.DSN)
	defer admin.Close()
	if shared.templates[name] == "" && prepare != nil {
		template := copied(tb, admin, "template0")
		db := open(tb, DSN(server.Addr, template))
		if err := prepare(tb.Context(), db); err != nil {
			tb.Fatalf("prepare %s: %v", name, err)
		}
		if err := db.Close(); err != nil {
			tb.Fatalf("%v", err)
		}
		shared.templates[name] = template
	}
	return copied(tb, admin, cmp.Or(shared.templates[name], "template0"))
}

func copied(tb TB, admin *sql.DB, template string) string {
	name := fmt.Sprintf("test%d", shared.numbers.Add(1))
	if _, err := admin.ExecContext(tb.Context(), "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		tb.Fatalf("%v", err)
	}
	return name
}

// drop keeps the server small; it goes with the binary all the same.
func drop(dsn, name string) {
	admin, err := sql.Open("pgx", dsn)
	if err != nil {
		return
	}
	defer admin.Close()
	_, _ = admin.ExecContext(context.Background(), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}
