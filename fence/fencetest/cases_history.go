package fencetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/core"
)

func historyCases() []testCase {
	return []testCase{
		{name: caseHistory, run: randomHistory},
		{name: caseConcurrent, run: concurrentHistory},
	}
}

const (
	caseHistory    = "P1, P3, P4: random histories, step by step"
	caseConcurrent = "P1, P4, R16: random histories at once"
)

// expected is what the rules say of the place: the same functions, on a record that
// is kept beside it.
type expected struct {
	rec      fence.Record
	receipts map[string]lastword.Receipt
	effects  []string
}

// randomHistory makes random steps one after the other and compares every verdict
// and every record with the rules.
func randomHistory(w *world) {
	rnd := w.random()
	resources := []lastword.Resource{"doc/a", "doc/b"}
	policies := []fence.Policy{"", fence.Ordered, fence.Latest, fence.Once}
	gates := map[fence.Policy]*fence.Gate{}
	for _, p := range policies {
		gates[p] = w.newGate(func(c *fence.Config) { fenceOnly(c); c.Policy = p })
	}
	want := map[lastword.Resource]*expected{}
	tenures := map[lastword.Resource][]*tenure{}
	for _, r := range resources {
		want[r] = &expected{receipts: map[string]lastword.Receipt{}}
	}
	for range 250 {
		r := resources[rnd.IntN(len(resources))]
		if len(tenures[r]) == 0 || rnd.IntN(8) == 0 {
			tenures[r] = append(tenures[r], w.tenure(r))
		}
		recent := tenures[r][max(0, len(tenures[r])-3):]
		p := policies[rnd.IntN(len(policies))]
		s := &historyStep{
			w: w, g: gates[p], policy: p, e: want[r], t: recent[rnd.IntN(len(recent))],
			operation: fmt.Sprintf("op-%d", rnd.IntN(40)), value: fmt.Sprintf("value %d", rnd.IntN(2)),
		}
		s.seq = s.likelySeq(rnd)
		switch rnd.IntN(10) {
		case 0:
			s.advance()
		case 1:
			s.fail()
		default:
			s.write()
		}
		if got := w.record(r); got != s.e.rec {
			w.Fatalf("%s: the record is\n%+v, want\n%+v", s, got, s.e.rec)
		}
	}
	for _, r := range resources {
		w.wantEffects(r, want[r].effects...)
	}
}

type historyStep struct {
	w                *world
	g                *fence.Gate
	policy           fence.Policy
	e                *expected
	t                *tenure
	seq              uint64
	operation, value string
}

func (s *historyStep) String() string {
	return fmt.Sprintf("seed %d: fence %s, seq %d, %s=%s, policy %q at %s",
		s.w.seed, s.t.claims.Fence, s.seq, s.operation, s.value, s.policy, s.t.claims.Resource)
}

// likelySeq is mostly a number that has a chance.
func (s *historyStep) likelySeq(rnd *rand.Rand) uint64 {
	switch rnd.IntN(4) {
	case 0:
		return uint64(rnd.IntN(5))
	case 1:
		return 0
	}
	if s.t.claims.LeaseID == s.e.rec.LeaseID {
		return s.e.rec.LastSeq + 1
	}
	return 1
}

func (s *historyStep) attempt() core.Attempt {
	bundle, err := s.w.authority.Bundle(s.w.ctx, false)
	s.w.must(err)
	c := s.t.claims
	return core.Attempt{
		Fence: c.Fence, LeaseID: c.LeaseID, GrantDigest: s.t.digest, Root: c.Root,
		Seq: s.seq, Operation: s.operation, Payload: lastword.DigestOf([]byte(s.value)),
		Policy: s.policy, Status: fence.FenceOnly, BundleSequence: bundle.Sequence(), PolicyGeneration: c.PolicyGeneration,
		Heard: core.Heard{Mode: fence.FenceOnly},
	}
}

func (s *historyStep) decide() core.Decision {
	first, known := s.e.receipts[s.operation]
	return core.Admit(s.e.rec, fence.Known{Receipt: known, Payload: first.Payload}, s.attempt())
}

