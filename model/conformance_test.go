package model

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver of both SQLite back ends

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/memstore"
	"github.com/lastword/lastword/store/sqlstore"
)

// Traces of the model, chosen at random, are driven through a real store and a real
// fence, and agree step by step: what was read, whether the conditional write was
// applied, the answer, the record, its revision, the request records, the next fence;
// the verdict, the record and the business value.
//
// The authority's steps are not played back: the rules decide again, on what the real
// store returns.

const conformanceDomain = "test"

func TestTracesAgreeWithTheBackEndsInMemory(t *testing.T) {
	t.Parallel()
	m := memstore.New().Open()
	place := &memPlace{place: memfence.New("conformance")}
	conform(t, m, place, traces(10_000))
}

func TestTracesAgreeWithTheSQLiteBackEnds(t *testing.T) {
	t.Parallel()
	dir := fastDir(t)
	s, err := sqlstore.Open(t.Context(), filepath.Join(dir, "authority.db"), sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conform(t, s, openSQLPlace(t, filepath.Join(dir, "resource.db")), traces(10_000))
}

// traces is n, or a sample of it in short mode.
func traces(n int) int {
	if testing.Short() {
		return n / 25
	}
	return n
}

// fastDir is a directory in memory where there is one: what a power cut would leave is
// not what is tested here.
func fastDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "lastword-model-") //nolint:usetesting // memory, not the disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// place is a guarded place that can be written through and looked at.
type realPlace interface {
	apply(ctx context.Context, g *fence.Gate, c fence.Call, value string) (lastword.Receipt, error)
	advance(ctx context.Context, g *fence.Gate, c fence.Call) error
	lookup(ctx context.Context, g *fence.Gate, r lastword.Resource, operation string) (bool, error)
	record(ctx context.Context, g *fence.Gate, r lastword.Resource) (fence.Record, error)
	value(ctx context.Context, r lastword.Resource) (string, error)
}

type memPlace struct{ place *memfence.Place }

func (p *memPlace) apply(ctx context.Context, g *fence.Gate, c fence.Call, value string) (lastword.Receipt, error) {
	return fence.Apply(ctx, g, p.place, c, func(_ context.Context, tx *memfence.Tx) ([]byte, error) {
		tx.Set(string(c.Resource), value)
		return nil, nil
	})
}

func (p *memPlace) advance(ctx context.Context, g *fence.Gate, c fence.Call) error {
	_, err := fence.Advance(ctx, g, p.place, c)
	return err
}

func (p *memPlace) lookup(ctx context.Context, g *fence.Gate, r lastword.Resource, operation string) (bool, error) {
	_, found, err := fence.Lookup(ctx, g, p.place, r, operation)
	return found, err
}

func (p *memPlace) record(ctx context.Context, g *fence.Gate, r lastword.Resource) (fence.Record, error) {
	i, err := fence.Inspect(ctx, g, p.place, r)
	return i.Record, err
}

func (p *memPlace) value(_ context.Context, r lastword.Resource) (string, error) {
	v, _ := p.place.Get(string(r))
	return v, nil
}

type sqlPlace struct {
	db    *sql.DB
	place *sqlfence.Place
}

func openSQLPlace(t *testing.T, path string) *sqlPlace {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+
		"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE doc (id TEXT PRIMARY KEY, value TEXT NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	if err := sqlfence.Init(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	p, err := sqlfence.OpenPlace(t.Context(), db, "conformance")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return &sqlPlace{db: db, place: p}
}

func (p *sqlPlace) apply(ctx context.Context, g *fence.Gate, c fence.Call, value string) (lastword.Receipt, error) {
	return fence.Apply(ctx, g, p.place, c, func(ctx context.Context, tx *sqlfence.Tx) ([]byte, error) {
		_, err := tx.SQL().ExecContext(ctx, `INSERT INTO doc VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = ?2`, string(c.Resource), value)
		return nil, err
	})
}

