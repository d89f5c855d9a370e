package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

const revokeLong = `Ends the lease of RESOURCE that has this fence, for an operator. The fence is needed:
a lease that was granted after the one you looked at is not touched (exit code 122,
with the present holder). 'lastword status RESOURCE' shows it.

The holder learns of it with its next renewal. A write that it has sent, or sends
until then, is refused for certain only once the next holder's fence has reached the
resource. The resource is free at once; no lock-delay follows.

Operator and reason go to the log of the authority.`

func (a *app) revokeCommand() *cobra.Command {
	m := &wire.RevokeRequest{}
	cmd := &cobra.Command{
		Use: "revoke RESOURCE --fence N --reason TEXT", Short: "end somebody's lease by force", Long: revokeLong, Args: want("RESOURCE"),
		Example: "  lastword revoke doc/a --fence 8589934593 --reason 'host is gone'",
	}
	cmd.Flags().Var(&seqFlag{&m.Fence}, "fence", "of the lease to end (required)")
	cmd.Flags().Var(&idFlag{"reason", &m.Reason}, "reason", "why, for the log (required)")
	cmd.Flags().Var(&idFlag{"operator", &m.Operator}, "operator", "who you are, for the log (default: the identity of your certificate or token, else host, process and a random part)")
	r := a.remoteFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		res, err := resource(cmd, args[0])
		switch {
		case err != nil:
			return err
		case m.Fence == 0:
			return usage(cmd, "no --fence N given: name the lease, 'lastword status' shows it")
		case m.Reason == "":
			return usage(cmd, "no --reason TEXT given")
		}
		c, err := a.dial(cmd, r)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if m.Operator == "" {
			if m.Operator, err = ownName(c); err != nil {
				return err
			}
		}
		m.Resource = string(res)
		return r.unreached(a.revoke(cmd.Context(), c, m))
	}
	return cmd
}

func (a *app) revoke(ctx context.Context, c *rpc.Client, m *wire.RevokeRequest) error {
	res, fence := lastword.Resource(m.GetResource()), lastword.Token(m.GetFence())
	err := c.Revoke(ctx, res, fence, m.GetOperator(), m.GetReason())
	if errors.Is(err, lastword.ErrUnknownOutcome) {
		e, _ := asError(err)
		out := *e
		out.Hint = fmt.Sprintf("run the same command again, which is safe, or ask: lastword status %s", quoted(string(res)))
		return &out
	}
	if err != nil {
		return err
	}
	return told(a.answer(with{m, struct {
		Revoked bool `json:"revoked"`
	}{true}}, row{"revoked", string(res)}, row{"fence", fenceText(fence)}, row{"operator", m.GetOperator()},
		row{"note", "its holder may still write until a newer fence has reached the resource"}), "revoke %s: revoked", res)
}

// ownName is who this run of the program is, if it is not told.
func ownName(c *rpc.Client) (string, error) {
	holder, err := client.New(c, client.Config{})
	if err != nil {
		return "", err
	}
	return holder.Owner(), holder.Close()
}
