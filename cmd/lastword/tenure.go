package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// held is a command about the tenure of a grant file.
func (a *app) held(op, short, long string, do func(ctx context.Context, c *rpc.Client, ref lastword.TenureRef) error) *cobra.Command {
	var path string
	cmd := &cobra.Command{Use: op + " --grant FILE", Short: short, Long: long, Args: want()}
	cmd.Flags().StringVar(&path, "grant", "", "`FILE` that acquire made (required)")
	r := a.remoteFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if path == "" {
			return usage(cmd, "no --grant FILE given")
		}
		f, err := readGrantFile(op, path)
		if err != nil {
			return err
		}
		c, err := a.dial(cmd, r)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		return r.unreached(repeatable(do(cmd.Context(), c, f.Ref())))
	}
	return cmd
}

// repeatable says of a step without an answer that it may be repeated: renew, release
// and complete change nothing the second time.
func repeatable(err error) error {
	if !errors.Is(err, lastword.ErrUnknownOutcome) {
		return err
	}
	e, _ := asError(err)
	out := *e
	out.Hint = "run the same command again, which is safe, or ask: lastword status --grant FILE"
	return &out
}

func (a *app) renewCommand() *cobra.Command {
	return a.held("renew", "extend a lease to its full TTL", `Extends the lease of the grant file to its full TTL, counted from when the authority
handles the call. The fence stays the same. A lease that is over cannot be renewed
(exit code 122): acquire again.`,
		func(ctx context.Context, c *rpc.Client, ref lastword.TenureRef) error {
			t, err := c.Renew(ctx, ref)
			if err != nil {
				return err
			}
			m := rpc.TenureMessage(t)
			m.Grant = "" // it is in the file
			return told(a.answer(m, row{"renewed", string(t.Resource)}, row{"fence", fenceText(t.Fence)}, row{"ttl", spanText(t.TTL)}),
				"renew %s: renewed", t.Resource)
		})
}

func (a *app) releaseCommand() *cobra.Command {
	return a.held("release", "give a lease up", `Ends the lease of the grant file, so that the next one can have it at once. The file
stays; it is of no use any more. Repeated, it answers the same for a while. A lease
that ended otherwise is not this holder's any more (exit code 122).`,
		func(ctx context.Context, c *rpc.Client, ref lastword.TenureRef) error {
			if err := c.Release(ctx, ref); err != nil {
				return err
			}
			return told(a.answer(with{refMessage(ref), struct {
				Released bool `json:"released"`
			}{true}}, row{"released", string(ref.Resource)}, row{"fence", fenceText(ref.Fence)}), "release %s: released", ref.Resource)
		})
}

func (a *app) completeCommand() *cobra.Command {
	var result string
	cmd := a.held("complete", "store the result of a lease", `Stores the result of the work beside the lease, for the successor and for status.
--result TEXT is the text itself, --result @FILE the content of a file, at most
16 KiB. It does not release. Repeated with the same result it answers the same; with
another one it is refused. A lease that is over accepts none (exit code 122).`,
		func(ctx context.Context, c *rpc.Client, ref lastword.TenureRef) error {
			b, err := resultBytes(result)
			if err != nil {
				return &lastword.Error{Code: lastword.CodeInvalid, Op: "complete", Resource: ref.Resource, Message: "--result: " + err.Error()}
			}
			if err := c.Complete(ctx, ref, b); err != nil {
				return err
			}
			return told(a.answer(with{refMessage(ref), struct {
				Completed bool   `json:"completed"`
				Result    []byte `json:"result"`
			}{true, b}}, row{"completed", string(ref.Resource)}, row{"fence", fenceText(ref.Fence)}, row{"result", resultText(b)}),
				"complete %s: completed", ref.Resource)
		})
	cmd.Use = "complete --grant FILE --result TEXT|@FILE"
	cmd.Flags().StringVar(&result, "result", "", "`TEXT` of the result, or @FILE (required)")
	check := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("result") {
			return usage(cmd, "no --result TEXT or --result @FILE given")
		}
		return check(cmd, args)
	}
	return cmd
}

// resultBytes is TEXT, or the content of @FILE.
func resultBytes(s string) ([]byte, error) {
	path, isFile := strings.CutPrefix(s, "@")
	if !isFile {
		return []byte(s), nil
	}
	b, err := readSmall(path, lastword.MaxResultBytes)
	if err != nil {
		return nil, errors.New("file " + path + ": " + err.Error())
	}
	return b, nil
}

func refMessage(ref lastword.TenureRef) *wire.TenureRef {
	return &wire.TenureRef{
		Resource: string(ref.Resource), Owner: ref.Owner, RequestId: ref.RequestID, LeaseId: ref.LeaseID, Fence: uint64(ref.Fence),
	}
}

func (a *app) cancelCommand() *cobra.Command {
	var owner, requestID, path string
	cmd := &cobra.Command{
		Use: "cancel RESOURCE --request-id ID --owner NAME", Short: "take one acquire attempt back", Args: want("RESOURCE"),
		Long: `Ends what the acquire with this request id and owner holds or waits for, and refuses
an acquire with them that arrives later. It is the way out when an acquire had no
answer (exit code 123). It may be repeated. --grant FILE names id and owner, too.`,
	}
	cmd.Flags().Var(&idFlag{"request id", &requestID}, "request-id", "of the attempt")
	cmd.Flags().Var(&idFlag{"owner", &owner}, "owner", "of the attempt")
	cmd.Flags().StringVar(&path, "grant", "", "`FILE` that acquire made, instead of the two")
	r := a.remoteFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		res, err := resource(cmd, args[0])
		if err != nil {
			return err
		}
		switch {
		case path != "" && (requestID != "" || owner != ""):
			return usage(cmd, "--grant names request id and owner already")
		case path == "" && (requestID == "" || owner == ""):
			return usage(cmd, "want --request-id and --owner, or --grant FILE")
		case path != "":
			ref, err := grantOf(cmd, "cancel", path, res)
			if err != nil {
				return err
			}
			owner, requestID = ref.Owner, ref.RequestID
		}
		c, err := a.dial(cmd, r)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if err := c.Cancel(cmd.Context(), res, owner, requestID); err != nil {
			return r.unreached(repeatable(err))
		}
		return told(a.answer(with{&wire.CancelRequest{Resource: string(res), Owner: owner, RequestId: requestID}, struct {
			Canceled bool `json:"canceled"`
		}{true}}, row{"cancelled", string(res)}, row{"request id", requestID}, row{"owner", owner}),
			"cancel %s: cancelled", res)
	}
	return cmd
}

// grantOf is the tenure of a grant file, which has to be about res.
func grantOf(cmd *cobra.Command, op, path string, res lastword.Resource) (lastword.TenureRef, error) {
	f, err := readGrantFile(op, path)
	if err != nil {
		return lastword.TenureRef{}, named(err, op, res)
	}
	ref := f.Ref()
	if ref.Resource != res {
		return ref, usage(cmd, "the grant file %s is about %s, not about %s", path, quoted(string(ref.Resource)), quoted(string(res)))
	}
	return ref, nil
}