func (p *sqlPlace) advance(ctx context.Context, g *fence.Gate, c fence.Call) error {
	_, err := fence.Advance(ctx, g, p.place, c)
	return err
}

func (p *sqlPlace) lookup(ctx context.Context, g *fence.Gate, r lastword.Resource, operation string) (bool, error) {
	_, found, err := fence.Lookup(ctx, g, p.place, r, operation)
	return found, err
}

func (p *sqlPlace) record(ctx context.Context, g *fence.Gate, r lastword.Resource) (fence.Record, error) {
	i, err := fence.Inspect(ctx, g, p.place, r)
	return i.Record, err
}

func (p *sqlPlace) value(ctx context.Context, r lastword.Resource) (v string, err error) {
	err = p.db.QueryRowContext(ctx, `SELECT value FROM doc WHERE id = ?`, string(r)).Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return v, err
}

// conformanceWorlds are those without restores and copies, which are things that
// happen to an engine's files.
var conformanceWorlds = []string{
	"r31", "tenures", "requests", "results", "processes", "renewals", "stale", "segments", "segments-closed", "again", "work", "work-long",
	"latest", "settle", "operators", "calm", "three", "confused", "lock-delay", "keeper-revoked", "keeper-succeeded",
}

func conform(t *testing.T, s store.Store, p realPlace, n int) {
	t.Helper()
	const seed = 20260801
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	all := worlds()
	seen := map[string]bool{}
	c := &conformer{t: t, ctx: t.Context(), store: s, place: p, seal: newConformanceSeal(t)}
	machines := map[string]*machine{}
	for tries := 0; len(seen) < n; tries++ {
		if tries > 20*n {
			t.Fatalf("only %d different traces in %d tries", len(seen), tries)
		}
		name := conformanceWorlds[tries%len(conformanceWorlds)]
		m := machines[name]
		if m == nil {
			m = newMachine(all[name], Production())
			machines[name] = m
		}
		trace := walk(m, random)
		key := name + fmt.Sprint(trace.events)
		if seen[key] {
			continue
		}
		seen[key] = true
		c.begin(m, fmt.Sprintf("doc/%d", len(seen)))
		for i := 1; i < len(trace.states); i++ {
			c.step(&trace.states[i-1], &trace.states[i], trace.events[i-1])
		}
		if t.Failed() {
			for i, ev := range trace.events {
				t.Log(m.describe(&trace.states[i], &trace.states[i+1], ev))
			}
			t.FailNow()
		}
	}
	t.Logf("%d different traces: %d commits, %d of them refused; %d writes and registrations; verdicts %v; answers %v",
		len(seen), c.commits, c.refused, c.writes, c.verdicts, c.answers)
	for _, v := range []lastword.Verdict{lastword.Applied, lastword.Replayed, lastword.StaleOwner, lastword.Unverified} {
		if c.verdicts[v] == 0 {
			t.Errorf("no trace came to %s", v)
		}
	}
	for _, code := range []lastword.Code{"", lastword.CodeHeld, lastword.CodeNotHolder, lastword.CodeTenureEnded, lastword.CodeCanceled} {
		if c.answers[code] == 0 && !testing.Short() {
			t.Errorf("no trace came to the answer %q", code)
		}
	}
	if c.refused == 0 {
		t.Error("no conditional write was refused")
	}
}

type trace struct {
	states []state
	events []event
}

// walk goes one random way through a world until nothing more can happen. Steps of
// time and looks are rarer than others, so that something happens before the time is
// over.
func walk(m *machine, random *rand.Rand) (tr trace) {
	s := m.initial()
	tr.states = append(tr.states, s)
	for len(tr.events) < 60 {
		out := m.successors(&s)
		if len(out) == 0 {
			return tr
		}
		next := out[random.IntN(len(out))]
		if next.ev.kind == evTick || next.ev.kind == evCalm || next.ev.kind == evClientCrash {
			next = out[random.IntN(len(out))]
		}
		s = next.s
		tr.states, tr.events = append(tr.states, s), append(tr.events, next.ev)
	}
	return tr
}

