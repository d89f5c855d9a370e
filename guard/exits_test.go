//go:build linux

package guard_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/guard"
	"github.com/lastword/lastword/internal/grantfile"
)

func (w *world) options(command ...string) guard.Options {
	return guard.Options{Resource: testResource, Acquire: client.AcquireOptions{TTL: 3 * time.Second}, Command: command, TempDir: w.temp}
}

func TestAWaitThatIsInterruptedEndsWithinASecondAndLeavesNothing(t *testing.T) { // KF-31 (a)
	w := newWorld(t)
	held, err := w.authority.Acquire(t.Context(), lastword.AcquireRequest{
		Resource: testResource, Owner: "holder", RequestID: "h", TTL: time.Minute, Class: lastword.ClassWrite,
	})
	check(t, err)
	p := w.wrap(wrapping{TTL: 20 * time.Second, Wait: time.Minute, Command: []string{"true"}}, streams{})
	w.waiters(1)
	p.signal(syscall.SIGUSR1) // is about the command, which is not there
	p.signal(syscall.SIGWINCH)
	at := time.Now()
	p.signal(syscall.SIGINT)
	p.wantCode(128 + int(syscall.SIGINT))
	if took := p.ended.Sub(at); took > time.Second {
		t.Errorf("it took %s", took)
	}
	w.waiters(0)
	w.wantNothingLeft()
	check(t, w.authority.Release(t.Context(), held.TenureRef))
	if st := w.status(); st.State != lastword.StateReleased || st.NextFence != held.Fence+1 {
		t.Errorf("granted later: %+v", st)
	}
	if !strings.Contains(p.stderr.String(), "interrupted while it waited") {
		t.Errorf("stderr: %s", p.stderr.String())
	}
}

func TestAHeldResourceIsAnExitCodeAtOnce(t *testing.T) { // KF-31 (e)
	w := newWorld(t)
	_, err := w.authority.Acquire(t.Context(), lastword.AcquireRequest{
		Resource: testResource, Owner: "holder", RequestID: "h", TTL: time.Minute, Class: lastword.ClassWrite,
	})
	check(t, err)
	exit, err := guard.Run(t.Context(), w.holder(), w.options("true"))
	if exit.Code != guard.ExitNotAcquired || exit.Ran || !errors.Is(err, lastword.ErrHeld) {
		t.Errorf("got %+v, %v", exit, err)
	}
	w.wantNothingLeft()
}

func TestTheCommandsOwnCodeIsPassedOn(t *testing.T) { // KF-31 (b)
	w := newWorld(t)
	c := w.holder()
	for _, code := range []int{0, 1, 2, 75, 121, 255} {
		exit, err := guard.Run(t.Context(), c, w.options("sh", "-c", fmt.Sprintf("exit %d", code)))
		if exit != (guard.Exit{Code: code, Ran: true}) || err != nil {
			t.Errorf("exit %d: got %+v, %v", code, exit, err)
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		exit, err := guard.Run(t.Context(), c, w.options("sh", "-c", fmt.Sprintf("kill -%d $$", sig)))
		if exit != (guard.Exit{Code: 128 + int(sig), Signal: sig, Ran: true}) || err != nil {
			t.Errorf("%s: got %+v, %v", sig, exit, err)
		}
	}
	w.wantNothingLeft()
	if _, releases := w.authority.count(); releases != 8 {
		t.Errorf("%d releases, want 8", releases)
	}
}

func TestWhatCannotBeStartedReleasesTheLeaseOrTakesNone(t *testing.T) { // KF-31 (c), (d)
	w := newWorld(t)
	dir := t.TempDir()
	script := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	full := filepath.Join(dir, "file")
	check(t, os.WriteFile(full, nil, 0o600))
	with := func(change func(*guard.Options), command ...string) guard.Options {
		o := w.options(command...)
		change(&o)
		return o
	}
	as := func(*guard.Options) {}
	for _, c := range []struct {
		name     string
		o        guard.Options
		want     int
		acquires bool
	}{
		{"not in PATH", with(as, "no-such-command"), guard.ExitNotFound, false},
		{"no such file", with(as, dir+"/none"), guard.ExitNotFound, false},
		{"not executable", with(as, script("plain", "echo", 0o600)), guard.ExitNotExecutable, false},
		{"a directory", with(as, dir), guard.ExitNotExecutable, false},
		{"no program", with(as, script("noise", "\x01\x02", 0o700)), guard.ExitNotExecutable, true},
		{"no interpreter", with(as, script("lost", "#!/no/such/shell\n", 0o700)), guard.ExitNotFound, true},
		{"too many arguments", with(as, "true", strings.Repeat("x", 4<<20)), guard.ExitNotExecutable, true},
		{"no command", with(as), guard.ExitFailed, false},
		{"an empty command", with(as, ""), guard.ExitFailed, false},
		{"a zero byte", with(as, "echo", "a\x00b"), guard.ExitFailed, false},
		{"a grace that does not fit", with(func(o *guard.Options) { o.Grace = 2 * time.Second }, "true"), guard.ExitFailed, false},
		{"a ttl out of bounds", with(func(o *guard.Options) { o.Acquire.TTL = time.Millisecond }, "true"), guard.ExitFailed, false},
		{"no resource", with(func(o *guard.Options) { o.Resource = "" }, "true"), guard.ExitFailed, false},
		{"no working directory", with(func(o *guard.Options) { o.Dir = dir + "/none" }, "true"), guard.ExitFailed, false},
		{"a file as working directory", with(func(o *guard.Options) { o.Dir = full }, "true"), guard.ExitFailed, false},
		{"no directory for the grant file", with(func(o *guard.Options) { o.TempDir = dir + "/none" }, "true"), guard.ExitFailed, false},
	} {
		before := w.status()
		exit, err := guard.Run(t.Context(), w.holder(), c.o)
		after := w.status()
		if exit.Code != c.want || exit.Ran || err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %+v, %v; want code %d", c.name, exit, err, c.want)
		}
		if acquired := after.NextFence != before.NextFence; acquired != c.acquires || after.State == lastword.StateHeld {
			t.Errorf("%s: next fence %d, was %d; the resource is %s", c.name, after.NextFence, before.NextFence, after.State)
		}
		w.wantNothingLeft()
	}
}

