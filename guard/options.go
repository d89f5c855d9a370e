package guard

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// Options say what is run, under which lease. Resource and Command are required; all
// else has a default.
type Options struct {
	// Resource is what is held while the command runs.
	Resource lastword.Resource
	// Acquire says how it is acquired. Wait is how long to queue, MaxHold after
	// which time the command is told to stop.
	Acquire client.AcquireOptions
	// Command is the program and its arguments. A name without a slash is looked up
	// in PATH of this process, before anything is acquired.
	Command []string
	// Dir is its working directory; "" is that of this process.
	Dir string
	// Env is its environment; nil is that of this process. The three LASTWORD_
	// variables of the package comment are put in their place.
	Env []string
	// Stdin, Stdout and Stderr are handed to the command as they are, without a pipe
	// between; nil is the null device. If this process is in the foreground of its
	// controlling terminal, the command is put there instead of it, whatever Stdin is,
	// so that it can read what is typed and gets Ctrl-C.
	Stdin, Stdout, Stderr *os.File
	// Signals are sent on to the whole process group. While the lease is being waited
	// for, SIGHUP, SIGINT, SIGQUIT and SIGTERM end the wait and others are dropped.
	// SIGTSTP stops the group, and then this process. [Forwarded] lists what to
	// ask signal.Notify for. Nil: none.
	Signals <-chan os.Signal
	// Grace is the time between SIGTERM and SIGKILL, at most half of the TTL. 0 is
	// [DefaultGrace], or a third of the TTL where that is less.
	Grace time.Duration
	// TempDir is where the private directory of the grant file is made; "" is that of
	// the system.
	TempDir string
	// Logger takes what goes wrong and does not change the outcome. Nil: none.
	Logger *slog.Logger
}

// DefaultGrace is the time between SIGTERM and SIGKILL.
const DefaultGrace = 10 * time.Second

func (o Options) withDefaults() (Options, error) {
	if len(o.Command) == 0 || o.Command[0] == "" {
		return o, o.invalid("no command", "")
	}
	for _, list := range [][]string{o.Command, o.Env, {o.Dir}} {
		if slices.ContainsFunc(list, func(s string) bool { return strings.ContainsRune(s, 0) }) {
			return o, o.invalid("a zero byte in the command, its environment or its directory", "")
		}
	}
	if o.Acquire.TTL == 0 {
		o.Acquire.TTL = client.DefaultTTL
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	_, err := o.graceOf(o.Acquire.TTL)
	return o, err
}

// graceOf is the grace under a lease of this TTL.
func (o Options) graceOf(ttl time.Duration) (time.Duration, error) {
	switch {
	case o.Grace < 0:
		return 0, o.invalid(fmt.Sprintf("grace %s: want more than 0", o.Grace), "")
	case o.Grace == 0:
		return min(DefaultGrace, ttl/3), nil
	case o.Grace > ttl/2:
		return 0, o.invalid(
			fmt.Sprintf("grace %s: with a ttl of %s it must be at most %s, so that it is over when the lease is", o.Grace, ttl, ttl/2),
			"shorten the grace or lengthen the ttl")
	}
	return o.Grace, nil
}

func (o Options) invalid(message, hint string) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Resource: o.Resource, Message: message, Hint: hint}
}

// own is a failure of this side: nothing is wrong with the lease or the command.
func (o Options) own(message string, err error) error {
	return &lastword.Error{Code: lastword.CodeInternal, Op: op, Resource: o.Resource, Message: message, Err: err}
}
