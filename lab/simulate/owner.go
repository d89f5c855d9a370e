package simulate

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

type phase uint8

const (
	idle phase = iota
	asking
	holding
	givingUp
	done
)

type stage uint8

const (
	settling stage = iota // an outcome is unknown that an earlier tenure left
	registering
	lookingUp
	writing
	completing
	releasing
)

// owner is one round's worker: one attempt, one tenure.
type owner struct {
	plannedRound
	round     int16
	calm      bool
	name      string
	request   string
	phase     phase
	stage     stage
	clock     clock
	until     int64 // it is stopped until then
	wakesWith bool  // it goes on when somebody else is granted, if that is earlier
	dead      bool  // it was killed
	wakes     uint32
	wakeAt    int64
	sends     uint16 // messages so far
	hit       bool   // something befell it: its hand-over is no measure

	// Of the attempt.
	asking   core.Asking
	sent     int64
	askAt    int64
	giveUp   bool // it is to be cancelled
	repeated bool // a grant that waited is confirmed by repeating the acquire
	process  uint8

	// Of the tenure.
	trust    core.Trust
	lease    string
	fence    lastword.Token
	grant    string
	gen      uint64
	came     int64 // true time at which it first asked
	began    int64 // true time at which it was HELD first
	era      int32 // of the resource, when it was granted
	drawn    lastword.Token
	wished   bool
	timeless bool // its clocks stood still: what it believes is no violation

	// Of the work.
	seq      lastword.Sequence
	open     bool
	intent   int16
	op       int16
	number   uint64
	tries    uint8
	writeAt  int64 // when the write under way was sent
	made     int   // writes
	callAt   int64 // when the registration, lookup, completion or release was sent
	stopped  bool
	thinking bool // it goes on with its work soon
	wrong    mistake
	sent1    bool // the forged message has been sent
	pending  *message

	seen seen
}

// seen is what the observer keeps of a holder: evidence, and doubt.
type seen struct {
	held  bool
	sure  int64 // the latest end of trust that the answers so far allow
	limit int64
	dead  bool
	how   lastword.State
	final bool
}

const (
	callTime  = ttl / 6
	writeTime = 60 * ms
	most      = 8 // tries of one write
)

var (
	longWait = 3 * ttl
)

// begin sends the acquire of a round.
func (w *world) begin(o *owner) {
	o.phase = asking
	now := o.clock.read(w.now)
	o.asking = core.NewAsking(longWait, callTime, now)
	o.process = uint8(draw(w.plan.seed, uint64(o.round), 3, 0) & 1)
	w.note(noteAcquire, actorOwner(o), o.round, 0, "")
	w.sendAcquire(o, now)
	if l := &w.lanes[o.lane]; l.next < len(l.rounds) {
		if n := &w.owners[l.rounds[l.next]]; n.together {
			w.startNext(o.lane, 0)
		}
	}
}

func (w *world) sendAcquire(o *owner, now int64) {
	m := w.new(askAcquire, o)
	m.sent, m.to = now, o.process
	o.sent = now
	o.process = 1 - o.process
	o.askAt = now + min(core.AskingLook(ttl), callTime)
	o.asking = o.asking.Unanswered(now, longWait, callTime, ttl, bound)
	w.send(m)
	w.wake(o, o.askAt)
}

// wake has o look at its clock when that shows at.
func (w *world) wake(o *owner, at int64) {
	when := o.clock.when(w.now, at)
	if o.wakeAt > w.now && o.wakeAt <= when {
		return
	}
	o.wakeAt = when
	o.wakes++
	w.q.push(task{at: when, kind: doOwner, who: o.round, arg: o.wakes})
}

// ownerTask is an owner who looks at its clock.
func (w *world) ownerTask(o *owner) {
	o.wakeAt = 0
	now := o.clock.read(w.now)
	switch o.phase {
	case asking:
		w.ask(o, now)
	case holding:
		w.keep(o, now)
	case givingUp:
		if now >= o.askAt {
			o.tries++
			if o.tries > 3 {
				w.finish(o)
				return
			}
			w.sendCancel(o, now)
			return
		}
		w.wake(o, o.askAt)
	case done:
		if o.trust.State == lastword.HolderReleased && w.wiring.RenewalDue(o.trust, now) {
			w.violate(askedOutOfTurn, o.round, "a lease that was released is renewed")
		}
	case idle:
	}
}

func (w *world) ask(o *owner, now int64) {
	switch {
	case now < o.askAt && !o.giveUp:
		w.wake(o, o.askAt)
	case o.giveUp || now >= o.asking.Asks && !o.calm:
		o.phase, o.tries = givingUp, 0
		w.sendCancel(o, now)
	default:
		w.markRetry(o)
		w.sendAcquire(o, now)
	}
}

func (w *world) sendCancel(o *owner, now int64) {
	m := w.new(askCancel, o)
	m.sent, m.to = now, o.process
	o.process = 1 - o.process
	o.askAt = now + callTime
	w.note(noteCancel, actorOwner(o), o.round, 0, "")
	w.send(m)
	w.wake(o, o.askAt)
}

