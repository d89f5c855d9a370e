//go:build linux

package guard_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/guard"
)

// tree is the case's process tree: one in the background, one that takes the
// shell's place. The shell writes both process ids into the file $0.
const tree = `%s & echo $! $$ end > "$0"; exec %s`

func treeOf(t *testing.T, background, command string) (argv []string, pids func() []int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pids")
	return []string{"sh", "-c", fmt.Sprintf(tree, background, command), file}, func() []int { return pidFile(t, file) }
}

func TestEverySignalReachesEveryProcessOfTheGroup(t *testing.T) { // KF-30
	w := newWorld(t)
	argv, pids := treeOf(t,
		`GUARD_TEST_ROLE=listener GUARD_TEST_NAME=background "$SELF"`, `env GUARD_TEST_ROLE=listener GUARD_TEST_NAME=command "$SELF"`)
	p := w.wrap(wrapping{TTL: 20 * time.Second, Command: argv}, streams{})
	names := []string{"background", "command"}
	hears := func(what string) {
		t.Helper()
		for _, name := range names {
			w.desk.wait(t, name+" hears "+what, func(n noted) bool { return n.Name == name && n.Heard == what })
		}
	}
	hears("ready")
	w.authority.atRelease(t, pids)
	for _, sig := range guard.Forwarded() {
		if sig == syscall.SIGTERM || sig == syscall.SIGTSTP {
			continue // at the end; in a test of its own
		}
		p.signal(sig.(syscall.Signal))
		hears(sig.String())
	}
	if st := w.status(); st.State != lastword.StateHeld {
		t.Errorf("after all of them the resource is %s", st.State)
	}
	p.signal(syscall.SIGTERM)
	hears(syscall.SIGTERM.String())
	p.wantCode(7) // its own
	w.wantNothingLeft(pids()...)
	if st := w.status(); st.State != lastword.StateReleased {
		t.Errorf("at the end the resource is %s", st.State)
	}
}

func TestASignalThatEndsTheCommandBecomesTheExitCode(t *testing.T) { // KF-30
	for _, sig := range []syscall.Signal{
		syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGPIPE,
	} {
		t.Run(sig.String(), func(t *testing.T) {
			w := newWorld(t)
			argv, pids := treeOf(t, "sleep 300", "sleep 299")
			p := w.wrap(wrapping{TTL: 20 * time.Second, Command: argv}, streams{})
			running := pids()
			w.authority.atRelease(t, func() []int { return running })
			p.signal(sig)
			p.wantCode(128 + int(sig))
			w.wantNothingLeft(running...)
			if _, releases := w.authority.count(); releases != 1 {
				t.Errorf("%d releases", releases)
			}
			if !w.authority.released.Before(p.ended) {
				t.Error("the wrapper ended before the release")
			}
		})
	}
}

func TestClosedStdoutEndsTheCommandByItsOwnSignal(t *testing.T) { // KF-30
	w := newWorld(t)
	r, out, err := os.Pipe()
	check(t, err)
	check(t, r.Close())
	p := w.wrap(wrapping{TTL: 20 * time.Second, Command: []string{"yes"}}, streams{out: out})
	check(t, out.Close())
	p.wantCode(128 + int(syscall.SIGPIPE))
	w.wantNothingLeft()
}

func TestAWrapperWhoseStderrIsClosedKeepsItsExitCode(t *testing.T) { // KF-30
	w := newWorld(t)
	r, stderr, err := os.Pipe()
	check(t, err)
	check(t, r.Close())
	p := w.wrap(wrapping{TTL: 20 * time.Second, Command: []string{"no-such-command"}}, streams{err: stderr})
	check(t, stderr.Close())
	p.wantCode(guard.ExitNotFound)
}

func TestAKilledWrapperReleasesNothingAndTheFenceRefusesWhatIsLeft(t *testing.T) { // KF-30
	w := newWorld(t)
	argv, pids := treeOf(t, `GUARD_TEST_ROLE=worker "$SELF"`, "sleep 300")
	p := w.wrap(wrapping{TTL: 3 * time.Second, Command: argv}, streams{})
	background, command := pids()[0], pids()[1]
	w.desk.wait(t, "a first write", applied)
	p.signal(syscall.SIGKILL)
	p.wantCode(-int(syscall.SIGKILL))
	eventually(t, "the kernel has ended the command itself", func() bool { return !alive(command) })

	b := w.rival()
	if _, releases := w.authority.count(); releases != 0 {
		t.Errorf("%d releases by nobody", releases)
	}
	if b.Previous.State != lastword.StateExpired {
		t.Errorf("the tenure before ended as %s, want EXPIRED", b.Previous.State)
	}
	if !alive(background) {
		t.Fatal("the rest of the group was to live on, or the test shows nothing")
	}
	if verdict, _ := w.desk.write(b.Grant, "b"); verdict != lastword.Code(lastword.Applied) {
		t.Fatalf("B's write: %s", verdict)
	}
	at := time.Now()
	w.desk.wait(t, "a write that comes too late", func(n noted) bool { return n.at.After(at) && n.verdict == lastword.CodeStaleOwner })
	for _, n := range w.desk.all() {
		if n.at.After(at) && applied(n) {
			t.Error("a write of A was accepted after B's")
		}
	}
	check(t, syscall.Kill(background, syscall.SIGKILL))
}

