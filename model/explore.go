package model

import (
	"context"
	"slices"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// initial is the state in which every process runs, nobody holds anything and the
// issuer stands at the world's counter.
func (m *machine) initial() state {
	w := &m.w
	mark := core.Witness{Current: w.epoch, Pending: w.epoch, Longest: m.ttl, Store: "first"}
	st := storeState{
		h: core.Header{Exists: true, Identity: "first", TickSpan: tick, Epoch: w.epoch, Witnessed: true},
	}
	st.rec.Resource = resource
	if w.counter > 0 {
		st.rec.Revision, st.rec.Epoch, st.rec.Counter = 1, w.epoch, w.counter
	}
	if st.h.Witnessed = !w.unmarked; w.fresh {
		st = storeState{h: core.Header{Identity: "first", TickSpan: tick}}
		st.rec.Resource = resource
	}
	var s state
	s.store[0] = m.stores.name(&st)
	if m.wiring.Rollback {
		s.backup = s.store[0]
	}
	s.witness = m.marks.name(witnessState{exists: true, w: mark})
	if w.fresh {
		s.witness = 0
	}
	s.place = m.places.name(placeState{rec: core.FenceRecord{Step: w.step}})
	s.left = w.budgets()
	for p := range w.processes {
		proc := procState{id: uint8(p), up: true, held: w.epoch, ident: "first"}
		if w.fresh || p > 0 && (w.clone || w.steps) { // the second one starts later
			proc = procState{id: uint8(p)}
		}
		s.proc[p] = m.procs.name(proc)
	}
	for c := range w.clients {
		s.client[c] = m.clients.name(clientState{id: uint8(c), phase: idle, born: 0, stage: working, fence: 0, tries: 0, next: 0, drawn: 0, sent: 0, resent: 0, renewed: 0, attempt: 0, lease: lone(c)})
	}
	return s
}

// lone keeps the client of id 0 apart from the pool's first value, which stands for
// "no client".
func lone(int) string { return "-" }

const chunk = 1 << 14

// explorer searches one world breadth first. Every state is kept whole, so that two
// different ones never pass for one.
type explorer struct {
	m       *machine
	chunks  [][]state
	parents []uint32
	slots   []uint64 // tag<<32 | index + 1
	n       uint32

	first       bool // end at the first violation
	transitions uint64
	fired       [events]uint64
	found       []finding
	from, to    []uint32
}

// finding is a step that violates a property.
type finding struct {
	kind   kind
	parent uint32
	last   successor
}

func newExplorer(m *machine) *explorer {
	return &explorer{m: m, slots: make([]uint64, 1<<12)}
}

func (e *explorer) at(i uint32) *state { return &e.chunks[i/chunk][i%chunk] }

// add returns the number of s, and whether it is new.
func (e *explorer) add(s *state, parent uint32) (uint32, bool) {
	if 10*uint64(e.n+1) > 6*uint64(len(e.slots)) {
		e.grow()
	}
	h := s.hash()
	mask := uint64(len(e.slots) - 1)
	tag := h >> 32 << 32
	i := h & mask
	for ; e.slots[i] != 0; i = (i + 1) & mask {
		v := e.slots[i]
		if v>>32<<32 == tag && *e.at(uint32(v) - 1) == *s {
			return uint32(v) - 1, false
		}
	}
	if e.n%chunk == 0 {
		e.chunks = append(e.chunks, make([]state, chunk))
	}
	n := e.n
	e.n++
	*e.at(n) = *s
	e.parents = append(e.parents, parent)
	e.slots[i] = tag | uint64(n+1)
	return n, true
}

func (e *explorer) grow() {
	old := e.slots
	e.slots = make([]uint64, 2*len(old))
	mask := uint64(len(e.slots) - 1)
	for _, v := range old {
		if v == 0 {
			continue
		}
		i := e.at(uint32(v)-1).hash() & mask
		for e.slots[i] != 0 {
			i = (i + 1) & mask
		}
		e.slots[i] = v
	}
}

// maxStates keeps a world that is too large from eating the machine.
var maxStates uint32 = 60_000_000

// run explores until everything has been seen, or until a violation of the wanted
// property was found ("": none is wanted). progress is called now and then.
func (e *explorer) run(ctx context.Context, wanted kind, progress func(states, queued uint64)) error {
	first := e.m.initial()
	e.add(&first, 0)
	seen := map[kind]bool{}
	for i := uint32(0); i < e.n; i++ {
		if i%4096 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			progress(uint64(i), uint64(e.n-i))
		}
		s := *e.at(i)
		for _, next := range e.m.successors(&s) {
			e.transitions++
			e.fired[next.ev.kind]++
			if next.bad != "" {
				if !seen[next.bad] {
					seen[next.bad] = true
					e.found = append(e.found, finding{kind: next.bad, parent: i, last: next})
				}
				if next.bad == wanted || e.first && wanted == "" {
					return e.fits()
				}
				if wanted == "" || next.s == s {
					continue
				}
			}
			n, _ := e.add(&next.s, i)
			e.from, e.to = append(e.from, i), append(e.to, n)
		}
		if err := e.fits(); err != nil {
			return err
		}
	}
	return nil
}

func (e *explorer) fits() error {
	if e.m.full || e.n > maxStates {
		return &lastword.Error{
			Code: lastword.CodeInternal, Op: "model", Message: "the world " + e.m.w.name + " is too large for this explorer",
			Hint: "lower its bounds",
		}
	}
	return nil
}

// path is the way to state i, as the numbers of the states on it.
func (e *explorer) path(i uint32) (path []uint32) {
	for ; i != 0; i = e.parents[i] {
		path = append(path, i)
	}
	path = append(path, 0)
	slices.Reverse(path)
	return path
}

// orders counts the distinct complete orders of events: the ways from the first
// state to one in which nothing more can happen. It stops at most. The graph has no
// cycle, since time, attempts and budgets only run one way; cyclic says otherwise.
func (e *explorer) orders(most uint64) (count uint64, cyclic bool) {
	missing := make([]uint32, e.n) // successors that have not been counted
	for _, from := range e.from {
		missing[from]++
	}
	// The edges into each state, one after the other.
	start := make([]uint32, e.n+1)
	for _, to := range e.to {
		start[to+1]++
	}
	for i := range e.n {
		start[i+1] += start[i]
	}
	into := make([]uint32, len(e.to))
	fill := slices.Clone(start[:e.n])
	for k, to := range e.to {
		into[fill[to]] = e.from[k]
		fill[to]++
	}
	ways := make([]uint64, e.n)
	var ready []uint32
	for i := range e.n {
		if missing[i] == 0 {
			ways[i] = 1
			ready = append(ready, i)
		}
	}
	done := uint32(0)
	for len(ready) > 0 {
		i := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		done++
		for _, from := range into[start[i]:start[i+1]] {
			ways[from] = min(ways[from]+ways[i], most)
			if missing[from]--; missing[from] == 0 {
				ready = append(ready, from)
			}
		}
	}
	return ways[0], done != e.n
}
