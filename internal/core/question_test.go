package core_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

var mine = lastword.TenureRef{Resource: "doc/1", Owner: "a", RequestID: "R1", LeaseID: "lease-1", Fence: 7}

// held is what an authority answers about mine while it is current.
func held(remaining int64) lastword.Status {
	return lastword.Status{
		Resource: mine.Resource, State: lastword.StateHeld, Holder: mine, TTL: 30 * time.Second,
		Remaining: time.Duration(remaining), NextFence: 8, Asked: lastword.StateHeld,
	}
}

// over is what it answers when mine is not.
func over(how lastword.State) lastword.Status {
	return lastword.Status{Resource: mine.Resource, State: lastword.StateFree, NextFence: 8, Asked: how}
}

// doubt is OWNERSHIP_UNKNOWN at 15 s of a TTL of 30 s, by the time-out of a renewal.
func doubt(t *testing.T) core.Trust {
	t.Helper()
	d := core.NewTrust(grantAt(0, 30*sec), 0).Ask(10*sec).Unclear(sec, 15*sec)
	if d.State != lastword.HolderUnknown || !d.QueryDue(15*sec) {
		t.Fatalf("got %+v, want OWNERSHIP_UNKNOWN with a question due at once", d)
	}
	return d
}

func TestQuestionsAreAskedInUnknownOnlyOneAtATime(t *testing.T) { // R26
	h := core.NewTrust(grantAt(0, 30*sec), 0)
	for name, x := range map[string]core.Trust{
		"HELD": h, "RENEWING": h.Ask(10 * sec), "REQUESTED": core.NewTrust(core.TrustGrant{TTL: 30 * sec, Bound: holderBound}, 0),
		"EXPIRED": h.At(30 * sec), "RELEASED": h.Released(1),
	} {
		if x.QueryDue(12 * sec) {
			t.Errorf("%s: a question is due", name)
		}
	}
	out := h.Ask(10 * sec).At(17 * sec) // nobody looked at the time-out, 15 s
	if !out.QueryDue(17*sec) || out.Query != 15*sec {
		t.Errorf("after the time-out: %+v", out)
	}
	asked := doubt(t).Question(16 * sec)
	if asked.QueryDue(29 * sec) {
		t.Error("a second question beside the first")
	}
	if asked.State != lastword.HolderUnknown {
		t.Errorf("asking is not knowing: %s", asked.State)
	}
	again := asked.Untold(sec, 17*sec)
	if again.QueryDue(18*sec-1) || !again.QueryDue(18*sec) {
		t.Errorf("the next question is due at %d, want after the pause", again.Query)
	}
	if next, ok := again.Next(); !ok || next != 16*sec { // the renewal
		t.Errorf("next is %d, want the renewal at 16 s", next)
	}
	if next, ok := again.Ask(16 * sec).Next(); !ok || next != 18*sec {
		t.Errorf("next is %d, want the question at 18 s", next)
	}
}

func TestAnAnswerThatSaysHeldCountsAsFarAsWhatRemains(t *testing.T) { // R25, R26, KF-03
	asked := doubt(t).Question(16 * sec)
	for name, c := range map[string]struct {
		remaining int64
		state     lastword.HolderState
		until     int64
	}{
		"the lost renewal had arrived":   {24 * sec, lastword.HolderHeld, 16*sec + 24*sec - 300*msec},
		"it had not":                     {14 * sec, lastword.HolderHeld, 16*sec + 14*sec - 300*msec},
		"newer evidence that is less":    {5 * sec, lastword.HolderHeld, 16*sec + 5*sec - 300*msec},
		"only a renewal can tell":        {0, lastword.HolderUnknown, asked.Until},
		"gone by while it travelled":     {sec, lastword.HolderUnknown, asked.Until},
		"negative (KF-20)":               {-1, lastword.HolderUnknown, asked.Until},
		"more than the TTL (KF-20)":      {1 << 62, lastword.HolderHeld, 16*sec + 30*sec - 300*msec},
		"the least number there is":      {-1 << 63, lastword.HolderUnknown, asked.Until},
		"the largest number there is":    {1<<63 - 1, lastword.HolderHeld, 16*sec + 30*sec - 300*msec},
		"just the margin and the travel": {sec + 300*msec, lastword.HolderUnknown, asked.Until},
	} {
		got := asked.Told(mine, held(c.remaining), sec, 17*sec)
		if got.State != c.state || got.Until != c.until {
			t.Errorf("%s: got %s until %d, want %s until %d", name, got.State, got.Until, c.state, c.until)
		}
		if got.Due != asked.Due || got.Asking {
			t.Errorf("%s: the renewals must go on as they were: %+v", name, got)
		}
	}
}