// conformer drives one trace after the other through real back ends.
type conformer struct {
	t     *testing.T
	ctx   context.Context
	store store.Store
	place realPlace
	seal  *conformanceSeal

	m        *machine
	resource lastword.Resource
	gate     *fence.Gate
	heard    lastword.Status        // what the authority answers now
	pending  [maxProcesses]decision // decided on real readings, not committed
	from     [maxProcesses]storeState

	commits, refused, writes int
	verdicts                 map[lastword.Verdict]int
	answers                  map[lastword.Code]int
}

// begin puts the store's header back and starts on a resource of its own.
func (c *conformer) begin(m *machine, name string) {
	if c.verdicts == nil {
		c.verdicts, c.answers = map[lastword.Verdict]int{}, map[lastword.Code]int{}
	}
	c.m, c.resource = m, lastword.Resource(name)
	s := m.initial()
	first := *m.stores.at(s.store[0])
	view := c.read()
	header := first.h
	steps := []store.Step{{Create: !view.Header.Exists, Epoch: view.Header.Epoch, Header: &header}}
	record := c.named(first.rec)
	steps = append(steps, store.Step{Epoch: header.Epoch, Record: &record})
	applied, err := c.store.Commit(c.ctx, steps...)
	if err != nil || !applied[0] || !applied[1] {
		c.t.Fatalf("the start: %v %v", applied, err)
	}
	c.gate = c.newGate()
	c.same(&first)
}

func (c *conformer) named(r core.Record) core.Record {
	r.Resource = c.resource
	return r
}

// read is the real store as the model's part.
func (c *conformer) read() store.View {
	c.t.Helper()
	queries := []store.Query{{Resource: c.resource}}
	for i := range maxClients * maxAttempts {
		client, attempt := uint8(i/maxAttempts), uint8(i%maxAttempts+1)
		queries = append(queries, store.Query{Resource: c.resource, Owner: clientNames[client], RequestID: requestID(client, attempt)})
	}
	view, err := c.store.Read(c.ctx, queries...)
	if err != nil {
		c.t.Fatal(err)
	}
	return view
}

func (c *conformer) real() storeState {
	c.t.Helper()
	view := c.read()
	st := storeState{h: view.Header, rec: view.Entries[0].Record}
	st.rec.Resource = resource
	for i, e := range view.Entries[1:] {
		if e.Request != nil {
			st.req[i] = *e.Request
		}
	}
	return st
}

// same compares the real store with the model's.
func (c *conformer) same(want *storeState) {
	c.t.Helper()
	got := c.real()
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", *want) {
		c.t.Errorf("the store has\n%+v\nthe model has\n%+v", got, *want)
	}
	if g, w := got.rec.NextFence(got.h), want.rec.NextFence(want.h); g != w {
		c.t.Errorf("the next fence is %s, the model says %s", g, w)
	}
}

func (c *conformer) commit(step store.Step, want bool) {
	c.t.Helper()
	applied, err := c.store.Commit(c.ctx, step)
	if err != nil {
		c.t.Fatal(err)
	}
	c.commits++
	if !want {
		c.refused++
	}
	if applied[0] != want {
		c.t.Errorf("applied %t, the model says %t", applied[0], want)
	}
}

// step plays one event of the model.
func (c *conformer) step(before, after *state, ev event) {
	c.t.Helper()
	switch ev.kind {
	case evServe, evServeTwice:
		c.serve(before, after, ev)
	case evCommit, evCommitFailed:
		p := ev.who - process1
		c.write(c.from[p], c.pending[p], ev.kind == evCommit)
		if ev.kind == evCommit {
			c.reply(ev, c.pending[p])
		}
	case evRound, evStart, evAdvanceEpoch:
		c.header(before, after, ev)
	case evTransact, evTransactTwice:
		c.transact(before, after, ev)
	default:
	}
	if before.store != after.store || ev.kind == evCommitFailed {
		c.same(c.m.stores.at(after.store[0]))
	}
}

