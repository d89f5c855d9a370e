package main

import (
	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

const resumeLong = `Lets RESOURCE be granted again after a resource has reported a fence that the authority
did not know to have issued, or issued twice: until then nothing of it is granted or
renewed (FENCE_REGRESSION). Find out first why: a restored or copied store, or a stolen
key. --fence is the reported one, which 'lastword status RESOURCE' shows.

The next fence is above it. A lease that is still open ends as REVOKED. The record at
the resource is opened with 'lastword fence release'.

Operator and reason go to the log of the authority.`

func (a *app) resumeCommand() *cobra.Command {
	m := &wire.ResumeRequest{}
	cmd := &cobra.Command{
		Use: "resume RESOURCE --fence N --reason TEXT", Short: "grant again what a resource's report has stopped", Long: resumeLong, Args: want("RESOURCE"),
		Example: "  lastword resume doc/a --fence 8589934593 --reason 'the copy of the store is gone'",
	}
	cmd.Flags().Var(&seqFlag{&m.Reported}, "fence", "that was reported (required)")
	cmd.Flags().Var(&idFlag{"reason", &m.Reason}, "reason", "why, for the log (required)")
	cmd.Flags().Var(&idFlag{"operator", &m.Operator}, "operator", "who you are, for the log (default: host, process and a random part)")
	r := a.remoteFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		res, err := resource(cmd, args[0])
		switch {
		case err != nil:
			return err
		case m.Reported == 0:
			return usage(cmd, "no --fence N given: 'lastword status' shows what was reported")
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
		next, err := c.Resume(cmd.Context(), res, lastword.Token(m.GetReported()), m.GetOperator(), m.GetReason())
		if err != nil {
			return r.unreached(err)
		}
		return told(a.answer(with{m, struct {
			Resumed   bool   `json:"resumed"`
			NextFence uint64 `json:"next_fence,string"`
		}{true, uint64(next)}}, row{"resumed", string(res)}, row{"next fence", fenceText(next)}, row{"operator", m.GetOperator()}), "resume %s: resumed", res)
	}
	return cmd
}
