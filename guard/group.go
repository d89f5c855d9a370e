//go:build linux || darwin

package guard

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/internal/signals"
)

// Forwarded are the signals that [Options.Signals] is for: all that a process can
// catch and that are not about this process alone.
func Forwarded() []os.Signal { return signals.Forwarded() }

var errNotFound = exec.ErrNotFound

// lookUp finds the program as a shell would.
func lookUp(o Options) (string, error) {
	if o.Dir != "" {
		info, err := os.Stat(o.Dir)
		if err == nil && !info.IsDir() {
			err = syscall.ENOTDIR
		}
		if err != nil {
			// Not "command not found".
			return "", errors.New("working directory: " + err.Error())
		}
	}
	path, err := exec.LookPath(o.Command[0])
	if errors.Is(err, exec.ErrDot) {
		err = nil // PATH names the current directory, and it is the caller's
	}
	// Relative to the directory that it will run in, as for a shell that changes there.
	if o.Dir != "" && strings.ContainsRune(o.Command[0], '/') {
		return o.Command[0], nil
	}
	return path, err
}

// command is the command under a lease, ready to start.
func (r *run) command(l *client.Lease) *exec.Cmd {
	cmd := &exec.Cmd{Path: r.path, Args: r.o.Command, Dir: r.o.Dir}
	cmd.Env = append(r.o.Env[:len(r.o.Env):len(r.o.Env)],
		"LASTWORD_RESOURCE="+string(l.Resource()), "LASTWORD_FENCE="+l.Fence().String(), "LASTWORD_GRANT_FILE="+r.place.path())
	// A nil *os.File in an interface would not be nil.
	if r.o.Stdin != nil {
		cmd.Stdin = r.o.Stdin
	}
	if r.o.Stdout != nil {
		cmd.Stdout = r.o.Stdout
	}
	if r.o.Stderr != nil {
		cmd.Stderr = r.o.Stderr
	}
	return cmd
}

// processGroup is a command that was started, with all that it starts. Its number
// stays taken until reap: the command is waited for last, and until then no other
// group can have it.
type processGroup struct {
	cmd  *exec.Cmd
	id   int
	gone chan struct{}
	tty  *terminal

	halted chan struct{} // the command was stopped
}

func startGroup(cmd *exec.Cmd) (*processGroup, error) {
	g := &processGroup{cmd: cmd, gone: make(chan struct{}), halted: make(chan struct{}, 1), tty: foreground()}
	cmd.SysProcAttr = groupAttr()
	if g.tty != nil {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, g.tty.fd
	}
	started := make(chan error, 1)
	go func() {
		// To the kernel the parent is this thread: were it to end, the command would be
		// killed as if this process had.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		g.awaitExit(cmd.Process.Pid)
		close(g.gone)
	}()
	if err := <-started; err != nil {
		g.tty.takeBack()
		g.tty.close()
		return nil, err
	}
	g.id = cmd.Process.Pid
	return g, nil
}

func (g *processGroup) signal(sig syscall.Signal) { _ = syscall.Kill(-g.id, sig) } // nobody left is no failure

func (g *processGroup) exited() <-chan struct{} { return g.gone }

func (g *processGroup) empty() bool { return !groupLives(g.id) }

// reap gives the number of the group back and says how the command ended.
func (g *processGroup) reap() (code int, sig syscall.Signal) {
	_ = g.cmd.Wait() // the state says it all
	g.tty.takeBack()
	g.tty.close()
	status, ok := g.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return ExitFailed, 0
	case status.Signaled():
		return 128 + int(status.Signal()), status.Signal()
	}
	return status.ExitStatus(), 0
}
