package core_test

import (
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

func table(t testing.TB) []core.VerdictRow {
	t.Helper()
	rows, err := core.VerdictTable()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 150 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	return rows
}

// place is a guarded place in memory: one record, its receipts and tombstones.
type place struct {
	rec      core.FenceRecord
	receipts map[string]lastword.Digest
	pruned   map[string]bool
}

func newPlace() *place {
	return &place{receipts: map[string]lastword.Digest{}, pruned: map[string]bool{}}
}

func (p *place) known(operation string) core.KnownOperation {
	payload, ok := p.receipts[operation]
	return core.KnownOperation{Receipt: ok, Payload: payload, Tombstone: p.pruned[operation]}
}

func (p *place) write(a core.Attempt) core.Decision {
	d := core.Admit(p.rec, p.known(a.Operation), a)
	if d.Write {
		p.rec = d.Record
		p.receipts[a.Operation] = a.Payload
	}
	return d
}

func (p *place) advance(a core.Attempt) core.Decision {
	d := core.Advance(p.rec, a)
	if d.Write {
		p.rec = d.Record
	}
	return d
}

func (p *place) step(t *testing.T, s core.VerdictStep) {
	t.Helper()
	switch s.Kind {
	case core.StepWrite:
		if d := p.write(s.Attempt); d.Verdict != lastword.Applied {
			t.Fatalf("setup: %+v: %+v", s.Attempt, d)
		}
	case core.StepAdvance:
		if d := p.advance(s.Attempt); d.Verdict != lastword.Applied {
			t.Fatalf("setup: %+v: %+v", s.Attempt, d)
		}
	case core.StepClose:
		p.rec = core.Close(p.rec, s.Next)
	case core.StepRestore:
		p.rec = core.Restore(p.rec, s.Next, s.Mark)
	case core.StepReopen:
		p.rec = core.CloseWindow(p.rec)
	case core.StepFreeze:
		p.rec = core.Freeze(p.rec)
	case core.StepPrune:
		delete(p.receipts, s.Operation)
		p.pruned[s.Operation] = true
	case core.StepLose:
		p.rec = core.FenceRecord{Lost: true}
	default:
		t.Fatalf("setup: %q", s.Kind)
	}
}

func TestEveryRowOfTheVerdictTable(t *testing.T) {
	names := map[string]bool{}
	for _, row := range table(t) {
		if names[row.Name] {
			t.Fatalf("two rows are called %q", row.Name)
		}
		names[row.Name] = true
		t.Run(row.Name, func(t *testing.T) {
			decide := func() core.Decision {
				if row.Advance {
					return core.Advance(row.Stored, row.Attempt)
				}
				return core.Admit(row.Stored, row.Known, row.Attempt)
			}
			got := decide()
			if !got.Write { // what a refusal shows as its record is nobody's business
				got.Record = row.Stored
			}
			if got != row.Want {
				t.Fatalf("%s\n got %+v\nwant %+v", row.Rule, got, row.Want)
			}
			if again := decide(); again.Verdict != got.Verdict || again.Again != got.Again {
				t.Fatalf("asked twice: %+v, then %+v", got, again)
			}
		})
	}
}

func TestEverySetupReachesTheStoredState(t *testing.T) {
	for _, row := range table(t) {
		if row.Synthetic {
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			p := newPlace()
			for _, s := range row.Setup {
				p.step(t, s)
			}
			if p.rec != row.Stored {
				t.Fatalf("the setup ends at\n     %+v\nnot  %+v", p.rec, row.Stored)
			}
			if known := p.known(row.Attempt.Operation); !row.Advance && known != row.Known {
				t.Fatalf("the setup knows %+v, the row %+v", known, row.Known)
			}
		})
	}
}

// A table that never expects something proves nothing about it.
func TestTheTableHasEveryOutcomeThatARecordDecides(t *testing.T) {
	seen := map[string]int{}
	for _, row := range table(t) {
		seen[string(row.Want.Verdict)]++
		seen["again "+string(row.Want.Again)]++
		seen["policy "+string(row.Stored.Policy)]++
		seen["mode "+string(row.Stored.Status)]++
		if row.Want.Freeze {
			seen["freeze"]++
		}
		if row.Want.Quarantine {
			seen["quarantine"]++
		}
	}
	for _, want := range []string{
		"APPLIED", "REPLAYED", "CONFLICT", "STALE_OWNER", "RECEIPT_EXPIRED", "OUT_OF_ORDER",
		"ROOT_MISMATCH", "FENCE_REGRESSION", "FENCE_JUMP", "UNVERIFIED", "again ask", "again verify",
		"policy ordered", "policy latest", "policy once", "mode fence-only", "mode proof", "mode query",
		"freeze", "quarantine",
	} {
		if seen[want] < 3 {
			t.Errorf("%s: %d rows", want, seen[want])
		}
	}
}

// The rules of P1 and P4 hold for every row, whatever it expects.
func TestNoRowLowersAFenceOrChangesARefusedRecord(t *testing.T) {
	for _, row := range table(t) {
		want := row.Want
		if want.Record.Fence < row.Stored.Fence {
			t.Errorf("%s: lowers the fence", row.Name)
		}
		if want.Write && want.Verdict != lastword.Applied {
			t.Errorf("%s: %s writes", row.Name, want.Verdict)
		}
		if want.Write && row.Known.Receipt {
			t.Errorf("%s: a second effect of one operation", row.Name)
		}
	}
}

// FENCE_REGRESSION, second form (protocol §4): only an answer that was told, and only
// about a record that exists, says that the authority went back.
func TestAnAuthorityThatWentBackIsSeenByItsNextFence(t *testing.T) {
	rec := core.FenceRecord{Exists: true, Fence: 45}
	for next, behind := range map[lastword.Token]bool{0: false, 41: true, 45: true, 46: false} {
		if core.Behind(rec, next) != behind {
			t.Errorf("next %d at 45: behind is not %v", next, behind)
		}
	}
	if core.Behind(core.FenceRecord{}, 1) {
		t.Error("nothing is behind a record that does not exist")
	}
}

// R20: a record is raised, never lowered, and never above the last fence.
func TestCloseRaisesToJustBelowTheNextFence(t *testing.T) {
	rec := core.FenceRecord{Exists: true, Fence: 40, LeaseID: "A", LastSeq: 3, BundleSequence: 5, MinEpoch: 0, Policy: core.Latest, Status: core.Query}
	for next, want := range map[lastword.Token]lastword.Token{
		0: 40, 1: 40, 40: 40, 41: 40, 42: 41, 46: 45, lastword.MaxToken: lastword.MaxToken - 1, 1 << 63: lastword.MaxToken,
	} {
		got := core.Close(rec, next)
		if got.Fence != want || got.LeaseID != "" || !got.Exists || got.LastSeq != 0 {
			t.Errorf("close with %d: %+v", next, got)
		}
		if got.BundleSequence != 5 || got.Policy != core.Latest || got.Status != core.Query {
			t.Errorf("close with %d forgets what only grows: %+v", next, got)
		}
	}
}

func TestStatusModesAreOrdered(t *testing.T) {
	modes := []core.StatusMode{"later", core.FenceOnly, core.Proof, core.Query}
	for i, a := range modes {
		for j, b := range modes {
			if a.Stricter(b) != (i > j) {
				t.Errorf("%q stricter than %q: %v", a, b, a.Stricter(b))
			}
		}
	}
}
