package storetest

import (
	"fmt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

var protocolCases = []kitCase{
	{"R1", "the counter outlives an expired lease", counterOutlivesExpiry},
	{"R1", "an acknowledged grant survives a crash", grantSurvivesCrash},
	{"R1", "a grant tells how the tenure before ended", previousTold},
	{"R2", "a request id gets its grant again, and never a second number", requestRepeated},
	{"R3", "a valid lease refuses everybody, the same owner too", heldRefuses},
	{"R4", "at the deadline a lease can be taken and not renewed, before it the reverse", halfOpen},
	{"R5", "a renewal changes the revision and nothing that names the tenure", renewalMoves},
	{"R5", "a renewal that was decided before a take-over does not revive the lease", renewalTooLate},
	{"R5", "an acknowledged renewal survives a crash", renewalSurvivesCrash},
	{"R6", "the counter outlives a release", counterOutlivesRelease},
	{"R6", "a release needs its tenure, and repeated it answers the same", releaseRepeated},
	{"R6a", "a cancelled request id is never granted", cancelFirst},
	{"R6a", "cancel ends the tenure of its request id", cancelEnds},
	{"R6b", "a result is kept, told to the successor, and never replaced", resultKept},
	{"R7", "a revocation needs the fence", revokeByFence},
	{"R8", "a deadline that was computed from an old tick is not written", staleTick},
	{"KF-27", "siblings are granted side by side, each with its own first fence", func(w *world) { grantEach(w, siblings) }},
	{"KF-28", "lookalikes are granted side by side, each with its own first fence", func(w *world) { grantEach(w, lookalikes) }},
}

const doc = lastword.Resource("doc")

// granted acquires and fails the case if that is refused.
func (p *process) granted(resource lastword.Resource, owner, id string) core.Lease {
	p.w.Helper()
	a := p.do(p.w.acquire(resource, owner, id))
	if a.Code != "" || a.Repeated {
		p.w.Fatalf("acquire %s by %s with %s: %+v", resource, owner, id, a)
	}
	return a.Lease
}

// refused wants a code.
func (p *process) refused(what string, want lastword.Code, op operation) core.Answer {
	p.w.Helper()
	a := p.do(op)
	if a.Code != want {
		p.w.Fatalf("%s: got %q, want %q (%+v)", what, a.Code, want, a)
	}
	return a
}

func (p *process) accepted(what string, op operation) core.Answer {
	p.w.Helper()
	return p.refused(what, "", op)
}

func (w *world) started() *process {
	w.Helper()
	w.create(store.Header{Tick: 100})
	return w.process(0)
}

func counterOutlivesExpiry(w *world) {
	p := w.started()
	for n := lastword.Token(1); n <= 4; n++ {
		if got := p.granted(doc, "a", fmt.Sprint("r", n)).Fence; got != n {
			w.Fatalf("grant %d has fence %d", n, got)
		}
		p.tick(ttlTicks)
		if n%2 == 0 { // once the mark is written by itself, once with the next grant
			p.do(look(doc))
		}
	}
}

func counterOutlivesRelease(w *world) {
	p := w.started()
	for n := lastword.Token(1); n <= 4; n++ {
		lease := p.granted(doc, "a", fmt.Sprint("r", n))
		if lease.Fence != n {
			w.Fatalf("grant %d has fence %d", n, lease.Fence)
		}
		p.accepted("release", release(refOf(doc, lease)))
		if n == 2 {
			w.reopen(true)
			p = w.process(0)
		}
	}
}

func grantSurvivesCrash(w *world) {
	p := w.started()
	for n := lastword.Token(1); n <= 5; n++ {
		lease := p.granted(doc, "a", fmt.Sprint("r", n))
		if lease.Fence != n {
			w.Fatalf("grant %d has fence %d: a number was issued twice or left out", n, lease.Fence)
		}
		w.reopen(false)
		p = w.process(0)
		a := p.do(acquireAs(doc, w.input("a", fmt.Sprint("r", n))))
		if a.Code != "" || !a.Repeated || a.Lease.ID != lease.ID || a.Lease.Fence != lease.Fence {
			w.Fatalf("the grant of fence %d after a crash: %+v", n, a)
		}
		p.refused("another's acquire after a crash", lastword.CodeHeld, w.acquire(doc, "b", "r"))
		p.tick(ttlTicks)
	}
}

func previousTold(w *world) {
	p := w.started()
	first := p.granted(doc, "a", "r1")
	p.accepted("complete", complete(refOf(doc, first), "done"))
	p.accepted("release", release(refOf(doc, first)))
	w.reopen(false)
	p = w.process(0)
	a := p.accepted("the successor's acquire", w.acquire(doc, "b", "r2"))
	w.same("the first ending", a.Previous, lastword.Ending{State: lastword.StateReleased, Fence: first.Fence, LeaseID: first.ID,
		Owner: "a", Completed: true, Result: []byte("done")})
	p.tick(ttlTicks)
	w.reopen(false)
	p = w.process(0)
	b := p.accepted("the third acquire", w.acquire(doc, "c", "r3"))
	w.same("the second ending", b.Previous, lastword.Ending{State: lastword.StateExpired, Fence: a.Lease.Fence, LeaseID: a.Lease.ID, Owner: "b"})
}

func requestRepeated(w *world) {
	p := w.started()
	in := w.input("a", "r")
	first := p.accepted("acquire", acquireAs(doc, in)).Lease
	for i := range 3 {
		if i == 2 {
			w.reopen(false)
			p = w.process(0)
		}
		again := in
		again.LeaseID = fmt.Sprint("another-", i)
		a := p.accepted("the same request", acquireAs(doc, again))
		if !a.Repeated || a.Lease.ID != first.ID || a.Lease.Fence != first.Fence {
			w.Fatalf("the same request id got another grant: %+v", a)
		}
	}
	other := in
	other.Class = lastword.ClassAdvance
	p.refused("the same id with other parameters", lastword.CodeRequestConflict, acquireAs(doc, other))
	p.refused("the same id of another owner", lastword.CodeHeld, w.acquire(doc, "b", "r"))

	p.accepted("release", release(refOf(doc, first)))
	next := p.granted(doc, "b", "r")
	w.reopen(false)
	p = w.process(0)
	a := p.refused("the id of a tenure that has ended", lastword.CodeTenureEnded, acquireAs(doc, in))
	if a.Ended.State != lastword.StateReleased || a.Ended.Fence != first.Fence {
		w.Errorf("it ended as %+v", a.Ended)
	}
	p.accepted("release", release(refOf(doc, next)))
	p.refused("the old id with nobody in the way", lastword.CodeTenureEnded, acquireAs(doc, in))
	if got := w.record(doc).NextFence(w.read().Header); got != next.Fence+1 {
		w.Errorf("the next fence is %d, want %d: a number was lost to a repeated request", got, next.Fence+1)
	}
}

func heldRefuses(w *world) {
	p, q := w.started(), w.process(0)
	lease := p.granted(doc, "a", "r1")
	for _, owner := range []string{"b", "a"} {
		a := q.refused("an acquire by "+owner, lastword.CodeHeld, w.acquire(doc, owner, "r2"))
		if a.Lease.Owner != "a" || a.Lease.Fence != lease.Fence || a.Lease.Deadline != lease.Deadline {
			w.Errorf("HELD names %+v, want %+v", a.Lease, lease)
		}
	}
	before := w.record(doc)
	q.refused("once more", lastword.CodeHeld, w.acquire(doc, "c", "r"))
	w.same("the record after refusals", w.record(doc), before)
}

func halfOpen(w *world) {
	p, q := w.started(), w.process(0)
	lease := p.granted(doc, "a", "r1")
	p.tick(ttlTicks - 1)
	q.refused("an acquire one tick before the deadline", lastword.CodeHeld, w.acquire(doc, "b", "r"))
	renewed := p.accepted("a renewal one tick before the deadline", renew(refOf(doc, lease))).Lease
	if want := store.Tick(100 + ttlTicks - 1 + ttlTicks); renewed.Deadline != want || w.record(doc).Lease.Deadline != want {
		w.Fatalf("the deadline is %d, kept as %d, want %d", renewed.Deadline, w.record(doc).Lease.Deadline, want)
	}
	p.tick(ttlTicks)
	p.refused("a renewal at the deadline", lastword.CodeNotHolder, renew(refOf(doc, lease)))
	if got := q.granted(doc, "b", "r2"); got.Fence != lease.Fence+1 {
		w.Errorf("the fence at the deadline is %d, want %d", got.Fence, lease.Fence+1)
	}
	q.tick(ttlTicks)
	if got := p.granted(doc, "c", "r3"); got.Fence != lease.Fence+2 { // with no mark in between
		w.Errorf("the next fence is %d, want %d", got.Fence, lease.Fence+2)
	}
}

func renewalMoves(w *world) {
	p := w.started()
	lease := p.granted(doc, "a", "r1")
	before := w.record(doc)
	for range 3 {
		p.accepted("a renewal at the same tick", renew(refOf(doc, lease)))
		want := before
		want.Revision++
		got := w.record(doc)
		w.same("the record after a renewal", got, want)
		before = got
	}
	for _, ref := range []lastword.TenureRef{
		{Resource: doc, Owner: "b", LeaseID: lease.ID, Fence: lease.Fence},
		{Resource: doc, Owner: "a", LeaseID: lease.ID + " ", Fence: lease.Fence},
		{Resource: doc, Owner: "a", LeaseID: lease.ID, Fence: lease.Fence + 1},
	} {
		p.refused("a renewal that does not match", lastword.CodeNotHolder, renew(ref))
	}
	w.same("the record after them", w.record(doc), before)
}

func renewalTooLate(w *world) {
	p, q := w.started(), w.process(0)
	lease := p.granted(doc, "a", "r1")
	p.tick(ttlTicks - 1)
	late, _ := p.decide(renew(refOf(doc, lease)))
	q.accepted("revoke", revoke(doc, lease.Fence))
	next := q.granted(doc, "b", "r2") // at the very tick that the renewal was decided at
	if p.commit(late) {
		w.Errorf("a renewal of fence %d was applied after fence %d was granted", lease.Fence, next.Fence)
	}
	if got := w.record(doc).Lease; got.ID != next.ID || got.State != lastword.StateHeld {
		w.Errorf("the lease is %+v, want %s", got, next.ID)
	}
	early, _ := q.decide(renew(refOf(doc, next)))
	q.accepted("release", release(refOf(doc, next)))
	if q.commit(early) {
		w.Errorf("a renewal was applied after the release")
	}
	q.refused("a renewal after the release", lastword.CodeNotHolder, renew(refOf(doc, next)))
}

func renewalSurvivesCrash(w *world) {
	p := w.started()
	lease := p.granted(doc, "a", "r1")
	for n := range 4 {
		p.tick(ttlTicks - 1 - min(n, 1)) // to the last tick of the lease
		renewed := p.accepted("renew", renew(refOf(doc, lease))).Lease
		w.reopen(false)
		p = w.process(0)
		if got := w.record(doc).Lease.Deadline; got != renewed.Deadline {
			w.Fatalf("the deadline after a crash is %d, acknowledged was %d", got, renewed.Deadline)
		}
		p.tick(1) // the deadline before the renewal
		p.refused("an acquire while the holder still trusts", lastword.CodeHeld, w.acquire(doc, "b", "r"))
	}
}

func releaseRepeated(w *world) {
	p, q := w.started(), w.process(0)
	lease := p.granted(doc, "a", "r1")
	ref := refOf(doc, lease)
	foreign := ref
	foreign.Owner = "b"
	q.refused("a release by another", lastword.CodeNotHolder, release(foreign))
	p.accepted("release", release(ref))
	next := q.granted(doc, "b", "r2")
	if a := p.accepted("the release again, under the successor", release(ref)); !a.Repeated {
		w.Errorf("the repeated release: %+v", a)
	}
	if got := w.record(doc).Lease; got.ID != next.ID || got.State != lastword.StateHeld {
		w.Errorf("the repeated release changed the successor's lease: %+v", got)
	}
	q.tick(ttlTicks)
	q.refused("a release after the deadline", lastword.CodeNotHolder, release(refOf(doc, next)))
}

func cancelFirst(w *world) {
	w.started().accepted("cancel", cancel(doc, "a", "r1"))
	w.reopen(false)
	p, q := w.process(0), w.process(0)
	q.refused("the acquire that comes later", lastword.CodeCanceled, w.acquire(doc, "a", "r1"))
	p.granted(doc, "b", "r1") // another owner's id
}

func cancelEnds(w *world) {
	p := w.started()
	lease := p.granted(doc, "a", "r1")
	late, _ := p.decide(w.acquire(doc, "a", "r2"))
	p.accepted("cancel", cancel(doc, "a", "r1"))
	w.reopen(false)
	p = w.process(0)
	if late.answer.Code != lastword.CodeHeld {
		w.Errorf("before: %+v", late.answer)
	}
	p.refused("its acquire again", lastword.CodeTenureEnded, w.acquire(doc, "a", "r1"))
	p.refused("its renewal", lastword.CodeNotHolder, renew(refOf(doc, lease)))
	if got := p.granted(doc, "b", "r"); got.Fence != lease.Fence+1 {
		w.Errorf("the next fence is %d", got.Fence)
	}
}

func resultKept(w *world) {
	p := w.started()
	lease := p.granted(doc, "a", "r1")
	ref := refOf(doc, lease)
	p.accepted("complete", complete(ref, "42"))
	w.reopen(false)
	p = w.process(0)
	if a := p.accepted("the same result", complete(ref, "42")); !a.Repeated {
		w.Errorf("the repeated completion: %+v", a)
	}
	p.refused("another result", lastword.CodeRequestConflict, complete(ref, "43"))
	if got := w.record(doc).Lease; got.State != lastword.StateHeld || !got.Completed {
		w.Errorf("a completion is no release: %+v", got)
	}
	p.tick(ttlTicks)
	p.accepted("the same result after the deadline", complete(ref, "42"))
	a := p.accepted("the successor's acquire", w.acquire(doc, "b", "r2"))
	if !a.Previous.Completed || string(a.Previous.Result) != "42" {
		w.Errorf("the successor is told %+v", a.Previous)
	}
	p.accepted("the same result under the successor", complete(ref, "42"))
	p.refused("another result under the successor", lastword.CodeRequestConflict, complete(ref, ""))
	p.accepted("an empty result is one too", complete(refOf(doc, a.Lease), ""))
	if got := w.record(doc).Lease; !got.Completed || len(got.Result) != 0 {
		w.Errorf("the empty result: %+v", got)
	}
}

func revokeByFence(w *world) {
	p, q := w.started(), w.process(0)
	lease := p.granted(doc, "a", "r1")
	for _, fence := range []lastword.Token{0, lease.Fence + 1} {
		q.refused("a revocation of another fence", lastword.CodeNotHolder, revoke(doc, fence))
	}
	q.accepted("a revocation", revoke(doc, lease.Fence))
	w.reopen(false)
	p = w.process(0)
	p.refused("a renewal of the revoked", lastword.CodeNotHolder, renew(refOf(doc, lease)))
	if a := p.accepted("the next acquire", w.acquire(doc, "b", "r2")); a.Previous.State != lastword.StateRevoked {
		w.Errorf("the successor is told %+v", a.Previous)
	}
}

func staleTick(w *world) {
	p, q := w.started(), w.process(0)
	stale, _ := p.decide(w.acquire(doc, "a", "r1"))
	q.tick(ttlTicks)
	if p.commit(stale) {
		w.Fatalf("a grant with a deadline from %d ticks ago was applied", ttlTicks)
	}
	lease := p.granted(doc, "a", "r1")
	if want := store.Tick(100 + 2*ttlTicks); lease.Deadline != want {
		w.Errorf("the deadline is %d, want %d", lease.Deadline, want)
	}
	stale, _ = p.decide(renew(refOf(doc, lease)))
	q.tick(1)
	if p.commit(stale) {
		w.Errorf("a renewal with a deadline from the tick before was applied")
	}
	q.tick(ttlTicks - 1)
	stale, _ = p.decide(w.acquire(doc, "b", "r2")) // it would take the lease over
	q.tick(1)
	if p.commit(stale) {
		w.Errorf("a take-over with a deadline from the tick before was applied")
	}
}

func grantEach(w *world, names []string) {
	p := w.started()
	owners := []string{"w1", "w10", "w1_x"}
	leases := map[string]core.Lease{}
	for i, name := range names {
		resource := lastword.Resource(name)
		leases[name] = p.granted(resource, owners[i%3], name)
		if got := leases[name].Fence; got != 1 {
			w.Errorf("the first fence of %q is %d", name, got)
		}
		p.refused("another owner's acquire of "+name, lastword.CodeHeld, w.acquire(resource, owners[(i+1)%3], name))
	}
	for i, name := range names {
		p.accepted("release of "+name, release(refOf(lastword.Resource(name), leases[name])))
		for _, other := range names[i+1:] {
			if got := w.record(lastword.Resource(other)).Lease; got.ID != leases[other].ID || got.State != lastword.StateHeld {
				w.Fatalf("the release of %q changed %q: %+v", name, other, got)
			}
		}
	}
}