// serve lets the rules decide on what the real store returns, and writes what they
// ask for on the conditions that a process would name.
func (c *conformer) serve(before, after *state, ev event) {
	c.t.Helper()
	p := ev.who - process1
	st := c.real()
	looked := c.m.look(*c.m.procs.at(before.proc[p]), &st)
	d := c.m.decide(&st, looked, *c.m.msgs.at(ev.a), c.m.ghosts.at(before.ghost).era)
	if c.m.procs.at(after.proc[p]).read != 0 {
		c.pending[p], c.from[p] = d, st
		return
	}
	if d.change.Write {
		c.write(st, d, true)
	}
	c.reply(ev, d)
}

func (c *conformer) write(read storeState, d decision, want bool) {
	c.t.Helper()
	record := c.named(d.change.Record)
	c.commit(store.Step{
		Epoch: read.h.Epoch, OnTick: d.onTick, Tick: read.h.Tick, Record: &record, Requests: d.change.Requests,
	}, want)
}

// reply compares what the process would answer.
func (c *conformer) reply(ev event, d decision) {
	c.t.Helper()
	c.answers[d.answer.Code]++
	if got := c.m.reply(*c.m.msgs.at(ev.a), d); got != ev.b {
		c.t.Errorf("the answer is %+v, the model says %+v", *c.m.msgs.at(got), *c.m.msgs.at(ev.b))
	}
}

// header plays the steps that change the store's own state.
func (c *conformer) header(before, after *state, _ event) {
	c.t.Helper()
	if before.store[0] == after.store[0] {
		return
	}
	was, next := c.m.stores.at(before.store[0]).h, c.m.stores.at(after.store[0]).h
	// Somebody who has read another tick is refused.
	c.commit(store.Step{Epoch: was.Epoch, OnTick: true, Tick: was.Tick + 7, Header: &next}, false)
	c.commit(store.Step{Epoch: was.Epoch, OnTick: true, Tick: was.Tick, Header: &next}, true)
}

// transact plays one message at the real place.
func (c *conformer) transact(before, after *state, ev event) {
	c.t.Helper()
	q := *c.m.msgs.at(ev.a)
	if ev.b == 0 && !q.forged { // the look that comes first; the gate does both in one call
		return
	}
	c.writes++
	if q.kind == doLookup {
		found, err := c.place.lookup(c.ctx, c.gate, c.resource, operationName(0))
		if err != nil || found != c.m.msgs.at(ev.b).found {
			c.t.Errorf("lookup: %t %v, the model says %t", found, err, c.m.msgs.at(ev.b).found)
		}
		return
	}
	g := c.m.ghosts.at(before.ghost)
	signed, digest := c.grant(g, q)
	c.heard = c.status(q, digest)
	call := fence.Call{Resource: c.resource, Mutation: lastword.Mutation{Grant: signed}}
	var got lastword.Verdict
	if q.kind == doAdvance {
		got = verdictOf(lastword.Receipt{Verdict: lastword.Applied}, c.place.advance(c.ctx, c.gate, call))
	} else {
		call.Mutation.Seq, call.Mutation.Operation, call.Mutation.Payload = uint64(q.seq), operationName(q.op), payloads[q.intent]
		got = verdictOf(c.place.apply(c.ctx, c.gate, call, clientNames[q.client]+"@"+number(q.fence)))
	}
	want := lastword.Unverified
	if ev.b != 0 {
		want = lastword.Verdict(c.m.msgs.at(ev.b).code)
	}
	c.verdicts[got]++
	if got != want {
		c.t.Errorf("%+v: the verdict is %s, the model says %s", q, got, want)
	}
	c.samePlace(after)
}

func verdictOf(r lastword.Receipt, err error) lastword.Verdict {
	var e *lastword.Error
	if errors.As(err, &e) {
		return lastword.Verdict(e.Code)
	}
	if err != nil {
		return lastword.Verdict(err.Error())
	}
	return r.Verdict
}

