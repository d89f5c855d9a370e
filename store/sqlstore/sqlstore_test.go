package sqlstore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/sqlstore"
	"github.com/lastword/lastword/store/storetest"
	_ "modernc.org/sqlite"
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
	for name, cfg := range map[string]sqlstore.Config{
		"with its cache":              {},
		"without a cache":             {CacheRecords: -1},
		"with a cache of two records": {CacheRecords: 2},
		"with a cache of few bytes":   {CacheBytes: 3000},
	} {
		t.Run(name, func(t *testing.T) { storetest.Run(t, harness(cfg)) })
	}
}

func BenchmarkStore(b *testing.B) { storetest.RunBenchmarks(b, harness(sqlstore.Config{})) }

var _ = fmt.Sprint