func TestAKilledWorkerIsNoticedWithinASecond(t *testing.T) { // KF-11 (c)
	w := newWorld(t)
	argv, pids := treeOf(t, "sleep 300", `env GUARD_TEST_ROLE=worker "$SELF"`)
	p := w.wrap(wrapping{TTL: 20 * time.Second, Command: argv}, streams{})
	n := w.desk.wait(t, "a first write", applied)
	w.authority.atRelease(t, pids)
	at := time.Now()
	check(t, syscall.Kill(n.PID, syscall.SIGKILL))
	p.wantCode(128 + int(syscall.SIGKILL))
	if took := p.ended.Sub(at); took > time.Second {
		t.Errorf("it was noticed after %s", took)
	}
	w.wantNothingLeft(pids()...)
	if st := w.status(); st.State != lastword.StateReleased {
		t.Errorf("the resource is %s", st.State)
	}
}

func TestAWrapperThatWasStoppedPastItsTTLEndsTheCommand(t *testing.T) { // KF-30
	w := newWorld(t)
	argv, pids := treeOf(t, "sleep 300", `env GUARD_TEST_ROLE=worker "$SELF"`)
	p := w.wrap(wrapping{TTL: 3 * time.Second, Command: argv}, streams{})
	w.desk.wait(t, "a first write", applied)
	p.stop() // the worker goes on
	b := w.rival()
	if verdict, _ := w.desk.write(b.Grant, "b"); verdict != lastword.Code(lastword.Applied) {
		t.Fatalf("B's write: %s", verdict)
	}
	at := time.Now()
	w.desk.wait(t, "a write that comes too late", func(n noted) bool { return n.at.After(at) && n.verdict == lastword.CodeStaleOwner })
	p.signal(syscall.SIGCONT)
	p.wantCode(guard.ExitLost)
	w.wantNothingLeft(pids()...)
	if slices.ContainsFunc(w.desk.all(), func(n noted) bool { return n.at.After(at) && applied(n) }) {
		t.Error("a write of A was accepted after B's")
	}
	if _, releases := w.authority.count(); releases != 0 {
		t.Errorf("%d releases of a lease that was lost", releases)
	}
}

func TestACommandThatWasStoppedTooIsEndedBeforeItCanWrite(t *testing.T) { // KF-30
	w := newWorld(t)
	argv, pids := treeOf(t, "sleep 300", `env GUARD_TEST_STUBBORN=1 GUARD_TEST_ROLE=worker "$SELF"`)
	p := w.wrap(wrapping{TTL: 3 * time.Second, Command: argv}, streams{})
	n := w.desk.wait(t, "a first write", applied)
	p.stop()
	check(t, syscall.Kill(-n.PID, syscall.SIGSTOP))
	eventually(t, "the worker is stopped", func() bool { return state(n.PID) == "T" })
	w.rival() // it writes nothing: the fence would admit A
	at := len(w.desk.all())
	p.signal(syscall.SIGCONT)
	p.wantCode(guard.ExitLost)
	w.wantNothingLeft(pids()...)
	if late := len(w.desk.all()) - at; late > 0 {
		t.Errorf("%d writes after the end of the lease", late)
	}
}

func TestTheStopOfTheTerminalStopsTheGroupWithTheWrapper(t *testing.T) { // KF-30
	w := newWorld(t)
	argv, pids := treeOf(t, "sleep 300", "sleep 299")
	p := w.wrap(wrapping{TTL: 20 * time.Second, Command: argv}, streams{})
	running := pids()
	p.signal(syscall.SIGTSTP)
	for _, pid := range append(running, p.cmd.Process.Pid) {
		eventually(t, "everything is stopped", func() bool { return state(pid) == "T" })
	}
	p.signal(syscall.SIGCONT)
	for _, pid := range running {
		eventually(t, "everything is continued", func() bool { return state(pid) == "S" })
	}
	p.signal(syscall.SIGTERM)
	p.wantCode(128 + int(syscall.SIGTERM))
	w.wantNothingLeft(running...)
}
