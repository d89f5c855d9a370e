package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/rpc"
)

// asking is one status.
type asking struct {
	app    *app
	cmd    *cobra.Command
	remote *remote
	query  lastword.StatusQuery
	path   string        // of the grant file
	proof  string        // file of the status proof that is wanted, "" for none
	life   time.Duration // of the proof, 0 for what the authority gives
}

func (a *app) statusCommand() *cobra.Command {
	q := &asking{app: a}
	cmd := &cobra.Command{
		Use: "status RESOURCE", Short: "state of a resource, and of one tenure of it", Args: want("RESOURCE"),
		Long: `Tells whether RESOURCE is held and by whom, the fence that the next grant would
carry, and how the last tenure ended. With --grant, --lease-id, or --request-id and
--owner it also tells what became of that one tenure.

--proof FILE stores a status proof of the lease of --grant or --lease-id: signed, good for
--proof-life, and for a resource that cannot ask the authority itself ('lastword fence
apply --proof FILE'). It has mode 0600 and replaces an earlier proof, and nothing else.
There is none of a lease that is over: exit code 122, and no file is written.`,
		Example: "  lastword status doc/a --grant a.grant --proof a.proof",
	}
	f := cmd.Flags()
	f.Var(&idFlag{"lease id", &q.query.LeaseID}, "lease-id", "of the tenure that is asked about")
	f.Var(&idFlag{"request id", &q.query.RequestID}, "request-id", "of its acquire; needs --owner")
	f.Var(&idFlag{"owner", &q.query.Owner}, "owner", "of that acquire")
	f.StringVar(&q.path, "grant", "", "`FILE` that acquire made, instead of the above")
	f.StringVar(&q.proof, "proof", "", "store a status proof in `FILE`")
	f.Var(&durationFlag{value: &q.life, least: time.Second, most: grant.MaxStatusLife}, "proof-life", "how long the proof is good, in whole seconds, and not beyond the TTL (default: 10s)")
	f.Lookup("proof-life").DefValue = ""
	q.remote = a.remoteFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		q.cmd = cmd
		if q.query.Resource, err = resource(cmd, args[0]); err != nil {
			return err
		}
		if err := q.check(); err != nil {
			return err
		}
		return q.run(cmd.Context())
	}
	return cmd
}

func (q *asking) check() error {
	proof := q.cmd.Flags().Changed("proof")
	switch {
	case q.path != "" && (q.query.LeaseID != "" || q.query.RequestID != "" || q.query.Owner != ""):
		return usage(q.cmd, "--grant names the tenure already")
	case q.query.LeaseID != "" && q.query.RequestID != "":
		return usage(q.cmd, "want --lease-id or --request-id, not both")
	case (q.query.RequestID == "") != (q.query.Owner == ""):
		return usage(q.cmd, "--request-id and --owner go together")
	case proof && q.path == "" && q.query.LeaseID == "":
		return usage(q.cmd, "--proof is of one lease: name it with --grant or --lease-id")
	case q.life != 0 && !proof:
		return usage(q.cmd, "--proof-life is of a --proof FILE")
	}
	return nil
}

func (q *asking) run(ctx context.Context) error {
	if q.path != "" {
		ref, err := grantOf(q.cmd, "status", q.path, q.query.Resource)
		if err != nil {
			return err
		}
		q.query.LeaseID = ref.LeaseID
	}
	var file *proofWriter
	if q.cmd.Flags().Changed("proof") {
		var err error
		if file, err = reserveProof(q.proof); err != nil {
			return named(err, "status", q.query.Resource)
		}
		defer file.discard()
	}
	c, err := q.app.dial(q.cmd, q.remote)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if file != nil {
		return q.prove(ctx, c, file)
	}
	st, err := c.Status(ctx, q.query)
	if err != nil {
		return q.remote.unreached(err)
	}
	return q.app.answer(rpc.StatusMessage(st), statusRows(st)...)
}

// prove asks for the status and a proof of it, and stores that.
func (q *asking) prove(ctx context.Context, c *rpc.Client, file *proofWriter) error {
	st, proof, err := c.Proof(ctx, q.query, q.life)
	if err != nil {
		return q.remote.unreached(err)
	}
	if proof == "" {
		return q.unproven(st)
	}
	until, err := file.commit(proof)
	if err != nil {
		return err
	}
	expires := until.UTC().Format(time.RFC3339)
	return told(q.app.answer(with{rpc.StatusMessage(st), struct {
		ProofFile    string `json:"proof_file"`
		ProofExpires string `json:"proof_expires"`
	}{q.proof, expires}}, append(statusRows(st), row{"proof", q.proof + ", good until " + expires})...),
		"status %s: the proof is in %s", q.query.Resource, q.proof)
}

// unproven is the answer about a lease of which there is no proof.
func (q *asking) unproven(st lastword.Status) error {
	e := &lastword.Error{
		Code: lastword.CodeNotHolder, Op: "status", Resource: q.query.Resource,
		Message: "there is no proof of this lease: it is not known, or long over", Hint: "acquire again",
	}
	if st.Asked != "" && st.Asked != lastword.StateFree {
		e.Message = fmt.Sprintf("there is no proof of this lease: it is %s", st.Asked)
	}
	return e
}

func statusRows(st lastword.Status) []row {
	rows := []row{{"resource", string(st.Resource)}, {"state", string(st.State)}}
	if st.Holder.Owner != "" {
		rows = append(rows, row{"holder", st.Holder.Owner}, row{"fence", fenceText(st.Holder.Fence)},
			row{"remaining", remainingText(st)},
			row{"lease id", st.Holder.LeaseID}, row{"request id", st.Holder.RequestID})
	}
	if st.Waiters > 0 {
		rows = append(rows, row{"waiters", number(st.Waiters)})
	}
	asked := string(st.Asked)
	if st.AskedCompleted {
		asked += ", completed with " + resultText(st.AskedResult)
	}
	return append(rows, row{"next fence", fenceText(st.NextFence)}, row{"stopped", stoppedText(st.Reported)}, row{"last", endingText(st.Last)}, row{"asked tenure", asked})
}

// remainingText: an authority that has just started has not watched the lease yet, and
// knows of no time that is certainly left.
func remainingText(st lastword.Status) string {
	left := st.Remaining.Round(time.Millisecond)
	if left <= 0 {
		return "not known, at most " + spanText(st.TTL)
	}
	return spanText(left) + " of " + spanText(st.TTL)
}

// stoppedText is what a resource's report has stopped.
func stoppedText(reported lastword.Token) string {
	if reported == 0 {
		return ""
	}
	return "a resource has reported fence " + fenceText(reported) + "; see 'lastword resume --help'"
}
