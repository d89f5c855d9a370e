package simulate

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// look counts what has gone by since the last look, at most a tick of it; a longer gap
// counts for decisions from the second look on (R8).
func (w *world) look(p *proc) {
	e := p.clock.read(w.now)
	p.sure = p.seen - p.gaps
	p.gaps = 0
	if e < p.last { // time has gone back: it counts again from where it has caught up
		p.back = true
		return
	}
	gap := core.Span(e - p.last)
	if p.back {
		p.back, gap = false, 0
	}
	counts := int64(core.Pace(gap, core.Span(tick)))
	p.seen += counts
	if gap > core.Span(tick) {
		p.gaps = counts
	} else {
		p.sure = p.seen
	}
	p.last = e
	st := &w.store[p.at]
	if st.h.Tick != p.tick {
		p.tick = st.h.Tick
		if !w.wiring.Restless {
			p.tickSince = p.seen
		}
	}
}

// watched is for how long p has seen the record of a lane stand.
func (w *world) watched(p *proc, lane uint8) core.Span {
	rec := &w.store[p.at].lane[lane].rec
	pw := &p.watch[lane]
	if !open(&rec.Lease) {
		pw.revision = 0
		return 0
	}
	watched := int64(w.wiring.Watch(pw.revision, core.Span(max(0, p.sure-pw.since)), *rec))
	if pw.revision != rec.Revision {
		pw.revision, pw.since = rec.Revision, p.seen-watched
	}
	return core.Span(watched)
}

// lookTask is a look without a message: the counter is moved if it has stood for a
// tick, and those who wait are looked after.
func (w *world) lookTask(p *proc) {
	w.look(p)
	if !w.current(p) {
		return
	}
	st := &w.store[p.at]
	mark := w.witnessOf()
	if drift := w.wiring.Compare(p.held, st.h, mark); drift == core.Regressed && !w.wiring.Blind {
		w.stopProc(p, "it does not find its epoch at the witness")
		return
	}
	if p.sure-p.tickSince >= tick && w.needsTick(st) && !p.busy {
		w.holdBack(st, true)
		read := p.tick
		st.h.Tick = w.wiring.Step(read)
		p.tick, p.tickSince = st.h.Tick, p.seen
		w.holdBack(st, false)
	}
	for lane := range uint8(lanes) {
		if len(p.waiting[lane]) > 0 {
			w.holdWatched(p, lane, true)
			w.promote(p, lane)
			w.holdWatched(p, lane, false)
		}
		if !p.up || w.stopped {
			return
		}
	}
	if w.needsTick(st) || p.waits() {
		w.nextLook(p, w.rest(p))
	}
}

func (p *proc) waits() bool {
	for l := range p.waiting {
		if len(p.waiting[l]) > 0 {
			return true
		}
	}
	return false
}

func (w *world) needsTick(st *store) bool {
	if st.h.Tick < st.h.HoldUntil {
		return true
	}
	for l := range st.lane {
		if lease := &st.lane[l].rec.Lease; open(lease) && st.h.Tick < lease.Deadline {
			return true
		}
	}
	return false
}

// rest is how long a process may sleep.
func (w *world) rest(p *proc) int64 {
	rest := tick * 3 / 4
	if due := p.tickSince + tick - p.seen; due > 0 {
		rest = min(rest, due+due>>7+1)
	}
	for lane := range uint8(lanes) {
		if len(p.waiting[lane]) == 0 {
			continue
		}
		if rec := &w.store[p.at].lane[lane].rec; open(&rec.Lease) && p.watch[lane].revision == rec.Revision {
			if left := ttl - (p.seen - p.watch[lane].since); left > 0 {
				rest = min(rest, left+left>>7+1)
			}
		}
	}
	return max(rest, ms/10)
}

// nextLook has p look again after at most so long.
func (w *world) nextLook(p *proc, in int64) {
	if at := w.now + in; p.nextAt <= w.now || at < p.nextAt {
		p.nextAt = at
		p.looks++
		w.q.push(task{at: at, kind: doLook, who: int16(p.id), arg: p.looks})
	}
}

// unchanged reports whether nothing has happened since who waits was refused: the same
// tenure is in the way, and neither counter nor watching has come to its end.
func (w *world) unchanged(p *proc, lane uint8) bool {
	st := &w.store[p.at]
	rec := &st.lane[lane].rec
	pw := &p.watch[lane]
	if pw.refused == rec.Revision && pw.revision == rec.Revision && pw.atTick == st.h.Tick && p.sure-pw.since < ttl {
		return true
	}
	return false
}

// promote decides anew for those who wait, the first one first.
func (w *world) promote(p *proc, lane uint8) {
	for tries := 0; len(p.waiting[lane]) > 0 && p.up && !p.busy && !w.stopped && tries < 8; tries++ {
		m := p.waiting[lane][0]
		if w.unchanged(p, lane) {
			return
		}
		d := w.decide(&w.store[p.at], p, m)
		if w.stopped {
			return
		}
		if d.answer.Code == lastword.CodeHeld {
			if d.change.Write {
				p.waiting[lane] = shift(p.waiting[lane])
				w.decideAndCommit(p, m) // it marks the tenure before as expired
				continue
			}
			pw := &p.watch[lane]
			pw.refused, pw.atTick = d.revision, d.tick
			return
		}
		p.waiting[lane] = shift(p.waiting[lane])
		w.decideAndCommit(p, m)
	}
}

// park lets an acquire wait for its turn (R3).
func (w *world) park(p *proc, m *message) {
	for i, other := range p.waiting[m.lane] {
		if other.round == m.round {
			w.drop(other)
			p.waiting[m.lane][i] = m
			m.waited = true
			return
		}
	}
	m.waited = true
	p.waiting[m.lane] = append(p.waiting[m.lane], m)
	w.note(notePark, actorProcess(p), m.round, 0, "")
	w.nextLook(p, lookForWaiters)
}

func shift(queue []*message) []*message {
	copy(queue, queue[1:])
	return queue[:len(queue)-1]
}
