package fencetest

import (
	"context"
	"slices"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
	"github.com/lastword/lastword/grant"
)

// BrokenAdapter is an adapter that breaks one rule, and the case of the kit that
// must reject it. A kit that has never rejected anything proves nothing.
type BrokenAdapter struct {
	Name    string
	Case    string
	Harness Harness
}

// Broken returns the broken adapters.
func Broken() []BrokenAdapter {
	all := []BrokenAdapter{
		flaw("check outside the transaction", caseInterleaved, checkOutside),
		flaw("row count not checked", caseInterleaved, countIgnored),
		flaw("equality instead of order", caseStory, equalityForOrder),
		flaw("owner name instead of tenure", caseOwnerName, ownerForTenure),
		flaw("receipt outside the transaction", caseWithin, receiptOutside),
		flaw("high-water raised by a refused write", caseRefusedRaises, refusedRaises),
		flaw("seq not per record", caseSeqPerRecord, seqPerPlace),
		flaw("refusal that loses its evidence", caseEvidence, func(p *flawed) {
			p.note = func(e fence.Evidence) (fence.Evidence, bool) { return e, false }
		}),
		flaw("freeze not stored", caseFrozen, func(p *flawed) {
			p.note = func(e fence.Evidence) (fence.Evidence, bool) { e.Freeze = false; return e, true }
		}),
		flaw("conflicting payload not kept", caseQuarantine, func(p *flawed) {
			p.note = func(e fence.Evidence) (fence.Evidence, bool) { e.Quarantine = nil; return e, true }
		}),
		flaw("receipt lookup ignores the resource", caseOtherResource, receiptsOfAll),
		flaw("names folded", caseNames, func(p *flawed) {
			p.key = func(k fence.Key) fence.Key {
				k.Resource = lastword.Resource(strings.ToLower(strings.TrimSpace(string(k.Resource))))
				return k
			}
		}),
		flaw("status mode not stored", caseTightened, storing(func(_, next *fence.Record) { next.Status = fence.FenceOnly })),
		flaw("policy not stored", casePolicyStored, storing(func(_, next *fence.Record) { next.Policy = fence.Ordered })),
		flaw("fence in a column that rounds", caseLargest, storing(func(_, next *fence.Record) {
			next.Fence = lastword.Token(float32(next.Fence))
		})),
		flaw("registration keeps the old numbering", caseRegistered, storing(func(old, next *fence.Record) {
			if next.LastOperation == "" {
				next.LastSeq = old.LastSeq
			}
		})),
		flaw("tombstone ignored", casePruned, func(p *flawed) {
			p.load = func(_ context.Context, _ fence.Key, _ string, _ *fence.Record, k *fence.Known) { k.Tombstone = false }
		}),
		flaw("mark of the authority's answers not stored", caseMark, storing(func(old, next *fence.Record) { next.Heard = old.Heard })),
		flaw("step not stored", caseStep, storing(func(_, next *fence.Record) { next.Step = 0 })),
		flaw("kind of the token not stored", caseImported, storing(func(_, next *fence.Record) { next.Imported = false })),
		flaw("release not stored", caseReleased, storing(func(old, next *fence.Record) {
			if next.LeaseID == "" {
				next.Frozen = old.Frozen
			}
		})),
		flaw("restored record not closed", caseRestored, storing(func(old, next *fence.Record) {
			if next.Restored > 0 && next.LeaseID == "" {
				next.LeaseID, next.GrantDigest, next.Root = "lease-3", old.GrantDigest, old.Root
			}
		})),
		flaw("window after a restore not stored", caseWindow, storing(func(_, next *fence.Record) { next.Restored = 0 })),
		flaw("restored place looks like any other", caseUnraised, func(p *flawed) {
			p.load = func(_ context.Context, _ fence.Key, _ string, rec *fence.Record, _ *fence.Known) {
				rec.Unraised = false
			}
		}),
		flaw("window closed over records that were not raised", caseUnraised, func(p *flawed) { p.careless = true }),
		flaw("restored place begins records like any other", caseBegun, func(p *flawed) {
			p.load = func(_ context.Context, _ fence.Key, _ string, rec *fence.Record, _ *fence.Known) {
				if !rec.Exists {
					rec.Restored = 0
				}
			}
		}),
		flaw("roll-out that never ends", caseEnforced, func(p *flawed) {
			rolled := map[fence.Key]bool{}
			p.load = func(_ context.Context, key fence.Key, _ string, rec *fence.Record, _ *fence.Known) {
				p.mu.Lock()
				defer p.mu.Unlock()
				rolled[key] = rolled[key] || rec.Shadow
				rec.Shadow = rolled[key]
			}
		}),
		flaw("roll-out that refuses all the same", caseShadow, func(p *flawed) {
			p.load = func(_ context.Context, _ fence.Key, _ string, rec *fence.Record, _ *fence.Known) { rec.Shadow = false }
		}),
		flaw("newest bundle kept by the record alone", caseBundleOfAll, func(p *flawed) { p.bundleless = true }),
		flaw("any jump released", caseJump, func(p *flawed) { p.jumpy = true }),
		flaw("acts of operators lost", caseActs, func(p *flawed) { p.forgetful = true }),
		flaw("one name for all places", casePlaceNames, func(p *flawed) { p.called = "database" }),
		flaw("receipts looked up in any domain", caseStrangers, func(p *flawed) {
			p.found = func(k fence.Key) fence.Key { return fence.Key{Domain: domain, Resource: k.Resource} }
		}),
		flaw("no second page of records", caseRecords, listing(func(all []lastword.Resource, after lastword.Resource, limit int) []lastword.Resource {
			if after != "" {
				return nil
			}
			return all[:min(limit, len(all))]
		})),
		flaw("a page of records begins with the last one of the page before", caseRecords, listing(func(all []lastword.Resource, after lastword.Resource, limit int) []lastword.Resource {
			all = slices.DeleteFunc(all, func(r lastword.Resource) bool { return r < after })
			return all[:min(limit, len(all))]
		})),
		flaw("all records on one page", caseRecords, listing(func(all []lastword.Resource, after lastword.Resource, _ int) []lastword.Resource {
			return slices.DeleteFunc(all, func(r lastword.Resource) bool { return r <= after })
		})),
		flaw("lost record taken for a new one", caseLost, func(p *flawed) {
			p.load = func(_ context.Context, _ fence.Key, _ string, rec *fence.Record, _ *fence.Known) { rec.Lost = false }
		}),
	}
	return append(all, withoutSeq())
}

