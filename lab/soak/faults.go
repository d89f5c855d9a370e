package soak

import (
	"context"
	"fmt"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/lab/proxy"
)

// main is the fault of a round.
func (p *play) main(ctx context.Context) error {
	switch p.Main.Kind {
	case freezing:
		return p.freeze(ctx)
	case killing, crashing:
		return p.kill(ctx)
	case partition:
		return p.apart(ctx, proxy.Both)
	case oneWay:
		return p.apart(ctx, proxy.Answers)
	case unasked:
		return p.unask(ctx)
	case lateWrite:
		return p.lateWrite(ctx)
	case lostRenew:
		return p.loseRenewal(ctx)
	case lostRelease:
		return p.loseRelease(ctx)
	case lostCommit:
		return p.loseCommit(ctx, afterCommit)
	case lostWrite:
		return p.loseCommit(ctx, beforeCommit)
	case duplicates:
		return p.duplicate(ctx)
	case jump:
		return p.jump(ctx)
	case slow, swizzle:
		stop := p.disturb(ctx, p.Main.Kind)
		_, err := p.write(ctx, p.a, order{})
		pause(ctx, p.TTL)
		stop()
		return err
	case revocation:
		return p.revoke(ctx)
	}
	if _, err := p.write(ctx, p.a, order{}); err != nil {
		return err
	}
	p.awaitQueued(ctx)
	return nil
}

// fired counts the round's own fault: it has come.
func (p *play) fired(names ...string) {
	p.struck = true
	p.run.tally.fired(names...)
}

// freeze stops the first worker at a point of its write (X1).
func (p *play) freeze(ctx context.Context) error {
	names := p.Main.names()
	writing := p.a.hand.tell(p.writing(p.a, order{Point: p.Main.Point, Act: freeze}))
	at, answered, err := p.a.hand.reached(ctx, writing)
	if err != nil || answered != nil && at.Point == "" {
		return err // something else was in the way
	}
	stopped, err := awaitStop(p.a.hand.proc.ID())
	if err != nil || !stopped {
		return fmt.Errorf("%s should be stopped: %w", p.a.owner, err)
	}
	p.fired(names...)
	asleep := history.Clock()
	length := time.Duration(p.Main.Pause * float64(p.TTL))
	if err := p.meanwhile(ctx, length); err != nil {
		return err
	}
	pause(ctx, length-since(asleep))
	slept := since(asleep)
	if err := p.a.hand.wake(); err != nil {
		return err
	}
	p.did(p.a.owner, "continued")
	if answered == nil {
		if _, err := p.a.hand.hear(ctx, writing); err != nil {
			return err
		}
	}
	state, err := p.a.hand.ask(ctx, order{Do: "state"})
	if err != nil {
		return err
	}
	lost := state.State != string(lastword.HolderHeld) && state.State != string(lastword.HolderRenewing)
	if p.Main.Pause >= 1 && !lost {
		p.run.broke("woke_holding", fmt.Sprintf("%s slept %v, which is %g TTL, and believes %s", p.a.owner, slept, p.Main.Pause, state.State))
	}
	// Of a short sleep the effect is that the write was late and the lease was not lost
	// to it; of a long one that the worker knows it, or the other one has taken over.
	p.run.tally.effect(slept >= length && (p.Main.Pause < 1 || lost || p.bHas != nil), names...)
	return nil
}

