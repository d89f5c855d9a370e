package simulate

import (
	"time"
)

// send puts a message under way. Here the network strikes.
func (w *world) send(m *message) {
	o := &w.owners[max(m.round, 0)]
	o.sends++
	m.no = o.sends
	base := 200*int64(time.Microsecond) + int64(draw(w.plan.seed, uint64(m.round)+1000, uint64(m.no), uint64(m.kind))>>20)%(500*int64(time.Microsecond))
	if m.class == 0 && m.round >= 0 && len(o.faults) > 0 && !w.calm {
		for f := w.strikes(m.round, point(m.kind)); f != nil; f = w.strikes(m.round, point(m.kind)) {
			if base = w.underway(o, m, f, base); base < 0 {
				return
			}
		}
	}
	if m.round >= 0 && o.dead && m.kind < reAcquire && m.kind != askHeld && m.kind != doWrite {
		w.drop(m)
		return
	}
	if until, queued := w.blocked(o, m); until > w.now {
		o.hit, w.lanes[m.lane].wasHit = true, true
		if !queued {
			w.drop(m)
			return
		}
		base += until - w.now
	}
	w.q.push(task{at: w.now + base, kind: doDeliver, arg: m.id, who: int16(m.life & 0x7fff)})
}

// blocked reports until when the link of a message is cut, and whether what is sent
// meanwhile waits.
func (w *world) blocked(o *owner, m *message) (until int64, queued bool) {
	var link int
	switch m.kind { //nolint:exhaustive // the others are none of its
	case askHeld, reHeld:
		if w.now < w.cutHeld {
			w.effectOf(cutStatus)
			return w.cutHeld, false
		}
		link = ownerNames * 2
	case doWrite, doAdvance, doLookup, reWrite, reAdvance, reLookup:
		if c := w.cut[o.plannedRound.name][1]; w.now < c {
			w.effectOf(cutResource)
			return c, true
		}
		link = int(o.plannedRound.name)*2 + 1
	case askRevoke:
		return 0, false
	default:
		if c := w.cut[o.plannedRound.name][0]; w.now < c && (m.kind >= reAcquire || !w.oneWay) {
			w.effectOf(cutAuthority)
			return c, false
		}
		link = int(o.plannedRound.name) * 2
	}
	if c := w.clogged[link]; w.now < c {
		w.effectOf(swizzle)
		return c, true
	}
	return 0, false
}

// deliver is a message that arrives.
func (w *world) deliver(m *message) {
	if !m.used {
		return
	}
	switch {
	case m.kind == reHeld:
		if w.now < w.place.until {
			w.later(m, w.place.until)
			return
		}
		w.answered(m)
	case m.kind >= reAcquire:
		o := &w.owners[m.round]
		if w.now < o.until {
			w.effectOf(stopOwner)
			w.effectOf(stopMachine)
			w.later(m, o.until)
			return
		}
		w.heard(o, m)
	case m.kind >= doWrite:
		if w.now < w.place.until {
			w.effectOf(stopResource)
			w.later(m, w.place.until)
			return
		}
		w.arrive(m)
	default:
		p := &w.procs[m.to]
		if w.now < p.until {
			w.effectOf(stopAuthority)
			w.later(m, p.until)
			return
		}
		if m.kind == askAcquire && m.fault != nil {
			w.effect(m.fault)
		}
		w.serve(p, m)
	}
}

func (w *world) later(m *message, at int64) {
	w.q.push(task{at: at, kind: doDeliver, arg: m.id, who: int16(m.life & 0x7fff)})
}

// lost is a message that nobody has answered.
func (w *world) lost(m *message, why string) {
	if m.fault != nil {
		w.effect(m.fault)
	}
	_ = why
	w.drop(m)
}
