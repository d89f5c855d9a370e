package simulate

import (
	"github.com/lastword/lastword/internal/core"
)

// The operator's tasks.
const (
	operatorRelease uint32 = iota // a frozen or lost record; who is the lane
	operatorDeclare               // a restored resource
	operatorClose                 // the window after it
	operatorReopen                // a resource that was killed
	operatorEnd                   // of the calm
	operatorUncut
)

// underway is a fault that strikes as a message is about to leave. It returns when the
// message arrives, negative if it does not, or not on this way.
func (w *world) underway(o *owner, m *message, f *fault, base int64) int64 {
	switch f.kind { //nolint:exhaustive // the others are none of its
	case loseRequest, loseAnswer:
		w.drop(m)
		if m.kind == reRelease || m.kind == askRelease { // nobody repeats it: the tenure lapses
			w.effect(f)
		}
		return -1
	case lateMessage:
		m.fault = f
		if f.arg>>60&1 == 1 { // most that is late is not late by much
			return base + int64(f.arg%uint64(ttl/6))
		}
		return base + int64(f.arg%uint64(3*ttl))
	case twiceMessage:
		for i := range 1 + f.arg>>40%3 {
			c := w.copy(m)
			c.fault = f
			d := int64(draw(f.arg, i, 0, 0)) & (1<<62 - 1)
			if i&1 == 0 {
				d %= 20 * ms
			} else {
				d %= 2 * ttl
			}
			w.later(c, w.now+base+d)
		}
		return base
	case mistakenOwner:
		w.mistake(o, m, f)
		return base
	case atDeadline:
		w.held = append(w.held, m)
		w.deadline = f
		return -1
	case stopOwner, stopMachine:
		until := w.stop(o, f)
		if m.kind < reAcquire && m.kind != askHeld { // it sleeps before it sends
			return base + until - w.now
		}
		return base
	case crashOwner:
		if m.kind < reAcquire && m.kind != askHeld && f.arg&1 == 0 { // before it sends
			w.drop(m)
			w.kill(o, f)
			return -1
		}
		w.kill(o, f)
		return base
	case stopResource:
		return base + w.stopPlace(f)
	case restoreUndeclared: // a copy of the write comes when it has been forgotten
		w.later(w.copy(m), w.now+w.soon(f)+int64(f.arg>>40%uint64(ttl/2)))
	default:
	}
	w.befall(o, f)
	if !m.used {
		return -1
	}
	return base
}

// stop is an owner that sleeps: 0.5, 1, 1.5 or 12 TTL. Of a machine that sleeps all
// clocks stand still.
func (w *world) stop(o *owner, f *fault) int64 {
	d := [...]int64{ttl / 2, ttl, 3 * ttl / 2, 12 * ttl}[f.arg%4]
	if f.arg%4 == 3 && f.arg>>8&3 != 0 {
		d = ttl + ttl/4
	}
	d += int64(f.arg >> 16 % uint64(ttl/4))
	o.until = w.now + d
	o.wakesWith = f.arg>>32&1 == 0
	if f.kind == stopMachine {
		o.clock.set(w.now, o.clock.ppm, true)
		o.timeless = true
	}
	w.note(noteStops, actorOwner(o), o.round, uint64(o.fence), "")
	w.lanes[o.lane].crashedAt(w, o)
	w.q.push(task{at: o.until, kind: doWake, who: o.round})
	w.effect(f)
	return o.until
}

// wakeSleepers lets owners go on that sleep until somebody else is granted: the moment
// at which an old holder and a new one meet.
func (w *world) wakeSleepers(lane uint8) {
	for i := range w.owners[:w.ownersUsed] {
		o := &w.owners[i]
		if o.lane != lane || !o.wakesWith || o.until <= w.now || o.phase != holding {
			continue
		}
		o.wakesWith = false
		o.until = w.now + int64(draw(w.plan.seed, uint64(o.round), 51, 0)>>8)%(3*ms)
		w.q.push(task{at: o.until, kind: doWake, who: o.round})
	}
}

// kill ends an owner at once. What it had sent is under way.
func (w *world) kill(o *owner, f *fault) {
	w.note(noteKilled, actorOwner(o), o.round, uint64(o.fence), "")
	if o.phase == holding {
		w.lanes[o.lane].crashedAt(w, o)
		w.effect(f)
	}
	w.lanes[o.lane].crashed = true
	w.finish(o)
	if o.lease == "" {
		w.effect(f)
	}
	o.dead = true
}

