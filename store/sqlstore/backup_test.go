package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/store/sqlstore"
)

// issuer is an authority on a SQLite file with a witness outside of it.
type issuer struct {
	*authority.Authority
	store  *sqlstore.Store
	signer *grant.Signer
}

func newSigner(t *testing.T) *grant.Signer {
	t.Helper()
	key, err := grant.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := grant.NewSigner("d", key)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func issue(t *testing.T, path string, signer *grant.Signer, cfg authority.Config) (*issuer, error) {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), path, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Domain = "d"
	a, err := authority.Open(t.Context(), s, signer, cfg)
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	i := &issuer{a, s, signer}
	t.Cleanup(i.close)
	return i, nil
}

// aStopped makes a store of another domain that nobody serves.
func aStopped(t *testing.T, path, domain string) {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), path, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	signer, err := grant.NewSigner(domain, must(grant.NewKey()))
	if err != nil {
		t.Fatal(err)
	}
	a, err := authority.Open(t.Context(), s, signer, authority.Config{Domain: domain})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (i *issuer) close() {
	_ = i.Close()
	_ = i.store.Close()
}

func backupRequest(owner, resource string, n int) lastword.AcquireRequest {
	return lastword.AcquireRequest{Resource: lastword.Resource(resource), Owner: owner, RequestID: fmt.Sprint(n), TTL: time.Minute}
}

// A copy taken while 64 clients acquire, renew, complete and release holds all that was
// acknowledged before it was begun, is sound, and is found to be a copy when it takes
// the place of the store (R10) in the very run in which it was taken.
func TestR10ABackupOfABusyStoreIsWholeAndIsNoticedWhenItIsPutBack(t *testing.T) {
	const clients = 64
	dir := t.TempDir()
	path, copied := filepath.Join(dir, "s.db"), filepath.Join(dir, "copy.db")
	witness, signer := authority.NewFileWitness(filepath.Join(dir, "w")), newSigner(t)
	a, err := issue(t, path, signer, authority.Config{Witness: witness})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	acked := map[lastword.Resource]lastword.Token{}
	busy, stop := make(chan struct{}, clients), make(chan struct{})
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				held, err := a.Acquire(t.Context(), backupRequest("o", fmt.Sprintf("r/%d/%d", c, n%4), n))
				if err == nil {
					mu.Lock()
					acked[held.Resource] = held.Fence
					mu.Unlock()
					_, err = a.Renew(t.Context(), held.TenureRef)
				}
				if err = errors.Join(err, a.Complete(t.Context(), held.TenureRef, make([]byte, 1000)), a.Release(t.Context(), held.TenureRef)); err != nil {
					t.Error(err)
					return
				}
				if n == 20 {
					busy <- struct{}{}
				}
			}
		})
	}
	for range clients {
		<-busy
	}
	mu.Lock()
	before := map[lastword.Resource]lastword.Token{}
	for r, fence := range acked {
		before[r] = fence
	}
	mu.Unlock()
	began := time.Now()
	c, err := sqlstore.Backup(t.Context(), path, copied, sqlstore.BackupConfig{})
	took := time.Since(began)
	mu.Lock()
	largest := lastword.Token(0)
	for r, fence := range acked {
		if fence > before[r] {
			largest++
		}
	}
	mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d resources, %d requests, %d KiB in %v; %d resources were granted anew meanwhile", c.Resources, c.Requests, c.Bytes>>10, took.Round(time.Millisecond), largest)
	close(stop)
	all.Wait()
	if c.Resources < len(before) || c.Header.Domain != "d" {
		t.Errorf("the copy says %+v", c)
	}
	if info, err := os.Stat(copied); err != nil || info.Mode().Perm() != 0o600 || info.Size() != c.Bytes {
		t.Errorf("the copy is %v, %v; want mode 0600 and %d bytes", info, err, c.Bytes)
	}
	soundAndWhole(t, copied, before)

	// Put back, in the run in which it was taken.
	a.close()
	if err := os.Rename(copied, path); err != nil {
		t.Fatal(err)
	}
	if _, err := issue(t, path, signer, authority.Config{Witness: witness}); !errors.Is(err, lastword.ErrRegression) || !strings.Contains(err.Error(), "a copy that a backup has made") {
		t.Fatalf("a start on the copy: %v, want FENCE_REGRESSION", err)
	}
	if _, err := issue(t, path, signer, authority.Config{Witness: authority.NewMemoryWitness()}); !errors.Is(err, lastword.ErrRegression) {
		t.Fatalf("a start on the copy without its witness: %v, want FENCE_REGRESSION", err)
	}
	b, err := issue(t, path, signer, authority.Config{Witness: witness, OnRegression: authority.Advance})
	if err != nil {
		t.Fatal(err)
	}
	for r, fence := range acked {
		st, err := b.Status(t.Context(), lastword.StatusQuery{Resource: r})
		if err != nil || st.NextFence <= fence {
			t.Fatalf("%s: next fence %s after %s, %v", r, st.NextFence.Text(), fence.Text(), err)
		}
	}
	var e *lastword.Error
	_, err = b.Acquire(t.Context(), backupRequest("o", "r/0/0", -1))
	if !errors.As(err, &e) || e.Code != lastword.CodeHeld || e.Remaining > time.Minute+time.Second || e.Remaining < time.Second {
		t.Errorf("the first grant waits for the longest tenure that may be lost, a minute: %+v", err)
	}
	b.close()
	again, err := issue(t, path, signer, authority.Config{Witness: witness})
	if err != nil {
		t.Fatalf("confirmed once, it is a store like any other: %v", err)
	}
	again.close()
}

