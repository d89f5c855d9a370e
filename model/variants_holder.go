package model

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// keeperVariants break what a holder's runtime does for its tenure (protocol §7).
func keeperVariants() []Variant {
	return []Variant{
		{
			Name: "late-answer-revives", World: "keeper-revoked", Property: finalRevived,
			Breaks: "a status answer that says HELD brings back a lease that has ended",
			change: func(w *Wiring) {
				w.Told = func(t core.Trust, ref lastword.TenureRef, st lastword.Status, pause, now int64) core.Trust {
					if t.At(now).Final() && st.Asked == lastword.StateHeld {
						t.State, t.Asking, t.Queried = lastword.HolderUnknown, true, now
						t.Until, t.Limit, t.Drain = now+1, 0, 0
					}
					return t.Told(ref, st, pause, now)
				}
			},
		},
		{
			Name: "expired-not-final", World: "keeper-succeeded", Property: finalRevived,
			Breaks: "the answer to a renewal counts although trust was over before it came",
			change: func(w *Wiring) {
				w.Renewed = func(t core.Trust, ttl, remaining, now int64) core.Trust {
					if t.At(now).Final() {
						t.State, t.Open, t.Until = lastword.HolderRenewing, true, now+1
						t.Limit, t.Drain = 0, 0
					}
					return t.Renewed(ttl, remaining, now)
				}
			},
		},
		{
			Name: "status-answer-counted-from-its-arrival", World: "keeper-succeeded", Property: trustBeyondEvidence,
			Breaks: "what a status answer says is left is counted from when the answer came",
			change: func(w *Wiring) {
				w.Told = func(t core.Trust, ref lastword.TenureRef, st lastword.Status, pause, now int64) core.Trust {
					if !t.Final() && t.Asking {
						t.Queried = now
					}
					return t.Told(ref, st, pause, now)
				}
			},
		},
		{
			Name: "renewal-answer-counted-from-its-arrival", World: "keeper-succeeded", Property: trustBeyondEvidence,
			Breaks: "a renewal extends trust from when its answer came",
			change: func(w *Wiring) {
				w.Renewed = func(t core.Trust, ttl, remaining, now int64) core.Trust {
					if t.Open {
						t.Sent = now
					}
					return t.Renewed(ttl, remaining, now)
				}
			},
			tune: func(w *world) { w.horizon, w.questions = 8, 0 },
		},
		{
			Name: "renewal-after-release", World: "keeper-released", Property: askedOutOfTurn,
			Breaks: "a lease that was released goes on renewing itself",
			change: func(w *Wiring) {
				w.RenewalDue = func(t core.Trust, now int64) bool {
					return t.RenewalDue(now) || t.State == lastword.HolderReleased && !t.Open && now >= t.Due
				}
			},
		},
		{
			Name: "released-under-the-work", World: "keeper-drained", Property: releasedAtWork,
			Breaks: "a release does not wait for the work that it was told to stop",
			change: func(w *Wiring) { w.Hurries = true },
		},
		{
			Name: "longest-hold-forgotten", World: "keeper-drained", Property: heldTooLong,
			Breaks: "each renewal begins the longest hold anew",
			change: func(w *Wiring) {
				w.Renewed = func(t core.Trust, ttl, remaining, now int64) core.Trust {
					before := t.Limit
					if t = t.Renewed(ttl, remaining, now); before != 0 && !t.Final() {
						t.Limit = 0
					}
					return t
				}
			},
		},
		{
			Name: "questions-not-on-the-agenda", World: "keeper", Property: overslept,
			Breaks: "the moment at which a lease is looked at next leaves out its questions",
			change: func(w *Wiring) {
				w.Next = func(t core.Trust) (int64, bool) {
					t.Asking = true
					return t.Next()
				}
			},
		},
		{
			Name: "every-refusal-is-a-release", World: "keeper-revoked", Property: wrongEnd,
			Breaks: "a lease that an operator revoked says that somebody released it",
			change: func(w *Wiring) {
				w.Ended = func(t core.Trust, how lastword.State, now int64) core.Trust {
					if how == lastword.StateRevoked {
						how = lastword.StateReleased
					}
					return t.Ended(how, now)
				}
			},
		},
	}
}

// toldVariants are systems that do nothing wrong and say what is not so: whoever acts
// on it does.
func toldVariants() []Variant {
	return []Variant{
		{
			Name: "stale-told-as-taken", World: "r31-second", Property: wrongVerdict,
			Breaks: "a write of an older tenure is judged by its number inside the newer one",
			change: func(w *Wiring) {
				w.Admit = func(rec core.FenceRecord, known core.KnownOperation, a core.Attempt) core.Decision {
					if d := core.Admit(rec, known, a); d.Verdict != lastword.StaleOwner {
						return d
					}
					return core.Decision{Verdict: lastword.Conflict, Why: "SEQ_TAKEN", Quarantine: true}
				}
			},
		},
		{
			Name: "replay-takes-a-number", World: "work", Property: numberOutOfTurn,
			Breaks: "a holder counts a write that was REPLAYED from an older tenure as its own",
			change: func(w *Wiring) {
				w.Settle = func(s lastword.Sequence, seq, own uint64, v lastword.Verdict) lastword.Sequence {
					if v == lastword.Replayed {
						v = lastword.Applied
					}
					return core.SettleNumber(s, seq, own, v)
				}
			},
		},
		{
			Name: "release-lowers-the-record", World: "leaked", Property: wrongRecord,
			Breaks: "the operator's release of a frozen record begins a new one",
			change: func(w *Wiring) {
				w.Shut = func(_ core.FenceRecord, next lastword.Token) core.FenceRecord {
					return core.Close(core.FenceRecord{}, next)
				}
			},
		},
		{
			Name: "witness-of-another-store", World: "strikes", Property: wrongStart,
			Breaks: "a start does not look which store its witness belongs to",
			change: func(w *Wiring) {
				w.PlanStart = func(h core.Header, mark *core.Witness) core.Start {
					if mark != nil {
						mine := *mark
						mine.Store = h.Identity
						mark = &mine
					}
					return core.PlanStart(h, mark)
				}
			},
		},
		{
			Name: "repeated-grant-told-as-new", World: "requests-again", Property: wrongAnswer,
			Breaks: "the answer to a repeated acquire does not say that it had been granted before",
			change: func(w *Wiring) {
				w.Acquire = func(rec core.Record, req *core.Request, h core.Header, c core.Clock, in core.AcquireInput) (core.Change, core.Answer) {
					change, answer := core.Acquire(rec, req, h, c, in)
					answer.Repeated = false
					return change, answer
				}
			},
		},
	}
}
