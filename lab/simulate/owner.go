package simulate

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/model"
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

// heard is an answer that reaches an owner.
func (w *world) heard(o *owner, m *message) {
	now := o.clock.read(w.now)
	if o.phase == done && m.kind != reStatus && m.kind != reRenew || o.dead {
		w.drop(m)
		return
	}
	switch m.kind { //nolint:exhaustive // the others are none of its
	case reAcquire:
		if o.phase == asking {
			w.hearAcquire(o, m, now)
		}
	case reRenew:
		w.hearRenewal(o, m, now)
	case reStatus:
		w.hearStatus(o, m, now)
	case reNumber:
		if o.phase == holding && o.drawn == 0 {
			o.drawn = m.fence
			w.think(o, ms)
		}
	case reWrite:
		w.hearWrite(o, m, now)
	case reAdvance:
		if o.phase == holding && o.stage == registering && m.lease == o.lease {
			if m.code == string(lastword.Applied) {
				o.stage = lookingUp
				w.sendLookup(o, now)
			} else {
				w.giveUpWork(o, now)
			}
		}
	case reLookup:
		if o.phase == holding && o.stage == lookingUp && m.lease == o.lease && m.intent == o.intent {
			w.hearLookup(o, m, now)
		}
	case reComplete:
		if o.phase == holding && o.stage == completing && m.lease == o.lease {
			w.release(o, now)
		}
	case reRelease:
		if o.phase == holding && o.stage == releasing {
			w.finish(o)
		}
	default:
	}
	w.drop(m)
}

func (w *world) hearAcquire(o *owner, m *message, now int64) {
	switch lastword.Code(m.code) {
	case "":
	case lastword.CodeHeld, lastword.CodeFenceRegression:
		o.askAt = now + 20*ms
		o.wakeAt = 0
		w.wake(o, o.askAt)
		return
	default:
		w.note(noteNotGranted, actorOwner(o), o.round, 0, m.code)
		w.finish(o)
		return
	}
	if m.fault != nil {
		w.effect(m.fault)
	}
	if m.waited && !o.repeated && draw(w.plan.seed, uint64(o.round), 17, 0)&1 == 0 {
		o.repeated = true // the answer names that repetition (R25); if it does not tell, a renewal does
		w.sendAcquire(o, now)
		return
	}
	if o.giveUp { // cancelled although it is granted (R6a)
		o.phase, o.tries = givingUp, 0
		w.effectOf(cancelAttempt)
		w.sendCancel(o, now)
		return
	}
	o.phase, o.lease, o.fence, o.grant, o.gen = holding, m.lease, m.fence, m.grant, m.gen
	o.era = w.place.era
	g := core.TrustGrant{
		Base: w.wiring.Base(m.sent, now), TTL: ttl, Remaining: m.remaining, Waited: m.waited, Bound: bound,
	}
	if o.maxHold {
		g.MaxHold = 3 * ttl / 2
	}
	o.trust = w.wiring.NewTrust(g, now)
	w.evidence(o, m.sent, m.remaining)
	if m.waited { // counted from before it was sent, it would be worth nothing (R25)
		o.seen.sure = 0
	}
	w.note(noteHears, actorOwner(o), o.round, uint64(o.fence), string(o.trust.State))
	w.lanes[o.lane].grantedTo(w, o)
	w.isHeld(o, now)
	w.keep(o, now)
}

// isHeld looks whether o is HELD for the first time.
func (w *world) isHeld(o *owner, now int64) {
	if o.seen.held || o.trust.State != lastword.HolderHeld {
		return
	}
	o.seen.held, o.began = true, w.now
	if o.maxHold {
		o.seen.limit = now + 3*ttl/2
	}
	w.checkTrust(o)
	w.lanes[o.lane].heldBy(w, o)
	o.stage = writing
	if _, is := w.lanes[o.lane].left(o); is {
		o.stage = settling
	}
	if o.stop {
		o.stopped = true
		o.trust = o.trust.Stop(ttl/4, now)
	}
	w.think(o, 0)
}

