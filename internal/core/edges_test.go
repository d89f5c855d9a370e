package core_test

import (
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// What newer and older messages may change.
func TestWhatEachAnswerChanges(t *testing.T) { // R25, R26
	h := core.NewTrust(grantAt(0, 30*sec), 0)
	if x := h.Ask(10*sec).Renewed(6*sec, 6*sec, 11*sec); x.Call != core.TrustCall(6*sec) || x.TTL != 6*sec {
		t.Errorf("a shorter TTL leaves a renewal %d of it: %+v", x.Call, x)
	}
	if x := h.Ask(10*sec).Renewed(60*sec, 60*sec, 11*sec); x.Call != core.TrustCall(30*sec) {
		t.Errorf("a longer TTL must not lengthen the time-out: %d", x.Call)
	}
	if x := h.Ask(10*sec).Renewed(30*sec, 6*sec, 11*sec); x.Until != 16*sec-300*msec {
		t.Errorf("a newer answer that leaves less counts: until %d", x.Until)
	}
	// The renewal was sent at 16 s, the question at 17 s and answered first.
	told := doubt(t).Ask(16*sec).Question(17*sec).Told(mine, held(30*sec), sec, 18*sec)
	x := told.Renewed(30*sec, 30*sec, 20*sec)
	if x.Until != 47*sec-300*msec {
		t.Errorf("an older answer takes nothing back: until %d", x.Until)
	}
	if x.Known != 17*sec {
		t.Errorf("what is known does not become older: %d", x.Known)
	}
	// The same, and the renewal's answer is taken first: trust is known again, and what
	// the authority said before it renewed says nothing new.
	known := doubt(t).Ask(16*sec).Question(17*sec).Renewed(30*sec, 30*sec, 18*sec)
	if x := known.Told(mine, held(5*sec), sec, 19*sec); x.Until != 46*sec-300*msec || x.State != lastword.HolderHeld || x.Asking {
		t.Errorf("an answer to what is not asked any more: %+v", x)
	}
}

func TestPausesAreNeverLongerThanATwelfth(t *testing.T) { // R26
	h := core.NewTrust(grantAt(0, 30*sec), 0).Ask(10*sec).Unclear(3600*sec, 15*sec)
	if h.Due != 17*sec+500*msec {
		t.Errorf("the next renewal is due at %d", h.Due)
	}
	if x := h.Question(15*sec).Untold(3600*sec, 16*sec); x.Query != 18*sec+500*msec {
		t.Errorf("the next question is due at %d", x.Query)
	}
}

func TestOfEndsAtOneMomentTheDeadlineCounts(t *testing.T) { // R28
	h := core.NewTrust(grantAt(0, 30*sec), 0)
	end := 30*sec - 300*msec
	if x := h.Stop(end-10*sec, 10*sec).At(end); x.End != core.TrustLapsed {
		t.Errorf("beside the drain's: %d", x.End)
	}
	long := core.NewTrust(core.TrustGrant{TTL: 30 * sec, Remaining: 30 * sec, Bound: holderBound, MaxHold: end}, 0)
	if x := long.At(end); x.End != core.TrustLapsed {
		t.Errorf("beside the longest hold's: %d", x.End)
	}
	short := core.NewTrust(core.TrustGrant{TTL: 30 * sec, Remaining: 30 * sec, Bound: holderBound, MaxHold: 20 * sec}, 0)
	if x := short.Stop(10*sec, 10*sec).At(20 * sec); x.End != core.TrustMaxHold {
		t.Errorf("the longest hold's beside the drain's: %d", x.End)
	}
}
