package sqlstore_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/sqlstore"
	"github.com/lastword/lastword/store/storetest"
)

func harness(cfg sqlstore.Config) storetest.Harness {
	var path string
	var last *sqlstore.Store
	open := func(t storetest.TB) (*sqlstore.Store, error) { return sqlstore.Open(t.Context(), path, cfg) }
	must := func(t storetest.TB) store.Store {
		t.Helper()
		s, err := open(t)
		if err != nil {
			t.Fatalf("%v", err)
		}
		last = s
		return s
	}
	return storetest.Harness{
		Open: func(t storetest.TB) store.Store {
			path = filepath.Join(t.TempDir(), "authority.db")
			return must(t)
		},
		Reopen: func(t storetest.TB, graceful bool) store.Store {
			if !graceful {
				crashed := last
				path = crash(t, path)
				defer crashed.Close() // what it does to its own files comes too late
			}
			return must(t)
		},
		Second: func(t storetest.TB) (store.Store, error) {
			s, err := open(t)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
	}
}

// crash copies the files as they are, in the middle of everything: the state that a
// process leaves that is killed now.
func crash(t storetest.TB, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "authority.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(path + suffix)
		if err == nil {
			err = os.WriteFile(to+suffix, b, 0o600)
		}
		if err != nil {
			t.Fatalf("%v", err)
		}
	}
	return to
}

func TestTheStorePassesTheKit(t *testing.T) {
	configs := map[string]sqlstore.Config{
		"with its cache":              {},
		"without a cache":             {CacheRecords: -1},
		"with a cache of two records": {CacheRecords: 2},
		"with a cache of few bytes":   {CacheBytes: 3000},
	}
	if small || testing.Short() {
		configs = map[string]sqlstore.Config{"with a cache of two records": {CacheRecords: 2}}
	}
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) { storetest.Run(t, harness(cfg)) })
	}
}

func BenchmarkStore(b *testing.B) { storetest.RunBenchmarks(b, harness(sqlstore.Config{})) }

// open opens a store that ends with the test.
func open(t *testing.T, path string, cfg sqlstore.Config) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// other is another program's connection to the file, with no settings of ours.
func other(t *testing.T, path string) *sql.Conn {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func run(t *testing.T, conn *sql.Conn, query string) {
	t.Helper()
	if _, err := conn.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

var first = store.Step{Create: true, Header: &store.Header{Exists: true, Identity: "test", TickSpan: 1e8, Tick: 7}}

// version writes one version of a record, with a request.
func version(resource lastword.Resource, n uint64) store.Step {
	id := fmt.Sprint("r", n)
	return store.Step{
		Record: &store.Record{Resource: resource, Revision: n, Counter: n, Lease: store.Lease{ID: fmt.Sprint("l", n), Owner: "worker",
			RequestID: id, Fence: lastword.Token(n), State: lastword.StateHeld, Root: lastword.DigestOf([]byte("root"))}},
		Requests: []store.Request{{Owner: "worker", ID: id, LeaseID: fmt.Sprint("l", n), Fence: lastword.Token(n), State: lastword.StateHeld}},
	}
}

func commit(t *testing.T, s *sqlstore.Store, steps ...store.Step) {
	t.Helper()
	applied, err := s.Commit(t.Context(), steps...)
	if err != nil || slices.Contains(applied, false) {
		t.Fatalf("commit: %v, %v", applied, err)
	}
}

func revision(t *testing.T, s *sqlstore.Store, resource lastword.Resource) uint64 {
	t.Helper()
	view, err := s.Read(t.Context(), store.Query{Resource: resource})
	if err != nil {
		t.Fatal(err)
	}
	return view.Entries[0].Record.Revision
}

func TestTheFileIsReadableByPeople(t *testing.T) {
	path := filepath.Join(t.TempDir(), "authority.db")
	s := open(t, path, sqlstore.Config{})
	commit(t, s, first, version("doc/1", 1))
	var got string
	row := other(t, path).QueryRowContext(t.Context(), `SELECT r.resource || ' ' || r.owner || ' ' || r.fence || ' ' || r.state || ' ' || substr(r.root, 1, 11) || ' ' || q.request_id || ' ' || h.tick
		FROM lastword_record r JOIN lastword_request q ON q.resource = r.resource AND q.lease_id = r.lease_id JOIN lastword_header h`)
	if err := row.Scan(&got); err != nil {
		t.Fatal(err)
	}
	if want := "doc/1 worker 1 HELD sha256:4813 r1 7"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What somebody changes by hand is not overwritten by what is remembered, and is seen
// from the next Commit on.
func TestAWriteOfAnotherProgramIsNoticed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "authority.db")
	s := open(t, path, sqlstore.Config{})
	commit(t, s, first, version("doc", 1), version("doc/2", 1))
	run(t, other(t, path), "UPDATE lastword_header SET tick = 100; UPDATE lastword_record SET revision = 5")
	stale := version("doc", 2)
	stale.OnTick, stale.Tick = true, 7
	if applied, err := s.Commit(t.Context(), stale, version("doc", 2)); err != nil || applied[0] || applied[1] {
		t.Errorf("steps on the old view: %v, %v", applied, err)
	}
	view, err := s.Read(t.Context(), store.Query{Resource: "doc"}, store.Query{Resource: "doc/2"})
	if err != nil || view.Header.Tick != 100 || view.Entries[0].Record.Revision != 5 || view.Entries[1].Record.Revision != 5 {
		t.Errorf("got %+v, %v", view, err)
	}
}

func TestAFileThatIsMovedAwayIsNotWrittenOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "authority.db")
	s := open(t, path, sqlstore.Config{})
	commit(t, s, first)
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	_, err := s.Commit(t.Context(), version("doc", 1))
	if !errors.Is(err, lastword.ErrUnavailable) || !strings.Contains(err.Error(), "moved, replaced or deleted") {
		t.Errorf("commit: %v", err)
	}
	if _, err := s.Read(t.Context()); !errors.Is(err, lastword.ErrUnavailable) {
		t.Errorf("read: %v", err)
	}
}
