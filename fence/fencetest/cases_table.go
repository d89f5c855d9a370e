package fencetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
)

func tableCases() []testCase {
	return []testCase{{name: caseTable, run: verdictTable}}
}

const caseTable = "R30: every reachable row of the verdict table"

// verdictTable drives the place through the table of the rules: the same rows that
// the rules themselves are tested with, each at a resource of its own.
func verdictTable(w *world) {
	rows, err := core.VerdictTable()
	w.must(err)
	// The place's bundles never go back, whatever the record: rows with a lower minimum
	// come first, and each has sequences of its own.
	slices.SortStableFunc(rows, func(a, b core.VerdictRow) int {
		return cmp.Compare(highestMinimum(a), highestMinimum(b))
	})
	w.unchecked = true // payloads of the table are digests; each row checks its record
	done, skipped := 0, 0
	for n, row := range rows {
		t := &tableRow{w: w, row: row, sequence: uint64(10*n) + 1, resource: lastword.Resource(fmt.Sprintf("table/%d", n))}
		if t.unreachable() != "" || t.lacks() {
			skipped++
			continue
		}
		t.run()
		done++
	}
	w.Logf("%d rows driven, %d not reachable through a gate or not offered by the harness", done, skipped)
	if done < 100 {
		w.Fatalf("only %d rows of %d were driven", done, len(rows))
	}
}

// highestMinimum is that of the bundles of a row.
func highestMinimum(row core.VerdictRow) uint32 {
	highest := minimumOf(row.Attempt)
	for _, s := range row.Setup {
		highest = max(highest, minimumOf(s.Attempt))
	}
	return highest
}

func minimumOf(a core.Attempt) uint32 { return min(a.MinEpoch, a.Fence.Epoch()) }

type tableRow struct {
	w        *world
	row      core.VerdictRow
	resource lastword.Resource
	minimum  uint32
	sequence uint64 // what the table calls bundle sequence 0: a bundle has at least 1
}

// unreachable says why no call of a gate can make this attempt.
func (t *tableRow) unreachable() string {
	a, stored := t.row.Attempt, t.row.Stored
	strictest := a.Status
	if stored.Status.Stricter(strictest) {
		strictest = stored.Status
	}
	switch {
	case t.row.Synthetic:
		return "no engine gets there by itself"
	case !a.Fence.Valid(), a.LeaseID == "":
		return "no verifier lets it through"
	case a.Status == "":
		return "a gate always has a mode"
	case !t.row.Advance && (a.Operation == "" || a.Payload.IsZero()):
		return "a gate wants an operation and a payload"
	case a.Imported, stored.Imported, a.Heard.Mark != core.Mark{}:
		return "cases of their own drive imported tokens and status proofs"
	case t.row.Want.Again == "" && a.Heard.Mode.Stricter(strictest):
		return "a gate asks for no more than it must"
	}
	switch a.Policy {
	case "", core.Ordered, core.Latest, core.Once:
	default:
		return "no gate has this policy"
	}
	switch a.Status {
	case core.FenceOnly, core.Proof, core.Query:
		return ""
	}
	return "no gate has this mode"
}

func (t *tableRow) lacks() bool {
	for _, s := range t.row.Setup {
		if s.Kind == core.StepRestore && s.Next <= lastWritten(t.row.Setup) {
			return true // what declares a restore refuses an authority that is behind
		}
		if s.Kind == core.StepClose && t.w.subject.Close == nil ||
			(s.Kind == core.StepRestore || s.Kind == core.StepReopen) && t.w.subject.Restored == nil ||
			s.Kind == core.StepPrune && t.w.subject.Prune == nil ||
			s.Kind == core.StepLose && t.w.subject.Lose == nil {
			return true
		}
	}
	return false
}

func lastWritten(setup []core.VerdictStep) (highest lastword.Token) {
	for _, s := range setup {
		highest = max(highest, s.Attempt.Fence)
	}
	return highest
}

func (t *tableRow) fatalf(format string, args ...any) {
	t.w.Helper()
	t.w.Fatalf("row %q (%s): %s", t.row.Name, t.row.Rule, fmt.Sprintf(format, args...))
}

func (t *tableRow) run() {
	t.w.Helper()
	for _, s := range t.row.Setup {
		t.step(s)
	}
	if got, want := t.stored(), t.want(t.row.Stored, false); got != want {
		t.fatalf("the setup ends at\n%+v, not\n%+v", got, want)
	}
	before := t.effects()
	r, err := t.attempt(t.row.Attempt, t.row.Advance, t.row.Want.Again)
	t.verdict(r, err)
	t.after(before)
}

