package storetest

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
)

var epochCases = []kitCase{
	{"R10", "a process of the epoch before decides nothing any more", oldEpochStops},
	{"R10", "a fence of a new epoch outranks every one before, and tenures go on", newEpochOutranks},
	{"R10", "a new epoch survives a crash", epochSurvivesCrash},
	{"R11", "a used-up counter is said so, and a new epoch is the way out", counterExhausted},
}

func oldEpochStops(w *world) {
	w.create(store.Header{Epoch: 4, Tick: 100})
	p, q := w.process(4), w.process(4)
	lease := p.granted(doc, "a", "r1")
	grant, _ := p.decide(w.acquire("other", "a", "r2"))
	renewal, _ := p.decide(renew(refOf(doc, lease)))
	before := w.record(doc)
	q.start()
	if p.commit(grant) {
		w.Errorf("a grant of epoch 4 was applied in epoch %d", q.epoch)
	}
	if p.commit(renewal) {
		w.Errorf("a renewal of epoch 4 was applied in epoch %d", q.epoch)
	}
	w.same("the record after them", w.record(doc), before)
	w.same("the record of the grant", w.record("other"), store.Record{Resource: "other"})
	if _, ok := p.decide(look(doc)); ok {
		w.Errorf("the old process does not see the new epoch")
	}
}

func newEpochOutranks(w *world) {
	w.create(store.Header{Epoch: 0, Tick: 100})
	p := w.process(0)
	var last lastword.Token
	for _, id := range []string{"r1", "r2", "r3"} {
		lease := p.granted(doc, "a", id)
		if lease.Fence <= last {
			w.Fatalf("fence %d after %d", lease.Fence, last)
		}
		last = lease.Fence
		p.start()
		p.accepted("a renewal in the new epoch", renew(refOf(doc, lease)))
		p.refused("an acquire in the new epoch", lastword.CodeHeld, w.acquire(doc, "b", "r"))
		p.accepted("a release in the new epoch", release(refOf(doc, lease)))
	}
	lease := p.granted(doc, "a", "r4")
	if want, _ := lastword.MakeToken(3, 1); lease.Fence != want {
		w.Errorf("the first fence of epoch 3 is %s, want %s", lease.Fence.Text(), want.Text())
	}
}

func epochSurvivesCrash(w *world) {
	w.create(store.Header{Epoch: 7})
	p := w.process(7)
	lease := p.granted(doc, "a", "r1")
	p.start()
	w.reopen(false)
	if got := w.read().Header.Epoch; got != 8 {
		w.Fatalf("the epoch after a crash is %d, want 8", got)
	}
	p = w.process(8)
	p.accepted("release", release(refOf(doc, lease)))
	if got := p.granted(doc, "a", "r2").Fence; got.Epoch() != 8 || got.Counter() != 1 {
		w.Errorf("the fence after it is %s, want 8.1", got.Text())
	}
}

func counterExhausted(w *world) {
	w.create(store.Header{Epoch: 1, Tick: 100})
	p := w.process(1)
	used := store.Record{Resource: doc, Revision: 1, Epoch: 1, Counter: lastword.MaxCounter - 1}
	w.want("a record near its end", []bool{true}, store.Step{Epoch: 1, Record: &used})
	lease := p.granted(doc, "a", "r1")
	if want, _ := lastword.MakeToken(1, lastword.MaxCounter); lease.Fence != want {
		w.Fatalf("the last fence is %s, want %s", lease.Fence.Text(), want.Text())
	}
	p.accepted("release", release(refOf(doc, lease)))
	p.refused("one more", lastword.CodeExhausted, w.acquire(doc, "a", "r2"))
	w.reopen(true)
	p = w.process(1)
	p.refused("one more after a stop", lastword.CodeExhausted, w.acquire(doc, "a", "r2"))
	p.start()
	if got := p.granted(doc, "a", "r2").Fence; got <= lease.Fence || got.Counter() != 1 {
		w.Errorf("the fence in the new epoch is %s", got.Text())
	}
}
