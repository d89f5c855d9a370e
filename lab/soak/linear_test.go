package soak

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/lab/history"
)

const msec = time.Millisecond

// happened is one operation of a test's history.
func happened(op, owner string, fence lastword.Token, sent, heard time.Duration, change ...func(*move)) move {
	m := move{Call: Call{Fact: history.Fact{Op: op, Resource: "doc", Owner: owner, RequestID: "1", Fence: fence, Sent: sent * msec, Heard: heard * msec}, Who: owner}}
	if op == "acquire" || op == "renew" {
		m.Remaining = 100 * msec
	}
	for _, c := range change {
		c(&m)
	}
	return m
}

func code(c lastword.Code) func(*move) { return func(m *move) { m.Code = c; m.Remaining = 0 } }
func told(f lastword.Token) func(*move) {
	return func(m *move) { m.Told = f }
}

func perhaps(m *move) { m.perhaps, m.Heard, m.Code = true, math.MaxInt64, lastword.CodeUnknown }
func undo(m *move)    { m.mayUndo = true }
func excused(m *move) { m.excused = true }

func write(owner string, fence lastword.Token, sent, heard time.Duration, op int, verdict lastword.Verdict, change ...func(*move)) move {
	m := happened(opWrite, owner, fence, sent, heard, change...)
	m.operation, m.Value, m.Verdict = op, string(rune('a'+op)), string(verdict)
	return m
}

func read(value string, fence lastword.Token, sent, heard time.Duration) move {
	m := happened(opRead, "", fence, sent, heard)
	m.Value = value
	return m
}

