package core_test

import (
	"math/rand/v2"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

const (
	msec = int64(1_000_000)
	sec  = 1000 * msec
)

var holderBound = core.TrustBound{RatePPM: 10_000, Floor: 20 * msec}

func grantAt(base, ttl int64) core.TrustGrant {
	return core.TrustGrant{Base: base, TTL: ttl, Remaining: ttl, Bound: holderBound}
}

func TestMarginIsOnePercentAndAtLeast20ms(t *testing.T) { // R25
	for _, c := range []struct{ ttl, want int64 }{
		{100 * msec, 20 * msec},
		{2 * sec, 20 * msec},
		{2*sec + 1, 20*msec + 1},
		{30 * sec, 300 * msec},
		{24 * 3600 * sec, 864 * sec},
	} {
		if got := holderBound.Margin(c.ttl); got != c.want {
			t.Errorf("margin of %d: got %d, want %d", c.ttl, got, c.want)
		}
	}
	wide := core.TrustBound{RatePPM: 200_000}
	if got, want := wide.Margin(24*3600*sec), 24*3600*sec/5; got != want {
		t.Errorf("a fifth of 24 h: got %d, want %d", got, want)
	}
}

func TestTrustCountsFromTheSendingAndIsHalfOpen(t *testing.T) { // R25, R4
	g := core.NewTrust(grantAt(5*sec, 30*sec), 9*sec)
	if g.State != lastword.HolderHeld {
		t.Fatalf("got %s, want HELD", g.State)
	}
	end := 5*sec + 30*sec - 300*msec
	if s := g.At(end - 1).State; s != lastword.HolderHeld {
		t.Errorf("just before the local deadline: got %s, want HELD", s)
	}
	if x := g.At(end); x.State != lastword.HolderExpired || x.End != core.TrustLapsed {
		t.Errorf("at the local deadline: got %s (%d), want EXPIRED, lapsed", x.State, x.End)
	}
}

func TestAGrantThatCannotBeTrustedYetIsConfirmedByOneRenewal(t *testing.T) { // R25
	third := 100*sec + 30*sec - 300*msec - 10*sec // the last moment with a third of the TTL left
	for name, c := range map[string]struct {
		g    core.TrustGrant
		now  int64
		want lastword.HolderState
	}{
		"it waited":                   {core.TrustGrant{Base: 0, TTL: 30 * sec, Remaining: 30 * sec, Waited: true, Bound: holderBound}, 1, lastword.HolderRequested},
		"only a renewal can tell":     {core.TrustGrant{Base: 0, TTL: 30 * sec, Bound: holderBound}, 1, lastword.HolderRequested},
		"less than a third is left":   {grantAt(100*sec, 30*sec), third + 1, lastword.HolderRequested},
		"just a third is left":        {grantAt(100*sec, 30*sec), third, lastword.HolderHeld},
		"repeated, little remains":    {core.TrustGrant{Base: 0, TTL: 30 * sec, Remaining: 10 * sec, Bound: holderBound}, 1, lastword.HolderRequested},
		"repeated, and much remains":  {core.TrustGrant{Base: 0, TTL: 30 * sec, Remaining: 20 * sec, Bound: holderBound}, 1, lastword.HolderHeld},
		"the answer took a whole TTL": {grantAt(0, 30*sec), 31 * sec, lastword.HolderRequested},
	} {
		got := core.NewTrust(c.g, c.now)
		if got.State != c.want {
			t.Errorf("%s: got %s, want %s", name, got.State, c.want)
			continue
		}
		if c.want == lastword.HolderRequested {
			if got.Due != c.now {
				t.Errorf("%s: the confirming renewal is due at %d, want at once (%d)", name, got.Due, c.now)
			}
			sent := c.now + 5
			conf := got.Ask(sent).Renewed(30*sec, 30*sec, sent+sec)
			if conf.State != lastword.HolderHeld || conf.Until != sent+30*sec-300*msec {
				t.Errorf("%s: confirmed: got %s until %d", name, conf.State, conf.Until)
			}
		}
	}
}

func TestNothingRevivesATenureAtOrAfterItsLocalDeadline(t *testing.T) { // R26
	g := core.NewTrust(grantAt(0, 30*sec), 0)
	asked := g.Ask(10 * sec)
	if s := asked.State; s != lastword.HolderRenewing || !s.Admits() {
		t.Fatalf("got %s, want RENEWING, which admits", s)
	}
	late := asked.Renewed(30*sec, 30*sec, g.Until)
	if late.State != lastword.HolderExpired {
		t.Errorf("an answer at the deadline: got %s, want EXPIRED", late.State)
	}
	for name, x := range map[string]core.Trust{
		"ask": late.Ask(0), "renewed": late.Renewed(30*sec, 30*sec, 0), "unclear": late.Unclear(1, 0),
		"released": late.Released(0), "refused": late.Refused(0), "overrun": late.Overrun(0), "at": late.At(0),
	} {
		if x != late {
			t.Errorf("%s changed what is final: %+v", name, x)
		}
	}
}

func TestOpenQuestionsEndInUnknownThenHeldOrExpired(t *testing.T) { // R26, KF-12
	g := core.NewTrust(grantAt(0, 30*sec), 0)
	if g.Due != 10*sec || g.Call != 5*sec {
		t.Fatalf("due %d, call %d; want a third and a sixth of the TTL", g.Due, g.Call)
	}
	asked := g.Ask(g.Due)
	if s := asked.At(15*sec - 1).State; s != lastword.HolderRenewing {
		t.Errorf("before the call's time-out: got %s", s)
	}
	unknown := asked.At(15 * sec)
	if unknown.State != lastword.HolderUnknown || unknown.State.Admits() {
		t.Fatalf("at the call's time-out: got %s", unknown.State)
	}
	again := unknown.Unclear(sec, 15*sec)
	if pause := again.Due - 15*sec; pause != sec || 5*sec+core.TrustRetry(30*sec) >= 10*sec {
		t.Errorf("pause %d; a call and the longest pause must be shorter than the interval", pause)
	}
	re := again.Ask(16 * sec)
	if re.State != lastword.HolderUnknown {
		t.Errorf("asking again must not admit: got %s", re.State)
	}
	if ok := re.Renewed(30*sec, 30*sec, 17*sec); ok.State != lastword.HolderHeld || ok.Until != 46*sec-300*msec {
		t.Errorf("an answer: got %s until %d", ok.State, ok.Until)
	}
	if x := re.Refused(17 * sec); x.State != lastword.HolderExpired || x.End != core.TrustRefused {
		t.Errorf("a refusal: got %s (%d)", x.State, x.End)
	}
	if x := re.At(g.Until); x.State != lastword.HolderExpired || x.End != core.TrustUnknown {
		t.Errorf("no answer until the deadline: got %s (%d)", x.State, x.End)
	}
	if x := re.Renewed(30*sec, 0, 17*sec); x.State != lastword.HolderUnknown {
		t.Errorf("an answer without anything left: got %s", x.State)
	}
}

func TestMaxHoldEndsTheTenureWhateverIsRenewed(t *testing.T) { // KF-11(b)
	g := grantAt(0, 30*sec)
	g.MaxHold = 12 * sec
	h := core.NewTrust(g, sec)
	h = h.Ask(10*sec).Renewed(30*sec, 30*sec, 11*sec)
	if wake, ok := h.Wake(); !ok || wake != 13*sec {
		t.Errorf("wake: got %d, %v", wake, ok)
	}
	if x := h.At(13 * sec); x.State != lastword.HolderExpired || x.End != core.TrustMaxHold {
		t.Errorf("got %s (%d), want EXPIRED by max-hold", x.State, x.End)
	}
	waited := g
	waited.Waited = true
	if x := core.NewTrust(waited, 100*sec).Ask(100*sec).Renewed(30*sec, 30*sec, 101*sec); x.Limit != 113*sec {
		t.Errorf("waiting is not holding: the limit is %d, want %d", x.Limit, 113*sec)
	}
}

// An authority of one tenure: it renews while now < deadline, and answers may be
// lost or late. The holder's clock may be slower by the stated bound. Whenever the
// holder trusts, the authority's deadline has not passed (R25).
func TestTheHolderNeverTrustsPastTheAuthoritysDeadline(t *testing.T) {
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		ttl := 100*msec + r.Int64N(60*sec)
		slow := r.Int64N(10_000) // parts per million, within the bound
		local := func(now int64) int64 { return now - now/1_000_000*slow }

		deadline := r.Int64N(ttl/4) + ttl
		h := core.NewTrust(core.TrustGrant{Base: 0, TTL: ttl, Remaining: ttl, Bound: holderBound, Waited: r.IntN(3) == 0}, local(deadline-ttl))
		now := deadline - ttl
		for range 40 {
			check(t, h, now, local, deadline, r, ttl)
			if h.Final() || t.Failed() {
				break
			}
			now += r.Int64N(ttl / 3)
			h = h.Ask(local(now))
			switch arrives := now + r.Int64N(ttl/6); r.IntN(4) {
			case 0: // lost on the way there
				now = arrives
				h = h.Unclear(core.TrustRetry(ttl), local(now))
			case 1: // lost on the way back
				if arrives < deadline {
					deadline = arrives + ttl
				}
				now = arrives
				h = h.Unclear(core.TrustRetry(ttl), local(now))
			default:
				ok := arrives < deadline
				if ok {
					deadline = arrives + ttl
				}
				now = arrives + r.Int64N(ttl)
				if ok {
					h = h.Renewed(ttl, ttl, local(now))
				} else {
					h = h.Refused(local(now))
				}
			}
		}
	}
}

func check(t *testing.T, h core.Trust, now int64, local func(int64) int64, deadline int64, r *rand.Rand, ttl int64) {
	t.Helper()
	for range 8 {
		at := now + r.Int64N(2*ttl)
		if at >= deadline && h.At(local(at)).State.Admits() {
			t.Errorf("ttl %d: trusted at %d, the authority's deadline was %d: %+v", ttl, at, deadline, h)
			return
		}
	}
}

// TestR25ARepeatedGrantIsRenewedInTime: what is left of it may end before a third of
// the TTL has gone by.
func TestR25ARepeatedGrantIsRenewedInTime(t *testing.T) {
	const ttl = 30_000
	for left := int64(ttl / 3); left < ttl; left += ttl / 30 {
		trust := core.NewTrust(core.TrustGrant{TTL: ttl, Remaining: left, Base: 0}, 10)
		if trust.State != lastword.HolderHeld {
			continue // it is confirmed by a renewal at once
		}
		if rest := trust.Until - trust.Due; rest < (trust.Until-10)/2 {
			t.Errorf("%d left: the first renewal is due at %d, trust ends at %d", left, trust.Due, trust.Until)
		}
	}
}
