package fencetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/grant"
)

// world is what one case plays in: a fresh place, an authority, a gate.
type world struct {
	TB
	ctx       context.Context
	seed      uint64
	open      func(TB) Subject
	subject   Subject
	second    Subject // another handle, if there is one
	authority *issuer
	gate      *fence.Gate       // asks every time, in query mode
	rows      lastword.Resource // comes before the names of business values

	mu sync.Mutex
	// touched is every operation that was submitted, by resource; acked is every
	// receipt that was returned with APPLIED. The invariant checker reads them.
	touched map[lastword.Resource]map[string]bool
	acked   []lastword.Receipt
	pruned  bool // receipts were pruned
	// unchecked turns the invariant checker off.
	unchecked bool
}

func newWorld(ctx context.Context, tb TB, h Harness) *world {
	tb.Helper()
	w := &world{
		TB: tb, ctx: ctx, seed: h.Seed, open: h.Open, subject: h.Open(tb),
		touched: map[lastword.Resource]map[string]bool{},
	}
	s := w.subject
	if s.Apply == nil || s.Advance == nil || s.Lookup == nil || s.Inspect == nil || s.Read == nil {
		tb.Fatalf("fencetest: the subject lacks Apply, Advance, Lookup, Inspect or Read")
	}
	w.second = s
	if s.Second != nil {
		w.second = *s.Second
	}
	authority, err := newIssuer(domain)
	w.must(err)
	w.authority = authority
	w.gate = w.newGate(nil)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("a step that has to succeed has failed: %v", err)
	}
}

// random is a source that the case's name and the seed decide.
func (w *world) random() *rand.Rand {
	w.Logf("seed %d; set Harness.Seed to repeat", w.seed)
	return rand.New(rand.NewPCG(w.seed, uint64(len(w.Name()))))
}

// newGate is a gate that believes the authority and asks it every time.
func (w *world) newGate(change func(*fence.Config)) *fence.Gate {
	w.Helper()
	v, err := grant.NewVerifier(w.authority.domain, w.authority, grant.VerifierConfig{})
	w.must(err)
	cfg := fence.Config{
		Domain: w.authority.domain, Verifier: v, Status: w.authority, StatusReuse: -1,
		AskTimeout: 10 * time.Second,
		Now:        func() time.Time { return time.Unix(1_800_000_123, 456_789_000) },
	}
	if change != nil {
		change(&cfg)
	}
	g, err := fence.NewGate(cfg)
	w.must(err)
	return g
}

func fenceOnly(c *fence.Config) { c.Mode, c.Status = fence.FenceOnly, nil }

func withPolicy(p fence.Policy) func(*fence.Config) {
	return func(c *fence.Config) { c.Policy = p }
}

// tenure is the next tenure of a resource, held by "owner".
func (w *world) tenure(r lastword.Resource) *tenure { return w.tenureOf(r, "owner") }

func (w *world) tenureOf(r lastword.Resource, owner string) *tenure {
	w.Helper()
	t, err := w.authority.acquire(r, owner, nil)
	w.must(err)
	return t
}

// newEpoch begins a new issuer epoch, in which counters start again.
func (w *world) newEpoch() {
	w.Helper()
	w.must(w.authority.publish(func(i *grant.BundleInfo) { i.CurrentEpoch++ }))
	w.authority.mu.Lock()
	defer w.authority.mu.Unlock()
	clear(w.authority.counters)
}

// call is a guarded write of value, which is its payload too.
func call(t *tenure, seq uint64, operation, value string) fence.Call {
	return fence.Call{
		Resource: t.claims.Resource, Content: []byte(value),
		Mutation: lastword.Mutation{Grant: t.grant, Seq: seq, Operation: operation},
	}
}

// apply makes one write through the world's own gate.
func (w *world) apply(t *tenure, seq uint64, operation, value string) (lastword.Receipt, error) {
	return w.submit(w.subject, w.gate, call(t, seq, operation, value), Write{Resource: w.rows + t.claims.Resource, Value: value})
}

// elsewhere is another domain in the same place, with an authority of its own. Its
// business values are others, too: nobody but the fence knows of domains.
func (w *world) elsewhere() *world {
	w.Helper()
	authority, err := newIssuer(otherDomain)
	w.must(err)
	o := &world{
		TB: w.TB, ctx: w.ctx, seed: w.seed, open: w.open, subject: w.subject, second: w.second, authority: authority,
		rows: otherDomain + "/", touched: map[lastword.Resource]map[string]bool{},
	}
	o.gate = o.newGate(nil)
	return o
}

// key is a resource in the world's domain.
func (w *world) key(r lastword.Resource) fence.Key {
	return fence.Key{Domain: w.authority.domain, Resource: r}
}

// submit is every write that a case makes.
func (w *world) submit(s Subject, g *fence.Gate, c fence.Call, e Write) (lastword.Receipt, error) {
	w.touch(e.Resource, c.Mutation.Operation)
	r, err := s.Apply(w.ctx, g, c, e)
	w.ack(r, err)
	return r, err
}

func (w *world) touch(r lastword.Resource, operation string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.touched[r] == nil {
		w.touched[r] = map[string]bool{}
	}
	w.touched[r][operation] = true
}

func (w *world) ack(r lastword.Receipt, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && r.Verdict == lastword.Applied {
		w.acked = append(w.acked, r)
	}
}

// applied checks that a write was admitted with this number.
func (w *world) applied(r lastword.Receipt, err error) func(seq uint64) lastword.Receipt {
	return func(seq uint64) lastword.Receipt {
		w.Helper()
		if err != nil {
			w.Fatalf("got %v, want APPLIED with seq %d", err, seq)
		}
		if r.Verdict != lastword.Applied || r.Seq != seq {
			w.Fatalf("got %s with seq %d, want APPLIED with seq %d", r.Verdict, r.Seq, seq)
		}
		return r
	}
}

