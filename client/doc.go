// Package client is the holder's side of lastword: it acquires a lease, renews it
// in the background, and knows at every moment whether the lease may still be
// relied on.
//
// A [Client] talks to an [Authority]: the embedded one or a remote one. A [Lease]
// is one tenure. It has one fence, which never changes, and is never re-armed: once
// it is EXPIRED or RELEASED it stays so, and a new acquire gives a new Lease.
//
//	lease, err := c.Acquire(ctx, "invoice-batch/2026-07-19", client.AcquireOptions{Wait: time.Minute})
//	if err != nil {
//		return err
//	}
//	defer lease.Close()
//	// write through a fence, with lease.Context() and lease
//
// [Client.Run] does the same around a function.
//
// [Config.OnEvent] hears of every change. [Chaos] is an authority that loses, delays
// and doubles messages, for tests of programs that hold leases.
//
// # Guarantees
//
// A lease admits new effects only while its trust lasts: until base + remaining −
// margin on the holder's own elapsed-time clock, where base is read just before
// the message was sent whose answer says what remains (R25). Losing trust needs no
// packet: a timer ends the lease's context, and [Lease.State] and
// [Lease.Sequence] look at the clock themselves, so that a process which was
// stopped does not go on when it is continued. A renewal without a clear answer
// stops new effects (OWNERSHIP_UNKNOWN); it is repeated faster than the interval, and
// beside it the authority is asked what became of the tenure, until that is known or
// trust ends. A definite refusal ends the lease at once, and nothing revives it (R26).
// An acquire is one attempt with one request id; one that is given up is cancelled, so
// that no lease is left behind (R27). Without any answer it ends by itself once nothing of
// it can be valid any more; [Client.Acquire] has the bound. An acquire that waits looks
// every third of the TTL, not oftener than each 250 ms, whether it has been granted, so
// that a grant whose answer got lost is found while it lasts. A client has one Lease of a
// request id at a time. The context of a lease ends once, with a cause.
// Work under [Client.Run] that was told to stop keeps its lease until it returns, for
// [Config.DrainTimeout]; a lease whose work overran is never released early (R28).
// Fence and grant need no I/O (R29).
//
// The leases of a client do not disturb each other: no call, no receiver of events and
// no log handler that hangs or panics delays the renewals or the end of another lease.
// A lease at rest costs no goroutine and no timer of its own. The renewals of many leases
// do not get in each other's way: while the authority is slow, 256 of them are under way at
// a time, and the others are sent when there is room, those first whose trust ends first.
// So an authority that cannot answer for all leases in time keeps as many as it can.
// Nothing is left behind
// after a lease has ended: no goroutine, no timer, no map entry.
//
// # Not guaranteed
//
// Effects that were sent before trust ended are not undone, and may still arrive:
// only the resource's fence stops them. The end of the context does not stop code
// that does not look at it, and a release of a lease that was not taken by Run waits
// for no work: its caller knows that it has stopped. Timers are as late as the machine
// is busy; what looks at the clock itself is not. On a system without a clock that runs
// through suspend (see [Config.Elapsed]) a suspend can lengthen the holder's own belief;
// the fence does not depend on it. Two clients with one owner and one request id have two
// Leases of one tenure, and what ends one is noticed by the other at its next renewal. A
// lease that is dropped without [Lease.Close] is
// renewed until the client is closed, or until its longest hold ends: set
// [Config.MaxHold] where that can happen. Events are dropped, and counted, where their
// receiver is too slow. An authority's call that does not return although its context
// has ended holds up the further renewals, or questions, of that one lease, and Close.
package client
