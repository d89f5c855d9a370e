package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
)

// fenceTimeout bounds a command at a database.
const fenceTimeout = 30 * time.Second

func (a *app) fenceCommand() *cobra.Command {
	return group("fence", "the resource side: a fenced database",
		a.fenceInitCommand(), a.fenceApplyCommand(), a.fenceStatusCommand(), a.fenceLookupCommand(),
		a.fenceAdvanceCommand(), a.fenceResolveCommand(), a.fenceQuarantineCommand(), a.fencePruneCommand(),
		a.fenceProtectCommand(), a.fenceUnprotectCommand(), a.fenceShadowCommand(), a.fenceEnforceCommand(), a.fenceAuditCommand(),
		a.fenceReleaseCommand(), a.fenceRestoredCommand())
}

// within bounds a command by its --timeout.
func timeoutFlag(cmd *cobra.Command) *time.Duration {
	timeout := fenceTimeout
	cmd.Flags().Var(&durationFlag{value: &timeout, least: time.Millisecond, most: time.Hour}, "timeout", "how long the command may take")
	return &timeout
}

func (a *app) fenceInitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "init DSN", Short: "make the fence's tables in a database", Args: want("DSN (sqlite:PATH or postgres://…)"),
		Long: `Makes the tables of the fence beside the tables of the application, and the file if
there is none, and sets the file's journal mode to WAL. It may be repeated; it never
changes a record. DSN is sqlite:PATH, or postgres://USER@HOST:PORT/NAME: there the tables
are in the schema lastword, and the role needs the right to create it.`,
	}
	timeout := timeoutFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path, err := databasePath(cmd, args[0])
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		return a.fenceInit(ctx, path)
	}
	return cmd
}

// looking is a command that reads one record.
type looking struct {
	op      string
	domain  string
	timeout *time.Duration
}

func (l *looking) flags(cmd *cobra.Command) {
	cmd.Flags().Var(&idFlag{"domain", &l.domain}, "domain", "of the authority, where the database has RESOURCE in several domains")
	l.timeout = timeoutFlag(cmd)
}

// at opens the database to look at it, finds the domain, reads what is to be read and
// shows it.
func (l *looking) at(cmd *cobra.Command, args []string, read func(ctx context.Context, p *sqlfence.Place, key fence.Key) (show func() error, err error)) error {
	path, err := databasePath(cmd, args[0])
	if err != nil {
		return err
	}
	res, err := resource(cmd, args[1])
	if err != nil {
		return err
	}
	if _, err := lookAt(l.op, path, false); err != nil {
		return named(err, l.op, res)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), *l.timeout)
	defer cancel()
	g, err := openToLook(path)
	if err != nil {
		return named(err, l.op, res)
	}
	defer g.close()
	place, err := sqlfence.OpenPlace(ctx, g.db, "")
	if err != nil {
		return named(err, l.op, res)
	}
	defer func() { _ = place.Close() }()
	domain, err := g.domainOf(cmd, place, res, l.domain)
	if err != nil {
		return named(err, l.op, res)
	}
	show, err := read(ctx, place, fence.Key{Domain: domain, Resource: res})
	if err == nil {
		err = g.unchanged()
	}
	if err != nil {
		return named(err, l.op, res)
	}
	return show()
}

func (a *app) fenceStatusCommand() *cobra.Command {
	l := &looking{op: "fence status"}
	cmd := &cobra.Command{
		Use: "status DSN [RESOURCE]", Short: "what the fence has stored, and what is protected",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 2 {
				return usage(cmd, "unexpected argument %q after RESOURCE", clip(args[2]))
			}
			return want("DSN (sqlite:PATH or postgres://…)")(cmd, args[:min(len(args), 1)])
		},
		Long: `Shows the record of RESOURCE: the highest fence, whose it is, the last number, and what
was refused. Without RESOURCE it shows the protected tables, the roll-outs and how often
each verdict was counted; the exit code is 1 if a table is not closed, because a trigger is
missing, off or altered, or because it was opened for a migration. It changes nothing and
asks no authority.`,
	}
	l.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return a.fenceTables(cmd, l, args[0])
		}
		return l.at(cmd, args, func(ctx context.Context, p *sqlfence.Place, key fence.Key) (func() error, error) {
			seen, err := p.Inspect(ctx, key)
			return func() error { return a.showRecord(key, seen) }, err
		})
	}
	return cmd
}