// The answer says nothing of the renewal that was sent after the question; which of
// the two comes to its end first makes no difference (found by the model).
func TestAnAnswerDoesNotSettleARenewalThatWasSentAfterTheQuestion(t *testing.T) { // R26
	asked := doubt(t).Question(16 * sec).Ask(16*sec + 1)
	first := asked.Unclear(sec, 17*sec).Told(mine, held(20*sec), sec, 17*sec)
	last := asked.Told(mine, held(20*sec), sec, 17*sec).Unclear(sec, 17*sec)
	for name, x := range map[string]core.Trust{"before the answer": first, "after it": last} {
		if x.State != lastword.HolderUnknown || x.Asking {
			t.Errorf("without an answer to the renewal %s: got %s, want OWNERSHIP_UNKNOWN and another question", name, x.State)
		}
	}
	if x := first.Question(18*sec).Told(mine, held(20*sec), sec, 18*sec); x.State != lastword.HolderHeld {
		t.Errorf("a question that was sent after the renewal settles it: got %s", x.State)
	}
}

func TestAnAnswerThatSaysOverIsDefinite(t *testing.T) { // R26, R28
	asked := doubt(t).Question(16 * sec)
	other := held(30 * sec)
	other.Holder.LeaseID, other.Holder.Fence = "lease-2", 8
	for how, want := range map[lastword.State]core.TrustEnd{
		lastword.StateExpired: core.TrustLapsed, lastword.StateRevoked: core.TrustRevoked,
		lastword.StateCanceled: core.TrustCanceled, lastword.StateReleased: core.TrustRefused, lastword.StateFree: core.TrustRefused,
	} {
		other.Asked = how
		for _, st := range []lastword.Status{over(how), other} {
			if x := asked.Told(mine, st, sec, 17*sec); x.State != lastword.HolderExpired || x.End != want {
				t.Errorf("%s beside %s: got %s (%d), want EXPIRED (%d)", how, st.State, x.State, x.End, want)
			}
		}
		if x := asked.Ended(how, 17*sec); x.End != want {
			t.Errorf("a refusal that says %s: got %d, want %d", how, x.End, want)
		}
	}
	if x := asked.Told(mine, over(lastword.StateRevoked), sec, asked.Until); x.End != core.TrustUnknown {
		t.Errorf("at the local deadline trust was over before the answer came: got %d", x.End)
	}
}

func TestAnAnswerThatContradictsItselfSaysNothing(t *testing.T) { // R26
	asked := doubt(t).Question(16 * sec)
	fence, foreign, pending := held(20*sec), held(20*sec), held(20*sec)
	fence.Holder.Fence = 8
	foreign.Resource = "doc/2"
	pending.State, pending.Asked = lastword.StatePending, lastword.StatePending
	endedYetHeld := held(20 * sec)
	endedYetHeld.Asked = lastword.StateExpired
	heldByOther := held(20 * sec)
	heldByOther.Holder.LeaseID = "lease-2"
	unasked := held(20 * sec)
	unasked.Asked = ""
	for name, st := range map[string]lastword.Status{
		"my lease, another fence": fence, "another resource": foreign, "pending": pending, "ended, yet current": endedYetHeld,
		"held, yet by another": heldByOther, "not what was asked": unasked, "nothing": {},
	} {
		if x := asked.Told(mine, st, sec, 17*sec); x.State != lastword.HolderUnknown || x.Asking || x.Query != 18*sec {
			t.Errorf("%s: got %+v, want OWNERSHIP_UNKNOWN and the next question after the pause", name, x)
		}
	}
}