// meanwhile lets the second worker take over and write while the first one sleeps.
func (p *play) meanwhile(ctx context.Context, length time.Duration) error {
	if p.Main.Pause < 1 || p.Main.Point.locks() {
		return nil // it will not get the lease, or not the database
	}
	t := time.NewTimer(length)
	defer t.Stop()
	select {
	case b, ok := <-p.granted:
		if !ok {
			return fmt.Errorf("%s: %w", p.b.owner, errGone)
		}
		p.bHas = &b
		if b.Code != "OK" {
			return nil
		}
		_, err := p.write(ctx, p.b, order{})
		return err
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// kill ends the first worker at a point of its write, and starts it again under its name
// (X2).
func (p *play) kill(ctx context.Context) error {
	names := p.Main.names()
	p.awaitQueued(ctx)
	writing := p.a.hand.tell(p.writing(p.a, order{Point: p.Main.Point, Act: die}))
	at, answered, err := p.a.hand.reached(ctx, writing)
	if err != nil || answered != nil && at.Point == "" {
		return err
	}
	select {
	case <-p.a.hand.proc.Gone():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.fired(names...)
	p.diedAt, p.a.gone = at.At, true
	p.did(p.a.owner, "died")
	if err := p.a.hand.close(); err != nil {
		return err
	}
	if err := p.startHand(ctx, p.a, p.aN); err != nil {
		return err
	}
	p.takenOver = names
	return nil
}

// apart loses what the first worker and the authority tell each other, until the lease
// has gone to the other one (X6).
func (p *play) apart(ctx context.Context, d proxy.Direction) error {
	names := p.Main.names()
	block := p.a.hold.Block(d)
	p.did(p.a.owner, "cut off")
	p.fired(names...)
	defer p.did(p.a.owner, "reachable")
	defer block.Heal()
	if _, err := p.write(ctx, p.a, order{}); err != nil { // it does not know yet
		return err
	}
	if err := p.awaitB(ctx); err != nil {
		return err
	}
	state, err := p.a.hand.ask(ctx, order{Do: "state"})
	if err != nil {
		return err
	}
	p.takenOver = names
	if p.bHas.Code != "OK" {
		return nil
	}
	if (state.State == string(lastword.HolderHeld) || state.State == string(lastword.HolderRenewing)) && !p.run.excusedSince(p.began) {
		p.run.broke("woke_holding", fmt.Sprintf("%s believes %s although %s was granted fence %d", p.a.owner, state.State, p.b.owner, p.bHas.Fence))
	}
	return nil
}

// unask cuts the resource off from the authority: it must refuse (X8).
func (p *play) unask(ctx context.Context) error {
	block := p.a.ask.Block(proxy.Both)
	p.fired(p.Main.names()...)
	a, err := p.write(ctx, p.a, order{})
	block.Heal()
	if err != nil {
		return err
	}
	if a.Verdict == string(lastword.Applied) {
		p.run.broke("accepted_unasked", fmt.Sprintf("%s: a write was accepted that nobody could be asked about", p.resource))
	}
	p.run.tally.effect(a.Verdict == string(lastword.StatusUnavailable), p.Main.names()...)
	_, err = p.write(ctx, p.a, order{})
	return err
}

// lateWrite keeps a write back on its way to the resource until a newer one is there
// (X7).
func (p *play) lateWrite(ctx context.Context) error {
	names := p.Main.names()
	writing := p.a.hand.tell(p.writing(p.a, order{Point: afterAsk, Act: hold, Raw: true}))
	at, answered, err := p.a.hand.reached(ctx, writing)
	if err != nil || answered != nil && at.Point == "" {
		return err
	}
	p.fired(names...)
	block := p.a.hold.Block(proxy.Both)
	p.did(p.a.owner, "cut off")
	err = p.awaitB(ctx)
	if err == nil && p.bHas.Code == "OK" {
		_, err = p.write(ctx, p.b, order{})
	}
	block.Heal()
	p.did(p.a.owner, "reachable")
	if _, told := p.a.hand.ask(ctx, order{Do: "go"}); err == nil {
		err = told
	}
	if err != nil {
		return err
	}
	a, err := p.a.hand.hear(ctx, writing)
	// STATUS_UNAVAILABLE: the authority's answer is too old by now, and the way to it cut.
	p.run.tally.effect(a.Verdict != string(lastword.Applied) && a.Verdict != "", names...)
	return err
}

// duringAnswerLoss loses the answer to what do makes the first worker send: the link is
// cut once the authority has said something.
func (p *play) duringAnswerLoss(ctx context.Context, do func() <-chan said) (<-chan said, error) {
	block := p.a.hold.Block(proxy.Answers)
	defer block.Heal()
	var answer <-chan said
	if do != nil {
		answer = do()
	}
	late := time.NewTimer(p.TTL)
	defer late.Stop()
	select {
	case <-block.Kept():
	case <-late.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.a.hold.Cut()
	p.fired(p.Main.names()...)
	return answer, nil
}

// acquireUnheard loses the answer to an acquire (X9, R2).
func (p *play) acquireUnheard(ctx context.Context) error {
	id := p.request("a") + "-unheard"
	answer, err := p.duringAnswerLoss(ctx, func() <-chan said {
		return p.a.hand.tell(order{Do: "acquire", Resource: string(p.resource), Request: id, TTL: p.TTL, Wait: p.run.wait})
	})
	if err != nil {
		return err
	}
	a, err := p.a.hand.hear(ctx, answer)
	if err != nil {
		return err
	}
	p.gotA(a)
	p.run.tally.effect(p.asked("acquire", id) > 1, p.Main.names()...)
	return nil
}

// asked counts how often an attempt was asked for, by calls of an operation.
func (c *cell) asked(op, requestID string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		if call.Op == op && call.RequestID == requestID {
			n++
		}
	}
	return n
}

// troubled counts calls of an owner since a moment that had no answer.
func (c *cell) troubled(owner string, from time.Duration) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		if call.Who == owner && !call.Open && call.Sent >= from {
			switch call.Code {
			case lastword.CodeUnknown, lastword.CodeUnavailable, lastword.CodeStatusUnavailable, lastword.CodeMutationUnknown, lastword.CodeCanceled:
				n++
			}
		}
	}
	for _, e := range c.events {
		if e.who == owner && e.at >= from && e.Event == "change" && e.To == string(lastword.HolderUnknown) {
			n++
		}
	}
	return n
}

// loseRenewal loses the answer to a renewal (X9).
func (p *play) loseRenewal(ctx context.Context) error {
	from := history.Clock()
	if _, err := p.duringAnswerLoss(ctx, nil); err != nil { // it renews by itself
		return err
	}
	_, err := p.write(ctx, p.a, order{})
	p.run.tally.effect(p.troubled(p.a.owner, from) > 0, p.Main.names()...)
	return err
}

// loseRelease loses the answer to the release (X9, R6).
func (p *play) loseRelease(ctx context.Context) error {
	from := history.Clock()
	answer, err := p.duringAnswerLoss(ctx, func() <-chan said { return p.a.hand.tell(order{Do: "release"}) })
	if err != nil {
		return err
	}
	if _, err := p.a.hand.hear(ctx, answer); err != nil {
		return err
	}
	p.run.tally.effect(p.troubled(p.a.owner, from) > 0, p.Main.names()...)
	return p.awaitB(ctx)
}

// loseCommit loses the answer to a COMMIT, which happened or did not (X9, R22): the same
// operation settles it.
func (p *play) loseCommit(ctx context.Context, at point) error {
	o := p.writing(p.a, order{Point: at, Act: lose})
	writing := p.a.hand.tell(o)
	reached, answered, err := p.a.hand.reached(ctx, writing)
	if err != nil || answered != nil && reached.Point == "" {
		return err
	}
	p.fired(p.Main.names()...)
	if answered == nil {
		a, err := p.a.hand.hear(ctx, writing)
		if err != nil {
			return err
		}
		answered = &a
	}
	o.Point, o.Act = "", ""
	p.run.tally.effect(answered.Verdict == string(lastword.MutationUnknown), p.Main.names()...)
	_, err = p.a.hand.ask(ctx, o)
	return err
}

// duplicate sends everything more than once (X10).
func (p *play) duplicate(ctx context.Context) error {
	names := p.Main.names()
	p.fired(names...)
	repeated := 0
	for range 1 + p.random.IntN(3) {
		a, err := p.a.hand.ask(ctx, order{Do: "again"})
		if err != nil {
			return err
		}
		if a.Code == "OK" && a.Fence != p.aFence {
			p.run.broke("request_granted_twice", fmt.Sprintf("%s: one request id gave fence %d and %d", p.resource, p.aFence, a.Fence))
		}
		if _, err := p.a.hand.ask(ctx, order{Do: "renew"}); err != nil {
			return err
		}
	}
	o := p.writing(p.a, order{})
	for range 2 + p.random.IntN(2) {
		a, err := p.a.hand.ask(ctx, o)
		if err != nil {
			return err
		}
		if a.Verdict == string(lastword.Replayed) {
			repeated++
		}
	}
	p.run.tally.effect(repeated > 0, names...)
	return nil
}

// jump sends numbers out of their order: one too far, and one again for something else
// (X11).
func (p *play) jump(ctx context.Context) error {
	names := p.Main.names()
	last, err := p.write(ctx, p.a, order{})
	if err != nil {
		return err
	}
	p.fired(names...)
	refused := 0
	for _, seq := range []uint64{last.Seq + 2, last.Seq + 7, max(last.Seq, 1)} {
		a, err := p.write(ctx, p.a, order{Raw: true, Seq: seq})
		if err != nil {
			return err
		}
		if a.Verdict == string(lastword.OutOfOrder) || a.Verdict == string(lastword.Conflict) {
			refused++
		}
	}
	p.run.tally.effect(refused > 0, names...)
	return nil
}

// revoke lets an operator end the first worker's tenure (R7).
func (p *play) revoke(ctx context.Context) error {
	names := p.Main.names()
	ref, ok := p.tenure(p.aFence)
	if !ok {
		return nil
	}
	call := p.diary.begin(refCall(opRevoke, ref))
	err := p.run.keeper.client.Revoke(ctx, p.resource, ref.Fence, keeperName, "planned")
	p.diary.end(call, err)
	p.fired(names...)
	a, wrote := p.write(ctx, p.a, order{Raw: true})
	if wrote != nil {
		return wrote
	}
	p.run.tally.effect(err == nil && a.Verdict != string(lastword.Applied), names...)
	return nil
}

// tenure is what the calls say of the tenure with a fence.
func (c *cell) tenure(fence uint64) (lastword.TenureRef, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.calls) - 1; i >= 0; i-- {
		f := c.calls[i]
		if f.Resource == c.resource && uint64(f.Fence) == fence && f.LeaseID != "" {
			return lastword.TenureRef{Resource: f.Resource, Owner: f.Owner, RequestID: f.RequestID, LeaseID: f.LeaseID, Fence: f.Fence}, true
		}
	}
	return lastword.TenureRef{}, false
}