func TestAFullDiskIsAFailureOfThisSideAndReleases(t *testing.T) { // KF-31 (d)
	w := newWorld(t)
	if os.Getuid() != 0 {
		t.Skip("only root can mount a file system that is full")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4k,nr_inodes=8"); err != nil {
		t.Fatalf("root cannot mount a file system here: %v", err)
	}
	t.Cleanup(func() { check(t, syscall.Unmount(dir, 0)) })
	fill, err := os.Create(filepath.Join(dir, "fill"))
	check(t, err)
	if n, err := io.Copy(fill, io.LimitReader(rand.Reader, 1<<20)); err == nil {
		t.Fatalf("%d bytes went onto a disk of 4096", n)
	}
	check(t, fill.Close())
	o := w.options("true")
	o.TempDir = dir
	exit, err := guard.Run(t.Context(), w.holder(), o)
	if exit.Code != guard.ExitFailed || exit.Ran || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %+v, %v", exit, err)
	}
	if st := w.status(); st.State != lastword.StateReleased {
		t.Errorf("the resource is %s", st.State)
	}
	left, err := os.ReadDir(dir)
	check(t, err)
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAnAuthorityThatIsNotThereIsItsOwnCode(t *testing.T) { // KF-31
	w := newWorld(t)
	p := w.wrap(wrapping{Authority: "127.0.0.1:1", TTL: 3 * time.Second, Command: []string{"true"}}, streams{})
	p.wantCode(guard.ExitUnreachable)
	w.wantNothingLeft()
}

func TestTheStandardStreamsAreTheFilesThemselves(t *testing.T) { // KF-30
	w := newWorld(t)
	dir := t.TempDir()
	data := make([]byte, 5<<20)
	_, _ = rand.Read(data)
	check(t, os.WriteFile(dir+"/in", data, 0o600))
	in, err := os.Open(dir + "/in")
	check(t, err)
	out, err := os.Create(dir + "/out")
	check(t, err)
	diag, err := os.Create(dir + "/err")
	check(t, err)
	p := w.wrap(wrapping{TTL: 20 * time.Second, Command: []string{"sh", "-c", `cat; exec 3>&1; stat -L -c %i /dev/fd/0 /dev/fd/3 /dev/fd/2 >&2`}},
		streams{in: in, out: out, err: diag})
	p.wantCode(0)
	got, err := os.ReadFile(dir + "/out")
	check(t, err)
	if !bytes.Equal(got, data) {
		t.Errorf("%d bytes became %d other ones", len(data), len(got))
	}
	var want strings.Builder
	for _, name := range []string{"in", "out", "err"} {
		info, err := os.Stat(filepath.Join(dir, name))
		check(t, err)
		fmt.Fprintln(&want, info.Sys().(*syscall.Stat_t).Ino)
	}
	inodes, err := os.ReadFile(dir + "/err")
	check(t, err)
	if string(inodes) != want.String() {
		t.Errorf("the command's files are %q, want %q", inodes, want.String())
	}
}

