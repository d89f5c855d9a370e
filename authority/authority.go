// Package authority is the only issuer of leases and fencing tokens. It runs the
// rules of internal/core over a store and signs what the store made durable.
//
// One goroutine per [Authority] decides. It takes whatever calls wait for it, reads
// the records they name, applies the rules and commits all steps at once, so that
// many callers share one fsync. Whoever queues for a resource is woken by the very
// commit that frees it.
//
// # Guarantees
//
// A number is issued only together with its grant, in one atomic step that is
// durable before any reply that tells of it (P2, R1). A request id that was granted
// gets the same grant again (R2). At most one tenure of a resource is valid, and
// none ends before its TTL has gone by (R4, R8). All that a round does to a resource
// is one write, on the condition of what was read (R9). Several authorities may share
// one store. What an answer tells to remain is never more than what is left, at any
// process (R25). Who waits at a process is served in the order of their coming, and
// nobody passes them there (R3). A watcher is shown the newest state of every resource,
// in the order of revisions, however slowly it reads ([Authority.Watch]). A call ends with its context: with UNAVAILABLE it
// had no effect and will have none, with UNKNOWN it may have had one.
//
// # Not guaranteed
//
// That a release which was answered survives a crash, on a store of one user
// ([store.Sole]): its answer runs ahead of the disk, by half a millisecond and a commit
// or two, and a tenure whose release is lost lapses by time (R6, R35). Close writes what
// was answered.
//
// That a holder which lost its lease has stopped: that is the fence's part. The
// order of waiters across several authority processes: each keeps its own queue. A
// waiter's place is not durable; a restarted authority begins with empty queues, and
// the place of a caller that has gone is kept for two seconds.
//
// How much longer than its TTL a lease can stand in the way: a millisecond or so
// where this process has watched it from its last renewal, two ticks where only the
// store's counter tells, which includes leases that another process wrote to, and in
// addition each restart up to two ticks, the time in which no process ran, and gaps
// of a slow store of which each counts as one tick. A process that has nothing to do
// does not advance the counter: if the only busy one dies, a lease that it granted
// has its whole TTL from the moment at which another one is first asked about it. A
// process learns of what another one has freed within a tick, or within n/1024 ticks
// where it has waiters for n resources.
package authority

import (
	"context"
	"errors"
	"sync"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

// Authority issues leases for one domain. It is safe for concurrent use. It does
// not close the store it was given.
type Authority struct {
	cfg    Config
	store  store.Store
	signer *grant.Signer
	loop   *loop
	lists  chan struct{} // pages that are being read
	views  *views

	reloading sync.Mutex
	swept     swept // guarded by reloading
}

// Open starts an authority on a store: it takes a new issuer epoch (R10), then
// serves until [Authority.Close]. It fails with CodeFenceRegression when the store
// is not where the witness saw it last.
func Open(ctx context.Context, s store.Store, signer *grant.Signer, cfg Config) (*Authority, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, named(err, "open authority", "")
	}
	if signer == nil {
		return nil, named(invalid("no signer"), "open authority", "")
	}
	if signer.Domain() != cfg.Domain {
		return nil, named(invalid("the signer's domain %q is not %q", signer.Domain(), cfg.Domain), "open authority", "")
	}
	var witness *countedWitness
	if cfg.Observer != nil {
		witness = &countedWitness{Witness: cfg.Witness}
		cfg.Witness = witness
	}
	run, err := start(ctx, s, cfg, evidence{signer: signer})
	if err == nil {
		// A key ring knows an epoch before anything is granted under it.
		_, err = signer.Publish(run.header.Epoch, cfg.RefreshHint)
	}
	if err != nil {
		return nil, named(err, "open authority", "")
	}
	a := &Authority{cfg: cfg, store: s, signer: signer, lists: make(chan struct{}, listsAtOnce)}
	a.views = newViews(cfg.MaxWatchers, a.patrol)
	a.loop = newLoop(s, cfg, run, a.views)
	a.loop.reporter = newReporter(cfg.Observer, witness)
	go a.loop.run()
	return a, nil
}

// Close stops deciding. Calls that wait end with CodeUnavailable; what was granted
// stays granted.
func (a *Authority) Close() error {
	a.loop.stop()
	a.views.going.Wait()
	return nil
}

// Acquire grants a tenure, or refuses with CodeHeld, after the request's Wait if it
// has one (R1 to R3). A repetition of a granted request id gets the same grant, or
// CodeTenureEnded (R2). What the policy does not allow is CodeUnverified. If ctx ends while the step is being committed the outcome
// is CodeUnknown: repeat it with the same request id, or cancel it.
func (a *Authority) Acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	return a.AcquireQueued(ctx, r, nil)
}

