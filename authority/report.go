package authority

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/internal/outbox"
)

const (
	// maxNotes bounds what is kept for an observer that is slow.
	maxNotes = 1 << 15
	// tellTimeout is how long a close waits for an observer.
	tellTimeout = time.Second
)

// reporter carries what the loop does to the observer. Putting notes in is all that
// the loop does itself; tenures are followed on the observer's goroutine.
type reporter struct {
	observer Observer
	witness  *countedWitness
	outbox   *outbox.Outbox[note]

	// The loop's.
	notes []note // of this turn of the loop
	last  note   // the state told last

	// The observer's goroutine's.
	tenures *tenures
	report  Report
}

// note is one thing that happened in the loop.
type note struct {
	kind   noteKind
	commit Commit
	change change
	state  State
	tick   core.Tick
}

type noteKind uint8

const (
	noteState noteKind = iota
	noteCommit
	noteChange
)

func newReporter(observer Observer, witness *countedWitness) *reporter {
	if observer == nil {
		return nil
	}
	r := &reporter{observer: observer, witness: witness, tenures: newTenures()}
	r.outbox = outbox.New(maxNotes, r.deliver)
	return r
}

// committed notes a round's commit, after its callers have their answers.
func (r *reporter) committed(b *batch, sent, done time.Duration, err error) {
	if r == nil || len(b.steps) == 0 {
		return
	}
	commit := Commit{Took: done - sent, Code: codeOf(err)}
	for _, p := range b.visited {
		if p.step < 0 {
			continue
		}
		commit.Records++
		if p.applied {
			r.notes = append(r.notes, note{kind: noteChange, change: b.change(p, sent, done)})
		}
	}
	for i := range b.answers {
		if b.answers[i].depends {
			commit.Calls++
		}
	}
	if commit.Records > 0 {
		r.notes = append(r.notes, note{kind: noteCommit, commit: commit})
	}
}

func (b *batch) change(p *page, sent, done time.Duration) change {
	l := &p.record.Lease
	c := change{
		resource: p.resource, was: p.was, lease: l.ID, open: open(l.State), ended: l.State,
		deadline: l.Deadline, ttl: time.Duration(l.TTL), extended: p.extended, woken: p.woken,
		waiting: b.l.waiters.of(p.resource) > 0, began: b.began, sent: sent, done: done,
	}
	if l.ID != p.was {
		c.ended = p.record.Previous.State
	}
	return c
}

// turn hands the notes of one turn of the loop over, with where it stands now.
func (l *loop) turn() {
	r := l.reporter
	if r == nil {
		return
	}
	state := State{
		Epoch: l.header.Epoch, Counter: l.counter, Waiters: l.waiters.waiting, OldestWaiter: l.waiters.oldest(l.pace.last),
		Stopped: l.broken != nil, WitnessMissing: l.witness == nil,
	}
	r.tell(state, l.header.Tick)
}

func (r *reporter) tell(state State, tick core.Tick) {
	now := note{kind: noteState, state: state, tick: tick}
	if len(r.notes) == 0 && now.state == r.last.state && now.tick == r.last.tick && r.witness.failures.Load() == 0 {
		return
	}
	r.last = now
	r.notes = append(r.notes, now)
	r.outbox.Put(r.notes...)
	clear(r.notes)
	r.notes = r.notes[:0]
}

// close tells the last state, in which nobody waits any more. The loop has ended.
func (r *reporter) close() {
	if r == nil {
		return
	}
	r.tell(State{Epoch: r.last.state.Epoch, Counter: r.last.state.Counter}, core.Tick(1<<63-1))
	ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
	defer cancel()
	r.outbox.Wait(ctx)
}

// deliver makes one report of a batch of notes.
func (r *reporter) deliver(batch []note, dropped int) {
	out := &r.report
	out.Commits, out.Ended, out.HandOvers = out.Commits[:0], out.Ended[:0], out.HandOvers[:0]
	out.Dropped, out.WitnessFailures = dropped, int(r.witness.failures.Swap(0))
	tick := r.tenures.tick
	for i := range batch {
		switch n := &batch[i]; n.kind {
		case noteCommit:
			out.Commits = append(out.Commits, n.commit)
		case noteChange:
			r.tenures.follow(&n.change, out)
		case noteState:
			out.State, tick = n.state, n.tick
		}
	}
	r.tenures.advance(tick)
	out.State.Live = r.tenures.live
	r.observer.Report(*out)
}

// countedWitness counts the failures of a witness.
type countedWitness struct {
	Witness
	failures atomic.Int64
}

// Load implements [Witness].
func (w *countedWitness) Load(ctx context.Context) (*Mark, error) {
	m, err := w.Witness.Load(ctx)
	if err != nil {
		w.failures.Add(1)
	}
	return m, err
}

// Swap implements [Witness].
func (w *countedWitness) Swap(ctx context.Context, old *Mark, next Mark) (bool, error) {
	ok, err := w.Witness.Swap(ctx, old, next)
	if err != nil {
		w.failures.Add(1)
	}
	return ok, err
}
