package core

import "github.com/lastword/lastword"

// TrustEnd says why a holder's trust in its tenure is over.
type TrustEnd uint8

// The ends of trust.
const (
	TrustGoesOn   TrustEnd = iota
	TrustLapsed            // the local deadline passed, or the authority said that it lapsed there
	TrustRefused           // the authority said that the tenure is not the current one, not why
	TrustReleased          // the holder gave the tenure up
	TrustMaxHold           // held for as long as the holder was told to
	TrustOverrun           // given up, but the work did not stop: left to lapse
	TrustUnknown           // the local deadline passed in OWNERSHIP_UNKNOWN
	TrustRevoked           // the authority said that an operator revoked the tenure
	TrustCanceled          // the authority said that its owner cancelled the attempt
)

// Trust is what a holder knows of its tenure (protocol §7, R25, R26). It is a
// value: every transition returns the next one. All times are nanoseconds on the
// holder's own elapsed-time clock, all durations nanoseconds.
//
// A transition first lets the time up to now take effect, so that nothing which
// arrives at or after the local deadline can revive a tenure. EXPIRED and RELEASED
// are final.
//
// Two kinds of messages keep trust up, each at most one at a time: renewals ([Trust.Ask],
// then Renewed, Unclear or Refused), and beside them, in OWNERSHIP_UNKNOWN, questions
// ([Trust.Query], then Told or Untold). What was sent earlier never undoes what the
// answer to a later message said.
type Trust struct {
	State lastword.HolderState
	End   TrustEnd

	Bound   TrustBound
	TTL     int64 // granted
	Call    int64 // time-out of one renewal
	MaxHold int64 // longest time from the first HELD on; 0 is no limit

	Early int64 // how much before its third of the TTL a renewal is sent, see TrustGrant

	Until int64 // trusted while now < Until; counts from the first HELD on
	Limit int64 // where MaxHold ends; set with the first HELD, 0 is none
	Drain int64 // where the time of the work to stop ends, 0 is none
	Known int64 // just before the newest message was sent whose answer was taken

	Due  int64 // when the next renewal is sent
	Sent int64 // just before the newest renewal was sent
	Open bool  // that renewal has no answer yet

	Query   int64 // when the next question is sent, while OWNERSHIP_UNKNOWN
	Queried int64 // just before the newest question was sent
	Asking  bool  // that question has no answer yet
}

// TrustBound is what the holder may have to take off a TTL (R25).
type TrustBound struct {
	RatePPM int64 // how far two clocks may differ in rate, parts per million
	Floor   int64 // the least margin
}

// Margin is the part of a TTL that is never trusted: max(RatePPM of it, Floor),
// rounded up.
func (b TrustBound) Margin(ttl int64) int64 {
	const million = 1_000_000
	// Divided first: 24 h times a rate does not fit into 64 bits.
	return max(ttl/million*b.RatePPM+(ttl%million*b.RatePPM+million-1)/million, b.Floor)
}

// TrustGrant is the answer to an acquire, as the holder saw it.
type TrustGrant struct {
	Base      int64 // just before the message was sent whose answer this is
	TTL       int64 // granted
	Remaining int64 // as the authority measured it; 0 if only a renewal can tell
	Waited    bool  // the message had been queued before it was granted
	Bound     TrustBound
	Call      int64 // time-out of one renewal; 0 is TrustCall of the TTL
	MaxHold   int64 // 0 is no limit
	// Early spreads the renewals of tenures that began together: thousandths of a
	// twelfth of the TTL, 0 to 999, by which the first renewal is sent before its
	// time. The later ones count from there.
	Early int64
}

// TrustRenew is the interval of renewals, TrustCall the time-out of one, and
// TrustRetry the longest pause after one without a clear answer. A call and the
// pause together are shorter than the interval (R26).
func TrustRenew(ttl int64) int64 { return ttl / 3 }

// TrustCall is described at TrustRenew.
func TrustCall(ttl int64) int64 { return max(ttl/6, 1) }

