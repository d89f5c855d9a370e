package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lastword/lastword"
)

// nobody runs a command line as a user who may read and not write. Only root has to
// become somebody else for that.
func nobody(t *testing.T, dir string, args ...string) outcome {
	t.Helper()
	cmd := lastwordProcess(t.Context(), t, "", args...)
	if os.Getuid() == 0 {
		cmd.Path = filepath.Join(dir, "lastword.program") // the test's own directory is root's
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// readableToAll makes a directory that everybody reaches, with a copy of this program
// in it.
func readableToAll(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	chmod(t, filepath.Dir(dir), 0o755) // the one above is its owner's alone
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	self, err := exec.LookPath("lastword")
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(filepath.Join(dir, "lastword.program"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// An auditor may read and not write.
func TestStatusAndLookupNeedNoRightToWrite(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("heavy: several processes")
	}
	addr, dir := authorityAt(t), readableToAll(t)
	grant, db := filepath.Join(t.TempDir(), "a.grant"), filepath.Join(dir, "app.db")
	lastwordCommand(t.Context(), addr, "fence", "init", "sqlite:"+db).want(t, 0)
	lastwordCommand(t.Context(), addr, "acquire", "doc/a", "--grant", grant).want(t, 0)
	lastwordCommand(t.Context(), addr, "fence", "apply", "sqlite:"+db, "doc/a", "--grant", grant, "--op", "o", "--sql", "CREATE TABLE t (x)").want(t, 0)
	chmod(t, db, 0o444)
	chmod(t, dir, 0o555)
	nobody(t, dir, "fence", "status", "sqlite:app.db", "doc/a").want(t, 0, "fence           1 (0.1)")
	nobody(t, dir, "fence", "lookup", "sqlite:app.db", "doc/a", "--op", "o").want(t, 0, "receipt")
	nobody(t, dir, "fence", "lookup", "sqlite:app.db", "doc/a", "--op", "p").want(t, 1, "no receipt")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}

	// A writer has it open, and what was committed last is in the log alone.
	chmod(t, dir, 0o755)
	chmod(t, db, 0o644)
	g, err := openDatabase(db, true, false)
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	if _, err := g.db.ExecContext(t.Context(), "UPDATE lastword_fence SET fence = 7"); err != nil {
		t.Fatal(err)
	}
	nobody(t, dir, "fence", "status", "sqlite:app.db", "doc/a").want(t, 0, "fence           7 (0.7)")
}

// Nobody promised that the file stands still.
func TestAFileThatIsWrittenToWhileItIsReadIsNotBelieved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	g := &guarded{path: path, frozen: info}
	if err := g.unchanged(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+"-wal", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e, ok := asError(g.unchanged())
	if !ok || e.Code != lastword.CodeUnavailable || !strings.Contains(e.Message, "somebody wrote to it") {
		t.Errorf("with a log: %v", e)
	}
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.unchanged(); err == nil {
		t.Error("with other content: it is believed")
	}
}

// T13: a worker that writes past the fence. It holds a lease and its grant, and has no right
// to write the file: neither by the command nor by hand does a byte of it change. What
// the owner of the file writes for it goes through the fence.
func TestT13AWorkerWithoutTheRightToWriteTheFileChangesNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("heavy: several processes")
	}
	addr, dir := authorityAt(t), readableToAll(t)
	grant, db := filepath.Join(dir, "a.grant"), filepath.Join(dir, "app.db")
	lastwordCommand(t.Context(), addr, "fence", "init", "sqlite:"+db).want(t, 0)
	lastwordCommand(t.Context(), addr, "acquire", "doc/a", "--grant", grant).want(t, 0)
	lastwordCommand(t.Context(), addr, "fence", "apply", "sqlite:"+db, "doc/a", "--grant", grant, "--op", "o1", "--sql", "CREATE TABLE t (x)").want(t, 0)
	chmod(t, grant, 0o644)
	before, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(db); err != nil || info.Mode().Perm()&0o022 != 0 {
		t.Fatalf("fence init has made a file that others may write: %v, %v", info.Mode(), err)
	}
	got := nobody(t, dir, "fence", "apply", "sqlite:app.db", "doc/a", "--authority", addr, "--grant", "a.grant", "--op", "o2", "--sql", "INSERT INTO t VALUES (1)")
	t.Log(strings.TrimSpace(got.stderr))
	if got.code == 0 || strings.Count(got.stderr, "\n") != 1 || strings.Contains(got.stderr, "UNKNOWN") {
		t.Errorf("the command: %+v", got)
	}
	if os.Getuid() == 0 {
		by := exec.CommandContext(t.Context(), "/bin/sh", "-c", "printf x | dd of=app.db conv=notrunc; printf x >>app.db; rm -f app.db; mv app.db other.db")
		by.Dir, by.SysProcAttr = dir, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := by.CombinedOutput(); err == nil {
			t.Errorf("by hand: %s", out)
		}
	}
	if after, err := os.ReadFile(db); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file has changed: %v", err)
	}
	lastwordCommand(t.Context(), addr, "fence", "apply", "sqlite:"+db, "doc/a", "--grant", grant, "--op", "o2", "--sql", "INSERT INTO t VALUES (1)").want(t, 0, "APPLIED")
}
