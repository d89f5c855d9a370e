// Command lastword runs an authority, takes and gives up leases, and makes fenced
// writes from a shell. docs/cli.md has the exit codes, the JSON and the grant file.
//
// # Guarantees
//
// A command that fails leaves no file behind that it would have written. "The other
// side said no" and "there was no answer" have different exit codes. Errors are one
// line on stderr and never hold a grant or a key.
//
// # Not guaranteed
//
// A command ends, and with it what it knew: acquire does not renew, and a fence that
// was printed may be overtaken by the time that it is read.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/lastword/lastword/internal/early"
)

// version is set by the build (-ldflags '-X main.version=v1.2.3').
var version string

func main() { os.Exit(program()) }

// oneSignal is how long signals count as one: timeout(1) and terminals signal a process
// and its group, so that the same one comes twice.
const oneSignal = time.Second

// program runs the command line of this process. The first SIGINT, SIGTERM or SIGHUP ends
// the context; one that comes oneSignal later ends the process at once, as if nobody
// listened. The signals of exec are the command's, from the start on, and end no context.
func program() int {
	ctx, signals := context.Background(), early.Signals()
	if signals == nil {
		var stop context.CancelFunc
		ctx, stop = untilSignal(ctx)
		defer stop()
	}
	// A reader of stdout that is gone is an error of the write, and not the end of a
	// command that has to say what it has done. Unlike an ignored signal, children do
	// not inherit it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return run(ctx, signals, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)
}

// untilSignal is a context that ends with the first SIGINT, SIGTERM, or SIGHUP: a terminal
// that is closed is no reason to leave calls without an answer. Under nohup that one stays
// ignored.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		select {
		case <-signals:
			cancel()
			time.Sleep(oneSignal)
		case <-ctx.Done():
		}
		signal.Stop(signals)
	}()
	return ctx, cancel
}

// run is one command: arguments and environment in, exit code out. signals are those
// of exec.
func run(ctx context.Context, signals <-chan os.Signal, args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{
		env: environment(env), environ: env, stdin: stdin, stdout: stdout, stderr: stderr, json: wantsJSON(args), signals: signals,
	}
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return a.report(cmd, err)
}

// environment looks a variable up; one that is empty counts as not set.
func environment(env []string) func(name string) (value string, ok bool) {
	return func(name string) (value string, ok bool) {
		for _, e := range env {
			if v, found := strings.CutPrefix(e, name+"="); found {
				value = v // the last one counts, as for a child process
			}
		}
		return value, value != ""
	}
}

// wantsJSON finds -o json in arguments that may not parse, because the error about
// them has to come as JSON, too.
func wantsJSON(args []string) bool {
	for i, arg := range args {
		switch arg {
		case "--":
			return false
		case "-ojson", "-o=json", "--output=json":
			return true
		case "-o", "--output":
			if i+1 < len(args) && args[i+1] == "json" {
				return true
			}
		}
	}
	return false
}