// AcquireQueued is [Authority.Acquire] that calls queued when the call begins to wait
// for its turn, at most once and from the goroutine that decides: it has to return at
// once. nil is not called.
func (a *Authority) AcquireQueued(ctx context.Context, r lastword.AcquireRequest, queued func()) (t lastword.Tenure, err error) {
	var c *call
	seen := a.begin(OpAcquire, r.Resource, 0)
	defer func() { seen.endAcquire(ctx, c, &t, &err) }()
	if r.Class == "" {
		r.Class = lastword.ClassWrite
	}
	if err := a.checkAcquire(r); err != nil {
		return lastword.Tenure{}, named(err, "acquire", r.Resource)
	}
	c = newCall(kindAcquire, r.Owner, store.Query{Resource: r.Resource, Owner: r.Owner, RequestID: r.RequestID})
	c.extends, c.wait, c.queued = true, r.Wait > 0, queued
	delay := a.cfg.lockDelay(r.Resource)
	id, issued := a.cfg.NewID(), max(0, a.cfg.Now().Unix())
	if err := a.signable(r, id); err != nil {
		return lastword.Tenure{}, named(err, "acquire", r.Resource)
	}
	c.decide = a.admitting(r, func(generation uint64) decision {
		return func(rec core.Record, req *core.Request, h core.Header, clock core.Clock) (core.Change, core.Answer) {
			in := core.AcquireInput{
				Owner: r.Owner, RequestID: r.RequestID,
				TTL: core.Span(r.TTL), Ticks: core.Ticks(core.Span(r.TTL), h.TickSpan),
				Root: r.Root, Class: r.Class, PolicyGeneration: generation,
				LeaseID: id, KeyID: a.signer.KeyID(), IssuedAt: issued,
				LockDelay: core.Span(delay),
			}
			if delay > 0 {
				in.LockDelayTicks = core.Ticks(core.Span(delay), h.TickSpan)
			}
			return core.Acquire(rec, req, h, clock, in)
		}
	})
	var signed *sealed
	c.decided, c.prepare = make(chan *result, 1), func(decided *result) { signed = a.signAhead(decided) }
	res, err := a.loop.submit(ctx, c, r.Wait)
	if err != nil {
		return lastword.Tenure{}, named(err, "acquire", r.Resource)
	}
	if err := a.refusal(res); err != nil {
		return lastword.Tenure{}, named(err, "acquire", r.Resource)
	}
	t, err = a.granted(res, a.sealWith(signed))
	if err == nil && !res.answer.Repeated && a.cfg.Elapsed()-res.sent >= t.TTL {
		return a.late(ctx, t)
	}
	if err == nil {
		t = a.proven(ctx, t, r.ProofLife)
	}
	return t, err
}

// granted is the tenure of an acquire that was accepted.
func (a *Authority) granted(res result, seal seal) (lastword.Tenure, error) {
	t, err := a.tenure(res, seal)
	if err != nil {
		return lastword.Tenure{}, named(asEnded(err), "acquire", res.record.Resource)
	}
	return t, nil
}

// late is the answer to a grant that took longer than its TTL to become durable.
// Nobody is told that they hold what has lapsed (R3), nor that it has while the store
// says otherwise (R8): so it is looked up. What the store still calls held, only a
// renewal can tell.
func (a *Authority) late(ctx context.Context, t lastword.Tenure) (lastword.Tenure, error) {
	st, _, err := a.look(ctx, lastword.StatusQuery{Resource: t.Resource, LeaseID: t.LeaseID})
	switch {
	case err != nil:
		return lastword.Tenure{}, named(&lastword.Error{
			Code: lastword.CodeUnknown, Message: "it was granted late, and whether it has lapsed could not be learnt", Err: err,
			Hint: "acquire again with the same request id, or cancel it",
		}, "acquire", t.Resource)
	case st.Asked == lastword.StateHeld:
		t.Revision, t.Remaining = st.Revision, 0
		return t, nil
	}
	return lastword.Tenure{}, named(&lastword.Error{
		Code: lastword.CodeTenureEnded, Message: "it lapsed before its grant could be delivered",
		Ended: lastword.Ending{State: st.Asked, Fence: t.Fence, LeaseID: t.LeaseID, Owner: t.Owner},
		Hint:  "acquire again with a new request id and a longer ttl",
	}, "acquire", t.Resource)
}

// Renew extends the tenure that ref names, and no other, to now + granted TTL (R5).
// The answer is CodeNotHolder if it does not match or is over; that is definite. What
// the policy does not allow any more is CodeUnverified, and lapses.
func (a *Authority) Renew(ctx context.Context, ref lastword.TenureRef) (t lastword.Tenure, err error) {
	return a.RenewProof(ctx, ref, 0)
}