func TestAnAnswerOlderThanWhatIsKnownIsDiscarded(t *testing.T) { // R9, R26
	// The renewal was sent after the question, and answered before it.
	known := doubt(t).Question(16*sec).Ask(17*sec).Renewed(30*sec, 30*sec, 18*sec)
	for name, st := range map[string]lastword.Status{"held": held(2 * sec), "over": over(lastword.StateExpired)} {
		x := known.Told(mine, st, sec, 19*sec)
		if x.State != lastword.HolderHeld || x.Until != known.Until {
			t.Errorf("%s: got %s until %d, want what the renewal said", name, x.State, x.Until)
		}
	}
	// A late answer to no question, and a second one to the same.
	told := doubt(t).Question(16*sec).Told(mine, held(20*sec), sec, 17*sec)
	if x := told.Told(mine, over(lastword.StateRevoked), sec, 18*sec); x != told {
		t.Errorf("a second answer: %+v", x)
	}
}

func TestARenewalOlderThanAnAnsweredQuestionTakesNothingBack(t *testing.T) { // R26
	// The renewal was sent at 16 s, the question at 17 s and answered first.
	asked := doubt(t).Ask(16 * sec).Question(17 * sec)
	told := asked.Told(mine, held(29*sec), sec, 18*sec)
	if told.State != lastword.HolderHeld || !told.Open {
		t.Fatalf("got %+v", told)
	}
	if x := told.At(22 * sec); x.State != lastword.HolderHeld {
		t.Errorf("its time-out: got %s", x.State)
	}
	if x := told.Unclear(sec, 20*sec); x.State != lastword.HolderHeld || x.Due != 21*sec || x.Open {
		t.Errorf("no answer to it: got %+v, want HELD and the next one soon", x)
	}
	if x := told.Renewed(30*sec, 30*sec, 20*sec); x.State != lastword.HolderHeld || x.Until != max(told.Until, 46*sec-300*msec) {
		t.Errorf("its answer: got %s until %d", x.State, x.Until)
	}
	if x := told.Refused(20 * sec); x.State != lastword.HolderExpired {
		t.Errorf("its refusal is definite all the same: got %s", x.State)
	}
	// Sent after the question, it is the newer one.
	newer := doubt(t).Question(16*sec).Ask(17*sec).Told(mine, held(29*sec), sec, 18*sec)
	if newer.State != lastword.HolderRenewing {
		t.Errorf("got %s, want RENEWING", newer.State)
	}
	if x := newer.At(22 * sec); x.State != lastword.HolderUnknown || !x.QueryDue(22*sec) {
		t.Errorf("its time-out: got %+v", x)
	}
}

func TestTheEndsComeInTheirOrder(t *testing.T) { // R28, KF-11(b), KF-14
	h := core.NewTrust(core.TrustGrant{TTL: 30 * sec, Remaining: 30 * sec, Bound: holderBound, MaxHold: 20 * sec}, 0)
	late := 60 * sec
	for name, c := range map[string]struct {
		t    core.Trust
		want core.TrustEnd
	}{
		"the longest hold":                      {h, core.TrustMaxHold},
		"the drain before it":                   {h.Stop(5*sec, 10*sec), core.TrustOverrun},
		"the drain after it":                    {h.Stop(15*sec, 10*sec), core.TrustMaxHold},
		"a second stop does not lengthen":       {h.Stop(5*sec, 10*sec).Stop(60*sec, 11*sec), core.TrustOverrun},
		"a second stop may shorten":             {h.Stop(60*sec, 10*sec).Stop(sec, 11*sec), core.TrustOverrun},
		"the longest hold while not known":      {h.Ask(10 * sec), core.TrustMaxHold},
		"no answer before the deadline":         {core.NewTrust(grantAt(0, 30*sec), 0).Ask(10 * sec), core.TrustUnknown},
		"a time-out that is not before the end": {core.NewTrust(grantAt(0, 30*sec), 0).Ask(25 * sec), core.TrustLapsed},
		"nobody looked at all":                  {core.NewTrust(grantAt(0, 30*sec), 0), core.TrustLapsed},
	} {
		if x := c.t.At(late); x.State != lastword.HolderExpired || x.End != c.want {
			t.Errorf("%s: got %s (%d), want EXPIRED (%d)", name, x.State, x.End, c.want)
		}
	}
	if x := h.Stop(5*sec, 10*sec).Released(14 * sec); x.State != lastword.HolderReleased {
		t.Errorf("given up inside the drain: got %s", x.State)
	}
}