// samePlace compares record and business value.
func (c *conformer) samePlace(after *state) {
	c.t.Helper()
	got, err := c.place.record(c.ctx, c.gate, c.resource)
	if err != nil {
		c.t.Fatal(err)
	}
	want := c.m.places.at(after.place).rec
	// What a verification brings depends on the bundle and on the signed bytes.
	for _, r := range []*core.FenceRecord{&got, &want} {
		r.GrantDigest, r.BundleSequence, r.MinEpoch, r.MinPolicyGeneration, r.Step, r.Lost = lastword.Digest{}, 0, 0, 0, 0, false
	}
	if got != want {
		c.t.Errorf("the place has\n%+v\nthe model has\n%+v", got, want)
	}
	value, err := c.place.value(c.ctx, c.resource)
	if value == "" {
		value = "-"
	}
	if model := c.m.value(after); err != nil || value != model {
		c.t.Errorf("the value is %q (%v), the model says %q", value, err, model)
	}
}

// conformanceSeal signs as the authority does, and as somebody else does.
type conformanceSeal struct {
	signer, stranger *grant.Signer
	verifier         *grant.Verifier
}

func newConformanceSeal(t *testing.T) *conformanceSeal {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := grant.NewKey()
	must(err)
	other, err := grant.NewKey()
	must(err)
	s := &conformanceSeal{}
	s.signer, err = grant.NewSigner(conformanceDomain, key)
	must(err)
	s.stranger, err = grant.NewSigner(conformanceDomain, other)
	must(err)
	bundle, err := s.signer.Bundle(grant.BundleInfo{Sequence: 1, CurrentEpoch: 9})
	must(err)
	s.verifier, err = grant.NewVerifier(conformanceDomain, grant.StaticBundle(bundle), grant.VerifierConfig{})
	must(err)
	return s
}

// grant signs what the authority granted, or what a forger would have it grant.
func (c *conformer) grant(g *ghost, q message) (string, lastword.Digest) {
	c.t.Helper()
	claims := grant.Claims{
		Domain: conformanceDomain, Resource: c.resource, Owner: clientNames[q.client], RequestID: requestID(q.client, max(q.attempt, 1)),
		LeaseID: q.lease, Fence: q.fence, Revision: 1, PolicyGeneration: 1, Root: root, Class: class,
		TTL: time.Duration(ttl), IssuedAt: time.Unix(1_800_000_000, 0).UTC(),
	}
	claims.TTL = time.Minute // a grant's TTL is not looked at by a resource
	signer := c.seal.signer
	if q.forged {
		signer = c.seal.stranger
	}
	signed, digest, err := signer.Sign("", claims)
	if err != nil {
		c.t.Fatal(err)
	}
	return signed, digest
}

// status is what the authority had answered when the model's place asked.
func (c *conformer) status(q message, digest lastword.Digest) lastword.Status {
	st := lastword.Status{Resource: c.resource, State: q.heard.State, Asked: q.heard.State, NextFence: q.heard.NextFence}
	if q.heard.State == lastword.StateHeld {
		st.Digest = digest
		st.Holder = lastword.TenureRef{Resource: c.resource, Owner: clientNames[q.client], LeaseID: q.lease, Fence: q.fence}
	}
	return st
}

// Status implements fence.StatusSource.
func (c *conformer) Status(context.Context, lastword.StatusQuery) (lastword.Status, error) {
	return c.heard, nil
}

func (c *conformer) newGate() *fence.Gate {
	c.t.Helper()
	cfg := fence.Config{
		Domain: conformanceDomain, Verifier: c.seal.verifier, Mode: c.m.w.status, Policy: c.m.w.policy,
		StatusReuse: -1, AskTimeout: 10 * time.Second,
	}
	if c.m.w.status != core.FenceOnly {
		cfg.Status = c
	}
	g, err := fence.NewGate(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	return g
}
