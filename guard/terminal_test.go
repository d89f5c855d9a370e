//go:build linux

package guard_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastword/lastword"
)

// console is a terminal with somebody who types at it.
type console struct {
	t      *testing.T
	master *os.File
	tty    *os.File
	mu     sync.Mutex
	shown  bytes.Buffer
}

func newConsole(t *testing.T) *console {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal can be made here: %v", err)
	}
	c := &console{t: t, master: master}
	check(t, c.control(func(fd int) error { return unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0) }))
	var number int
	check(t, c.control(func(fd int) (err error) { number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN); return err }))
	c.tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	check(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		room := make([]byte, 4096)
		for {
			n, err := master.Read(room)
			c.mu.Lock()
			c.shown.Write(room[:n])
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { _ = c.tty.Close(); _ = master.Close(); <-done })
	return c
}

func (c *console) control(do func(fd int) error) error {
	raw, err := c.master.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil {
		return err
	}
	return failed
}

func (c *console) typing(text string) {
	c.t.Helper()
	_, err := c.master.WriteString(text)
	check(c.t, err)
}

func (c *console) shows(text string) {
	c.t.Helper()
	eventually(c.t, "the terminal shows "+text, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return strings.Contains(c.shown.String(), text)
	})
}

// foreground is the process group that is in front.
func (c *console) foreground() (group int) {
	c.t.Helper()
	check(c.t, c.control(func(fd int) (err error) { group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP); return err }))
	return group
}

func TestAtATerminalTheCommandReadsAndStopsAndIsInterrupted(t *testing.T) { // KF-30
	w := newWorld(t)
	c := newConsole(t)
	p := w.wrapAt(c, wrapping{TTL: 20 * time.Second, Command: []string{
		"sh", "-c", `echo pid $$ here; read line; echo "got <$line>"; exec sleep 300`,
	}})
	c.shows("here")
	c.mu.Lock()
	var child int
	_, text, _ := strings.Cut(c.shown.String(), "pid ")
	_, err := fmt.Sscan(text, &child)
	c.mu.Unlock()
	check(t, err)
	wrapper := p.cmd.Process.Pid
	if got := c.foreground(); got != child {
		t.Errorf("in the foreground is group %d, want the command's, %d", got, child)
	}
	c.typing("hello\n")
	c.shows("got <hello>")

	// A shell that has just started a process waits, in a state that no signal stops,
	// until that one has begun; the sleep took the shell's place, and does not.
	eventually(t, "the command sleeps", func() bool { return name(child) == "sleep" && state(child) == "S" })
	c.typing("\x1a") // Ctrl-Z
	eventually(t, "both are stopped", func() bool { return state(child) == "T" && state(wrapper) == "T" })
	if got := c.foreground(); got != wrapper {
		t.Errorf("stopped, group %d is in the foreground, want the wrapper's, %d: the shell waits for it", got, wrapper)
	}
	p.signal(syscall.SIGCONT) // fg
	eventually(t, "both go on", func() bool { return state(child) == "S" && state(wrapper) == "S" && c.foreground() == child })

	c.typing("\x03") // Ctrl-C
	p.wantCode(128 + int(syscall.SIGINT))
	w.wantNothingLeft(child)
	if st := w.status(); st.State != lastword.StateReleased {
		t.Errorf("the resource is %s", st.State)
	}
}

// A command reads the terminal itself, as a program does that asks for a password, and
// its standard input is something else.
func TestTheCommandCanReadTheTerminalWhateverItsStandardInputIs(t *testing.T) { // KF-30
	w := newWorld(t)
	for _, in := range map[string]func(c *console) *os.File{
		"nothing": func(*console) *os.File {
			in, err := os.Open(os.DevNull)
			check(t, err)
			t.Cleanup(func() { _ = in.Close() })
			return in
		},
		"a pipe": func(*console) *os.File {
			r, in, err := os.Pipe()
			check(t, err)
			t.Cleanup(func() { _ = r.Close(); _ = in.Close() })
			return r
		},
	} {
		c := newConsole(t)
		p := w.wrap(wrapping{TTL: 20 * time.Second, Command: []string{
			"sh", "-c", `echo ask; read line </dev/tty; echo "got <$line>"; read line </dev/tty`,
		}}, streams{in: in(c), out: c.tty, err: c.tty, change: func(cmd *exec.Cmd) {
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}
		}})
		c.shows("ask")
		c.typing("secret\n")
		c.shows("got <secret>")
		c.typing("\x03")
		p.wantCode(128 + int(syscall.SIGINT))
		w.wantNothingLeft()
	}
}

// name is what a process runs.
func name(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(b))
}

// wrapAt starts a wrapper as the leader of a session at the terminal.
func (w *world) wrapAt(c *console, o wrapping) *wrapperProcess {
	w.t.Helper()
	return w.wrap(o, streams{in: c.tty, out: c.tty, err: c.tty, change: func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}})
}
