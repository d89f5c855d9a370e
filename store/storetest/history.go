package storetest

import (
	"fmt"
	"math/rand/v2"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

var historyCases = historySeeds()

func historySeeds() []kitCase {
	var all []kitCase
	for seed := range uint64(6) {
		all = append(all,
			kitCase{"R1–R10", fmt.Sprintf("a random history of several processes keeps every promise, seed %d", seed),
				func(w *world) { randomHistory(w, seed, 0) }},
			kitCase{"R1–R10", fmt.Sprintf("a random history with crashes keeps every promise, seed %d", seed),
				func(w *world) { randomHistory(w, seed, 25) }})
	}
	return all
}

const (
	historyMoves     = 250
	historyProcesses = 3
)

// player interleaves the halves of calls of several processes, one move at a time.
type player struct {
	w         *world
	rng       *rand.Rand
	processes []*process
	pending   []*decision // per process, decided and not yet committed
	refs      []lastword.TenureRef
	ids       int
	truth     *ledger
}

// randomHistory plays moves; one in crashEvery is a crash, none if it is 0.
func randomHistory(w *world, seed uint64, crashEvery int) {
	w.create(store.Header{Tick: 100})
	p := &player{w: w, rng: rand.New(rand.NewPCG(seed, 7)), truth: newLedger(w.read().Header)}
	p.restart()
	for range historyMoves {
		p.move(crashEvery)
	}
	p.truth.compare(w, w.handle)
	w.reopen(false)
	p.truth.compare(w, w.handle)
}

func (p *player) restart() {
	p.processes, p.pending = nil, make([]*decision, historyProcesses)
	for range historyProcesses {
		p.processes = append(p.processes, p.w.process(p.truth.header.Epoch))
	}
}

func (p *player) move(crashEvery int) {
	p.w.Helper()
	if crashEvery > 0 && p.rng.IntN(crashEvery) == 0 {
		p.w.reopen(false)
		p.truth.compare(p.w, p.w.handle)
		p.restart()
		return
	}
	switch n := p.rng.IntN(100); {
	case n < 8:
		p.tick()
	case n < 10:
		p.start()
	case n < 18:
		p.commitAll()
	default:
		i := p.rng.IntN(len(p.processes))
		if p.pending[i] == nil {
			p.decide(i)
		} else {
			p.commit(i)
		}
	}
}

func (p *player) any() *process { return p.processes[p.rng.IntN(len(p.processes))] }

// header commits a new header as any process might.
func (p *player) header(next store.Header, onTick bool) {
	p.w.Helper()
	h := p.truth.header
	applied, err := p.any().store.Commit(p.w.Context(), store.Step{Epoch: h.Epoch, OnTick: onTick, Tick: h.Tick, Header: &next})
	if err != nil || !applied[0] {
		p.w.Fatalf("a header on the present one: %v, %v", applied, err)
	}
	p.truth.header = next
}

func (p *player) tick() {
	next := p.truth.header
	next.Tick++
	p.header(next, true)
}

// start takes a new epoch; what others decided in the old one stays pending.
func (p *player) start() {
	next := p.truth.header
	next.Epoch++
	p.header(next, false)
}

func (p *player) decide(i int) {
	p.w.Helper()
	process := p.processes[i]
	process.epoch = p.truth.header.Epoch // it has heard of it; a pending step keeps its own
	op := p.operation()
	d, ok := process.decide(op)
	if !ok {
		p.w.Fatalf("the store shows epoch %d, in force is %d", d.view.Header.Epoch, p.truth.header.Epoch)
	}
	p.truth.seen(p.w, op.query, d.view)
	p.learn(d)
	if d.write {
		p.pending[i] = &d
	}
}

// learn keeps names for later operations, also those that are never granted.
func (p *player) learn(d decision) {
	if l := d.answer.Lease; l.ID != "" {
		p.refs = append(p.refs, refOf(d.view.Entries[0].Record.Resource, l))
	}
}

func (p *player) commit(i int) {
	p.w.Helper()
	d := p.pending[i]
	p.pending[i] = nil
	applied := p.processes[i].commit(*d)
	p.truth.judge(p.w, d.step, applied)
}

// commitAll commits everything that is pending in one batch, as a group commit does.
func (p *player) commitAll() {
	p.w.Helper()
	var steps []store.Step
	for i, d := range p.pending {
		if d != nil {
			steps = append(steps, d.step)
			p.pending[i] = nil
		}
	}
	applied, err := p.any().store.Commit(p.w.Context(), steps...)
	if err != nil || len(applied) != len(steps) {
		p.w.Fatalf("a batch of %d: %v, %v", len(steps), applied, err)
	}
	for i, step := range steps {
		p.truth.judge(p.w, step, applied[i])
	}
}

func (p *player) operation() operation {
	resource := []lastword.Resource{"doc", "doc/a"}[p.rng.IntN(2)]
	owner := []string{"a", "b", "A"}[p.rng.IntN(3)]
	id := fmt.Sprint("r", p.rng.IntN(p.ids+1)) // mostly one that was used before
	if n := p.rng.IntN(10); n < 4 || len(p.refs) == 0 {
		p.ids++
		return p.w.acquire(resource, owner, id)
	}
	recent := p.refs[max(0, len(p.refs)-6):]
	ref := recent[p.rng.IntN(len(recent))]
	switch p.rng.IntN(8) {
	case 0, 1, 2:
		return renew(ref)
	case 3:
		return release(ref)
	case 4:
		return complete(ref, fmt.Sprint("result ", p.rng.IntN(2)))
	case 5:
		return cancel(resource, owner, id)
	case 6:
		return revoke(ref.Resource, ref.Fence)
	}
	return look(ref.Resource)
}

// ledger is what was acknowledged, and what must therefore be there.
type ledger struct {
	header   store.Header
	records  map[lastword.Resource]core.Record
	requests map[lastword.Resource]map[store.RequestKey]core.Request
	fences   map[lastword.Resource]map[lastword.Token]string // the lease id of every fence
}

func newLedger(h store.Header) *ledger {
	return &ledger{header: h, records: map[lastword.Resource]core.Record{},
		requests: map[lastword.Resource]map[store.RequestKey]core.Request{},
		fences:   map[lastword.Resource]map[lastword.Token]string{}}
}

func (l *ledger) record(resource lastword.Resource) core.Record {
	record, ok := l.records[resource]
	if !ok {
		record.Resource = resource
	}
	return record
}

// seen compares a view with what was acknowledged before it.
func (l *ledger) seen(w *world, q store.Query, view store.View) {
	w.Helper()
	w.same("the header", view.Header, l.header)
	w.same("the record of "+string(q.Resource), view.Entries[0].Record, l.record(q.Resource))
	if q.RequestID == "" {
		return
	}
	want, ok := l.requests[q.Resource][store.RequestKey{Owner: q.Owner, ID: q.RequestID}]
	got := view.Entries[0].Request
	if ok != (got != nil) {
		w.Fatalf("request %s of %s at %s: got %+v, acknowledged was %+v", q.RequestID, q.Owner, q.Resource, got, want)
	}
	if ok {
		w.same("the request "+q.RequestID, got, want)
	}
}

// judge compares what a store did with a step with what its conditions say, and
// checks an applied one against the promises.
func (l *ledger) judge(w *world, s store.Step, applied bool) {
	w.Helper()
	prev := l.record(s.Record.Resource)
	next := *s.Record
	holds := s.Epoch == l.header.Epoch && (!s.OnTick || s.Tick == l.header.Tick) && next.Revision == prev.Revision+1
	if applied != holds {
		w.Fatalf("a step (epoch %d, tick %d %v, revision %d) was applied: %v; in force are epoch %d, tick %d, revision %d",
			s.Epoch, s.Tick, s.OnTick, next.Revision, applied, l.header.Epoch, l.header.Tick, prev.Revision)
	}
	if !applied {
		return
	}
	l.promises(w, prev, next)
	l.records[next.Resource] = next
	for _, r := range s.Requests {
		l.requestKept(w, next.Resource, r)
	}
}

// promises holds an applied write against the one before it, without the rules of
// core: no second number, no two live leases, nothing revived.
func (l *ledger) promises(w *world, prev, next core.Record) {
	w.Helper()
	was, is, now := prev.Lease, next.Lease, l.header.Tick
	open := func(s lastword.State) bool { return s == lastword.StateHeld || s == lastword.StatePending }
	if is.ID != was.ID {
		fences := l.fences[next.Resource]
		if fences == nil {
			fences = map[lastword.Token]string{}
			l.fences[next.Resource] = fences
		}
		if other, taken := fences[is.Fence]; taken || is.Fence <= was.Fence {
			w.Errorf("fence %d of %s was issued to %s after %d (to %s before)", is.Fence, next.Resource, is.ID, was.Fence, other)
		}
		fences[is.Fence] = is.ID
		if open(was.State) && now < was.Deadline {
			w.Errorf("%s was granted at tick %d while %s was live until %d", is.ID, now, was.ID, was.Deadline)
		}
		if is.Deadline != now+is.Ticks {
			w.Errorf("%s was granted at tick %d until %d", is.ID, now, is.Deadline)
		}
		return
	}
	if open(is.State) && !open(was.State) && was.ID != "" {
		w.Errorf("%s was %s and is %s again", is.ID, was.State, is.State)
	}
	if is.Fence != was.Fence {
		w.Errorf("%s changed its fence from %d to %d", is.ID, was.Fence, is.Fence)
	}
	if is.Deadline != was.Deadline && (now >= was.Deadline || is.Deadline != now+is.Ticks) {
		w.Errorf("%s was renewed at tick %d from %d until %d", is.ID, now, was.Deadline, is.Deadline)
	}
}

func (l *ledger) requestKept(w *world, resource lastword.Resource, r core.Request) {
	w.Helper()
	requests := l.requests[resource]
	if requests == nil {
		requests = map[store.RequestKey]core.Request{}
		l.requests[resource] = requests
	}
	key := store.RequestKey{Owner: r.Owner, ID: r.ID}
	if before, ok := requests[key]; ok && before.Fence != r.Fence {
		w.Errorf("request %s of %s got fence %d after %d", r.ID, r.Owner, r.Fence, before.Fence)
	}
	requests[key] = r
}

// compare holds the whole store against what was acknowledged: nothing is missing and
// nothing is there that was not.
func (l *ledger) compare(w *world, s store.Store) {
	w.Helper()
	w.same("the header", read(w, w.Context(), s).Header, l.header)
	for resource, want := range l.records {
		for key, request := range l.requests[resource] {
			view := read(w, w.Context(), s, store.Query{Resource: resource, Owner: key.Owner, RequestID: key.ID})
			w.same("the record of "+string(resource), view.Entries[0].Record, want)
			w.same("the request "+key.ID, view.Entries[0].Request, request)
		}
	}
	listed, err := s.List(w.Context(), "", "", len(l.records)+1)
	if err != nil || len(listed) != len(l.records) {
		w.Fatalf("%d records (%v), acknowledged were %d", len(listed), err, len(l.records))
	}
	ended, err := s.Ended(w.Context(), store.Tick(store.MaxNumber), 1<<20)
	if err != nil {
		w.Fatalf("ended: %v", err)
	}
	var want int
	for _, requests := range l.requests {
		for _, r := range requests {
			if r.State != lastword.StateHeld && r.State != lastword.StatePending {
				want++
			}
		}
	}
	if len(ended) != want {
		w.Errorf("%d ended requests, acknowledged were %d", len(ended), want)
	}
}