// Release ends the tenure that ref names (R6). Repeated, it answers the same while
// the request record lives. On a [store.Sole] its answer runs ahead of the disk, and
// nothing that depends on it does: a crash may undo it, and the tenure then lapses.
func (a *Authority) Release(ctx context.Context, ref lastword.TenureRef) (err error) {
	seen := a.begin(OpRelease, ref.Resource, ref.Fence)
	defer seen.end(ctx, &err)
	_, err = a.step(ctx, "release", ref, func(rec core.Record, req *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer) {
		return core.Release(rec, req, h, c, ref)
	})
	return err
}

// Complete stores the result of the tenure that ref names (R6b). Repeated with the
// same result it answers the same; with another one it is CodeRequestConflict.
func (a *Authority) Complete(ctx context.Context, ref lastword.TenureRef, result []byte) (err error) {
	seen := a.begin(OpComplete, ref.Resource, ref.Fence)
	defer seen.end(ctx, &err)
	if len(result) > lastword.MaxResultBytes {
		return named(invalid("the result has %d bytes, more than %d", len(result), lastword.MaxResultBytes), "complete", ref.Resource)
	}
	_, err = a.step(ctx, "complete", ref, func(rec core.Record, req *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer) {
		return core.Complete(rec, req, h, c, ref, result)
	})
	var e *lastword.Error
	if errors.As(err, &e) && e.Code == lastword.CodeRequestConflict {
		e.Message, e.Hint = "this tenure has completed with another result", "the first one stands"
	}
	return err
}

// Cancel ends the tenure or the waiting of one request id, and makes a later
// acquire with it be refused with CodeCanceled (R6a). It may be repeated.
func (a *Authority) Cancel(ctx context.Context, resource lastword.Resource, owner, requestID string) (err error) {
	seen := a.begin(OpCancel, resource, 0)
	defer seen.end(ctx, &err)
	if err := checkRequest(resource, owner, requestID); err != nil {
		return named(err, "cancel", resource)
	}
	c := newCall(kindHolder, owner, store.Query{Resource: resource, Owner: owner, RequestID: requestID})
	c.cancels = true
	c.decide = func(rec core.Record, req *core.Request, h core.Header, clock core.Clock) (core.Change, core.Answer) {
		return core.Cancel(rec, req, h, clock, owner, requestID)
	}
	res, err := a.loop.submit(ctx, c, 0)
	if err == nil {
		err = a.refusal(res)
	}
	return named(err, "cancel", resource)
}

// step runs one of the calls that name a tenure.
func (a *Authority) step(ctx context.Context, op string, ref lastword.TenureRef, decide decision) (result, error) {
	if err := checkRef(ref); err != nil {
		return result{}, named(err, op, ref.Resource)
	}
	c := newCall(kindHolder, ref.Owner, store.Query{Resource: ref.Resource, Owner: ref.Owner, RequestID: ref.RequestID, LeaseID: ref.LeaseID})
	c.extends, c.release = op == "renew", op == "release"
	c.decide = decide
	res, err := a.loop.submit(ctx, c, 0)
	if err == nil {
		err = told(a.refusal(res), res, ref)
	}
	return res, named(err, op, ref.Resource)
}

// Status is linearizable (R9). It settles first what this process has watched
// lapse, so that EXPIRED is told only once it is durable (R8).
func (a *Authority) Status(ctx context.Context, q lastword.StatusQuery) (st lastword.Status, err error) {
	seen := a.begin(OpStatus, q.Resource, 0)
	defer seen.end(ctx, &err)
	st, _, err = a.look(ctx, q)
	return st, err
}

// Bundle is the trust bundle that verifies this authority's grants, as JWKS.
func (a *Authority) Bundle(ctx context.Context) ([]byte, error) {
	epoch, err := a.loop.epoch()
	if err != nil {
		return nil, named(err, "bundle", "")
	}
	b, err := a.signer.Publish(epoch, a.cfg.RefreshHint)
	if err != nil {
		return nil, named(err, "bundle", "")
	}
	return b.Marshal()
}

// Epoch is the issuer epoch that this authority grants under.
func (a *Authority) Epoch() (uint32, error) { return a.loop.epoch() }

// Granting is why nothing is granted at present: it has stopped, it waits for what a
// restored store may have lost ([lastword.CodeHeld], with the time that remains), or the
// last write to the store failed. nil says that something may be granted. Nothing is
// asked for it: with [Authority.Status] before it, it also knows of the store.
func (a *Authority) Granting() error { return named(a.loop.granting(), "grant", "") }
