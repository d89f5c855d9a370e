//go:build linux || darwin

// Package early hears the signals of `lastword exec` before main runs: what all the
// packages of the program do to begin takes some milliseconds, in which Go itself would
// end the process, on SIGQUIT with a stack dump. Only cmd/lastword imports it.
//
// # Guarantees
//
// In a process whose arguments name the command exec, signals that arrive after this
// package was initialized end nothing and are kept for [Signals], as many as there is
// room for. In every other process nothing is caught.
//
// # Not guaranteed
//
// The first millisecond or so, in which the runtime and what this package imports begin:
// Go ends the process then, and nothing has been started.
package early

import (
	"os"
	"os/signal"
	"strings"

	"github.com/lastword/lastword/internal/signals"
)

var heard = listen(os.Args)

// Signals are those that the command under exec is for; nil if this process is none.
func Signals() <-chan os.Signal { return heard }

func listen(args []string) chan os.Signal {
	if len(args) == 0 || Command(args[1:]) != "exec" {
		return nil
	}
	c := make(chan os.Signal, 64)
	signal.Notify(c, signals.Heard()...)
	return c
}

// Command is the name of the command in a command line of lastword, "" for none. The
// only flag in front of it that takes a value is -o.
func Command(args []string) string {
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "-o" || arg == "--output":
			i++
		case !strings.HasPrefix(arg, "-"):
			return arg
		}
	}
	return ""
}