// mistake is a write in which something is wrong, beside the right one.
func (w *world) mistake(o *owner, m *message, f *fault) {
	if m.kind != doWrite {
		return
	}
	c := w.copy(m)
	c.wrong = mistake(1 + f.arg%uint64(mistakes-1))
	c.op, c.intent = junk, junk
	c.fault = f
	switch c.wrong {
	case otherRoot:
		c.root = true
	case otherContent:
		if before, is := prior(o.intent); !is || !w.lanes[o.lane].done[before] {
			c.wrong, c.seq = numberAhead, c.seq+1
			break
		}
		c.op = o.intent - 1
	case numberAhead:
		c.seq++
	case numberTaken:
		if c.seq == 1 {
			c.wrong, c.seq = numberAhead, c.seq+1
			break
		}
		c.seq = 1
	case noMistake, mistakes:
	}
	w.later(c, w.now+ms/10)
}

// stopPlace has the resource's program sleep.
func (w *world) stopPlace(f *fault) int64 {
	d := int64(f.arg%uint64(2*ttl)) + ms
	w.place.until = w.now + d
	w.note(noteStops, actorResource, -1, 0, "")
	w.disturbed(d)
	w.effect(f)
	return 0
}

// beforeStep is a fault that strikes before a durable step of the authority. It returns
// how long the step takes then.
func (w *world) beforeStep(p *proc, m *message, f *fault) int64 {
	switch f.kind { //nolint:exhaustive // the others are none of its
	case crashBefore:
		w.effect(f)
		w.lost(m, "")
		w.crashProc(p, true, w.back(f))
	case stopAuthority:
		p.until = w.now + w.nap(f)
		w.disturbed(w.nap(f) + ttl)
		w.note(noteStops, actorProcess(p), -1, 0, "")
		w.effect(f)
		return ms
	case slowCommit:
		w.effect(f)
		w.disturbed(ttl / 2)
		return 12*ms + int64(f.arg%uint64(78*ms))
	default:
		w.befall(&w.owners[m.round], f)
	}
	return 0
}

func (w *world) back(f *fault) int64 { return 10*ms + int64(f.arg%uint64(ttl/2)) }

func (w *world) nap(f *fault) int64 {
	return [...]int64{20 * ms, ttl / 8, ttl / 4, ttl, 3 * ttl / 2}[f.arg%5] + int64(f.arg>>16%uint64(ttl/8))
}

// afterStep is a fault that strikes after a durable step of the authority and before its
// answer.
func (w *world) afterStep(p *proc, m *message, f *fault) {
	switch f.kind { //nolint:exhaustive // the others are none of its
	case crashAfter, powerLoss:
		w.effect(f)
		w.lost(m, "")
		w.crashProc(p, f.kind == powerLoss, w.back(f))
	case crashStart:
		p.crash = f
		w.lost(m, "")
		w.crashProc(p, true, w.back(f)/4)
	case stopAuthority:
		p.until = w.now + w.nap(f)
		w.disturbed(w.nap(f) + ttl)
		w.note(noteStops, actorProcess(p), -1, 0, "")
		w.effect(f)
	default:
		w.befall(&w.owners[m.round], f)
	}
}

// beforeTransaction is a fault that strikes between the resource's checks and its
// transaction.
func (w *world) beforeTransaction(m *message, f *fault) int64 {
	switch f.kind { //nolint:exhaustive // the others are none of its
	case stopResource:
		w.stopPlace(f)
		return w.place.until - w.now
	case crashResource:
		w.effect(f)
		w.lost(m, "")
		w.crashPlace(f)
		return 0
	case stopOwner, stopMachine:
		w.stop(&w.owners[m.round], f)
	case crashOwner:
		w.kill(&w.owners[m.round], f)
	default:
		w.befall(&w.owners[m.round], f)
	}
	return 0
}

func (w *world) afterTransaction(m *message, f *fault) {
	switch f.kind { //nolint:exhaustive // the others are none of its
	case stopResource:
		w.stopPlace(f)
	case crashResource:
		w.effect(f)
		w.crashPlace(f)
	case stopOwner, stopMachine:
		w.stop(&w.owners[m.round], f)
	case crashOwner:
		w.kill(&w.owners[m.round], f)
	default:
		w.befall(&w.owners[m.round], f)
	}
}

// crashPlace kills the resource's program: what it remembered is gone, what was
// committed is there.
func (w *world) crashPlace(f *fault) {
	w.place.down = true
	w.place.life++
	w.place.memory = [lanes]remembered{}
	w.note(noteCrash, actorResource, -1, 0, "")
	w.disturbed(ttl)
	if w.gate != nil {
		w.gate.crash(w)
	}
	w.q.push(task{at: w.now + w.back(f)/4, kind: doOperator, arg: operatorReopen})
}

