package guard

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when the process has ended. It stays a zombie, so that nobody else
// gets its number.
func (g *processGroup) awaitExit(pid int) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		const stopped = 5 // CLD_STOPPED
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && info.Code == stopped:
			// Taken, so that it is told once.
			_ = unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOHANG, nil)
			g.tellStopped()
		default: // it has ended, or there is none of this number
			return
		}
	}
}

// checkSystem says why a group could not be watched here.
func checkSystem() error {
	_, err := os.Stat("/proc/self/stat")
	return err
}

// groupLives says whether a process of the group is neither gone nor a zombie. The
// number of members tells nothing: the command itself is kept as a zombie until it is
// reaped, and others stay zombies where nobody inherits them.
func groupLives(id int) bool {
	dir, err := os.Open("/proc")
	if err != nil {
		return true // not known to be gone
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return true
	}
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		if b, err := os.ReadFile("/proc/" + name + "/stat"); err == nil && livesIn(b, id, name) {
			return true
		}
	}
	return false
}

// livesIn reads "pid (name) state ppid pgrp …"; the name may hold anything.
func livesIn(stat []byte, id int, pid string) bool {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return false
	}
	if group, err := strconv.Atoi(string(fields[2])); err != nil || group != id {
		return false
	}
	switch fields[0][0] {
	case 'X', 'x':
		return false
	case 'Z':
		// So looks a process, too, whose first thread has ended and others run on.
		threads, err := os.ReadDir("/proc/" + pid + "/task")
		return err == nil && len(threads) > 1
	}
	return true
}
