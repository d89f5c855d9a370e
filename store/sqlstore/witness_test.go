package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/sqlstore"
)

var _ authority.Witness = (*sqlstore.Witness)(nil)

func newWitness(t *testing.T, path string) *sqlstore.Witness {
	t.Helper()
	w, err := sqlstore.NewWitness(path, sqlstore.WitnessConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func swap(t *testing.T, w *sqlstore.Witness, old *store.Mark, next store.Mark) bool {
	t.Helper()
	ok, err := w.Swap(t.Context(), old, next)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func loaded(t *testing.T, w *sqlstore.Witness) *store.Mark {
	t.Helper()
	m, err := w.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// R10: what is compared is the whole mark; who reads makes no file.
func TestR10AWitnessInASecondStoreComparesAndSets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.db")
	w := newWitness(t, path)
	if m := loaded(t, w); m != nil {
		t.Fatalf("a mark of nothing: %+v", m)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("reading made a file: %v", err)
	}
	first := store.Mark{Current: 3, Pending: 4, Starting: true, First: true, Longest: 24 * store.Span(time.Hour), Store: "s1"}
	if !swap(t, w, nil, first) || swap(t, w, nil, first) {
		t.Fatal("the first mark is not set exactly once")
	}
	other := newWitness(t, path)
	if m := loaded(t, other); m == nil || *m != first {
		t.Fatalf("another handle reads %+v", m)
	}
	for name, wrong := range map[string]func(m *store.Mark){
		"store": func(m *store.Mark) { m.Store = "s2" }, "current": func(m *store.Mark) { m.Current++ },
		"pending": func(m *store.Mark) { m.Pending++ }, "starting": func(m *store.Mark) { m.Starting = false },
		"first": func(m *store.Mark) { m.First = false }, "longest": func(m *store.Mark) { m.Longest++ },
	} {
		old := first
		wrong(&old)
		if swap(t, other, &old, store.Mark{Store: "thief"}) {
			t.Errorf("swapped although %s differs", name)
		}
		if done, err := other.Retire(t.Context(), old); done || err != nil {
			t.Errorf("retired although %s differs: %v", name, err)
		}
	}
	next := store.Mark{Current: lastword.MaxEpoch, Pending: lastword.MaxEpoch, Store: "s1"}
	if !swap(t, other, &first, next) || *loaded(t, w) != next {
		t.Fatal("the right swap was refused, or is not seen")
	}
	if done, err := w.Retire(t.Context(), next); !done || err != nil || loaded(t, other) != nil {
		t.Fatalf("not retired: %v", err)
	}
}

func TestR10AWitnessThatWasExchangedOrIsGoneIsNotRememberedFromBefore(t *testing.T) {
	dir := t.TempDir()
	path, away := filepath.Join(dir, "w.db"), filepath.Join(dir, "away.db")
	w := newWitness(t, path)
	mark := store.Mark{Current: 1, Pending: 1, Store: "s1"}
	swap(t, w, nil, mark)
	other := newWitness(t, away)
	swap(t, other, nil, store.Mark{Current: 7, Pending: 7, Store: "s1"})
	_ = other.Close()
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if m := loaded(t, w); m != nil {
		t.Fatalf("a witness that is gone says %+v", m)
	}
	for _, more := range []string{"-wal", "-shm"} {
		_ = os.Remove(path + more)
	}
	if err := os.Rename(away, path); err != nil {
		t.Fatal(err)
	}
	if m := loaded(t, w); m == nil || m.Current != 7 {
		t.Fatalf("the exchanged witness says %+v", m)
	}
	if swap(t, w, &mark, store.Mark{Store: "s1"}) {
		t.Fatal("swapped what is not there any more")
	}
}

func TestAWitnessThatIsNoneIsRefusedAndStaysAsItIs(t *testing.T) {
	dir := t.TempDir()
	put := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := filepath.Join(dir, "foreign.db")
	db, err := sql.Open("sqlite", foreign)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE customer (id)"); err != nil {
		t.Fatal(err)
	}
	_ = db.Close()
	real := filepath.Join(dir, "store.db")
	s, err := sqlstore.Open(t.Context(), real, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	for name, path := range map[string]string{
		"a short file": put("short", "hello"), "a text": put("text", strings.Repeat("hello world\n", 600)),
		"a text of one page": put("page", strings.Repeat("x", 700)), "another program's": foreign, "a store": real, "a directory": dir,
	} {
		before, _ := os.ReadFile(path)
		w := newWitness(t, path)
		_, err := w.Load(t.Context())
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want one line that names the file", name, err)
		}
		if ok, err := w.Swap(t.Context(), nil, store.Mark{Store: "s"}); ok || err == nil {
			t.Errorf("%s: a swap went through: %v", name, err)
		}
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			t.Errorf("%s was changed", name)
		}
	}
	missing := newWitness(t, filepath.Join(dir, "no", "such", "w.db"))
	if ok, err := missing.Swap(t.Context(), nil, store.Mark{}); ok || err == nil {
		t.Error("a swap in a directory that is not there went through")
	}
	// And the other way round: a witness is no store.
	path := filepath.Join(dir, "w.db")
	w := newWitness(t, path)
	swap(t, w, nil, store.Mark{Store: "s"})
	_ = w.Close()
	if _, err := sqlstore.Open(t.Context(), path, sqlstore.Config{}); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("a witness was opened as a store: %v", err)
	}
	for _, bad := range []string{"", ":memory:", "a?b"} {
		if _, err := sqlstore.NewWitness(bad, sqlstore.WitnessConfig{}); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

const planned = 50

// planEpochs is a child that plans epochs, as starting processes do.
func planEpochs(path string) error {
	w, err := sqlstore.NewWitness(path, sqlstore.WitnessConfig{})
	if err != nil {
		return err
	}
	defer w.Close()
	ctx := context.Background()
	for done := 0; done < planned; {
		m, err := w.Load(ctx)
		if err != nil {
			return err
		}
		next := store.Mark{Store: "s"}
		if m != nil {
			next = *m
		}
		next.Pending++
		ok, err := w.Swap(ctx, m, next)
		if err != nil {
			return err
		}
		if ok {
			fmt.Println(next.Pending)
			done++
		}
	}
	return nil
}

// R10: no number is planned twice, however many processes start at once on one witness.
func TestR10ProcessesNeverPlanTheSameEpoch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.db")
	children := []*child{start(t, "witness", path), start(t, "witness", path), start(t, "witness", path)}
	seen := map[string]bool{}
	for _, c := range children {
		n := 0
		for line := c.line(); line != ""; line = c.line() {
			if seen[line] || strings.HasPrefix(line, "error") {
				t.Fatalf("planned twice, or failed: %s", line)
			}
			seen[line] = true
			n++
		}
		if n != planned {
			t.Fatalf("a process planned %d epochs, want %d", n, planned)
		}
	}
	if m := loaded(t, newWitness(t, path)); m == nil || m.Pending != uint32(len(children)*planned) {
		t.Fatalf("the witness says %+v", m)
	}
}