// finish ends a round.
func (w *world) finish(o *owner) {
	if o.phase == done {
		return
	}
	was := o.phase
	o.phase = done
	if o.open || o.stage == registering || o.stage == lookingUp || o.stage == settling && was == holding {
		w.lanes[o.lane].unknown(w, o)
	}
	if o.pending != nil {
		w.drop(o.pending)
		o.pending = nil
	}
	w.note(noteDone, actorOwner(o), o.round, uint64(o.fence), string(o.trust.State))
	l := &w.lanes[o.lane]
	l.active--
	w.left--
	if o.calm {
		if (l.unsettled() || o.made == 0) && l.next < len(l.rounds) { // it has to come to an end
			w.left++
			w.startNext(o.lane, 20*ms)
		}
		return
	}
	if l.active == 0 || was != holding {
		w.startNext(o.lane, o.gap)
	}
}

// keep is what a holder does for its tenure when it looks at its clock.
func (w *world) keep(o *owner, now int64) {
	t := o.trust.At(now)
	o.trust = t
	if w.watchTrust(o, now) {
		return
	}
	if t.Final() {
		w.trustOver(o, now)
		return
	}
	if t.Open && now >= t.Sent+t.Call {
		w.markRetry(o)
		t = t.Unclear(core.TrustRetry(ttl), now)
	}
	if t.Asking && now >= t.Queried+t.Call {
		w.markRetry(o)
		t = t.Untold(core.TrustRetry(ttl), now)
	}
	if w.wiring.RenewalDue(t, now) {
		t = t.Ask(now)
		m := w.new(askRenew, o)
		m.sent, m.to, m.lease, m.fence = now, o.process, o.lease, o.fence
		o.process = 1 - o.process
		w.note(noteRenew, actorOwner(o), o.round, uint64(o.fence), "")
		o.trust = t
		w.send(m)
		t = o.trust
	}
	if t.QueryDue(now) {
		t = t.Question(now)
		m := w.new(askStatus, o)
		m.sent, m.to, m.lease, m.fence = now, o.process, o.lease, o.fence
		o.process = 1 - o.process
		o.trust = t
		w.send(m)
		t = o.trust
	}
	o.trust = t
	w.retryWork(o, now)
	if o.phase != holding {
		return
	}
	if !o.open && !o.thinking && o.stage <= writing && o.stage != registering && o.stage != lookingUp && o.seen.held && w.wiring.Admits(t, now) {
		w.think(o, 0) // its tenure was unknown, and is not any more
	}
	next, ok := w.wiring.Next(t)
	if !w.punctual(o, next, ok) {
		w.violate(overslept, o.round, "a lease says a later moment than the one at which something is due")
		return
	}
	if t.Open {
		if out := t.Sent + t.Call; !ok || out < next {
			next, ok = out, true
		}
	}
	if t.Asking {
		if out := t.Queried + t.Call; !ok || out < next {
			next, ok = out, true
		}
	}
	if at, is := o.due(); is && (!ok || at < next) {
		next, ok = at, true
	}
	if ok {
		w.wake(o, max(next, now+1))
	}
}

// punctual: not later than something is due.
func (w *world) punctual(o *owner, next int64, ok bool) bool {
	t := &o.trust
	due := t.Ends()
	if t.State == lastword.HolderRequested {
		due = 1<<62 - 1
	}
	if !t.Open {
		due = min(due, t.Due)
	}
	if t.State == lastword.HolderUnknown && !t.Asking {
		due = min(due, t.Query)
	}
	return due == 1<<62-1 || ok && next <= due
}

// watchTrust looks for a holder that believes more than it has heard.
func (w *world) watchTrust(o *owner, now int64) (bad bool) {
	s := &o.seen
	if o.timeless && o.clock.stopped {
		return false
	}
	if o.trust.Final() && !s.final {
		s.final = true
		w.checkEnd(o)
	}
	if !w.wiring.Admits(o.trust, now) {
		if s.held && now >= s.sure {
			s.dead = true
		}
		return w.stopped
	}
	switch {
	case s.final:
		w.violate(finalRevived, o.round, "a lease admits again after its end")
	case now >= s.sure && o.trust.State != lastword.HolderUnknown:
		w.violate(trustBeyondEvidence, o.round, "a holder trusts for longer than any answer that it has heard allows")
	case s.limit != 0 && now >= s.limit:
		w.violate(heldTooLong, o.round, "a lease is held for longer than the longest hold")
	}
	return w.stopped
}

// checkEnd: a lease tells its own end (R28).
func (w *world) checkEnd(o *owner) {
	if o.seen.how == lastword.StateRevoked && o.trust.End != core.TrustRevoked {
		w.violate(wrongEnd, o.round, "a lease that an operator revoked tells another end")
	}
}

// trustOver is a holder whose tenure is over for it: what is under way is unknown.
func (w *world) trustOver(o *owner, now int64) {
	o.seen.final = true
	if o.phase == holding {
		w.note(noteLost, actorOwner(o), o.round, uint64(o.fence), endNames[min(int(o.trust.End), len(endNames)-1)])
		w.finish(o)
	}
}

var endNames = [...]string{"", "lapsed", "refused", "released", "held for as long as it may", "overrun", "unknown for too long", "revoked", "cancelled"}
