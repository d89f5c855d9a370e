package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/lab/history"
)

// play is one round while it is played.
type play struct {
	*cell
	round
	a, b   *side // who begins, who takes over
	aN     int
	random *rand.Rand
	began  time.Duration
	writes int
	struck bool // its own fault has come

	aGrant, bGrant string
	aFence         uint64
	granted        <-chan said // to b
	bHas           *said
	diedAt         time.Duration // of a, by the history's clock
	releasedAt     time.Duration // by a
	queued         bool          // b was known to wait before a released or died
	takenOver      []string      // faults whose effect is that b takes over
}

// playRound plays one round to its end. An error is something that no fault explains.
func (c *cell) playRound(ctx context.Context, r round) (err error) {
	if c.inEra == roundsPerEra {
		if err := c.nextEra(ctx); err != nil {
			return err
		}
	}
	c.inEra++
	p := &play{cell: c, round: r, a: c.sides[0], b: c.sides[1], random: rand.New(rand.NewPCG(r.Seed, 1)), began: history.Clock()}
	if r.Swap {
		p.a, p.b, p.aN = c.sides[1], c.sides[0], 1
	}
	if err := p.play(ctx); err != nil {
		return fmt.Errorf("round %d (%v, %s): %w", r.Number, r.Main.names(), c.resource, err)
	}
	c.run.keepTimeline(p)
	return nil
}

func (p *play) play(ctx context.Context) error {
	if err := p.begin(ctx); err != nil {
		return err
	}
	p.granted = p.b.hand.tell(order{Do: "acquire", Resource: string(p.resource), Request: p.request("b"), TTL: p.TTL, Wait: p.run.wait})
	calmAgain := p.weather(ctx)
	err := p.main(ctx)
	calmAgain()
	p.a.heal()
	p.b.heal()
	if err != nil {
		return err
	}
	if err := p.handOver(ctx); err != nil {
		return err
	}
	if _, err := p.write(ctx, p.b, order{}); err != nil {
		return err
	}
	if err := p.late(ctx); err != nil {
		return err
	}
	if err := p.forge(ctx); err != nil {
		return err
	}
	if p.random.IntN(3) == 0 {
		if _, err := p.b.hand.ask(ctx, order{Do: "complete", Value: fmt.Sprint("round ", p.Number)}); err != nil {
			return err
		}
	}
	if _, err := p.b.hand.ask(ctx, order{Do: "release"}); err != nil {
		return err
	}
	return p.read(ctx)
}

func (p *play) request(who string) string { return fmt.Sprintf("%s-%d", who, p.Number) }

// begin gives the first worker the lease and lets it write once.
func (p *play) begin(ctx context.Context) error {
	if p.Main.Kind == lostAcquire {
		if err := p.acquireUnheard(ctx); err != nil {
			return err
		}
	}
	for try := 0; p.aGrant == ""; try++ {
		a, err := p.a.hand.ask(ctx, order{Do: "acquire", Resource: string(p.resource), Request: fmt.Sprintf("%s-%d", p.request("a"), try), TTL: p.TTL, Wait: p.run.wait})
		if err != nil {
			return err
		}
		p.gotA(a)
		if p.aGrant == "" && since(p.began) > 2*p.run.wait {
			return fmt.Errorf("%s got no lease in %v: %s", p.a.owner, 2*p.run.wait, a.Code)
		}
	}
	_, err := p.write(ctx, p.a, order{})
	return err
}

func (p *play) gotA(a said) {
	if a.Code == "OK" {
		p.aGrant, p.aFence = a.Grant, a.Fence
		p.a.gone = false
	}
}

// write lets a worker write once, with what o adds to it.
func (p *play) write(ctx context.Context, s *side, o order) (said, error) {
	return s.hand.ask(ctx, p.writing(s, o))
}

func (p *play) writing(s *side, o order) order {
	o.Do, o.Resource = "write", string(p.resource)
	if o.Operation == "" {
		p.writes++
		o.Operation = fmt.Sprintf("%s-%d-%d", s.owner, p.Number, p.writes)
	}
	o.Value = o.Operation
	return o
}