func (s *historyStep) write() {
	s.w.Helper()
	d := s.decide()
	r, err := s.w.submit(s.w.subject, s.g, call(s.t, s.seq, s.operation, s.value), Write{Resource: s.t.claims.Resource, Value: s.value})
	if d.Verdict == lastword.Replayed {
		first := s.e.receipts[d.ReplayOf]
		first.Verdict = lastword.Replayed
		if err != nil || !sameReceipt(r, first) {
			s.w.Fatalf("%s: got %+v, %v, want the receipt %+v", s, r, err, first)
		}
		return
	}
	if d.Verdict != lastword.Applied {
		s.refused(err, d)
		return
	}
	if err != nil || r.Verdict != lastword.Applied || r.Seq != d.Seq {
		s.w.Fatalf("%s: got %s seq %d, %v, want APPLIED seq %d", s, r.Verdict, r.Seq, err, d.Seq)
	}
	s.e.rec = d.Record
	s.e.receipts[s.operation] = r
	s.e.effects = append(s.e.effects, s.operation+"="+s.value)
}

func (s *historyStep) refused(err error, d core.Decision) {
	s.w.Helper()
	var e *lastword.Error
	if !errors.As(err, &e) || e.Code != d.Verdict.Code() {
		s.w.Fatalf("%s: got %v, want %s", s, err, d.Verdict)
	}
}

func (s *historyStep) advance() {
	s.w.Helper()
	d := core.Advance(s.e.rec, s.attempt())
	_, err := s.w.subject.Advance(s.w.ctx, s.g, call(s.t, 0, "", ""))
	if d.Verdict != lastword.Applied {
		s.refused(err, d)
		return
	}
	if err != nil {
		s.w.Fatalf("%s: advance: %v", s, err)
	}
	s.e.rec = d.Record
}

// fail is a write whose effect fails, if it comes that far.
func (s *historyStep) fail() {
	s.w.Helper()
	boom := errors.New("boom")
	d := s.decide()
	_, err := s.w.submit(s.w.subject, s.g, call(s.t, s.seq, s.operation, s.value), Write{
		Resource: s.t.claims.Resource, Value: s.value, Then: func(context.Context) error { return boom },
	})
	if d.Verdict == lastword.Applied && !errors.Is(err, boom) {
		s.w.Fatalf("%s: got %v, want the effect's error", s, err)
	}
}

// concurrentHistory lets several tenures of one resource write through two handles
// at once, with retries and failures. The invariant checker judges what is left.
func concurrentHistory(w *world) {
	const doc, workers, steps = "doc/a", 4, 25
	loose := w.newGate(fenceOnly)
	seed := w.random().Uint64()
	var highest struct {
		sync.Mutex
		fence lastword.Token
	}
	var wg sync.WaitGroup
	for n := range workers {
		rnd := rand.New(rand.NewPCG(seed, uint64(n)))
		s := w.subject
		if n%2 == 1 {
			s = w.second
		}
		wg.Go(func() {
			var t *tenure
			for i := range steps {
				if t == nil || rnd.IntN(6) == 0 {
					var err error
					if t, err = w.authority.acquire(doc, fmt.Sprintf("worker-%d", n), nil); err != nil {
						w.Errorf("the kit itself failed: %v", err)
						return
					}
				}
				highest.Lock()
				accepted := highest.fence
				highest.Unlock()
				o := fmt.Sprintf("op-%d", rnd.IntN(workers*steps/2))
				value := fmt.Sprintf("%s of %d, step %d", o, n, i)
				e := Write{Resource: doc, Value: value}
				if rnd.IntN(5) == 0 {
					e.Then = func(context.Context) error { return errBoom }
				}
				c := fence.Call{Holder: t, Content: []byte(value), Mutation: lastword.Mutation{Operation: o}}
				r, err := w.submit(s, loose, c, e)
				if why := wrongAnswer(r, err, t, accepted); why != "" {
					w.Errorf("seed %d, worker %d, step %d: %s", w.seed, n, i, why)
					return
				}
				if err == nil && r.Verdict == lastword.Applied {
					highest.Lock()
					highest.fence = max(highest.fence, r.Fence)
					highest.Unlock()
				}
				if err != nil && errors.Is(err, lastword.ErrStale) {
					t = nil // what a worker does that was overtaken
				}
			}
		})
	}
	wg.Wait()
}

var errBoom = errors.New("boom")

// wrongAnswer: P1, seen from outside, and the closed set of answers (KF-22).
func wrongAnswer(r lastword.Receipt, err error, t *tenure, accepted lastword.Token) string {
	switch {
	case err == nil && r.Verdict == lastword.Applied && t.claims.Fence < accepted:
		return fmt.Sprintf("P1: fence %s was admitted after %s", t.claims.Fence, accepted)
	case err == nil, errors.Is(err, errBoom), errors.Is(err, lastword.ErrStale), errors.Is(err, lastword.ErrConflict):
		return ""
	}
	return fmt.Sprintf("KF-22: got %v, want an acceptance or a verdict", err)
}