// evidence is an answer to a message sent at a moment: held, and so much was left when
// the authority had processed it (R25).
func (w *world) evidence(o *owner, sent, left int64) {
	if sure := sent + min(left, ttl) - bound.Margin(ttl); left > 0 && !o.seen.dead {
		o.seen.sure = max(o.seen.sure, sure)
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

func (w *world) hearRenewal(o *owner, m *message, now int64) {
	if m.lease != o.lease || o.lease == "" {
		return
	}
	if m.fault != nil {
		w.effect(m.fault)
	}
	if !o.trust.Open || o.trust.Sent != m.sent {
		if o.trust.Final() || o.phase == done { // too late: nothing may change
			t := w.wiring.Renewed(o.trust, ttl, ttl, now)
			w.check(t.Final() || !w.wiring.Admits(t, now), finalRevived, o.round, "the answer to a renewal revives a lease that has ended")
		}
		return
	}
	if m.code == "" {
		w.evidence(o, m.sent, m.remaining)
		o.trust = w.wiring.Renewed(o.trust, m.ttl, m.remaining, now)
		if w.wiring.Reread {
			o.fence = m.fence
		}
		w.note(noteRenewedHeard, actorOwner(o), o.round, uint64(o.fence), string(o.trust.State))
		if w.watchTrust(o, now) {
			return
		}
		w.isHeld(o, now)
	} else {
		if m.how == lastword.StateRevoked && !o.trust.At(now).Final() {
			o.seen.how = m.how
		}
		o.trust = w.wiring.Ended(o.trust, m.how, now)
	}
	if o.phase == holding {
		w.keep(o, now)
	}
}

func (w *world) hearStatus(o *owner, m *message, now int64) {
	if m.lease != o.lease || o.lease == "" {
		return
	}
	if m.fault != nil {
		w.effect(m.fault)
	}
	ref := lastword.TenureRef{Resource: laneNames[o.lane], LeaseID: o.lease, Fence: o.fence, Owner: o.name}
	st := lastword.Status{Resource: laneNames[o.lane], State: m.state, Asked: m.how}
	if m.found {
		st.Holder = lastword.TenureRef{Resource: laneNames[o.lane], LeaseID: m.lease, Fence: m.fence}
		st.Remaining = duration(m.remaining)
		if o.trust.Asking && o.trust.Queried == m.sent {
			w.evidence(o, m.sent, m.remaining)
		}
	} else if open(&core.Lease{State: m.state}) {
		st.Holder = lastword.TenureRef{LeaseID: "another", Fence: m.fence}
	}
	was := o.trust
	if was.At(now).Final() {
		t := w.wiring.Told(was, ref, st, core.TrustRetry(ttl), now)
		w.check(!w.wiring.Admits(t, now), finalRevived, o.round, "a status answer revives a lease that has ended")
		return
	}
	if !was.Asking || was.Queried != m.sent {
		return
	}
	if m.how == lastword.StateRevoked {
		o.seen.how = m.how
	}
	o.trust = w.wiring.Told(was, ref, st, core.TrustRetry(ttl), now)
	if o.phase == holding {
		w.keep(o, now)
	}
}

// think has o go on with its work a little later.
func (w *world) think(o *owner, in int64) {
	n := draw(w.plan.seed, uint64(o.round), uint64(o.made), 11)
	in += ms/10 + int64(n>>8)%ms
	if o.slow && o.made > 0 {
		in += 2 * ttl / 5
	}
	o.thinking = true
	w.q.push(task{at: w.now + in, kind: doThink, who: o.round})
}

// work is the next thing that a holder does.
func (w *world) work(o *owner) {
	o.thinking = false
	if o.phase != holding || o.open {
		return
	}
	now := o.clock.read(w.now)
	if w.wiring.Draws && o.until > 0 && o.drawn == 0 {
		if !o.wished {
			o.wished = true
			m := w.new(askNumber, o)
			m.lease, m.fence, m.to = o.lease, o.fence, o.process
			w.send(m)
		}
		return
	}
	if !w.wiring.Admits(o.trust, now) {
		o.trust = o.trust.At(now)
		w.keep(o, now)
		return
	}
	switch {
	case o.stage == settling:
		var is bool
		if o.intent, is = w.lanes[o.lane].left(o); !is {
			o.stage = writing
			w.work(o)
			return
		}
		if o.submit {
			o.stage = writing
			w.work(o)
			return
		}
		o.stage = registering
		if !w.wiring.Settles {
			o.stage = lookingUp
			w.sendLookup(o, now)
			return
		}
		w.sendAdvance(o, now)
	case o.stage != writing:
	case o.stopped && o.made > 0:
		w.stopWork(o, now)
	case o.made >= w.plan.writesOf(o):
		w.endWork(o, now)
	default:
		w.startWrite(o, now)
	}
}

func (w *world) sendAdvance(o *owner, now int64) {
	m := w.new(doAdvance, o)
	m.sent, m.lease, m.fence, m.grant, m.gen, m.intent, m.op = now, o.lease, o.fence, o.grant, o.gen, o.intent, o.intent
	o.callAt = now
	w.note(noteAdvance, actorOwner(o), o.round, uint64(o.fence), "")
	w.send(m)
	w.wake(o, now+writeTime)
}

func (w *world) sendLookup(o *owner, now int64) {
	m := w.new(doLookup, o)
	m.sent, m.lease, m.fence, m.intent, m.op = now, o.lease, o.fence, o.intent, w.operationOf(o, o.intent)
	o.callAt = now
	w.send(m)
	w.wake(o, now+writeTime)
}

func (w *world) hearLookup(o *owner, m *message, now int64) {
	if m.fault != nil {
		w.effect(m.fault)
	}
	l := &w.lanes[o.lane]
	if m.found {
		w.count.UnknownSettled++
		l.doneBy(w, o, o.intent, m.era)
	} else {
		k := w.ghost[o.lane].find(o.fence, o.lease)
		l.absent[o.intent] = max(l.absent[o.intent], k)
		l.touched[o.intent] = false
	}
	w.note(noteLookedUp, actorOwner(o), o.round, uint64(o.fence), [2]string{"not done", "done"}[flag(m.found)])
	o.stage = writing
	if _, is := l.left(o); is && o.calm {
		o.stage = settling
	}
	w.think(o, 0)
}

// operationOf is the id that o gives an intent.
func (w *world) operationOf(o *owner, intent int16) int16 {
	switch w.wiring.Names {
	case model.ByNumber:
		return int16(o.seq.Last) % maxIntents
	case model.ByLife:
		if w.lanes[o.lane].crashed {
			return (intent + 2*shared) % (maxIntents - 2)
		}
	case model.ByIntent:
	}
	return intent
}

// startWrite begins the next intent: no new effect unless the tenure is trusted (R26).
func (w *world) startWrite(o *owner, now int64) {
	if s := o.trust.At(now).State; !s.Admits() {
		w.violate(effectWithoutTrust, o.round, "a holder starts a write in "+string(s))
		return
	}
	l := &w.lanes[o.lane]
	o.intent = l.nextOf(o)
	if o.intent == shared && !o.own {
		w.endWork(o, now)
		return
	}
	op := w.operationOf(o, o.intent)
	seq, n, ok := w.wiring.Take(o.seq, operations[op])
	if !ok {
		w.giveUpWork(o, now)
		return
	}
	o.seq, o.open, o.tries, o.number, o.op, o.wrong = seq, true, 0, n, op, noMistake
	w.submitWrite(o, now)
	if o.stopped && o.open && w.wiring.Hurries {
		w.release(o, now)
	}
}

func (w *world) submitWrite(o *owner, now int64) {
	m := w.new(doWrite, o)
	m.sent, m.lease, m.fence, m.grant, m.gen = now, o.lease, o.fence, o.grant, o.gen
	m.intent, m.op, m.seq = o.intent, o.op, o.number
	if o.drawn != 0 {
		m.fence = o.drawn
	}
	o.writeAt = now
	if o.era == w.place.era {
		w.lanes[o.lane].touched[o.intent] = true
	}
	w.note(noteWrite, actorOwner(o), o.round, uint64(m.fence), "")
	if o.forged != 0 && !o.sent1 && !w.calm && !w.plan.smaller(o) {
		o.sent1 = true
		w.forge(o, m)
	}
	w.send(m)
	if o.phase == holding {
		w.wake(o, now+writeTime)
	}
}

// due is when a call under way has had no answer for too long.
func (o *owner) due() (int64, bool) {
	switch {
	case o.open:
		return o.writeAt + writeTime, true
	case o.stage == registering || o.stage == lookingUp || o.stage == completing || o.stage == releasing:
		return o.callAt + writeTime, true
	}
	return 0, false
}

// retryWork repeats what has had no answer.
func (w *world) retryWork(o *owner, now int64) {
	at, is := o.due()
	if !is || now < at {
		return
	}
	w.markRetry(o)
	switch {
	case o.open:
		w.writeUnanswered(o, now)
	case o.stage == registering:
		if o.tries++; o.tries > most {
			w.giveUpWork(o, now)
			return
		}
		w.sendAdvance(o, now)
	case o.stage == lookingUp:
		if o.tries++; o.tries > most {
			w.giveUpWork(o, now)
			return
		}
		w.sendLookup(o, now)
	case o.stage == completing:
		if o.tries++; o.tries > 2 {
			w.release(o, now)
			return
		}
		w.sendComplete(o, now)
	case o.stage == releasing:
		w.finish(o) // it lapses
	}
}

// writeUnanswered settles an unknown outcome with the same operation and number (R22).
func (w *world) writeUnanswered(o *owner, now int64) {
	if w.wiring.Skips != model.SkipsNothing {
		w.lanes[o.lane].done[o.intent] = true
		o.open, o.seq.Open = false, ""
		if w.wiring.Skips == model.SkipsCounting {
			o.seq.Last++
		}
		o.made++
		w.think(o, 0)
		o.writeAt = now
		return
	}
	if o.tries++; o.tries > most || !w.wiring.Admits(o.trust, now) {
		o.writeAt = now // later, if trust comes back
		if o.tries > most {
			w.giveUpWork(o, now)
		}
		return
	}
	seq, n, ok := w.wiring.Take(o.seq, operations[o.op])
	if !ok {
		w.giveUpWork(o, now)
		return
	}
	o.seq, o.number = seq, n
	w.submitWrite(o, now)
}

func (w *world) hearWrite(o *owner, m *message, now int64) {
	v := lastword.Verdict(m.code)
	if o.phase != holding || m.lease != o.lease || !o.open || m.intent != o.intent || m.wrong != o.wrong {
		return
	}
	if m.fault != nil {
		w.effect(m.fault)
	}
	o.seq = w.wiring.Settle(o.seq, o.number, m.own, v)
	o.open = false
	l := &w.lanes[o.lane]
	if m.wrong != noMistake { // the intent itself has not been tried
		w.effectOf(mistakenOwner)
		o.seq.Open = ""
		o.wrong = noMistake
		w.think(o, 0)
		return
	}
	w.note(noteVerdict, actorOwner(o), o.round, uint64(o.fence), m.code)
	switch v { //nolint:exhaustive // the others are none of its
	case lastword.Applied, lastword.Replayed:
		if o.tries > 0 {
			w.count.UnknownSettled++
		}
		l.doneBy(w, o, o.intent, m.era)
		o.made++
		w.think(o, 0)
	case lastword.StatusUnavailable, lastword.Unverified:
		if o.tries++; o.tries <= most && v == lastword.StatusUnavailable && w.wiring.Admits(o.trust, now) {
			o.open = true
			seq, n, ok := w.wiring.Take(o.seq, operations[o.op])
			if ok {
				o.seq, o.number = seq, n
			}
			o.writeAt = now - writeTime/2
			w.wake(o, now+writeTime/2)
			return
		}
		w.giveUpWork(o, now)
	default:
		w.giveUpWork(o, now)
	}
}

// stopWork is a holder that was told to stop (R28): it releases when nothing is under
// way, and leaves the tenure to lapse if something is for too long.
func (w *world) stopWork(o *owner, now int64) { w.endWork(o, now) }

// giveUpWork ends the work of a tenure that gets no further.
func (w *world) giveUpWork(o *owner, now int64) {
	l := &w.lanes[o.lane]
	l.unknown(w, o)
	o.open = false
	w.release(o, now)
}

// endWork completes and releases.
func (w *world) endWork(o *owner, now int64) {
	if o.complete && o.made > 0 && o.stage == writing && !w.plan.smaller(o) {
		o.tries = 0
		w.sendComplete(o, now)
		return
	}
	w.release(o, now)
}

func (w *world) sendComplete(o *owner, now int64) {
	if o.trust.At(now).Final() {
		return
	}
	o.stage, o.callAt = completing, now
	m := w.new(askComplete, o)
	m.sent, m.lease, m.fence, m.to = now, o.lease, o.fence, o.process
	o.process = 1 - o.process
	w.note(noteComplete, actorOwner(o), o.round, uint64(o.fence), "")
	w.send(m)
	if o.phase == holding {
		w.wake(o, now+writeTime)
	}
}

// release gives the tenure up.
func (w *world) release(o *owner, now int64) {
	if o.leave {
		w.note(noteLeaves, actorOwner(o), o.round, uint64(o.fence), "")
		w.lanes[o.lane].crashedAt(w, o)
		o.dead = true
		w.finish(o)
		return
	}
	if o.open {
		w.violate(releasedAtWork, o.round, "a lease is released while its work is under way")
		return
	}
	o.trust = w.wiring.Released(o.trust, now)
	if o.trust.State != lastword.HolderReleased {
		w.trustOver(o, now)
		return
	}
	o.stage, o.callAt = releasing, now
	o.seen.final = true
	m := w.new(askRelease, o)
	m.sent, m.lease, m.fence, m.to = now, o.lease, o.fence, o.process
	w.note(noteRelease, actorOwner(o), o.round, uint64(o.fence), "")
	w.lanes[o.lane].releasedAt(w, o)
	w.send(m)
	if o.phase == holding {
		w.finishLater(o, now)
	}
}

// finishLater: whoever has released waits for nothing.
func (w *world) finishLater(o *owner, now int64) {
	if w.wiring.RenewalDue(o.trust, o.trust.Due) { // of a broken system: it would go on renewing
		w.q.push(task{at: o.clock.when(w.now, o.trust.Due), kind: doOwner, who: o.round, arg: o.wakes})
	}
	w.finish(o)
}
