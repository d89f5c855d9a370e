package simulate

import (
	"fmt"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/model"
)

// world is one authority with its store, one resource, owners and an operator, for as
// long as its plan. Its memory is used again for the next one.
type world struct {
	plan   *plan
	wiring *model.Wiring
	q      queue
	post   []*message
	free   []uint32
	now    int64

	store     [2]store
	witness   core.Witness
	marked    bool // there is a witness
	twoStores bool
	procs     [processes]proc
	leases    int

	place      place
	backup     store
	backupSet  bool
	placeKept  place
	placeSet   bool
	bundle     bundle
	oldBundle  bundle
	generation uint64

	owners     [maxRounds]owner
	ownersUsed int
	lanes      [lanes]lane
	ghost      [lanes]ghost
	era        int32 // restores of the authority
	overlap    bool  // two stores have granted: numbers are promised, tenures are not
	untimely   bool  // an authority's clock has gone back: what it says is left is too much
	lenient    bool
	only       string // violation that counts, "" if all do
	left       int    // rounds that are not over
	calm       bool
	ending     bool

	cut       [ownerNames][2]int64 // until when owner and authority, owner and resource are cut off
	cutHeld   int64                // the same of resource and authority
	oneWay    bool
	clogged   [ownerNames*2 + 1]int64
	quietFrom int64 // hand-overs before are no measure
	held      []*message
	deadline  *fault

	seal *seal
	gate *gateway

	count     Counters
	tally     tally
	forgedBy  [leakedClass]tallied
	active    [faultKinds]*fault // the newest of its kind that has fired
	hand      *handovers
	stopped   bool
	violation violation
	trace     uint64
	recording bool
	events    []rawEvent
	steps     int
	shownKind uint64
}

type tallied struct{ fired, effect uint64 }

// Names, made once.
var (
	laneNames  = [lanes]lastword.Resource{"doc/a", "doc/b", "doc/c"}
	names      = [ownerNames]string{"worker-1", "worker-2", "worker-3", "worker-3"} // two have one name
	requestIDs [maxRounds]string
	operations [maxIntents]string
	leaseNames [4096]string
	payloads   [maxIntents + 1]lastword.Digest
)

func init() {
	for i := range requestIDs {
		requestIDs[i] = fmt.Sprintf("%03d-request", i)
	}
	for i := range operations {
		operations[i] = fmt.Sprintf("operation-%d", i)
	}
	for i := range leaseNames {
		leaseNames[i] = fmt.Sprintf("lease-%d", i)
	}
	for i := range payloads {
		payloads[i] = lastword.DigestOf([]byte{'p', byte(i), byte(i >> 8)})
	}
}

func duration(ns int64) time.Duration { return time.Duration(ns) }

// slot is the round of a request id, −1 for none of ours.
func (w *world) slot(id string) int {
	if len(id) != 11 {
		return -1
	}
	return int(id[0]-'0')*100 + int(id[1]-'0')*10 + int(id[2]-'0')
}

// nextLease stands for the random text of production: unlike every other one.
func (w *world) nextLease(*proc, *message) string {
	w.leases++
	if w.leases < len(leaseNames) {
		return leaseNames[w.leases]
	}
	return fmt.Sprintf("lease-%d", w.leases)
}