func flaw(name, rejectedBy string, apply func(*flawed)) BrokenAdapter {
	return BrokenAdapter{Name: name, Case: rejectedBy, Harness: Harness{Open: func(tb TB) Subject {
		p := &flawed{Place: newMemory(tb)}
		apply(p)
		return flawedSubject(p)
	}}}
}

// listing changes what a list of records holds.
func listing(page func(all []lastword.Resource, after lastword.Resource, limit int) []lastword.Resource) func(*flawed) {
	return func(p *flawed) { p.page = page }
}

// storing changes what is stored.
func storing(change func(old, next *fence.Record)) func(*flawed) {
	return func(p *flawed) {
		p.store = func(_ context.Context, _ fence.Key, old fence.Record, next *fence.Record, r *lastword.Receipt) *lastword.Receipt {
			change(&old, next)
			return r
		}
	}
}

// withoutSeq compares fences with <= and looks at no number.
func withoutSeq() BrokenAdapter {
	return BrokenAdapter{Name: "<= without seq", Case: caseOrdered, Harness: Harness{Open: func(tb TB) Subject {
		s := Memory().Open(tb)
		apply := s.Apply
		s.Apply = func(ctx context.Context, g *fence.Gate, c fence.Call, w Write) (lastword.Receipt, error) {
			c.Mutation.Seq = 0
			return apply(ctx, g, c, w)
		}
		return s
	}}}
}

// checkOutside reads and decides in one transaction and writes in another.
func checkOutside(p *flawed) {
	p.finish = func(tx *memfence.Tx, later *flawedTx) error {
		return overwrite(tx, later, *later.next)
	}
}

