package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/rpc"
)

// The exit codes. They are a contract with scripts (docs/cli.md).
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitHeld        = 121
	exitLost        = 122
	exitUnreachable = 123
	exitRefused     = 124
)

// usageError is something on the command line or in the environment that is wrong.
type usageError struct{ command, message string }

func (e *usageError) Error() string {
	return fmt.Sprintf("%s; see '%s --help'", e.message, e.command)
}

func usage(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{command: cmd.CommandPath(), message: fmt.Sprintf(format, args...)}
}

// flagError turns pflag's errors into ours.
func flagError(cmd *cobra.Command, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usage(cmd, "--%s: %s", bad.GetFlag().Name, reason(bad.Unwrap()))
	}
	return usage(cmd, "%s", err)
}

// quietly is a failure of which stdout has told everything.
type quietly struct{ code int }

func (q quietly) Error() string { return fmt.Sprintf("exit code %d", q.code) }

func asError(err error) (*lastword.Error, bool) { return errors.AsType[*lastword.Error](err) }

// reason is what an error says, without its code and operation.
func reason(err error) string {
	e, ok := asError(err)
	if !ok {
		return oneLine(err.Error())
	}
	text := e.Message
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return oneLine(text)
}

// exitCode is the exit code of a command that ended with err.
func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	if q, ok := errors.AsType[quietly](err); ok {
		return q.code
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*untold](err); ok {
		return exitUnreachable
	}
	// Not "refused": the grant was not even judged.
	if grant.ReasonOf(err) == grant.ReasonBundleUnavailable {
		return exitUnreachable
	}
	if e, ok := asError(err); ok {
		return codeExit(e.Code)
	}
	return exitFailed
}

func codeExit(c lastword.Code) int {
	switch c {
	case lastword.CodeInvalid:
		return exitUsage
	case lastword.CodeHeld:
		return exitHeld
	case lastword.CodeNotHolder, lastword.CodeTenureEnded:
		return exitLost
	case lastword.CodeUnavailable, lastword.CodeUnknown, lastword.CodeMutationUnknown, lastword.CodeStatusUnavailable:
		return exitUnreachable
	case lastword.CodeConflict, lastword.CodeStaleOwner, lastword.CodeReceiptExpired, lastword.CodeOutOfOrder,
		lastword.CodeRootMismatch, lastword.CodeFenceRegression, lastword.CodeFenceJump, lastword.CodeUnverified,
		lastword.CodeFenceRequired:
		return exitRefused
	case lastword.CodeRequestConflict, lastword.CodeCanceled, lastword.CodeExhausted, lastword.CodeQuota, lastword.CodeInternal:
		return exitFailed
	}
	return exitFailed
}

// report prints what went wrong and returns the exit code.
func (a *app) report(cmd *cobra.Command, err error) int {
	code := exitCode(err)
	if _, ok := cmd.Annotations[exitsLikeExec]; ok {
		code = execExit(err)
	}
	if _, quiet := errors.AsType[quietly](err); err == nil || quiet {
		return code
	}
	if a.json {
		_, _ = fmt.Fprintf(a.stderr, "%s\n", refusalJSON(cmd, err))
		return code
	}
	_, _ = fmt.Fprintf(a.stderr, "lastword: %s\n", harmless(line(cmd, err))) // nobody is left to be told
	return code
}

// line is err in one line that begins with what was tried.
func line(cmd *cobra.Command, err error) string {
	text := oneLine(err.Error())
	if e, ok := asError(err); ok && e.Op != "" && strings.HasPrefix(text, e.Op) {
		return text
	}
	name := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "lastword"), " ")
	for _, prefix := range []string{name + " ", name + ":", cmd.Name() + " "} {
		if name == "" || strings.HasPrefix(text, prefix) {
			return text
		}
	}
	return name + ": " + text
}

// oneLine keeps a message in its line, whatever it quotes. What is said twice in succession,
// as by a driver that tries with TLS and without, is said once.
func oneLine(s string) string {
	var said []string
	for part := range strings.Lines(strings.TrimSpace(s)) {
		part = strings.TrimSpace(part)
		if n := len(said); n > 0 {
			if more, again := strings.CutPrefix(part, said[n-1]); again && (more == "" || strings.HasPrefix(more, " (")) { // and a hint
				said = said[:n-1]
			}
		}
		said = append(said, part)
	}
	text := strings.ReplaceAll(strings.Join(said, "; "), ":; ", ": ")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

// refusalJSON is err as the wire's Refusal. An error that has no code of ours has an
// empty reason.
func refusalJSON(cmd *cobra.Command, err error) []byte {
	e, ok := asError(err)
	bad, isUsage := errors.AsType[*usageError](err)
	switch {
	case isUsage:
		e = &lastword.Error{Code: lastword.CodeInvalid, Op: cmd.Name(), Message: bad.message, Hint: "see '" + bad.command + " --help'"}
	case !ok:
		e = &lastword.Error{Op: cmd.Name(), Message: oneLine(err.Error())}
	default:
		out := *e
		if out.Err != nil {
			out.Message = oneLine(out.Message + ": " + out.Err.Error())
		}
		if out.Op == "" {
			out.Op = cmd.Name()
		}
		e = &out
	}
	safe := *e
	safe.Message, safe.Hint = harmless(e.Message), harmless(e.Hint)
	return wireJSON(rpc.RefusalMessage(&safe))
}

// unreached adds to an error of a call that found nobody how to find somebody. What
// the authority itself said has no cause and stays as it is.
func (r *remote) unreached(err error) error {
	e, ok := asError(err)
	if !ok || e.Code != lastword.CodeUnavailable || e.Err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	out := *e
	switch cause := e.Err.Error(); {
	case r.secured.cert != "" && strings.Contains(cause, "tls: "), strings.Contains(cause, "authentication handshake failed"):
		out.Hint = "do --tls-cert, --tls-ca and --authority-id fit the authority at " + r.authority + "? its log says why it refuses a certificate"
	case strings.Contains(cause, "looked like an HTTP/1.1 header"):
		out.Hint = "at " + r.authority + " is a server of HTTP: name the gRPC address of the authority (serve --grpc; 7420 unless told otherwise)"
	case r.secured.cert == "" && strings.Contains(cause, "server preface"):
		out.Hint = "the authority at " + r.authority + " may want a certificate: give --tls-cert, --tls-key, --tls-ca and --authority-id"
	default:
		out.Hint = fmt.Sprintf("is an authority running at %s? start one with 'lastword dev' or 'lastword serve', or name it with --authority or LASTWORD_AUTHORITY", r.authority)
	}
	return &out
}
