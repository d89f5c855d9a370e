package model

import (
	"cmp"
	"slices"

	"github.com/lastword/lastword/internal/core"
)

// actor is who an event belongs to, in the order of a drawing's columns.
type actor uint8

const (
	clientA actor = iota
	clientB
	clientC
	process1
	process2
	thePlace
	world0 // time, operators, faults
)

var actorNames = [...]string{"A", "B", "C", "authority 1", "authority 2", "resource", "world"}

// eventKind names what happened; see describe.
type eventKind uint8

const (
	evServe eventKind = iota
	evServeTwice
	evCommit
	evCommitFailed
	evCrash
	evStart
	evStartStep
	evStartFailed
	evAdvanceEpoch
	evMoved
	evStopped
	evRound
	evClone
	evBackup
	evRestore
	evRevoke
	evTransact
	evTransactTwice
	evSecondStep
	evPlaceBackup
	evPlaceRestore
	evDeclare
	evOpen
	evMistake
	evLose
	evLoseWitness
	evOtherWitness
	evLoseStore
	evAsk
	evNoRenewal
	evNoStatus
	evStop
	evOverrun
	evForge
	evTick
	evCalm
	evPause
	evResume
	evCheck
	evAcquire
	evRepeat
	evRenew
	evWrite
	evResubmit
	evComplete
	evRelease
	evCancel
	evClientCrash
	evDraw
	evRegister
	evLookup
	evHear
	events
)

// eventNames are what a report counts.
var eventNames = [events]string{
	evServe: "requests served", evServeTwice: "requests delivered twice", evCommit: "late commits",
	evCommitFailed: "commits refused by a condition", evCrash: "process crashes", evStart: "starts",
	evStartStep: "steps of a start", evStartFailed: "starts that lost against another",
	evAdvanceEpoch: "epochs advanced by an operator", evMoved: "processes that met a new epoch",
	evStopped: "processes that stopped", evRound: "looks of a process", evClone: "stores cloned",
	evBackup: "backups", evRestore: "restores of the authority", evRevoke: "revocations sent",
	evTransact: "transactions", evTransactTwice: "writes delivered twice", evSecondStep: "second halves of a torn transaction",
	evPlaceBackup: "backups of the resource", evPlaceRestore: "restores of the resource",
	evDeclare: "restores declared", evOpen: "frozen records released", evMistake: "mistakes of a client", evLose: "records lost", evLoseWitness: "witnesses lost", evOtherWitness: "witnesses exchanged", evLoseStore: "stores lost",
	evAsk: "questions about a tenure", evNoRenewal: "renewals without an answer", evNoStatus: "questions without an answer",
	evStop: "work told to stop", evOverrun: "work that did not stop", evForge: "forged grants", evTick: "ticks", evCalm: "calms",
	evPause: "pauses", evResume: "resumes", evCheck: "checks before a write", evAcquire: "acquires",
	evRepeat: "repeated acquires", evRenew: "renewals", evWrite: "writes", evResubmit: "writes submitted again",
	evComplete: "completions", evRelease: "releases", evCancel: "cancellations", evClientCrash: "client crashes",
	evDraw: "numbers drawn apart", evRegister: "fences registered", evLookup: "lookups", evHear: "replies heard",
}

// event is one step, with what describe needs beside the states around it.
type event struct {
	kind  eventKind
	who   actor
	a, b  uint16
	extra uint8
}

type successor struct {
	s   state
	ev  event
	bad kind
}

// machine generates the successors of a state.
type machine struct {
	w       world
	ttl     core.Span
	wiring  *Wiring
	reached outcomes
	full    bool // a pool or the net overflowed: the world is too large

	stores  *storePool
	ghosts  *pool[ghost]
	marks   *pool[witnessState]
	places  *pool[placeState]
	procs   *pool[procState]
	clients *pool[clientState]
	msgs    *pool[message]

	serving    *memo[served]
	granting   *memo[granted]
	applying   *memo[applied]
	acting     *memo[acted]
	beliefs    []uint32 // by client: bit t is set if it trusts its tenure at time t
	believed   []bool
	oversleeps []bool // by client: its lease says a wrong moment
	out        []successor
	onlyFirst  bool
}