// recordJSON is the record of a resource as JSON.
type recordJSON struct {
	Domain              string                      `json:"domain"`
	Resource            string                      `json:"resource"`
	Exists              bool                        `json:"exists"`
	Fence               uint64                      `json:"fence,string"`
	LeaseID             string                      `json:"lease_id"`
	GrantDigest         string                      `json:"grant_digest"`
	Root                string                      `json:"root"`
	LastSeq             uint64                      `json:"last_seq,string"`
	LastOperation       string                      `json:"last_operation"`
	LastPayload         string                      `json:"last_payload"`
	Policy              string                      `json:"policy"`
	StatusMode          string                      `json:"status_mode"`
	Mode                string                      `json:"mode"`
	Frozen              bool                        `json:"frozen"`
	Imported            bool                        `json:"imported"`
	Step                uint64                      `json:"step,string"`
	HeardEpoch          uint32                      `json:"heard_epoch"`
	HeardRevision       uint64                      `json:"heard_revision,string"`
	RestoredUntil       string                      `json:"restored_until"`
	Unraised            bool                        `json:"unraised"`
	BundleSequence      uint64                      `json:"bundle_sequence,string"`
	MinEpoch            uint32                      `json:"min_epoch"`
	MinPolicyGeneration uint64                      `json:"min_policy_generation,string"`
	Refusals            map[lastword.Verdict]string `json:"refusals"`
	Estimated           bool                        `json:"refusals_estimated"`
	Quarantine          []quarantineJSON            `json:"quarantine"`
	Acts                []actJSON                   `json:"acts"`
}

type actJSON struct {
	Kind     string `json:"kind"`
	Operator string `json:"operator"`
	Reason   string `json:"reason"`
	Before   uint64 `json:"fence_before,string"`
	After    uint64 `json:"fence_after,string"`
	At       string `json:"at"`
}

// The modes of a record (R18).
const (
	enforced = "enforce"
	inShadow = "shadow"
)

type quarantineJSON struct {
	Owner     string `json:"owner"`
	Operation string `json:"operation"`
	Fence     uint64 `json:"fence,string"`
	Payload   string `json:"payload"`
	Verdict   string `json:"verdict"`
	Why       string `json:"why"`
	At        string `json:"at"`
}

func (a *app) showRecord(key fence.Key, seen fence.Inspection) error {
	r := seen.Record
	out := recordJSON{
		Domain: key.Domain, Resource: string(key.Resource), Exists: r.Exists, Fence: uint64(r.Fence), LeaseID: r.LeaseID,
		GrantDigest: r.GrantDigest.String(), Root: r.Root.String(), LastSeq: r.LastSeq, LastOperation: r.LastOperation,
		LastPayload: r.LastPayload.String(), Policy: string(r.Policy), StatusMode: string(r.Status), Frozen: r.Frozen,
		BundleSequence: r.BundleSequence, MinEpoch: r.MinEpoch, MinPolicyGeneration: r.MinPolicyGeneration,
		Mode: mode(r), Imported: r.Imported, Step: cmp.Or(r.Step, fence.DefaultStep), Unraised: r.Unraised,
		HeardEpoch: r.Heard.Epoch, HeardRevision: r.Heard.Revision,
		Refusals: map[lastword.Verdict]string{}, Estimated: seen.Estimated, Quarantine: []quarantineJSON{}, Acts: []actJSON{},
	}
	if r.Restored > 0 {
		out.RestoredUntil = time.UnixMilli(int64(r.Restored)).UTC().Format(time.RFC3339Nano)
	}
	for _, a := range seen.Acts {
		out.Acts = append(out.Acts, actJSON{string(a.Kind), a.Operator, a.Reason, uint64(a.Before), uint64(a.After), a.At.UTC().Format(time.RFC3339)})
	}
	var refusals []string
	if bypass := lastword.FenceRequired.Shadow(); seen.Estimated && seen.Refusals[bypass] == 0 {
		seen.Refusals[bypass] = 0 // of which is told that it may be more
	}
	for _, v := range slices.Sorted(maps.Keys(seen.Refusals)) {
		out.Refusals[v] = fmt.Sprint(seen.Refusals[v])
		text := fmt.Sprintf("%d %s", seen.Refusals[v], v)
		if seen.Estimated && v == lastword.FenceRequired.Shadow() {
			text = "about " + text + " (one of a hundred is kept)"
		}
		refusals = append(refusals, text)
	}
	for _, e := range seen.Quarantine {
		q := quarantineJSON{Owner: e.Claimant, Fence: uint64(e.Fence), Verdict: string(e.Verdict), Why: e.Why, At: e.At.UTC().Format(time.RFC3339)}
		if e.Quarantine != nil {
			q.Operation, q.Payload = e.Quarantine.Operation, e.Quarantine.Payload.String()
		}
		out.Quarantine = append(out.Quarantine, q)
	}
	state, seq, token, floor := "guarded", "", "", ""
	switch {
	case r.Unraised:
		state = "RESTORED and not raised: it admits nothing until 'lastword fence restored' has run to its end"
	case !r.Exists:
		state = "no record: nothing was ever admitted here"
	case r.Frozen:
		state = "FROZEN"
	case r.LeaseID == "":
		state = "closed: only a larger fence is admitted"
	}
	if r.Exists {
		seq = fmt.Sprint(r.LastSeq)
	}
	if r.Imported {
		token = "imported: whoever calls is believed"
	}
	if r.BundleSequence > 0 {
		floor = fmt.Sprintf("%d, minimum epoch %d", r.BundleSequence, r.MinEpoch)
	}
	return a.answer(out, row{"resource", string(key.Resource)}, row{"domain", key.Domain}, row{"state", state},
		row{"fence", fenceText(r.Fence)}, row{"lease id", r.LeaseID}, row{"last seq", seq}, row{"last operation", r.LastOperation},
		row{"mode", mode(r)}, row{"policy", string(r.Policy)}, row{"status mode", string(r.Status)}, row{"token", token},
		row{"bundle floor", floor}, row{"restored", windowText(r.Restored)}, row{"root", r.Root.String()},
		row{"refused", strings.Join(refusals, ", ")}, row{"quarantined", countText(len(out.Quarantine))},
		row{"last act", actText(seen.Acts)})
}