func TestTheCommandFindsItsLeaseInTheEnvironmentAndInAFile(t *testing.T) {
	w := newWorld(t)
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	check(t, err)
	o := w.options("sh", "-c", `echo "$LASTWORD_RESOURCE"; echo "$LASTWORD_FENCE"; echo "$OTHER"; stat -c %a "$LASTWORD_GRANT_FILE" "$(dirname "$LASTWORD_GRANT_FILE")"
		ls -A "$(dirname "$LASTWORD_GRANT_FILE")"; cat "$LASTWORD_GRANT_FILE"`)
	o.Env, o.Stdout = append(os.Environ(), "LASTWORD_FENCE=99", "OTHER=x"), out
	exit, err := guard.Run(t.Context(), w.holder(), o)
	if exit.Code != 0 || err != nil {
		t.Fatalf("got %+v, %v", exit, err)
	}
	b, err := os.ReadFile(out.Name())
	check(t, err)
	head, file, _ := strings.Cut(string(b), "{")
	if want := testResource + "\n1\nx\n600\n700\ngrant.json\n"; head != want {
		t.Errorf("got %q, want %q", head, want)
	}
	f, err := grantfile.Parse([]byte("{" + file))
	if err != nil || f.Ref().Fence != 1 || f.Ref().Resource != testResource || f.Ref().Owner != "here" {
		t.Errorf("the grant file: %+v, %v", f.Ref(), err)
	}
	w.wantNothingLeft()
}

func TestAGrantFileThatIsRemovedOrChangedComesBack(t *testing.T) {
	w := newWorld(t)
	// Within a second, whatever the TTL is.
	p := w.wrap(wrapping{TTL: 2 * time.Minute, Command: []string{"sh", "-c", `set -e
		f="$LASTWORD_GRANT_FILE"; cp "$f" "$0"
		rm "$f"; until [ -e "$f" ]; do sleep 0.02; done; cmp "$f" "$0"
		: > "$f"; until [ -s "$f" ]; do sleep 0.02; done; cmp "$f" "$0"
		[ "$(stat -c %a "$f")" = 600 ]
		rm -r "$(dirname "$f")"; until [ -s "$f" ]; do sleep 0.02; done; cmp "$f" "$0"`, filepath.Join(t.TempDir(), "copy")}}, streams{})
	p.wantCode(0)
	w.wantNothingLeft()
}

func TestTheEndOfTheContextEndsTheCommandOrTheWait(t *testing.T) {
	w := newWorld(t)
	argv, pids := treeOf(t, "sleep 300", "sleep 299")
	ctx, cancel := context.WithCancel(t.Context())
	cause := make(chan error, 1)
	go func() {
		defer cancel()
		pids()
		eventually(t, "held", func() bool { return w.status().State == lastword.StateHeld })
		_, err := guard.Run(ctx, w.holder(), w.options("true")) // held
		cause <- err
	}()
	exit, err := guard.Run(ctx, w.holder(), w.options(argv...))
	if exit.Code != 128+int(syscall.SIGTERM) || !exit.Ran || !errors.Is(err, lastword.ErrCanceled) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v, %v", exit, err)
	}
	if err := <-cause; !errors.Is(err, lastword.ErrHeld) {
		t.Errorf("the second run: %v", err)
	}
	w.wantNothingLeft(pids()...)
	if exit, err := guard.Run(ctx, w.holder(), w.options("true")); exit.Ran || err == nil {
		t.Errorf("after the end of the context: %+v, %v", exit, err)
	}
	if st := w.status(); st.State != lastword.StateReleased {
		t.Errorf("the resource is %s", st.State)
	}
}

func TestWhatACommandLeavesInItsGroupIsEndedBeforeTheRelease(t *testing.T) { // KF-30
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "pids")
	w.authority.atRelease(t, func() []int { return pidFile(t, file) })
	exit, err := guard.Run(t.Context(), w.holder(), w.options("sh", "-c", `(trap "" TERM; echo $(exec sh -c 'echo $PPID') end > "$0"; sleep 300) & until [ -s "$0" ]; do sleep 0.01; done; exit 3`, file))
	if exit.Code != 3 || err != nil {
		t.Errorf("got %+v, %v", exit, err)
	}
	w.wantNothingLeft(pidFile(t, file)...)
}