func newMachine(w world, wi *Wiring) *machine {
	m := &machine{w: w, wiring: wi, ttl: cmp.Or(w.ttl, ttl)}
	m.stores = newStorePool(&m.full)
	m.ghosts = newPool(&m.full, ghost{})
	m.marks = newPool(&m.full, witnessState{})
	m.places = newPool(&m.full, placeState{})
	m.procs = newPool(&m.full, procState{})
	m.clients = newPool(&m.full, clientState{})
	m.msgs = newPool(&m.full, message{})
	m.serving, m.granting = newMemo[served](), newMemo[granted]()
	m.applying, m.acting = newMemo[applied](), newMemo[acted]()
	return m
}

// emit adds a successor, unless the step changed nothing.
func (m *machine) emit(before *state, after state, ev event, bad kind) {
	if bad == "" && after == *before {
		return
	}
	if bad == "" {
		bad = m.checkTrust(&after)
	}
	m.out = append(m.out, successor{after, ev, bad})
}

// enough reports whether nothing more needs to be generated: in calm weather the
// first possible step is taken.
func (m *machine) enough() bool { return m.onlyFirst && len(m.out) > 0 }

// successors are all steps that are possible in s. The slice is valid until the next
// call.
func (m *machine) successors(s *state) []successor {
	m.out = m.out[:0]
	m.onlyFirst = s.calm != 0
	if m.w.script {
		if !m.free(s) {
			return m.scripted(s)
		}
		m.came(outPrefix)
	}
	if m.w.prompt && m.looks(s) {
		return m.out
	}
	for p := range m.w.processes {
		if m.process(s, uint8(p)); m.enough() {
			return m.out
		}
	}
	for i := 0; i < maxNet && s.net[i] != 0; i++ {
		if m.deliver(s, i); m.enough() {
			return m.out
		}
	}
	for c := range m.w.clients {
		if m.clientSteps(s, uint8(c)); m.enough() {
			return m.out
		}
	}
	if m.operator(s); m.enough() {
		return m.out
	}
	if s.calm == 0 {
		m.faults(s)
	}
	m.time(s)
	if len(m.out) == 0 && s.calm != 0 {
		m.atRest(s)
	}
	return m.out
}

// looks lets a process look at once when a tick has gone by: a tenure is then over as
// early as it can be, which is the worst for a holder.
func (m *machine) looks(s *state) bool {
	for p := range m.w.processes {
		if proc := m.procs.at(s.proc[p]); proc.up && proc.aged && proc.read == 0 {
			before := len(m.out)
			m.round(s, uint8(p), *proc, m.stores.at(s.store[proc.at]))
			if len(m.out) > before {
				return true
			}
		}
	}
	return false
}

// send puts a message under way; the net is a sorted set.
func (m *machine) send(s *state, msg uint16) {
	if msg == 0 {
		return
	}
	n := 0
	for n < maxNet && s.net[n] != 0 {
		n++
	}
	i, there := slices.BinarySearch(s.net[:n], msg)
	if there {
		return
	}
	if n == maxNet {
		m.full = true
		return
	}
	copy(s.net[i+1:n+1], s.net[i:n])
	s.net[i] = msg
}

// take removes message number i of the net.
func (s *state) take(i int) {
	copy(s.net[i:], s.net[i+1:])
	s.net[maxNet-1] = 0
}

func (s *state) carries(msg uint16) bool { return slices.Contains(s.net[:], msg) }

// setClient changes a client and drops the replies that it no longer listens to:
// whenever they came, they would change nothing.
func (m *machine) setClient(s *state, c uint8, to uint16) {
	if s.client[c] == to {
		return
	}
	s.client[c] = to
	for i := 0; i < maxNet && s.net[i] != 0; {
		if q := m.msgs.at(s.net[i]); q.kind >= reAcquire && q.client == c && !m.awaits(m.clients.at(to), q) {
			s.take(i)
			continue
		}
		i++
	}
}

// answer sends a reply, if the client still listens to it.
func (m *machine) answer(s *state, msg uint16) {
	if msg == 0 {
		return
	}
	if q := m.msgs.at(msg); q.kind >= reAcquire && !m.awaits(m.clients.at(s.client[q.client]), q) {
		return
	}
	m.send(s, msg)
}

// Steps are the names under which a [Report] counts steps.
func Steps() []string {
	var names []string
	for _, n := range eventNames {
		if n != "" {
			names = append(names, n)
		}
	}
	return names
}