func (t *tableRow) step(s core.VerdictStep) {
	t.w.Helper()
	key := fence.Key{Domain: domain, Resource: t.resource}
	var err error
	switch s.Kind {
	case core.StepWrite, core.StepAdvance:
		_, err = t.attempt(s.Attempt, s.Kind == core.StepAdvance, "")
	case core.StepClose:
		err = t.w.subject.Close(t.w.ctx, key, s.Next)
	case core.StepPrune:
		err = t.w.subject.Prune(t.w.ctx, key, s.Operation)
	case core.StepLose:
		err = t.w.subject.Lose(t.w.ctx, key)
	case core.StepRestore:
		_, err = t.w.subject.Restored(t.w.ctx, fence.Restore{
			Domain: domain, Resource: t.resource, Until: time.UnixMilli(int64(s.Mark)), Act: act("table"),
			NextFence: func(context.Context, lastword.Resource) (lastword.Token, error) { return s.Next, nil },
		})
	case core.StepReopen:
		_, err = t.w.subject.Reopen(t.w.ctx, domain, t.resource, act("table"))
	case core.StepFreeze:
		rec := t.stored()
		twin := core.Attempt{
			Fence: rec.Fence, LeaseID: "twin", Operation: "freeze", Payload: lastword.DigestOf([]byte("f")), Status: rec.Status,
			BundleSequence: max(rec.BundleSequence, t.sequence) - t.sequence, MinEpoch: rec.MinEpoch, PolicyGeneration: rec.MinPolicyGeneration,
			Heard: core.Heard{Mode: rec.Status, State: lastword.StateHeld},
		}
		if _, err = t.attempt(twin, false, ""); errors.Is(err, lastword.ErrRegression) {
			err = nil
		}
	}
	if err != nil {
		t.fatalf("setup: %v", err)
	}
}

// claims is the grant that an attempt of the table is made with.
func (t *tableRow) claims(a core.Attempt) *tenure {
	t.w.Helper()
	g, err := t.w.authority.issue(t.resource, "owner", a.Fence, func(c *grant.Claims) {
		c.LeaseID, c.RequestID, c.Root, c.PolicyGeneration = a.LeaseID, "table", a.Root, a.PolicyGeneration
		c.Revision = 1
	})
	t.w.must(err)
	return g
}

func (t *tableRow) attempt(a core.Attempt, advance bool, again core.Again) (lastword.Receipt, error) {
	t.w.Helper()
	held := t.claims(a)
	t.minimum = max(t.minimum, minimumOf(a)) // a bundle's never falls
	bundle, err := t.w.authority.signer.Bundle(grant.BundleInfo{
		Sequence: a.BundleSequence + t.sequence, CurrentEpoch: max(a.Fence.Epoch(), a.MinEpoch), MinimumEpoch: min(t.minimum, a.Fence.Epoch()),
	})
	t.w.must(err)
	v, err := grant.NewVerifier(domain, grant.StaticBundle(bundle), grant.VerifierConfig{})
	t.w.must(err)
	answers := &tableAuthority{held: held, heard: a.Heard, silent: -1}
	if again == core.AgainAsk {
		// The gate must ask once more, and hears nothing then.
		answers.silent = 0
		if a.Heard.Mode == core.Query {
			answers.silent = 1
		}
	}
	g := t.w.newGate(func(c *fence.Config) {
		c.Verifier, c.Policy, c.Mode, c.Step, c.MinPolicyGeneration = v, a.Policy, a.Status, a.Step, a.MinPolicyGeneration
		c.Status = answers
	})
	c := fence.Call{Resource: t.resource, Mutation: lastword.Mutation{
		Grant: held.grant, Seq: a.Seq, Operation: a.Operation, Payload: a.Payload,
	}}
	if advance {
		_, err := t.w.subject.Advance(t.w.ctx, g, c)
		return lastword.Receipt{Verdict: lastword.Applied}, err
	}
	return t.w.subject.Apply(t.w.ctx, g, c, Write{Resource: t.resource, Value: a.Payload.String()})
}

// tableAuthority answers what a row says was heard.
type tableAuthority struct {
	held   *tenure
	heard  core.Heard
	silent int // answers only so many questions; negative: all
	asked  int
}

func (s *tableAuthority) Status(_ context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	if s.asked++; s.silent >= 0 && s.asked > s.silent {
		return lastword.Status{}, errors.New("silent")
	}
	st := lastword.Status{Resource: q.Resource, NextFence: s.heard.NextFence, State: lastword.StateFree, Asked: s.heard.State}
	if s.heard.State == lastword.StateHeld || s.heard.State == lastword.StatePending {
		st.State, st.Digest = s.heard.State, s.held.digest
		st.Holder = lastword.TenureRef{Resource: q.Resource, LeaseID: q.LeaseID, Fence: s.held.claims.Fence}
	}
	return st, nil
}