// TestTheModelOfAResource: what the rules allow is explained, and what they forbid is not
// (R35).
func TestTheModelOfAResource(t *testing.T) {
	t.Parallel()
	a := happened("acquire", "a", 1, 0, 1)
	for _, c := range []struct {
		name  string
		moves []move
		legal bool
	}{
		{"taken over after the promised time", []move{a, happened("acquire", "b", 2, 90, 101)}, true},
		{"taken over inside the promised time", []move{a, happened("acquire", "b", 2, 90, 99)}, false},
		{"taken over inside a renewal's time", []move{a, happened("renew", "a", 1, 50, 51), happened("acquire", "b", 2, 90, 120)}, false},
		{"released, then taken over", []move{a, happened("release", "a", 1, 2, 3), happened("acquire", "b", 2, 4, 5)}, true},
		{"taken over while the release is under way", []move{a, happened("release", "a", 1, 2, 9), happened("acquire", "b", 2, 4, 5)}, true},
		{"a release that nobody heard the end of", []move{a, happened("release", "a", 1, 2, 0, perhaps), happened("acquire", "b", 2, 4, 5)}, true},
		{"a fence that does not grow", []move{a, happened("release", "a", 1, 2, 3), happened("acquire", "b", 1, 4, 5)}, false},
		{"a key was revoked", []move{a, happened("acquire", "b", 2, 4, 5, excused)}, true},
		{"the same attempt again", []move{a, happened("acquire", "a", 1, 10, 11)}, true},
		{"an attempt that nobody heard the end of", []move{happened("acquire", "a", 1, 0, 0, perhaps), happened("renew", "a", 1, 5, 6)}, true},
		{"renewed without a tenure", []move{happened("renew", "a", 1, 5, 6)}, false},
		{"renewed after the takeover", []move{a, happened("acquire", "b", 2, 90, 101), happened("renew", "a", 1, 102, 103)}, false},
		{"a renewal refused too early", []move{a, happened("renew", "a", 1, 50, 51, code(lastword.CodeNotHolder))}, false},
		{"a renewal refused in time", []move{a, happened("renew", "a", 1, 99, 101, code(lastword.CodeNotHolder))}, true},
		{"held by who has it", []move{a, happened("acquire", "b", 0, 5, 6, code(lastword.CodeHeld), told(1))}, true},
		{"held by nobody", []move{happened("acquire", "b", 0, 5, 6, code(lastword.CodeHeld))}, false},
		{"held after the release", []move{a, happened("release", "a", 1, 2, 3), happened("acquire", "b", 0, 5, 6, code(lastword.CodeHeld), told(1))}, false},
		{"held after a release that a crash undid", []move{a, happened("release", "a", 1, 2, 3, undo), happened("acquire", "b", 0, 5, 6, code(lastword.CodeHeld), told(1))}, true},

		{"41, 42, 41 refused", []move{write("a", 41, 0, 1, 0, lastword.Applied), write("b", 42, 2, 3, 1, lastword.Applied), write("a", 41, 4, 5, 2, lastword.StaleOwner)}, true},
		{"41, 42, 41 accepted", []move{write("a", 41, 0, 1, 0, lastword.Applied), write("b", 42, 2, 3, 1, lastword.Applied), write("a", 41, 4, 5, 2, lastword.Applied)}, false},
		{"stale without a newer fence", []move{write("a", 41, 0, 1, 0, lastword.StaleOwner)}, false},
		{"stale beside its own fence", []move{write("a", 41, 0, 1, 0, lastword.Applied), write("a", 41, 2, 3, 1, lastword.StaleOwner)}, false},
		{"registered, then stale", []move{happened(opAdvance, "b", 42, 0, 1), write("a", 41, 2, 3, 0, lastword.StaleOwner)}, true},
		{"registered, then accepted", []move{happened(opAdvance, "b", 42, 0, 1), write("a", 41, 2, 3, 0, lastword.Applied)}, false},
		{"one operation, applied twice", []move{write("a", 1, 0, 1, 0, lastword.Applied), write("a", 1, 2, 3, 0, lastword.Applied)}, false},
		{"one operation, replayed", []move{write("a", 1, 0, 1, 0, lastword.Applied), write("a", 1, 2, 3, 0, lastword.Replayed)}, true},
		{"replayed without a first time", []move{write("a", 1, 2, 3, 0, lastword.Replayed)}, false},
		{"replayed after one that nobody heard of", []move{write("a", 1, 0, 0, 0, lastword.MutationUnknown, perhaps), write("a", 1, 2, 3, 0, lastword.Replayed)}, true},
		{"not held, the authority says", []move{a, write("a", 1, 5, 6, 0, lastword.Unverified)}, false},
		{"not held after the release", []move{a, happened("release", "a", 1, 2, 3), write("a", 1, 5, 6, 0, lastword.Unverified)}, true},
		{"read what was written", []move{write("a", 1, 0, 1, 0, lastword.Applied), read("a", 1, 2, 3)}, true},
		{"read something else", []move{write("a", 1, 0, 1, 0, lastword.Applied), read("b", 1, 2, 3)}, false},
		{"a record that moved by itself", []move{write("a", 1, 0, 1, 0, lastword.Applied), read("a", 2, 2, 3)}, false},
		{"an effect that was never asked for", []move{read("a", 1, 2, 3)}, false},
	} {
		r := &run{broken: map[string]int{}, opts: Options{Variant: "none"}}
		r.checkOne(resourceModel.ToModel(), check{"doc", c.moves})
		if legal := r.broken["not_linearizable"] == 0; legal != c.legal || r.broken["checker_timeouts"] != 0 {
			t.Errorf("%s: explained %t, want %t: %v", c.name, legal, c.legal, r.failures)
		}
	}
}

func TestTheModelNamesWhatItCannotExplain(t *testing.T) {
	t.Parallel()
	r := &run{broken: map[string]int{}}
	r.checkOne(resourceModel.ToModel(), check{"doc", []move{happened("acquire", "a", 1, 0, 1), happened("acquire", "b", 2, 9, 10)}})
	if len(r.failures) != 1 || !strings.Contains(r.failures[0].Detail, "not explained: b acquire fence 2") {
		t.Errorf("it says %v", r.failures)
	}
}
