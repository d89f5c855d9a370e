package core_test

import (
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

func granted() (core.Record, core.Header, core.AcquireInput) {
	h := core.Header{Exists: true, TickSpan: 1e8, Tick: 1000}
	in := core.AcquireInput{
		Owner: "spiffe://example.org/worker", RequestID: "01J9Z3", TTL: 30e9, Ticks: core.Ticks(30e9, 1e8),
		Root: lastword.DigestOf([]byte("root")), Class: lastword.ClassWrite, LeaseID: "lease", KeyID: "key",
	}
	change, _ := core.Acquire(core.Record{Resource: "invoices/4711"}, nil, h, core.Clock{Tick: h.Tick}, in)
	return change.Record, h, in
}

func BenchmarkAcquireFree(b *testing.B) {
	_, h, in := granted()
	rec := core.Record{Resource: "invoices/4711"}
	b.ReportAllocs()
	for b.Loop() {
		core.Acquire(rec, nil, h, core.Clock{Tick: h.Tick}, in)
	}
}

func BenchmarkAcquireAfterExpiry(b *testing.B) {
	rec, h, in := granted()
	b.ReportAllocs()
	for b.Loop() {
		core.Acquire(rec, nil, h, core.Clock{Tick: h.Tick + 301}, in)
	}
}

func BenchmarkAcquireHeld(b *testing.B) {
	rec, h, in := granted()
	b.ReportAllocs()
	for b.Loop() {
		core.Acquire(rec, nil, h, core.Clock{Tick: h.Tick}, in)
	}
}

func BenchmarkRenew(b *testing.B) {
	rec, h, in := granted()
	ref := lastword.TenureRef{Resource: rec.Resource, Owner: in.Owner, LeaseID: in.LeaseID, Fence: rec.Lease.Fence}
	b.ReportAllocs()
	for b.Loop() {
		core.Renew(rec, h, core.Clock{Tick: h.Tick + 100}, ref)
	}
}

func admitted() (core.FenceRecord, core.Attempt) {
	a := core.Attempt{
		Fence: 41, LeaseID: "lease", Operation: "settle-4711", Payload: lastword.DigestOf([]byte("p")),
		Policy: core.Ordered, Status: core.FenceOnly, Heard: core.Heard{Mode: core.FenceOnly},
	}
	rec := core.Admit(core.FenceRecord{}, core.KnownOperation{}, a).Record
	a.Operation, a.Seq = "settle-4712", 2
	return rec, a
}

func BenchmarkAdmit(b *testing.B) {
	rec, a := admitted()
	b.ReportAllocs()
	for b.Loop() {
		core.Admit(rec, core.KnownOperation{}, a)
	}
}

func BenchmarkAdmitStale(b *testing.B) {
	rec, a := admitted()
	a.Fence--
	b.ReportAllocs()
	for b.Loop() {
		core.Admit(rec, core.KnownOperation{}, a)
	}
}

// The rules allocate the request records of a change and nothing else.
func TestTheRulesAllocateNextToNothing(t *testing.T) {
	rec, h, in := granted()
	free := core.Record{Resource: rec.Resource}
	ref := lastword.TenureRef{Resource: rec.Resource, Owner: in.Owner, LeaseID: in.LeaseID, Fence: rec.Lease.Fence}
	fenced, a := admitted()
	for name, c := range map[string]struct {
		limit float64
		run   func()
	}{
		"acquire, free":  {1, func() { core.Acquire(free, nil, h, core.Clock{Tick: h.Tick}, in) }},
		"acquire, held":  {0, func() { core.Acquire(rec, nil, h, core.Clock{Tick: h.Tick}, in) }},
		"acquire, ended": {1, func() { core.Acquire(rec, nil, h, core.Clock{Tick: h.Tick + 301}, in) }},
		"renew":          {0, func() { core.Renew(rec, h, core.Clock{Tick: h.Tick}, ref) }},
		"admit":          {0, func() { core.Admit(fenced, core.KnownOperation{}, a) }},
		"advance":        {0, func() { core.Advance(fenced, a) }},
	} {
		if got := testing.AllocsPerRun(100, c.run); got > c.limit {
			t.Errorf("%s: %v allocations, want at most %v", name, got, c.limit)
		}
	}
}