// befall is a fault that strikes a party or the world, whatever is under way.
func (w *world) befall(o *owner, f *fault) {
	p := &w.procs[f.arg>>5&1]
	d := ttl/4 + int64(f.arg>>8%uint64(3*ttl/2))
	switch f.kind { //nolint:exhaustive // the others are none of its
	case cutAuthority:
		w.cut[o.plannedRound.name][0] = w.now + d
		w.oneWay = f.arg&1 == 1
		w.disturbed(d)
	case cutResource:
		w.cut[o.plannedRound.name][1] = w.now + d
		w.disturbed(d)
	case cutStatus:
		w.cutHeld = w.now + d/4
		w.disturbed(d)
	case swizzle:
		order := f.arg
		for i := range w.clogged { // one after the other, unclogged in another order
			order = mix(order + uint64(i))
			w.clogged[i] = w.now + int64(i)*20*ms + int64(order%uint64(ttl))
		}
		w.disturbed(2 * ttl)
	case restoreAuthority:
		w.restoreStore(f)
	case restoreResource:
		w.restorePlace(f, true)
	case restoreUndeclared:
		if w.place.mode[o.lane] == core.Query && !w.calm {
			w.restorePlace(f, false)
		}
	case restoreBoth:
		w.restoreStore(f)
		w.restorePlace(f, true)
	case cloneStore:
		w.clone(f)
	case loseWitness:
		w.strikeWitness(f)
	case clockRate:
		w.skew(o, f)
	case clockJump:
		o.clock.jump(w.now, int64(f.arg>>8%uint64(ttl)))
		o.wakeAt = 0
		if o.phase == holding || o.phase == asking {
			w.effect(f)
			w.wake(o, o.clock.read(w.now)+1)
		}
	case clockBack:
		if p.up {
			p.clock.jump(w.now, -int64(f.arg>>8%uint64(ttl)))
			w.untimely = true
			w.effect(f)
			w.disturbed(ttl)
		}
	case revokeTenure:
		w.revoke(o, f)
	case cancelAttempt:
		o.giveUp = true
		if o.phase == asking {
			w.effect(f)
			o.wakeAt = 0
			w.wake(o, o.clock.read(w.now)+int64(f.arg>>8%uint64(5*ms)))
		}
	case rotateKey:
		w.rotate(f)
	case raiseEpoch:
		w.raiseMinimum(f)
	case raisePolicy:
		w.generation++
		w.place.minGen = w.generation
		if w.gate != nil {
			w.gate.forget()
		}
		w.note(notePolicy, actorOperator, -1, w.generation, "")
		w.effect(f)
		w.disturbed(2 * ttl)
	case bundleLate:
		w.place.late = w.now + d
		w.disturbed(d)
		w.lateEpoch(f)
	case bundleBack:
		w.rollBundle(f)
	case tightenMode:
		if w.place.mode[o.lane] == core.FenceOnly {
			w.place.mode[o.lane] = core.Query
			w.note(noteTightened, actorOperator, o.round, 0, "")
		}
		if w.gate != nil {
			w.effect(f)
		}
	case loseRecord:
		w.loseRecord(o, f)
	case leakedKey:
		w.leak(o, f)
	case crashOwner:
		w.kill(o, f)
	case stopOwner, stopMachine:
		w.stop(o, f)
	case stopAuthority:
		p.until = w.now + w.nap(f)
		w.disturbed(w.nap(f) + ttl)
		w.effect(f)
	case crashAfter, crashBefore, powerLoss, crashStart:
		if p.up {
			w.effect(f)
			w.crashProc(p, true, w.back(f))
		}
	default:
	}
}

// skew has owner and authority run apart by the whole bound.
func (w *world) skew(o *owner, f *fault) {
	apart := int64(5_000)
	if f.arg&1 == 1 {
		apart = -apart
	}
	o.clock.set(w.now, -apart, o.clock.stopped)
	for i := range w.procs {
		w.procs[i].clock.set(w.now, apart, false)
	}
	w.effect(f)
}

// holdBack lets renewals arrive exactly when the counter comes to a deadline: the ones
// before it is there, the others after.
func (w *world) holdBack(st *store, early bool) {
	for i := 0; i < len(w.held); {
		m := w.held[i]
		l := &st.lane[m.lane].rec.Lease
		now := st.h.Tick == l.Deadline || early && st.h.Tick+1 == l.Deadline && m.round&1 == 0
		if !m.used || l.ID == m.lease && !now && open(l) {
			i++
			continue
		}
		w.held = append(w.held[:i], w.held[i+1:]...)
		if now {
			w.effect(w.deadline)
		}
		w.deliver(m)
	}
}

// holdWatched does the same where a process has watched a tenure for the whole TTL: some
// of the renewals are there before the next one is granted, the others after.
func (w *world) holdWatched(p *proc, lane uint8, early bool) {
	if len(w.held) == 0 || !p.up || p.busy || w.stopped || early && w.watched(p, lane) < core.Span(ttl) {
		return
	}
	for i := 0; i < len(w.held) && p.up && !w.stopped; {
		m := w.held[i]
		if m.lane != lane || early && m.round&1 != 0 {
			i++
			continue
		}
		l := &w.store[p.at].lane[lane].rec.Lease
		if early != (l.ID == m.lease && open(l)) {
			i++
			continue
		}
		w.held = append(w.held[:i], w.held[i+1:]...)
		w.effect(w.deadline)
		m.to = p.id
		w.deliver(m)
	}
}