func TestRenewalsThatBeganTogetherAreSpread(t *testing.T) { // R26
	g := grantAt(0, 30*sec)
	for early, want := range map[int64]int64{0: 10 * sec, 500: 10*sec - 1250*msec, 999: 10*sec - 2497500*1000, 5000: 10*sec - 2497500*1000, -1: 10 * sec} {
		g.Early = early
		h := core.NewTrust(g, 0)
		if h.Due != want {
			t.Errorf("early %d: due at %d, want %d", early, h.Due, want)
		}
		if next := h.Ask(want).Renewed(30*sec, 30*sec, want+sec).Due; next != want+10*sec {
			t.Errorf("early %d: the second one is due at %d, want an interval after the first", early, next)
		}
	}
}

// randomStep is one transition at now.
func randomStep(r *rand.Rand, t core.Trust, now int64) core.Trust {
	switch r.IntN(8) {
	case 0, 1:
		if t.RenewalDue(now) {
			return t.Ask(now)
		}
	case 2:
		if t.QueryDue(now) {
			return t.Question(now)
		}
	case 3:
		return t.Renewed(30*sec, 30*sec, now)
	case 4:
		return t.Unclear(r.Int64N(3*sec), now)
	case 5:
		return t.Told(mine, held(r.Int64N(30*sec)), r.Int64N(3*sec), now)
	case 6:
		return t.Untold(r.Int64N(3*sec), now)
	case 7:
		if r.IntN(10) == 0 {
			return t.Stop(r.Int64N(20*sec), now)
		}
	}
	return t
}

// Whoever looks in between changes nothing, and Next misses nothing: what At does it
// does at a moment that Next named (R25, R28).
func TestLookingOftenerGivesNothingElse(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	for range 1000 {
		h := core.NewTrust(core.TrustGrant{TTL: 30 * sec, Remaining: 30 * sec, Bound: holderBound, MaxHold: r.Int64N(3) * 50 * sec, Early: r.Int64N(1000)}, 0)
		now := int64(0)
		for range 60 {
			now += r.Int64N(4 * sec)
			mid, end := now+r.Int64N(10*sec), now+10*sec
			if once, twice := h.At(end), h.At(mid).At(end); once != twice {
				t.Fatalf("seed %d: from %+v\nat %d      %+v\nvia %d %+v", seed, h, end, once, mid, twice)
			}
			if next, ok := h.Next(); ok && next > mid && h.At(mid) != h {
				t.Fatalf("seed %d: %+v changes before %d, which Next named", seed, h, next)
			} else if !ok && !h.Final() && !h.Open {
				t.Fatalf("seed %d: nothing is ever to be done about %+v", seed, h)
			}
			if h = randomStep(r, h, now); h.Final() {
				break
			}
		}
	}
}

// sent is a message on its way: processed at arrive, its answer heard at back.
type sent struct {
	on           bool
	arrive, back int64 // of the authority's time; arrive beyond back: lost on the way
	answered     bool
	ok           bool
	remaining    int64
}