// replayed checks that a write was answered with this first receipt.
func (w *world) replayed(r lastword.Receipt, err error) func(first lastword.Receipt) {
	return func(first lastword.Receipt) {
		w.Helper()
		first.Verdict = lastword.Replayed
		if err != nil {
			w.Fatalf("got %v, want REPLAYED", err)
		}
		if !sameReceipt(r, first) {
			w.Fatalf("got the receipt\n%+v, want the first one\n%+v", r, first)
		}
	}
}

// refused checks a refusal: its verdict, that it is definite, and the stored fence.
func (w *world) refused(_ lastword.Receipt, err error) func(v lastword.Verdict, stored lastword.Token) {
	return func(v lastword.Verdict, stored lastword.Token) {
		w.Helper()
		var e *lastword.Error
		if !errors.As(err, &e) || e.Code != v.Code() {
			w.Fatalf("got %v, want %s", err, v)
		}
		if errors.Is(err, lastword.ErrUnknownOutcome) {
			w.Fatalf("the refusal %v looks like an unknown outcome", err)
		}
		if e.Fence != stored {
			w.Fatalf("the refusal %v tells the stored fence %s, want %s", err, e.Fence, stored)
		}
	}
}

// sameReceipt compares every field; times are compared as instants.
func sameReceipt(a, b lastword.Receipt) bool {
	return a.AppliedAt.Equal(b.AppliedAt) && receiptText(a) == receiptText(b)
}

func receiptText(r lastword.Receipt) string {
	result := string(r.Result)
	r.AppliedAt, r.Result = time.Time{}, nil
	return fmt.Sprintf("%+v %q", r, result)
}

func (w *world) inspect(r lastword.Resource) fence.Inspection {
	w.Helper()
	i, err := w.subject.Inspect(w.ctx, w.gate, r)
	if err != nil {
		w.Fatalf("inspect %q: %v", r, err)
	}
	return i
}

func (w *world) record(r lastword.Resource) fence.Record {
	w.Helper()
	return w.inspect(r).Record
}

func (w *world) read(r lastword.Resource) (string, []Effect) {
	w.Helper()
	value, effects, err := w.subject.Read(w.ctx, r)
	if err != nil {
		w.Fatalf("read the business value of %q: %v", r, err)
	}
	return value, effects
}

// wantEffects checks value and effects of a resource: "operation=value" each.
func (w *world) wantEffects(r lastword.Resource, want ...string) {
	w.Helper()
	value, effects := w.read(r)
	var got []string
	for _, e := range effects {
		got = append(got, e.Operation+"="+e.Value)
	}
	if !slices.Equal(got, want) {
		w.Fatalf("the effects on %q are %q, want %q", r, got, want)
	}
	if n := len(effects); n > 0 && effects[n-1].Value != value {
		w.Fatalf("the value of %q is %q, but its last effect is %q", r, value, effects[n-1].Value)
	}
}

// data is record, receipts and business data of all resources that the case
// touched: what a refusal must leave as it is.
func (w *world) data() string { return w.describe(false) }

// image is data, and what was noted beside it.
func (w *world) image() string { return w.describe(true) }

func (w *world) describe(evidence bool) string {
	w.Helper()
	var b strings.Builder
	for _, r := range w.resources() {
		i := w.inspect(r)
		value, effects := w.read(r)
		fmt.Fprintf(&b, "%q\n record %+v\n value %q effects %q\n", r, i.Record, value, effects)
		if evidence {
			fmt.Fprintf(&b, " refusals %v quarantine %d\n", i.Refusals, len(i.Quarantine))
		}
		for _, o := range w.operations(r) {
			receipt, found, err := w.subject.Lookup(w.ctx, w.gate, r, o)
			if err != nil {
				w.Fatalf("lookup %q: %v", o, err)
			}
			if found {
				fmt.Fprintf(&b, " receipt %q %s\n", o, receiptText(receipt))
			}
		}
	}
	if evidence && w.subject.Image != nil {
		whole, err := w.subject.Image(w.ctx)
		if err != nil {
			w.Fatalf("image: %v", err)
		}
		b.WriteString(whole)
	}
	return b.String()
}

func (w *world) resources() []lastword.Resource {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []lastword.Resource
	for r := range w.touched {
		all = append(all, r)
	}
	slices.Sort(all)
	return all
}

func (w *world) operations(r lastword.Resource) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for o := range w.touched[r] {
		all = append(all, o)
	}
	sort.Strings(all)
	return all
}

// unchanged checks that fn leaves data as it is.
func (w *world) unchanged(what string, fn func()) {
	w.Helper()
	w.same(what, w.data, fn)
}

// untouched checks that fn leaves everything as it is, evidence included.
func (w *world) untouched(what string, fn func()) {
	w.Helper()
	w.same(what, w.image, fn)
}

func (w *world) same(what string, look func() string, fn func()) {
	w.Helper()
	before := look()
	fn()
	if after := look(); after != before {
		w.Fatalf("%s changed the place from\n%s\nto\n%s", what, onlyIn(before, after), onlyIn(after, before))
	}
}

// onlyIn is the lines of a that b does not have.
func onlyIn(a, b string) string {
	has := map[string]bool{}
	for line := range strings.SplitSeq(b, "\n") {
		has[line] = true
	}
	var only []string
	for line := range strings.SplitSeq(a, "\n") {
		if !has[line] {
			only = append(only, line)
		}
	}
	return strings.Join(only, "\n")
}
