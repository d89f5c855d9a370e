package core_test

import (
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

func token(t *testing.T, epoch uint32, counter uint64) lastword.Token {
	t.Helper()
	f, err := lastword.MakeToken(epoch, counter)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// R10: which reports count, and what they stop.
func TestAReportCountsOnlyIfItContradictsTheRecord(t *testing.T) {
	h := core.Header{Exists: true, Epoch: 3, TickSpan: 1e9}
	held := core.Record{
		Resource: "r", Revision: 9, Epoch: 3, Counter: 40,
		Lease:    core.Lease{ID: "now", Owner: "w", RequestID: "q", Fence: token(t, 3, 40), TTL: 10e9, Deadline: 10, State: lastword.StateHeld},
		Previous: lastword.Ending{LeaseID: "before", Fence: token(t, 3, 39), State: lastword.StateReleased},
	}
	older := held
	older.Epoch, older.Counter, older.Lease.Fence = 1, 40, token(t, 1, 40)
	for _, c := range []struct {
		name  string
		rec   core.Record
		fence lastword.Token
		lease string
		code  lastword.Code
	}{
		{"the next number", held, token(t, 3, 41), "x", ""},
		{"far above", held, token(t, 3, 45), "x", ""},
		{"a later epoch", held, token(t, 4, 1), "x", ""},
		{"a record that has issued nothing", core.Record{Resource: "r"}, token(t, 3, 1), "x", ""},
		{"the present fence of another lease", held, token(t, 3, 40), "x", ""},
		{"the fence before of another lease", held, token(t, 3, 39), "x", ""},
		{"the present tenure", held, token(t, 3, 40), "now", lastword.CodeNotHolder},
		{"the tenure before", held, token(t, 3, 39), "before", lastword.CodeNotHolder},
		{"an earlier number", held, token(t, 3, 12), "x", lastword.CodeNotHolder},
		{"an earlier epoch", held, token(t, 2, 500), "x", lastword.CodeNotHolder},
		{"above what was issued, and below the next one of a later epoch", older, token(t, 1, 45), "x", lastword.CodeNotHolder},
	} {
		change, answer := core.Report(c.rec, h, c.fence, c.lease)
		if answer.Code != c.code || change.Write != (c.code == "") {
			t.Errorf("%s: %+v, %+v, want %q", c.name, change, answer, c.code)
		}
		if change.Write && (change.Record.Reported != c.fence || change.Record.Revision != c.rec.Revision+1 || change.Record.Counter != c.rec.Counter) {
			t.Errorf("%s: the record is %+v", c.name, change.Record)
		}
	}
}

func TestAStoppedRecordGrantsAndRenewsNothingUntilItIsResumed(t *testing.T) { // R10
	h := core.Header{Exists: true, Epoch: 3, TickSpan: 1e9}
	rec := core.Record{
		Resource: "r", Revision: 9, Epoch: 3, Counter: 40,
		Lease: core.Lease{ID: "now", Owner: "w", RequestID: "q", Fence: token(t, 3, 40), TTL: 10e9, Ticks: 10, Deadline: 10, State: lastword.StateHeld},
	}
	ref := lastword.TenureRef{Resource: "r", Owner: "w", RequestID: "q", LeaseID: "now", Fence: token(t, 3, 40)}
	in := core.AcquireInput{Owner: "v", RequestID: "p", TTL: 10e9, Ticks: 10, LeaseID: "next"}
	change, _ := core.Report(rec, h, token(t, 3, 45), "x")
	rec = change.Record
	if _, a := core.Report(rec, h, token(t, 3, 45), "x"); a.Code != "" || !a.Repeated {
		t.Errorf("repeated: %+v", a)
	}
	if c, a := core.Report(rec, h, token(t, 3, 43), "y"); a.Code != lastword.CodeNotHolder || c.Write {
		t.Errorf("a lower one after it: %+v", a)
	}
	if c, a := core.Renew(rec, h, core.Clock{}, ref); a.Code != lastword.CodeFenceRegression || c.Write {
		t.Errorf("renewed: %+v", a)
	}
	if _, a := core.Renew(rec, h, core.Clock{}, lastword.TenureRef{LeaseID: "other"}); a.Code != lastword.CodeNotHolder {
		t.Errorf("a stranger's renewal: %+v", a)
	}
	for _, clock := range []core.Clock{{}, {Tick: 99}} {
		if c, a := core.Acquire(rec, nil, h, clock, in); a.Code != lastword.CodeFenceRegression || c.Write && c.Record.Counter != 40 {
			t.Errorf("granted at %+v: %+v", clock, a)
		}
	}
	if c, a := core.Resume(rec, h, core.Clock{}, token(t, 3, 44)); a.Code != lastword.CodeRequestConflict || c.Write {
		t.Errorf("resumed with another number: %+v", a)
	}
	change, a := core.Resume(rec, h, core.Clock{Tick: 2}, token(t, 3, 45))
	next := change.Record
	if a.Code != "" || next.Reported != 0 || next.Lease.State != lastword.StateRevoked || next.NextFence(h) != token(t, 3, 46) || next.Revision != rec.Revision+1 {
		t.Fatalf("resumed: %+v, %+v", next, a)
	}
	if c, a := core.Resume(next, h, core.Clock{}, token(t, 3, 45)); a.Code != lastword.CodeRequestConflict || c.Write {
		t.Errorf("resumed twice: %+v", a)
	}
	if c, a := core.Acquire(next, nil, h, core.Clock{Tick: 3}, in); a.Code != "" || c.Record.Lease.Fence != token(t, 3, 46) {
		t.Errorf("after it: %+v", a)
	}
}

func TestAReportOfALaterEpochWantsOneAboveItFirst(t *testing.T) { // R10, KF-16
	h := core.Header{Exists: true, Epoch: 3, TickSpan: 1e9}
	change, _ := core.Report(core.Record{Resource: "r"}, h, token(t, 5, 7), "x")
	if c, a := core.Resume(change.Record, h, core.Clock{}, token(t, 5, 7)); a.Code != lastword.CodeFenceRegression || c.Write {
		t.Fatalf("resumed below it: %+v", a)
	}
	h.Epoch = 6
	c, a := core.Resume(change.Record, h, core.Clock{}, token(t, 5, 7))
	if a.Code != "" || c.Record.NextFence(h) != token(t, 6, 1) {
		t.Fatalf("%+v, %+v", c.Record, a)
	}
}