// oneTenure is an authority of one tenure and a holder with a clock that is slower
// by no more than the bound.
type oneTenure struct {
	r               *rand.Rand
	ttl, deadline   int64
	how             lastword.State // how it ended, "" if it did not
	slow            int64          // parts per million
	trust           core.Trust
	renewal, status sent
	returned        int // how often a question brought HELD back
}

func (w *oneTenure) local(now int64) int64 { return now - now/1_000_000*w.slow }

func (w *oneTenure) send(now int64) sent {
	m := sent{on: true, arrive: now + w.r.Int64N(w.ttl/3)}
	m.back = m.arrive + w.r.Int64N(w.ttl/3)
	if w.r.IntN(3) == 0 {
		m.arrive = m.back + 1
	}
	return m
}

// step lets one message move, or sends one.
func (w *oneTenure) step(now int64) {
	if w.how == "" && now >= w.deadline {
		w.how = lastword.StateExpired
	} else if w.how == "" && w.r.IntN(300) == 0 {
		w.how = lastword.StateRevoked
	}
	valid := w.how == ""
	if m := &w.renewal; m.on && !m.answered && now >= m.arrive {
		m.answered, m.ok = true, valid
		if valid {
			w.deadline = now + w.ttl
		}
	}
	if m := &w.status; m.on && !m.answered && now >= m.arrive {
		m.answered, m.ok, m.remaining = true, valid, w.deadline-now-w.r.Int64N(w.ttl/50+1)
	}
	w.hear(now)
	if l := w.local(now); w.trust.RenewalDue(l) {
		w.trust, w.renewal = w.trust.Ask(l), w.send(now)
	} else if w.trust.QueryDue(l) {
		w.trust, w.status = w.trust.Question(l), w.send(now)
	}
}

func (w *oneTenure) hear(now int64) {
	l := w.local(now)
	if m := w.renewal; m.on && now >= m.back {
		w.renewal.on = false
		switch lost := w.r.IntN(3) == 0; {
		case !m.answered || lost:
			w.trust = w.trust.Unclear(core.TrustRetry(w.ttl), l)
		case m.ok:
			w.trust = w.trust.Renewed(w.ttl, w.ttl, l)
		default:
			w.trust = w.trust.Ended(w.how, l)
		}
	}
	if m := w.status; m.on && now >= m.back {
		w.status.on = false
		before := w.trust.At(l).State
		switch {
		case !m.answered:
			w.trust = w.trust.Untold(core.TrustRetry(w.ttl), l)
		case m.ok:
			w.trust = w.trust.Told(mine, held(m.remaining), core.TrustRetry(w.ttl), l)
		default:
			w.trust = w.trust.Told(mine, over(w.how), core.TrustRetry(w.ttl), l)
		}
		if before == lastword.HolderUnknown && w.trust.State.Admits() {
			w.returned++
		}
	}
}

// Renewals and questions beside each other, all of them slow or lost: the holder
// trusts no instant at which its tenure has lapsed (R25), and questions do help.
func TestQuestionsNeverStretchTrust(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	returned := 0
	for range 1000 {
		ttl := 100*msec + r.Int64N(60*sec)
		w := &oneTenure{r: r, ttl: ttl, deadline: ttl, slow: r.Int64N(10_000)}
		w.trust = core.NewTrust(core.TrustGrant{TTL: ttl, Remaining: ttl, Bound: holderBound, Early: r.Int64N(1000)}, 0)
		for now := int64(0); !w.trust.Final() && now < 20*ttl; now += 1 + r.Int64N(ttl/20) {
			w.step(now)
			if at := now + r.Int64N(ttl); w.how != lastword.StateRevoked && at >= w.deadline && w.trust.At(w.local(at)).State.Admits() {
				t.Fatalf("seed %d: ttl %d: trusted at %d, the deadline was %d: %+v", seed, ttl, at, w.deadline, w.trust)
			}
		}
		returned += w.returned
	}
	if returned < 100 {
		t.Errorf("seed %d: HELD came back by a question only %d times; the property was not tried", seed, returned)
	}
}