// reset makes the world of a plan.
func (w *world) reset(p *plan, x *model.Wiring) {
	w.plan, w.wiring = p, x
	w.q.reset()
	w.free = w.free[:0]
	for i := range w.post {
		m := w.post[i]
		*m = message{id: m.id, life: m.life + 1}
		w.free = append(w.free, m.id)
	}
	w.now, w.leases, w.era, w.overlap, w.left, w.calm, w.ending, w.untimely = 0, 0, 0, false, 0, false, false, false
	h := core.Header{Exists: true, Identity: "store", Domain: domain, TickSpan: core.Span(tick), Tick: 1, Witnessed: true}
	w.store[0] = store{h: h}
	w.witness, w.marked = core.Witness{Longest: core.Span(ttl), Store: h.Identity}, true
	w.twoStores, w.backupSet, w.placeSet = false, false, false
	w.generation = 1
	w.bundle = bundle{sequence: 1}
	w.oldBundle = w.bundle
	life := w.place.life
	w.place = place{life: life + 1, bundle: w.bundle, mode: p.mode, minGen: 1}
	for l := range w.lanes {
		rounds, issues := w.lanes[l].rounds[:0], w.ghost[l].issues[:0]
		w.lanes[l], w.ghost[l] = lane{rounds: rounds}, ghost{issues: issues}
		w.store[0].lane[l].rec.Resource = laneNames[l]
	}
	w.cut, w.cutHeld, w.clogged = [ownerNames][2]int64{}, 0, [ownerNames*2 + 1]int64{}
	w.quietFrom, w.oneWay = 0, false
	w.held, w.deadline = w.held[:0], nil
	w.active = [faultKinds]*fault{}
	w.stopped, w.violation, w.trace, w.steps = false, violation{}, 0, 0
	w.events = w.events[:0]
	for i := range w.procs {
		pr := &w.procs[i]
		life, inbox, waiting := pr.life, pr.inbox[:0], pr.waiting
		for l := range waiting {
			waiting[l] = waiting[l][:0]
		}
		*pr = proc{id: uint8(i), life: life + 1, born: life + 1, inbox: inbox, waiting: waiting, clock: clock{ppm: p.procs[i]}}
	}
	w.cast()
	if w.seal != nil {
		w.seal.reset(w)
	}
	if w.gate != nil {
		w.gate.reset(w)
	}
	for i := range w.procs {
		pr := &w.procs[i]
		pr.at, pr.ident = 0, h.Identity
		pr.tick = h.Tick
		w.running(pr, 0)
	}
}

// cast brings the rounds into their lanes.
func (w *world) cast() {
	w.ownersUsed = maxRounds
	for i := range w.owners {
		o := &w.owners[i]
		*o = owner{round: int16(i), request: requestIDs[i]}
		if i < planned {
			if w.plan.without[i] {
				o.phase = done
				continue
			}
			o.plannedRound = w.plan.rounds[i]
			for k := range o.faults {
				f := &o.faults[k]
				f.fired, f.effect, f.left = false, false, f.nth
				if w.plan.without[faultItem(i, k)] {
					f.fired = true // it is left out
				} else {
					w.tally.planned[f.kind]++
				}
			}
			w.lanes[o.lane].rounds = append(w.lanes[o.lane].rounds, int16(i))
		} else {
			o.plannedRound = plannedRound{lane: uint8(i-planned) % lanes, writes: 2, name: uint8(i-planned) % lanes}
			o.calm = true
		}
		o.clock = clock{ppm: w.plan.ppm[o.plannedRound.name]}
		o.name = names[o.plannedRound.name]
		if i < planned {
			w.left++ // those of the calm come later
		}
	}
}

// run lets a world go on to its end.
func (w *world) run() {
	for l := range uint8(lanes) {
		w.startNext(l, int64(l)*ms)
	}
	const most = 300_000
	for !w.stopped {
		if w.left == 0 && !w.calm {
			w.beCalm()
		}
		t, ok := w.q.pop()
		if !ok {
			break
		}
		w.now = t.at
		w.steps++
		w.do(&t)
		if w.steps > most {
			w.violate(waitingClientStarves, -1, "the world does not come to rest")
			break
		}
	}
	w.count.Events += uint64(w.steps)
	if !w.stopped {
		w.verifyAll()
	}
}

// beCalm ends the faults: from here on everybody has to get what he waits for.
func (w *world) beCalm() {
	w.calm = true
	w.cut, w.cutHeld = [ownerNames][2]int64{}, 0
	w.clogged = [ownerNames*2 + 1]int64{}
	w.place.late = 0
	w.note(noteCalm, actorFault, -1, 0, "")
	if w.place.shut {
		w.q.push(task{at: w.now + ms, kind: doOperator, arg: operatorDeclare})
	}
	for l := range w.lanes {
		if w.lanes[l].undeclared { // it is noticed at last
			w.place.shut = true
			w.q.push(task{at: w.now + ms, kind: doOperator, arg: operatorDeclare})
			break
		}
	}
	w.place.until = min(w.place.until, w.now)
	for i := range w.procs {
		w.procs[i].until = min(w.procs[i].until, w.now)
	}
	for l := range w.lanes {
		for i := range calmRounds {
			w.lanes[l].rounds = append(w.lanes[l].rounds, int16(planned+l+lanes*i))
		}
		w.left++
		w.startNext(uint8(l), 20*ms)
	}
	w.q.push(task{at: w.now + 40*ttl, kind: doOperator, arg: operatorEnd})
}

