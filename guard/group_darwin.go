package guard

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

func groupAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit returns when the process has ended. It stays a zombie, so that nobody else
// gets its number.
func (g *processGroup) awaitExit(pid int) {
	queue, err := unix.Kqueue()
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(queue) }()
	change := unix.Kevent_t{Fflags: unix.NOTE_EXIT}
	unix.SetKevent(&change, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	events := make([]unix.Kevent_t, 1)
	for {
		_, err := unix.Kevent(queue, []unix.Kevent_t{change}, events, nil)
		if !errors.Is(err, unix.EINTR) {
			return // it has ended, or had so before it could be watched
		}
	}
}

// checkSystem says why a group could not be watched here.
func checkSystem() error { return nil }

// groupLives says whether a process of the group is neither gone nor a zombie.
func groupLives(id int) bool {
	members, err := unix.SysctlKinfoProcSlice("kern.proc.pgrp", id)
	if err != nil {
		return true // not known to be gone
	}
	const zombie = 5 // SZOMB
	for _, m := range members {
		if m.Proc.P_stat != zombie {
			return true
		}
	}
	return false
}
