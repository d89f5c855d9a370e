package fence_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
	"github.com/lastword/lastword/grant"
)

const (
	domain = "gate.example"
	doc    = lastword.Resource("doc/a")
)

// world is an authority, a place and a gate.
type world struct {
	*testing.T
	signer *grant.Signer
	bundle grant.Bundle
	place  *memfence.Place
	gate   *fence.Gate
	next   lastword.Token
}

func newWorld(t *testing.T) *world {
	t.Helper()
	key, err := grant.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, place: memfence.New("doc")}
	if w.signer, err = grant.NewSigner(domain, key); err != nil {
		t.Fatal(err)
	}
	w.bundle = w.bundleAt(1)
	w.gate = w.newGate(nil)
	return w
}

func (w *world) bundleAt(sequence uint64) grant.Bundle {
	w.Helper()
	b, err := w.signer.Bundle(grant.BundleInfo{Sequence: sequence})
	if err != nil {
		w.Fatal(err)
	}
	return b
}

// config believes the signer and asks nobody.
func (w *world) config() fence.Config {
	w.Helper()
	v, err := grant.NewVerifier(domain, grant.StaticBundle(w.bundle), grant.VerifierConfig{})
	if err != nil {
		w.Fatal(err)
	}
	return fence.Config{Domain: domain, Verifier: v, Mode: fence.FenceOnly}
}

func (w *world) newGate(change func(*fence.Config)) *fence.Gate {
	w.Helper()
	cfg := w.config()
	if change != nil {
		change(&cfg)
	}
	g, err := fence.NewGate(cfg)
	if err != nil {
		w.Fatal(err)
	}
	return g
}

type statusFunc func(context.Context, lastword.StatusQuery) (lastword.Status, error)

func (f statusFunc) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	return f(ctx, q)
}

// holder is a lease, as its process knows it.
type holder struct {
	claims grant.Claims
	grant  string
	digest lastword.Digest

	mu    sync.Mutex
	state lastword.HolderState
	turns map[string]chan struct{}
	seqs  map[string]*lastword.Sequence
	lent  int
}

// acquire is the next tenure.
func (w *world) acquire() *holder {
	w.Helper()
	w.next++
	c := grant.Claims{
		Domain: domain, Resource: doc, Owner: "worker", RequestID: "r" + w.next.String(), LeaseID: "lease-" + w.next.String(),
		Fence: w.next, Class: lastword.ClassWrite, TTL: time.Minute, IssuedAt: time.Unix(1_800_000_000, 0).UTC(),
	}
	g, d, err := w.signer.Sign("", c)
	if err != nil {
		w.Fatal(err)
	}
	return &holder{
		claims: c, grant: g, digest: d, state: lastword.HolderHeld,
		turns: map[string]chan struct{}{}, seqs: map[string]*lastword.Sequence{},
	}
}

func (h *holder) Grant() string { return h.grant }

func (h *holder) State() lastword.HolderState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

func (h *holder) set(s lastword.HolderState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = s
}

func (h *holder) Sequence(ctx context.Context, record string) (*lastword.Sequence, func(), error) {
	h.mu.Lock()
	if h.turns[record] == nil {
		h.turns[record], h.seqs[record] = make(chan struct{}, 1), &lastword.Sequence{}
	}
	turn, seq := h.turns[record], h.seqs[record]
	h.mu.Unlock()
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	h.mu.Lock()
	h.lent++
	h.mu.Unlock()
	return seq, sync.OnceFunc(func() {
		h.mu.Lock()
		h.lent--
		h.mu.Unlock()
		<-turn
	}), nil
}

const record = "mem:doc gate.example/doc/a"

// sequence is the holder's numbering at the record; nobody may have it on loan.
func (h *holder) sequence(t *testing.T) lastword.Sequence {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lent != 0 {
		t.Fatalf("a number is still on loan")
	}
	if h.seqs[record] == nil {
		return lastword.Sequence{}
	}
	return *h.seqs[record]
}

// held says HELD of one tenure.
func held(h *holder, next lastword.Token) statusFunc {
	return func(_ context.Context, q lastword.StatusQuery) (lastword.Status, error) {
		return lastword.Status{
			Resource: q.Resource, State: lastword.StateHeld, Asked: lastword.StateHeld, Digest: h.digest, NextFence: next,
			Holder: lastword.TenureRef{Resource: q.Resource, LeaseID: h.claims.LeaseID, Fence: h.claims.Fence},
		}, nil
	}
}

func callOf(h *holder, operation string) fence.Call {
	return fence.Call{Holder: h, Content: []byte(operation), Mutation: lastword.Mutation{Operation: operation}}
}

// set is the effect that all tests make.
func set(value string) func(context.Context, *memfence.Tx) ([]byte, error) {
	return func(_ context.Context, tx *memfence.Tx) ([]byte, error) {
		tx.Set("doc", value)
		return []byte("was " + value), nil
	}
}

func (w *world) apply(h *holder, operation string) (lastword.Receipt, error) {
	return fence.Apply(w.Context(), w.gate, w.place, callOf(h, operation), set(operation))
}

func (w *world) mustApply(h *holder, operation string, seq uint64) lastword.Receipt {
	w.Helper()
	r, err := w.apply(h, operation)
	if err != nil || r.Verdict != lastword.Applied || r.Seq != seq {
		w.Fatalf("%s: got %s seq %d, %v, want APPLIED seq %d", operation, r.Verdict, r.Seq, err, seq)
	}
	return r
}

// wantCode checks the code, and that the error is definite unless it is open.
func wantCode(t *testing.T, err error, want lastword.Code) *lastword.Error {
	t.Helper()
	var e *lastword.Error
	if !errors.As(err, &e) || e.Code != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	if open := want == lastword.CodeMutationUnknown; errors.Is(err, lastword.ErrUnknownOutcome) != open {
		t.Fatalf("%v: an unknown outcome: %v, want %v", err, !open, open)
	}
	return e
}

func (w *world) record() fence.Record {
	w.Helper()
	i, err := fence.Inspect(w.Context(), w.gate, w.place, doc)
	if err != nil {
		w.Fatal(err)
	}
	return i.Record
}