// handOver lets the second worker have the resource.
func (p *play) handOver(ctx context.Context) error {
	if p.bHas == nil && !p.a.gone {
		a, err := p.a.hand.ask(ctx, order{Do: "release"})
		if err != nil {
			return err
		}
		p.releasedAt = a.At
	}
	if err := p.awaitB(ctx); err != nil {
		return err
	}
	p.measure()
	for try := 0; p.bHas.Code != "OK"; try++ { // a fault may have ended its attempt
		a, err := p.b.hand.ask(ctx, order{Do: "acquire", Resource: string(p.resource), Request: fmt.Sprintf("%s-%d", p.request("b"), try), TTL: p.TTL, Wait: p.run.wait})
		if err != nil {
			return err
		}
		p.bHas = &a
		if since(p.began) > 4*p.run.wait {
			return fmt.Errorf("%s got no lease in %v: %s", p.b.owner, 4*p.run.wait, a.Code)
		}
	}
	p.bGrant = p.bHas.Grant
	p.run.tally.effect(p.bHas.Fence > p.aFence, p.takenOver...)
	return nil
}

// awaitB waits until the second worker has its lease, or knows that it has none.
func (p *play) awaitB(ctx context.Context) error {
	if p.bHas != nil {
		return nil
	}
	b, err := p.b.hand.hear(ctx, p.granted)
	if err == nil {
		p.bHas = &b
	}
	return err
}

// awaitQueued waits until the authority has the second worker in its queue, so that a
// hand-over is measured and not an acquire.
func (p *play) awaitQueued(ctx context.Context) {
	for began := history.Clock(); since(began) < time.Second; pause(ctx, 2*time.Millisecond) {
		st, err := p.run.keeper.client.Status(ctx, lastword.StatusQuery{Resource: p.resource})
		if err == nil && st.Waiters > 0 {
			p.queued = true
			return
		}
	}
}

// measure notes how long the resource was nobody's, where nothing else was wrong.
func (p *play) measure() {
	if !p.queued || p.bHas.Code != "OK" || len(p.Weather) > 0 || !p.run.quiet(p.began) {
		return
	}
	switch {
	case p.diedAt != 0:
		p.run.handover(p.bHas.At-p.diedAt-p.TTL, true)
	case p.releasedAt != 0:
		p.run.handover(p.bHas.At-p.releasedAt, false)
	}
}

// late lets the first worker try again with what it had: the timeline 41, 42, 41.
func (p *play) late(ctx context.Context) error {
	if p.a.gone {
		return nil
	}
	a, err := p.write(ctx, p.a, order{Raw: true})
	if err != nil {
		return err
	}
	if a.Verdict == string(lastword.StaleOwner) {
		p.run.count("late_writes_stale", 1)
	}
	p.run.count("late_writes", 1)
	if p.Main.Kind != lateDuplicate {
		return nil
	}
	name := p.Main.names()
	p.run.tally.fired(name...)
	refused := 0
	for _, do := range []string{"release again", "renew", "again", "release again"} {
		a, err := p.a.hand.ask(ctx, order{Do: do})
		if err != nil {
			return err
		}
		if a.Code != "OK" {
			refused++
		}
		if do == "again" && a.Code == "OK" && a.Fence != p.aFence {
			p.run.broke("request_granted_twice", fmt.Sprintf("%s: one request id gave fence %d and %d", p.resource, p.aFence, a.Fence))
		}
	}
	again, err := p.write(ctx, p.a, order{Raw: true, Operation: fmt.Sprintf("%s-%d-1", p.a.owner, p.Number)})
	p.run.tally.effect(refused >= 2 && again.Verdict != string(lastword.Applied), name...)
	return err
}

// forge lets the forger try its classes while nobody writes.
func (p *play) forge(ctx context.Context) error {
	other := p.run.otherGrant(p.name)
	if other == "" {
		other = p.aGrant
	}
	for _, class := range p.Forged {
		if err := p.forger.strike(ctx, class, p.bGrant, p.aGrant, other); err != nil {
			return err
		}
	}
	p.run.lendGrant(p.name, p.bGrant)
	return nil
}