// TrustRetry is described at TrustRenew.
func TrustRetry(ttl int64) int64 { return max(ttl/12, 1) }

// NewTrust is the trust in a tenure whose grant has arrived at now. It is HELD if
// the grant did not wait, says what remains, and a third of the TTL or more is
// still to be trusted; else it is REQUESTED, with a renewal due at once that has
// to confirm it (R25).
func NewTrust(g TrustGrant, now int64) Trust {
	t := Trust{
		State: lastword.HolderRequested, Bound: g.Bound, TTL: g.TTL, Call: g.Call, MaxHold: g.MaxHold,
		Early: min(max(g.Early, 0), 999), Due: now, Known: g.Base,
	}
	if t.Call <= 0 || t.Call > TrustCall(g.TTL) {
		t.Call = TrustCall(g.TTL)
	}
	if g.Waited || g.Remaining <= 0 {
		return t
	}
	t.Until = t.until(g.Base, g.Remaining)
	if t.Until-now < g.TTL/3 {
		return t
	}
	t = t.held(g.Base, now)
	if g.Remaining < g.TTL { // a repeated grant: a third of what is left, not of the TTL
		t.Due = min(t.Due, now+(t.Until-now)/3)
	}
	return t
}

// At lets the time up to now take effect, in the order of the moments: the time-out
// of the open renewal, then the local deadline, the end of the longest hold, and the
// end of the drain. Looking more often gives nothing else than looking once.
func (t Trust) At(now int64) Trust {
	if t.Final() || t.State == lastword.HolderRequested {
		return t
	}
	end, why := t.end()
	if out := t.Sent + t.Call; t.State == lastword.HolderRenewing && t.Open && now >= out && out < end {
		t.State, t.Query = lastword.HolderUnknown, out
		end, why = t.end()
	}
	if now < end {
		return t
	}
	return t.over(lastword.HolderExpired, why)
}

// Ends is when trust ends if nothing else is heard. It is for a trust that is neither
// REQUESTED nor final.
func (t Trust) Ends() int64 {
	at, _ := t.end()
	return at
}

// end is when trust ends if nothing else happens, and why.
func (t Trust) end() (int64, TrustEnd) {
	at, why := t.Until, TrustLapsed
	if t.State == lastword.HolderUnknown {
		why = TrustUnknown
	}
	if t.Limit != 0 && t.Limit < at {
		at, why = t.Limit, TrustMaxHold
	}
	if t.Drain != 0 && t.Drain < at {
		at, why = t.Drain, TrustOverrun
	}
	return at, why
}

// Ask notes that a renewal is about to be sent. An OWNERSHIP_UNKNOWN stays until
// an answer comes.
func (t Trust) Ask(now int64) Trust {
	if t = t.At(now); t.Final() {
		return t
	}
	if t.State == lastword.HolderHeld {
		t.State = lastword.HolderRenewing
	}
	t.Sent, t.Open = now, true
	return t
}

// Renewed takes the answer to the renewal that was asked last. An answer that
// leaves nothing to trust is no clear one.
func (t Trust) Renewed(ttl, remaining, now int64) Trust {
	if t = t.At(now); t.Final() || !t.Open {
		return t
	}
	if ttl <= 0 || remaining <= 0 {
		return t.Unclear(TrustRetry(t.TTL), now)
	}
	t.TTL = ttl
	t.Call = min(t.Call, TrustCall(ttl))
	until := t.until(t.Sent, remaining)
	if t.Sent < t.Known {
		until = max(until, t.Until) // a question that was sent later was answered first
	}
	t.Until = until
	if now >= t.Until {
		if t.State != lastword.HolderRequested {
			return t.At(now)
		}
		return t.Unclear(TrustRetry(t.TTL), now)
	}
	return t.held(t.Sent, now)
}