// expected is the verdict that the gate comes to in this row.
func (t *tableRow) expected() (v lastword.Verdict, freeze bool) {
	want, a := t.row.Want, t.row.Attempt
	switch {
	case want.Again == core.AgainVerify:
		return lastword.Unverified, false // the same bundle again
	case want.Again == core.AgainAsk:
		return lastword.StatusUnavailable, false // nothing was heard
	case want.Verdict == lastword.StaleOwner && a.Heard.Mode != core.FenceOnly && core.Behind(t.row.Stored, a.Heard.NextFence):
		return lastword.FenceRegression, true
	}
	return want.Verdict, want.Freeze
}

func (t *tableRow) verdict(r lastword.Receipt, err error) {
	t.w.Helper()
	v, _ := t.expected()
	if v.Code() == "" {
		if err != nil || r.Verdict != v {
			t.fatalf("got %q, %v, want %s", r.Verdict, err, v)
		}
		if want := t.row.Want; !t.row.Advance && (v == lastword.Applied && r.Seq != want.Seq || v == lastword.Replayed && r.Operation != want.ReplayOf) {
			t.fatalf("got the receipt %+v, want seq %d, operation %q", r, want.Seq, want.ReplayOf)
		}
		return
	}
	var e *lastword.Error
	if !errors.As(err, &e) || e.Code != v.Code() || errors.Is(err, lastword.ErrUnknownOutcome) {
		t.fatalf("got %q, %v, want %s", r.Verdict, err, v)
	}
}

// after checks the record, the effects and the evidence.
func (t *tableRow) after(before int) {
	t.w.Helper()
	v, freeze := t.expected()
	want := t.want(t.row.Want.Record, t.row.Want.Write)
	if freeze {
		want = fence.Frozen(want)
	}
	if got := t.stored(); got != want {
		t.fatalf("%s leaves the record\n%+v, want\n%+v", v, got, want)
	}
	effects := before
	if v == lastword.Applied && !t.row.Advance {
		effects++
	}
	if got := t.effects(); got != effects {
		t.fatalf("%s: %d effects, want %d", v, got, effects)
	}
	i := t.w.inspect(t.resource)
	if t.row.Want.Again == "" && v.Code() != "" && i.Refusals[v] == 0 {
		t.fatalf("R16b: %s was not counted", v)
	}
	if t.row.Want.Quarantine && len(i.Quarantine) != 1 {
		t.fatalf("R16b: %d operations in quarantine, want 1", len(i.Quarantine))
	}
}

func (t *tableRow) effects() int {
	t.w.Helper()
	_, effects := t.w.read(t.resource)
	return len(effects)
}

// stored is the record in the words of the table.
func (t *tableRow) stored() fence.Record {
	t.w.Helper()
	rec := t.w.record(t.resource)
	rec.Lost = false
	return rec
}

// want is a record of the table in the words of the place: real digests of grants,
// and bundle sequences that begin at 1.
func (t *tableRow) want(rec core.FenceRecord, written bool) fence.Record {
	t.w.Helper()
	rec.Lost = false
	if rec.Exists && rec.LeaseID != "" {
		rec.GrantDigest = t.digestOf(rec)
	}
	if written || rec.Exists && t.setUpByWriting() {
		rec.BundleSequence += t.sequence
	}
	return rec
}

// setUpByWriting: a record that only was closed has seen no bundle.
func (t *tableRow) setUpByWriting() bool {
	written := false
	for _, s := range t.row.Setup {
		switch s.Kind {
		case core.StepWrite, core.StepAdvance:
			written = true
		case core.StepLose:
			written = false
		case core.StepClose, core.StepFreeze, core.StepPrune, core.StepRestore, core.StepReopen:
		}
	}
	return written
}

// digestOf finds the attempt whose tenure the record has, and its grant's digest.
func (t *tableRow) digestOf(rec core.FenceRecord) lastword.Digest {
	t.w.Helper()
	attempts := []core.Attempt{t.row.Attempt}
	for _, s := range t.row.Setup {
		attempts = append([]core.Attempt{s.Attempt}, attempts...)
	}
	for _, a := range attempts {
		if a.Fence == rec.Fence && a.LeaseID == rec.LeaseID && a.GrantDigest == rec.GrantDigest {
			return t.claims(a).digest
		}
	}
	return rec.GrantDigest
}