func mode(r fence.Record) string {
	switch {
	case r.Shadow:
		return inShadow
	case !r.Exists:
		return ""
	}
	return enforced
}

func countText(n int) string {
	if n == 0 {
		return ""
	}
	return number(n)
}

func (a *app) fenceLookupCommand() *cobra.Command {
	l := &looking{op: "fence lookup"}
	var operation string
	cmd := &cobra.Command{
		Use: "lookup DSN RESOURCE --op ID", Short: "the receipt of one operation", Args: want("DSN (sqlite:PATH or postgres://…)", "RESOURCE"),
		Long: `Shows the receipt of an operation, if there is one; otherwise the exit code is 1. It
changes nothing. No receipt is no proof that the operation had no effect while its
transaction may still be under way: the same tenure applies it again, unchanged.`,
	}
	cmd.Flags().Var(&idFlag{"operation", &operation}, "op", "operation id (required)")
	l.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if operation == "" {
			return usage(cmd, "no --op ID given")
		}
		return l.at(cmd, args, func(ctx context.Context, p *sqlfence.Place, key fence.Key) (func() error, error) {
			r, found, err := p.Find(ctx, key, operation)
			if found {
				return func() error { return a.showReceipt(r, true) }, err
			}
			return func() error { return a.showNoReceipt(key, operation) }, err
		})
	}
	return cmd
}

func (a *app) showNoReceipt(key fence.Key, operation string) error {
	if err := a.answer(struct {
		Found     bool   `json:"found"`
		Resource  string `json:"resource"`
		Operation string `json:"operation"`
	}{false, string(key.Resource), operation}, row{"no receipt", operation}, row{"resource", string(key.Resource)},
		row{"note", "no proof that it had no effect while its transaction may be under way"}); err != nil {
		return err
	}
	return quietly{exitFailed}
}

// receiptJSON is a receipt as JSON.
type receiptJSON struct {
	Verdict     lastword.Verdict `json:"verdict,omitempty"`
	Found       bool             `json:"found,omitempty"`
	Domain      string           `json:"domain"`
	Resource    string           `json:"resource"`
	Operation   string           `json:"operation"`
	Payload     string           `json:"payload"`
	Fence       uint64           `json:"fence,string"`
	Seq         uint64           `json:"seq,string"`
	LeaseID     string           `json:"lease_id"`
	GrantDigest string           `json:"grant_digest"`
	Owner       string           `json:"owner"`
	Caller      string           `json:"caller"`
	Root        string           `json:"root"`
	Result      []byte           `json:"result"`
	AppliedAt   string           `json:"applied_at"`
}

// showReceipt prints a receipt: of a write with its verdict, of a lookup without.
func (a *app) showReceipt(r lastword.Receipt, lookedUp bool) error {
	out := receiptJSON{
		Verdict: r.Verdict, Domain: r.Domain, Resource: string(r.Resource), Operation: r.Operation, Payload: r.Payload.String(),
		Fence: uint64(r.Fence), Seq: r.Seq, LeaseID: r.LeaseID, GrantDigest: r.GrantDigest.String(), Owner: r.Owner, Caller: r.Caller,
		Root: r.Root.String(), Result: r.Result, AppliedAt: r.AppliedAt.UTC().Format(time.RFC3339Nano),
	}
	if out.Result == nil {
		out.Result = []byte{}
	}
	first := row{string(r.Verdict), string(r.Resource)}
	note := ""
	switch {
	case lookedUp:
		out.Verdict, out.Found, first = "", true, row{"receipt", string(r.Resource)}
	case shadowed(r.Verdict):
		note = "it passed, because this resource is being rolled out; in enforce it would have been refused, and nothing written"
	case r.Verdict == lastword.Replayed:
		note = "this operation had its effect before; nothing ran now, and this is its first receipt"
	}
	return a.answer(out, first, row{"operation", r.Operation}, row{"fence", fenceText(r.Fence)}, row{"seq", fmt.Sprint(r.Seq)},
		row{"owner", r.Owner}, row{"rows", rowsText(r.Result)}, row{"applied at", out.AppliedAt}, row{"note", note})
}

func shadowed(v lastword.Verdict) bool {
	_, ok := v.Shadowed()
	return ok
}

// rowsText reads the result that this program's own writes have.
func rowsText(result []byte) string {
	var rows []int64
	if json.Unmarshal(result, &rows) != nil {
		return ""
	}
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(rows)), " "), "[]")
}
