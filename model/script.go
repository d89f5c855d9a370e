package model

// scripted is the one way through the prefix of R31: A acquires, finishes what the
// world says that it has finished before, passes its own check and is stopped; its
// tenure expires; the process that granted it is gone and another one goes on with
// what is durable; B acquires. After that everything is free.
func (m *machine) scripted(s *state) []successor {
	w := m.w
	m.w.script = false
	m.successors(s)
	m.w = w
	wanted := m.wanted(s)
	kept := m.out[:0]
	for _, next := range m.out {
		if next.bad != "" || wanted(next.ev) {
			kept = append(kept, next)
		}
	}
	m.out = kept
	return m.out
}

// free reports whether the prefix is over.
func (m *machine) free(s *state) bool {
	return m.clients.at(s.client[1]).phase != idle && m.clients.at(s.client[1]).phase != asking
}

// wanted says which step of the prefix comes next.
func (m *machine) wanted(s *state) func(event) bool {
	a := m.clients.at(s.client[0])
	st := m.stores.at(s.store[0])
	is := func(who actor, kinds ...eventKind) func(event) bool {
		return func(ev event) bool {
			for _, k := range kinds {
				if ev.kind == k && ev.who == who {
					return true
				}
			}
			return false
		}
	}
	either := func(f, g func(event) bool) func(event) bool {
		return func(ev event) bool { return f(ev) || g(ev) }
	}
	crashed := !m.procs.at(s.proc[0]).up
	switch {
	case !crashed && a.phase != holding:
		return either(is(clientA, evAcquire, evHear), is(process1, evServe))
	case !crashed && a.next < m.w.before:
		return either(is(clientA, evCheck, evWrite, evHear), is(thePlace, evTransact))
	case !crashed && !a.checked:
		return is(clientA, evCheck)
	case !crashed && s.paused == 0:
		return is(clientA, evPause)
	case !crashed && st.h.Tick < st.rec.Lease.Deadline && m.procs.at(s.proc[0]).aged:
		return is(process1, evRound)
	case !crashed && st.h.Tick < st.rec.Lease.Deadline:
		return is(world0, evTick)
	case !crashed:
		return is(process1, evCrash)
	}
	return either(is(clientB, evAcquire, evHear), is(process2, evServe))
}