func soundAndWhole(t *testing.T, path string, want map[lastword.Resource]lastword.Token) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity_check: %q, %v", verdict, err)
	}
	for r, fence := range want {
		var got int64
		err := db.QueryRowContext(t.Context(), "SELECT fence FROM lastword_record WHERE resource = ?", string(r)).Scan(&got)
		if err != nil || lastword.Token(got) < fence {
			t.Errorf("%s: the copy has fence %d, %v; %d was acknowledged before", r, got, err, fence)
		}
	}
	for _, text := range []string{"BEGIN", "eyJ"} { // of a key, of a grant
		b, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(b), text) {
			t.Errorf("the copy holds %q: %v", text, err)
		}
	}
}

func TestABackupIsOfAStoreThatNobodyServesAsWell(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.db")
	a, err := issue(t, path, newSigner(t), authority.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Acquire(t.Context(), backupRequest("o", "r", 1)); err != nil {
		t.Fatal(err)
	}
	a.close()
	for range 2 { // the second one replaces the first one
		c, err := sqlstore.Backup(t.Context(), path, filepath.Join(dir, "copy.db"), sqlstore.BackupConfig{Force: true})
		if err != nil || c.Resources != 1 || c.Requests != 1 {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	// A copy of a copy is a copy.
	if _, err := sqlstore.Backup(t.Context(), filepath.Join(dir, "copy.db"), filepath.Join(dir, "second.db"), sqlstore.BackupConfig{}); err != nil {
		t.Fatal(err)
	}
	if _, err := issue(t, filepath.Join(dir, "second.db"), newSigner(t), authority.Config{}); !errors.Is(err, lastword.ErrRegression) {
		t.Errorf("a start on it: %v", err)
	}
}

func TestABackupThatIsRefusedLeavesEverythingAsItWas(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	a, err := issue(t, at("s.db"), newSigner(t), authority.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	put := func(name, content string) {
		if err := os.WriteFile(at(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("key", "a signing key")
	put("used.db", "SQLite format 3\x00 and so on")
	put("used.db-wal", "a log")
	put("text", "no database")
	put("old.db", "SQLite format 3\x00 and so on")
	other, err := sql.Open("sqlite", at("other.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.ExecContext(t.Context(), "CREATE TABLE theirs (x)"); err != nil {
		t.Fatal(err)
	}
	_ = other.Close()
	if err := errors.Join(os.Mkdir(at("dir"), 0o700), os.Symlink(at("s.db"), at("link"))); err != nil {
		t.Fatal(err)
	}
	// An empty store, and what SQLite leaves beside a store that is open, come and go.
	empty, err := sqlstore.Open(t.Context(), at("empty.db"), sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_ = empty.Close()
	aStopped(t, at("elsewhere.db"), "e")
	aStopped(t, at("stopped.db"), "d")
	if _, err := sqlstore.Backup(t.Context(), at("elsewhere.db"), at("elsewhere.copy"), sqlstore.BackupConfig{}); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlstore.Backup(t.Context(), at("s.db"), at("read.copy"), sqlstore.BackupConfig{}); err != nil {
		t.Fatal(err)
	}
	reader, err := sql.Open("sqlite", at("read.copy"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	rows, err := reader.QueryContext(t.Context(), "SELECT domain FROM lastword_header")
	if err != nil || !rows.Next() { // it holds its lock until it has ended
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	before := tree(t, dir)
	for _, c := range []struct {
		name, from, to string
		force          bool
		want           string
		code           lastword.Code
	}{
		{"it exists", "s.db", "old.db", false, "it exists", lastword.CodeInvalid},
		{"a key, by force", "s.db", "key", true, "it is no backup", lastword.CodeInvalid},
		{"another program's database, by force", "s.db", "other.db", true, "other.db: it is no backup", lastword.CodeInvalid},
		{"no database behind its first bytes", "s.db", "old.db", true, "old.db: it is no backup", lastword.CodeInvalid},
		{"the store of another domain", "s.db", "elsewhere.db", true, `elsewhere.db: it is the store of the domain "e"`, lastword.CodeInvalid},
		{"a stopped store of this domain", "s.db", "stopped.db", true, `stopped.db: it is the store of the domain "d"`, lastword.CodeInvalid},
		{"a backup of another domain", "s.db", "elsewhere.copy", true, `elsewhere.copy: it is a backup of the domain "e"`, lastword.CodeInvalid},
		{"a store that was never started, by force", "s.db", "empty.db", true, "empty.db: it is no backup", lastword.CodeInvalid},
		{"a backup that somebody reads", "s.db", "read.copy", true, "read.copy: another program has it open", lastword.CodeUnavailable},
		{"the store itself", "s.db", "s.db", true, "it is the store itself", lastword.CodeInvalid},
		{"the store by a link", "s.db", "link", true, "not a regular file", lastword.CodeInvalid},
		{"the store's log", "s.db", "s.db-wal", true, "it belongs to the store", lastword.CodeInvalid},
		{"a database in use", "s.db", "used.db", true, "it is a database in use", lastword.CodeInvalid},
		{"a directory", "s.db", "dir", true, "it is a directory", lastword.CodeInvalid},
		{"no name", "s.db", "new/", false, "it names no file", lastword.CodeInvalid},
		{"no directory", "s.db", "missing/copy.db", false, "cannot be written to", lastword.CodeUnavailable},
		{"no store", "missing.db", "new.db", false, "is not there", lastword.CodeInvalid},
		{"no directory of a store", "missing/s.db", "new.db", false, "missing/s.db is not there", lastword.CodeInvalid},
		{"no database", "text", "new.db", false, "", lastword.CodeInvalid},
		{"another program's database", "other.db", "new.db", false, "", lastword.CodeInvalid},
		{"a store that was never started", "empty.db", "new.db", false, "no authority has ever been started on it", lastword.CodeInvalid},
		{"the store is a directory", "dir", "new.db", false, "is a directory", lastword.CodeInvalid},
	} {
		to := at(c.to)
		if strings.HasSuffix(c.to, "/") {
			to += "/"
		}
		_, err := sqlstore.Backup(t.Context(), at(c.from), to, sqlstore.BackupConfig{Force: c.force})
		var e *lastword.Error
		if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Message, c.want) || e.Op != "backup" {
			t.Errorf("%s: %v, want %s with %q", c.name, err, c.code, c.want)
		}
		for name, content := range tree(t, dir) {
			if before[name] != content {
				t.Errorf("%s: it changed %s", c.name, name)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sqlstore.Backup(ctx, at("s.db"), at("new.db"), sqlstore.BackupConfig{}); !errors.Is(err, lastword.ErrUnavailable) {
		t.Errorf("with a context that is over: %v", err)
	}
	if _, ok := tree(t, dir)["new.db"]; ok {
		t.Error("something is left")
	}
}

// tree is the files of dir but those that the open store itself changes.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name := filepath.Base(path)
		if strings.HasPrefix(name, "s.db") || strings.HasSuffix(name, "-shm") || strings.HasSuffix(name, "-wal") && name != "used.db-wal" {
			return nil // reading another file of ours would drop its locks
		}
		b, err := os.ReadFile(path)
		found[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