// Unclear takes the lack of a clear answer to the renewal that was asked last;
// the next one is due after pause.
func (t Trust) Unclear(pause, now int64) Trust {
	if t = t.At(now); t.Final() || !t.Open {
		return t
	}
	if t.State.Admits() && t.Sent >= t.Known {
		t.State, t.Query = lastword.HolderUnknown, now
	}
	t.Open, t.Due = false, now+min(pause, TrustRetry(t.TTL))
	return t
}

// Refused takes the authority's word that the tenure is not the current one.
func (t Trust) Refused(now int64) Trust { return t.Ended("", now) }

// Ended is Refused where the authority also said how the tenure ended. What has
// ended stays so: it does not matter when the question was sent.
func (t Trust) Ended(how lastword.State, now int64) Trust {
	if t = t.At(now); t.Final() {
		return t
	}
	why := TrustRefused
	switch how {
	case lastword.StateExpired:
		why = TrustLapsed
	case lastword.StateRevoked:
		why = TrustRevoked
	case lastword.StateCanceled:
		why = TrustCanceled
	case lastword.StateReleased, lastword.StateFree, lastword.StateHeld, lastword.StatePending:
		// Somebody else released it in the holder's name, or nobody knows how.
	}
	return t.over(lastword.HolderExpired, why)
}

// Stop gives the work limit to stop: what has not been given up until then is
// overrun (R28). The earliest one counts.
func (t Trust) Stop(limit, now int64) Trust {
	if t = t.At(now); t.Final() {
		return t
	}
	if end := now + limit; t.Drain == 0 || end < t.Drain {
		t.Drain = end
	}
	return t.At(now)
}

// Released gives the tenure up. What has expired stays EXPIRED.
func (t Trust) Released(now int64) Trust {
	if t = t.At(now); t.Final() {
		return t
	}
	return t.over(lastword.HolderReleased, TrustReleased)
}

// Overrun ends the trust in a tenure whose work did not stop in time: no release
// may be sent, the tenure has to lapse (R28).
func (t Trust) Overrun(now int64) Trust {
	if t = t.At(now); t.Final() {
		return t
	}
	return t.over(lastword.HolderExpired, TrustOverrun)
}

// Final reports whether nothing changes any more.
func (t Trust) Final() bool {
	return t.State == lastword.HolderExpired || t.State == lastword.HolderReleased
}

// Wake is the next moment at which At changes something by itself; false if there
// is none.
func (t Trust) Wake() (int64, bool) {
	if t.Final() || t.State == lastword.HolderRequested {
		return 0, false
	}
	next, _ := t.end()
	if t.State == lastword.HolderRenewing && t.Open {
		next = min(next, t.Sent+t.Call)
	}
	return next, true
}

// Next is the next moment at which something has to be done: At changes something,
// a renewal is due, or a question is. False if there is none.
func (t Trust) Next() (int64, bool) {
	next, ok := t.Wake()
	if !t.Final() && !t.Open {
		if !ok || t.Due < next {
			next, ok = t.Due, true
		}
	}
	if t.State == lastword.HolderUnknown && !t.Asking {
		next = min(next, t.Query)
	}
	return next, ok
}

// RenewalDue reports whether a renewal is to be sent at now.
func (t Trust) RenewalDue(now int64) bool { return !t.Final() && !t.Open && now >= t.Due }

// until is R25: base + remaining − margin. More than the TTL cannot remain.
func (t Trust) until(base, remaining int64) int64 {
	return base + min(remaining, t.TTL) - t.Bound.Margin(t.TTL)
}

func (t Trust) held(base, now int64) Trust {
	t.Due = base + TrustRenew(t.TTL)
	if t.State == lastword.HolderRequested {
		t.Due -= TrustRetry(t.TTL) / 1000 * t.Early
	}
	t.State, t.Open = lastword.HolderHeld, false
	t.Known = max(t.Known, base)
	if t.MaxHold > 0 && t.Limit == 0 {
		t.Limit = now + t.MaxHold
	}
	return t
}

func (t Trust) over(s lastword.HolderState, why TrustEnd) Trust {
	t.State, t.End, t.Open, t.Asking = s, why, false, false
	return t
}
