package sqlstore_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/sqlstore"
)

// restorable is a directory with a store whose process was killed, so that its last
// commits stand in the log alone, and a backup from before them.
type restorable struct {
	dir, path, backup string
	lost              int // resources that the backup does not have
}

func newRestorable(t *testing.T) restorable {
	t.Helper()
	dir := t.TempDir()
	r := restorable{dir: dir, path: filepath.Join(dir, "s.db"), backup: filepath.Join(dir, "backup.db")}
	signer, witness := newSigner(t), authority.NewFileWitness(filepath.Join(dir, "w"))
	a, err := issue(t, r.path, signer, authority.Config{Witness: witness})
	if err != nil {
		t.Fatal(err)
	}
	acquire := func(resource string) {
		if _, err := a.Acquire(t.Context(), backupRequest("w1", resource, 1)); err != nil {
			t.Fatal(err)
		}
	}
	acquire("kept")
	if _, err := sqlstore.Backup(t.Context(), r.path, r.backup, sqlstore.BackupConfig{}); err != nil {
		t.Fatal(err)
	}
	acquire("lost/1")
	acquire("lost/2")
	r.lost = 2
	// What a crash leaves: file and log as they are at this moment.
	crashed := map[string][]byte{}
	for _, more := range []string{"", "-wal"} {
		b, err := os.ReadFile(r.path + more)
		if err != nil {
			t.Fatal(err)
		}
		crashed[more] = b
	}
	a.close()
	for more, b := range crashed {
		if err := os.WriteFile(r.path+more, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func resourcesOf(t *testing.T, path string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM lastword_record").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// X20: what is put in place is the backup, marked as one; what was there is kept, with
// its log.
func TestX20ARestoreKeepsWhatWasThereAndIsARegression(t *testing.T) {
	r := newRestorable(t)
	got, err := sqlstore.Restore(t.Context(), r.backup, r.path, sqlstore.RestoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Aside != r.path+".before-restore.1" || got.Resources != 1 || got.Header.Domain != "d" || got.Store != r.path || got.File != r.backup {
		t.Fatalf("restored %+v", got)
	}
	if n := resourcesOf(t, r.path); n != 1 {
		t.Fatalf("%d resources in place, want those of the backup", n)
	}
	if n := resourcesOf(t, got.Aside); n != 1+r.lost {
		t.Fatalf("%d resources kept aside, want %d: its log was lost", n, 1+r.lost)
	}
	info, err := os.Stat(r.path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	for _, witness := range []string{"w", "another"} {
		_, err := issue(t, r.path, newSigner(t), authority.Config{Witness: authority.NewFileWitness(filepath.Join(r.dir, witness))})
		if !errors.Is(err, lastword.ErrRegression) {
			t.Fatalf("started with witness %s: %v", witness, err)
		}
	}
	// Once more, of a raw copy: marked as well, and what is aside stays.
	raw := filepath.Join(r.dir, "raw.db")
	b, err := os.ReadFile(got.Aside)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(raw, b, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := sqlstore.Restore(t.Context(), raw, r.path, sqlstore.RestoreConfig{})
	if err != nil || again.Aside != r.path+".before-restore.2" {
		t.Fatalf("%+v, %v", again, err)
	}
	h, err := sqlstore.Peek(t.Context(), r.path, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, copied := h.Original(); !copied || !h.Witnessed {
		t.Fatalf("a raw copy was not marked: %+v", h)
	}
}

var errDied = errors.New("injected: died here")

// A restore that dies anywhere leaves the old store, or one that nobody can open until
// the restore was finished; nothing is lost.
func TestARestoreMayDieAnywhere(t *testing.T) {
	steps := []string{"note", "aside", "aside-wal", "placed", "done"}
	for _, die := range steps {
		t.Run(die, func(t *testing.T) {
			r := newRestorable(t)
			var seen []string
			_, err := sqlstore.Restore(t.Context(), r.backup, r.path, sqlstore.RestoreConfig{}.Crashing(func(step string) error {
				if seen = append(seen, step); step == die {
					return errDied
				}
				return nil
			}))
			if err == nil || !slices.Contains(seen, die) {
				t.Fatalf("it went by %q, %v", seen, err)
			}
			s, err := sqlstore.Open(t.Context(), r.path, sqlstore.Config{})
			if die == "done" {
				if err != nil {
					t.Fatal(err)
				}
				_ = s.Close()
				return
			}
			if !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), "run 'lastword restore' again") {
				t.Fatalf("half a restore was opened: %v", err)
			}
			if _, err := sqlstore.Backup(t.Context(), r.path, filepath.Join(r.dir, "half.db"), sqlstore.BackupConfig{}); !errors.Is(err, lastword.ErrInvalid) {
				t.Fatalf("half a restore was backed up: %v", err)
			}
			got, err := sqlstore.Restore(t.Context(), r.backup, r.path, sqlstore.RestoreConfig{})
			if err != nil || got.Aside == "" {
				t.Fatalf("%+v, %v", got, err)
			}
			if in, aside := resourcesOf(t, r.path), resourcesOf(t, got.Aside); in != 1 || aside != 1+r.lost {
				t.Fatalf("%d resources in place and %d aside", in, aside)
			}
			left, err := filepath.Glob(filepath.Join(r.dir, "*restor*"))
			if err != nil || len(left) > 2 { // the file aside, and its log
				t.Fatalf("left %q", left)
			}
		})
	}
}

// What a restore has left that was killed on its way is a whole copy, and goes with the
// next one; that of another store of the directory does not.
func TestARestoreRemovesWhatAKilledOneHasLeft(t *testing.T) {
	r := newRestorable(t)
	left := func(store string) []string {
		name := sha256.Sum256([]byte(store))
		at := filepath.Join(r.dir, fmt.Sprintf(".lastword-restore-%x-4711", name[:8]))
		return []string{at, at + "-journal"}
	}
	ours, others := left(filepath.Base(r.path)), left("other.db")
	for _, path := range append(slices.Clone(ours), others...) {
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sqlstore.Restore(t.Context(), r.backup, r.path, sqlstore.RestoreConfig{}); err != nil {
		t.Fatal(err)
	}
	for _, path := range ours {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	for _, path := range others {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	// Restored from such a file it stays.
	b, err := os.ReadFile(r.backup)
	if err == nil {
		err = os.WriteFile(ours[0], b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sqlstore.Restore(t.Context(), ours[0], r.path, sqlstore.RestoreConfig{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(ours[0]); err != nil {
		t.Error(err)
	}
}

func TestARestoreIsRefusedAndChangesNothing(t *testing.T) {
	r := newRestorable(t)
	other := filepath.Join(t.TempDir(), "other.db")
	s, err := sqlstore.Open(t.Context(), other, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), store.Step{Create: true, Header: &store.Header{Exists: true, Identity: "o", Domain: "another", TickSpan: 1}}); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.db")
	e, err := sqlstore.Open(t.Context(), empty, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_ = e.Close()
	text := filepath.Join(r.dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no backup\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{
		"missing": filepath.Join(r.dir, "missing"), "a text": text, "a directory": r.dir, "the store": r.path,
		"its log": r.path + "-wal", "an empty store": empty, "another domain's": other,
	} {
		if name == "another domain's" { // only of a store that was closed can be seen whose it is
			resourcesOf(t, r.path)
		}
		if _, err := sqlstore.Restore(t.Context(), from, r.path, sqlstore.RestoreConfig{}); !errors.Is(err, lastword.ErrInvalid) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Never over a store that is being served.
	_, err = sqlstore.Restore(t.Context(), r.backup, other, sqlstore.RestoreConfig{})
	if !errors.Is(err, lastword.ErrUnavailable) || !strings.Contains(err.Error(), "in use by process") {
		t.Errorf("over a served store: %v", err)
	}
	if by, err := sqlstore.InUse(other); err != nil || !strings.HasPrefix(by, "process") {
		t.Errorf("in use by %q, %v", by, err)
	}
	_ = s.Close()
	if by, err := sqlstore.InUse(other); err != nil || by != "" {
		t.Errorf("in use by %q, %v", by, err)
	}
	if n := resourcesOf(t, r.path); n != 1+r.lost {
		t.Errorf("the store has %d resources now", n)
	}
	if left, _ := filepath.Glob(filepath.Join(r.dir, "*restor*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	// Where the store is gone, and where it is damaged.
	gone := filepath.Join(t.TempDir(), "s.db")
	if got, err := sqlstore.Restore(t.Context(), r.backup, gone, sqlstore.RestoreConfig{}); err != nil || got.Aside != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(gone, []byte(strings.Repeat("damaged", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := sqlstore.Restore(t.Context(), r.backup, gone, sqlstore.RestoreConfig{}); err != nil || got.Aside == "" {
		t.Errorf("%+v, %v", got, err)
	}
}

// R10: what a store says from memory is compared with the file that is there, too.
func TestR10AFileThatWasExchangedIsNoticedBeforeAnythingIsSaidOfIt(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.db")
	a, err := issue(t, path, newSigner(t), authority.Config{Witness: authority.NewFileWitness(filepath.Join(dir, "w"))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.store.Read(context.Background(), store.Query{Resource: "a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.store.Read(context.Background()); err != nil { // the header, from memory
		t.Fatal(err)
	}
	if _, err := sqlstore.Backup(t.Context(), path, filepath.Join(dir, "copy"), sqlstore.BackupConfig{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "copy"), path); err != nil {
		t.Fatal(err)
	}
	for _, queries := range [][]store.Query{nil, {{Resource: "a"}}} {
		if _, err := a.store.Read(context.Background(), queries...); !errors.Is(err, lastword.ErrUnavailable) {
			t.Errorf("read %d records of a file that is gone: %v", len(queries), err)
		}
	}
	if _, err := a.Status(t.Context(), lastword.StatusQuery{Resource: "a"}); !errors.Is(err, lastword.ErrUnavailable) {
		t.Errorf("status: %v", err)
	}
}
