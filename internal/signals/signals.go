//go:build linux || darwin

// Package signals knows which signals belong to a command that runs under a lease.
//
// # Guarantees
//
// It has no effect of its own: nothing is caught by importing it.
//
// # Not guaranteed
//
// SIGKILL and SIGSTOP cannot be caught, and are in no list.
package signals

import (
	"os"
	"os/signal"
	"syscall"
)

// Forwarded are those that a process can catch and that are not about it alone.
func Forwarded() []os.Signal {
	return []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGABRT, syscall.SIGALRM, syscall.SIGPIPE,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP,
	}
}

// Heard are those of Forwarded that this process was not started to ignore, as nohup
// and a shell's background do: the command ignores them then, too.
func Heard() []os.Signal {
	var list []os.Signal
	for _, s := range Forwarded() {
		if !signal.Ignored(s) {
			list = append(list, s)
		}
	}
	return list
}
