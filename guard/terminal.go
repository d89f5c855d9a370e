//go:build linux || darwin

package guard

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the one that this process is in the foreground of. nil is none.
type terminal struct {
	file *os.File
	fd   int
	own  int // this process's group
}

// foreground is the controlling terminal, if this process may give it away: whether a
// command reads from it has nothing to do with its standard input.
func foreground() *terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil // none
	}
	t := &terminal{file: f, fd: int(f.Fd()), own: unix.Getpgrp()}
	if !t.mine() {
		t.close()
		return nil
	}
	return t
}

func (t *terminal) close() {
	if t != nil {
		_ = t.file.Close()
	}
}

func (t *terminal) mine() bool {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == t.own
}

// takeBack puts this process into the foreground again.
func (t *terminal) takeBack() {
	if t == nil || t.mine() {
		return
	}
	// Who is in the background is stopped for this, unless it ignores the signal.
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own)
}

// give puts a group into the foreground, if this process is there now.
func (t *terminal) give(group int) {
	if t != nil && t.mine() {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
	}
}

// tellStopped says that the command was stopped, by Ctrl-Z most likely.
func (g *processGroup) tellStopped() {
	select {
	case g.halted <- struct{}{}:
	default:
	}
}

// stopped tells that the command was stopped at the terminal that it was given. The
// shell does not see that; it waits for this process.
func (g *processGroup) stopped() <-chan struct{} {
	if g.tty == nil {
		return nil
	}
	return g.halted
}

// suspend stops this process, and at a terminal its whole job, until it is continued.
func (g *processGroup) suspend() {
	g.tty.takeBack()
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	target := os.Getpid()
	if g.tty != nil {
		target = 0
	}
	if err := syscall.Kill(target, syscall.SIGSTOP); err == nil {
		// The signal may stop this thread a moment later than the call returns.
		<-resumed
	}
	g.tty.give(g.id)
}
