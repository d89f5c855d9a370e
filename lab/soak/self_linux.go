package soak

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// stopSelf stops this process and returns when it has been continued. The signal is the
// calling thread's own, so that nothing runs on between it and the stop.
func stopSelf() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return unix.Tgkill(os.Getpid(), unix.Gettid(), syscall.SIGSTOP)
}

// awaitStop waits until a child is stopped; false if it has ended.
func awaitStop(pid int) (stopped bool, err error) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch err {
		case unix.EINTR:
			continue
		case nil:
			return info.Code == cldStopped || info.Code == cldTrapped, nil
		case unix.ECHILD:
			return false, nil
		}
		return false, os.NewSyscallError("waitid", err)
	}
}

// The codes of SIGCHLD (waitid(2)).
const (
	cldTrapped = 4
	cldStopped = 5
)

// supported says whether a run is possible here.
const supported = true