// do is one task.
func (w *world) do(t *task) {
	switch t.kind {
	case doDeliver:
		w.deliver(w.post[t.arg])
	case doOwner, doThink, doBegin, doWake:
		w.ownerDo(t)
	case doLook, doCommit, doStart:
		w.procDo(t)
	case doTransact, doSecond:
		if m := w.post[t.arg]; m.used && int16(m.life&0x7fff) == t.who {
			if w.now < w.place.until {
				w.q.push(task{at: w.place.until, kind: t.kind, who: t.who, arg: t.arg})
				return
			}
			if t.kind == doSecond {
				w.second(m)
				return
			}
			if m.gate != nil {
				w.resume(m)
				return
			}
			w.transact(m)
		}
	case doAskedEnough:
		w.askedEnough(w.post[t.arg], t.who)
	case doOperator:
		w.operate(t)
	case doNothing:
	}
}

func (w *world) ownerDo(t *task) {
	o := &w.owners[t.who]
	if o.dead {
		return
	}
	if w.now < o.until {
		w.effectOf(stopOwner)
		w.effectOf(stopMachine)
		w.q.push(task{at: o.until, kind: t.kind, who: t.who, arg: t.arg})
		return
	}
	switch t.kind { //nolint:exhaustive // the others are none of its
	case doBegin:
		o.came = w.now
		w.begin(o)
	case doThink:
		w.work(o)
	case doWake:
		o.clock.set(w.now, o.clock.ppm, false)
		w.note(noteResumes, actorOwner(o), o.round, uint64(o.fence), "")
		o.wakeAt = 0
		if o.phase == holding && w.wiring.Draws {
			w.think(o, 0)
		}
		o.wakes++
		w.ownerTask(o)
	default:
		if t.arg == o.wakes {
			w.ownerTask(o)
		}
	}
}

func (w *world) procDo(t *task) {
	p := &w.procs[t.who]
	if w.now < p.until && t.kind != doStart {
		w.effectOf(stopAuthority)
		w.q.push(task{at: p.until, kind: t.kind, who: t.who, arg: t.arg})
		return
	}
	switch t.kind { //nolint:exhaustive // the others are none of its
	case doLook:
		if p.up && t.arg == p.looks {
			p.nextAt = 0
			if w.ending {
				return
			}
			w.lookTask(p)
		}
	case doCommit:
		if p.up && t.arg == p.life && p.busy {
			d := p.pending
			p.busy, p.pending = false, decided{}
			if w.wiring.Early {
				p.busy = true
				w.commit(p, &d)
				p.busy = false
			} else {
				w.commit(p, &d)
			}
			for len(p.inbox) > 0 && p.up && !p.busy && !w.stopped {
				m := p.inbox[0]
				p.inbox = shift(p.inbox)
				w.serve(p, m)
			}
		}
	default:
		if t.arg == p.life {
			w.startTask(p)
		}
	}
}

// strikes is the next fault of a round that strikes at a point.
func (w *world) strikes(round int16, at point) *fault {
	if round < 0 || w.calm {
		return nil
	}
	fs := w.owners[round].faults
	for i := range fs {
		f := &fs[i]
		if f.fired || f.at != at {
			continue
		}
		if f.left > 0 {
			f.left--
			continue
		}
		f.fired = true
		w.tally.fired[f.kind]++
		w.active[f.kind] = f
		o := &w.owners[round]
		o.hit, w.lanes[o.lane].wasHit = true, true
		w.note(noteFault, actorFault, round, uint64(f.kind), "")
		return f
	}
	return nil
}

// effect notes that a fault changed something.
func (w *world) effect(f *fault) {
	if f != nil && !f.effect {
		f.effect = true
		w.tally.effect[f.kind]++
	}
}

func (w *world) effectOf(k faultKind) { w.effect(w.active[k]) }

// markRetry: something had no answer, and a fault of the round is why.
func (w *world) markRetry(o *owner) {
	for i := range o.faults {
		if f := &o.faults[i]; f.fired && (f.kind == loseRequest || f.kind == loseAnswer || f.kind == lateMessage) {
			w.effect(f)
		}
	}
}

// disturbed: hand-overs in the time to come are no measure.
func (w *world) disturbed(length int64) { w.quietFrom = max(w.quietFrom, w.now+length) }

func (w *world) handover(took int64, crash bool) { w.hand.add(took, crash) }
