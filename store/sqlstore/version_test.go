package sqlstore_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/sqlstore"
)

// KF-38 (1): testdata/version1.db was written by the program of before the second step
// of the schema: three tenures each of doc/a, whose last one is held, and of doc/b.
func TestAStoreOfTheFirstVersionIsUpgradedAndKeepsEverything(t *testing.T) {
	old, err := os.ReadFile("testdata/version1.db")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "authority.db")
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		s, err := sqlstore.Open(t.Context(), path, sqlstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		records, err := s.List(t.Context(), "", "", 10)
		if err != nil || len(records) != 2 {
			t.Fatalf("%+v, %v", records, err)
		}
		a, b := records[0], records[1]
		if a.Counter != 3 || a.Lease.State != lastword.StateHeld || a.Lease.Owner != "w" || b.Counter != 3 || b.Lease.State != lastword.StateReleased {
			t.Fatalf("round %d: %+v, %+v", round, a, b)
		}
		if want := lastword.Token(41 * round); a.Reported != want || b.Reported != 0 {
			t.Fatalf("round %d: reported %d and %d, want %d and 0", round, a.Reported, b.Reported, want)
		}
		view, err := s.Read(t.Context(), store.Query{Resource: "doc/a"})
		if err != nil {
			t.Fatal(err)
		}
		a.Revision++
		a.Reported = 41
		applied, err := s.Commit(t.Context(), store.Step{Epoch: view.Header.Epoch, Record: &a})
		if err != nil || !applied[0] {
			t.Fatalf("%v, %v", applied, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