// countIgnored writes only where the record is what it was, and does not look
// whether that was the case.
func countIgnored(p *flawed) {
	p.finish = func(tx *memfence.Tx, later *flawedTx) error {
		now, _, err := tx.Load(context.Background(), later.key, "")
		if err != nil || now == later.loaded {
			return overwrite(tx, later, *later.next)
		}
		return overwrite(tx, later, now)
	}
}

// overwrite stores next whatever is there.
func overwrite(tx *memfence.Tx, later *flawedTx, next fence.Record) error {
	now, _, err := tx.Load(context.Background(), later.key, "")
	if err != nil {
		return err
	}
	return tx.Store(context.Background(), later.key, now, next, later.result)
}

// equalityForOrder takes every other fence for a newer one.
func equalityForOrder(p *flawed) {
	p.load = func(ctx context.Context, _ fence.Key, _ string, rec *fence.Record, _ *fence.Known) {
		if f := claimsIn(ctx).Fence; rec.Exists && f < rec.Fence {
			rec.Fence = f - 1
		}
	}
}

// ownerForTenure knows an owner by its name.
func ownerForTenure(p *flawed) {
	owners := map[fence.Key]string{}
	p.load = func(ctx context.Context, key fence.Key, _ string, rec *fence.Record, _ *fence.Known) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if c := claimsIn(ctx); rec.Exists && owners[key] == c.Owner {
			asTenureOf(rec, c)
		}
	}
	p.store = func(ctx context.Context, key fence.Key, _ fence.Record, _ *fence.Record, r *lastword.Receipt) *lastword.Receipt {
		p.mu.Lock()
		defer p.mu.Unlock()
		owners[key] = claimsIn(ctx).Owner
		return r
	}
}

// asTenureOf makes rec look as if the claims' tenure had written it.
func asTenureOf(rec *fence.Record, c grant.Claims) {
	rec.Exists = true
	rec.Fence, rec.LeaseID, rec.Root = c.Fence, c.LeaseID, c.Root
}

// receiptOutside writes the receipt at once, whatever becomes of the transaction.
func receiptOutside(p *flawed) {
	type id struct {
		key       fence.Key
		operation string
	}
	receipts := map[id]lastword.Receipt{}
	p.receipt = func(key fence.Key, operation string) (lastword.Receipt, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		r, found := receipts[id{key, operation}]
		return r, found
	}
	p.store = func(_ context.Context, key fence.Key, _ fence.Record, _ *fence.Record, r *lastword.Receipt) *lastword.Receipt {
		if r != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			receipts[id{key, r.Operation}] = *r
		}
		return nil
	}
}

// refusedRaises stores the fence before it knows whether the write is admitted.
func refusedRaises(p *flawed) {
	p.refused = func(ctx context.Context, key fence.Key) {
		f := claimsIn(ctx).Fence
		_ = p.Place.Transact(ctx, key, func(ctx context.Context, tx *memfence.Tx) error {
			rec, _, err := tx.Load(ctx, key, "")
			if err != nil || !rec.Exists || rec.Fence >= f {
				return err
			}
			next := rec
			next.Fence = f
			return tx.Store(ctx, key, rec, next, nil)
		})
	}
}

// seqPerPlace counts all numbers of a place together.
func seqPerPlace(p *flawed) {
	var last uint64
	p.load = func(ctx context.Context, _ fence.Key, _ string, rec *fence.Record, _ *fence.Known) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if c := claimsIn(ctx); last > 0 && c.Fence >= rec.Fence {
			asTenureOf(rec, c)
			rec.LastSeq = last
		}
	}
	p.store = func(_ context.Context, _ fence.Key, _ fence.Record, next *fence.Record, r *lastword.Receipt) *lastword.Receipt {
		p.mu.Lock()
		defer p.mu.Unlock()
		last = next.LastSeq
		return r
	}
}

// receiptsOfAll finds a receipt by the operation alone.
func receiptsOfAll(p *flawed) {
	receipts := map[string]lastword.Receipt{}
	p.receipt = func(_ fence.Key, operation string) (lastword.Receipt, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		r, found := receipts[operation]
		return r, found
	}
	p.store = func(_ context.Context, _ fence.Key, _ fence.Record, _ *fence.Record, r *lastword.Receipt) *lastword.Receipt {
		if r != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			receipts[r.Operation] = *r
		}
		return r
	}
}
