package fencetest

import (
	"context"
	"fmt"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

func exchangeCases() []testCase {
	return []testCase{
		{name: "R15: a record that is not the one that was read is not replaced", run: onlyWhatWasRead, needs: needsExchange},
	}
}

// fields make a record another one, each in one field alone.
var fields = map[string]func(*fence.Record){
	"fence":                 func(r *fence.Record) { r.Fence-- },
	"lease id":              func(r *fence.Record) { r.LeaseID += "x" },
	"grant digest":          func(r *fence.Record) { r.GrantDigest = lastword.DigestOf([]byte("x")) },
	"root":                  func(r *fence.Record) { r.Root = lastword.DigestOf([]byte("x")) },
	"last seq":              func(r *fence.Record) { r.LastSeq++ },
	"last operation":        func(r *fence.Record) { r.LastOperation += "x" },
	"last payload":          func(r *fence.Record) { r.LastPayload = lastword.DigestOf([]byte("x")) },
	"policy":                func(r *fence.Record) { r.Policy = fence.Once },
	"status mode":           func(r *fence.Record) { r.Status = fence.Proof },
	"frozen":                func(r *fence.Record) { r.Frozen = !r.Frozen },
	"step":                  func(r *fence.Record) { r.Step++ },
	"imported":              func(r *fence.Record) { r.Imported = !r.Imported },
	"heard epoch":           func(r *fence.Record) { r.Heard.Epoch++ },
	"heard revision":        func(r *fence.Record) { r.Heard.Revision++ },
	"restored":              func(r *fence.Record) { r.Restored++ },
	"bundle sequence":       func(r *fence.Record) { r.BundleSequence++ },
	"min epoch":             func(r *fence.Record) { r.MinEpoch++ },
	"min policy generation": func(r *fence.Record) { r.MinPolicyGeneration++ },
	"existence":             func(r *fence.Record) { *r = fence.Record{} },
}

// onlyWhatWasRead tries every record that differs in one field from the one that is there,
// beside records of other keys that are equal to it.
func onlyWhatWasRead(w *world) {
	key := fence.Key{Domain: domain, Resource: "exchange/a"}
	others := []fence.Key{{Domain: domain, Resource: "exchange/b"}, {Domain: domain + ".other", Resource: key.Resource}}
	rec := fence.Record{
		Exists: true, Fence: 40, LeaseID: "lease", GrantDigest: lastword.DigestOf([]byte("g")), Root: lastword.DigestOf([]byte("r")),
		LastSeq: 3, LastOperation: "op", LastPayload: lastword.DigestOf([]byte("p")), Policy: fence.Ordered, Status: fence.Query,
		Step: 7, Heard: fence.Mark{Epoch: 1, Revision: 2}, BundleSequence: 5, MinEpoch: 1, MinPolicyGeneration: 2,
	}
	for _, k := range append(others, key) {
		w.must(w.subject.Exchange(w.ctx, k, fence.Record{}, rec, nil))
	}
	for name, change := range fields {
		old := rec
		change(&old)
		same := old // what every write of a tenure changes, and no more
		same.Exists, same.LastSeq, same.LastOperation, same.Fence = true, old.LastSeq+1, "next", rec.Fence
		ofOld := same // of the tenure that was read, whichever it was
		ofOld.Fence = old.Fence
		for _, next := range []fence.Record{same, withStep(same), ofOld} {
			if err := w.subject.Exchange(w.ctx, key, old, next, nil); err == nil {
				w.Errorf("R15: a record with another %s than was read was replaced", name)
				return
			}
		}
	}
	next := rec
	next.LastSeq, next.LastOperation = 4, "next"
	receipt := lastword.Receipt{
		Domain: key.Domain, Resource: key.Resource, Operation: "next", Fence: rec.Fence, Seq: 4, LeaseID: rec.LeaseID,
		GrantDigest: rec.GrantDigest, Root: rec.Root, AppliedAt: time.Unix(1_800_000_000, 0).UTC(), Verdict: lastword.Applied,
	}
	w.must(w.subject.Exchange(w.ctx, key, rec, next, &receipt))
	after := next
	after.LastSeq = 5
	if err := w.subject.Exchange(w.ctx, key, next, after, &receipt); err == nil {
		w.Errorf("R15: a receipt was replaced")
	}
	if err := w.subject.Exchange(w.ctx, key, fence.Record{}, after, nil); err == nil {
		w.Errorf("R15: a record was made where there is one")
	}
	for _, k := range others {
		w.must(w.subject.Exchange(w.ctx, k, rec, next, nil)) // it is as it was
	}
	// A record of another domain that is larger, and was there before, is not this one.
	const twice = "exchange/twice"
	larger := rec
	larger.Fence, larger.LeaseID = lastword.MaxToken-10, "larger"
	w.must(w.subject.Exchange(w.ctx, fence.Key{Domain: domain + ".other", Resource: twice}, fence.Record{}, larger, nil))
	w.must(w.subject.Exchange(w.ctx, fence.Key{Domain: domain, Resource: twice + "r"}, fence.Record{}, larger, nil))
	t := w.tenure(twice)
	for seq := range uint64(3) {
		w.applied(w.apply(t, seq+1, fmt.Sprint("op-", seq), "v"))(seq + 1)
	}
	if w.subject.Within != nil {
		w.applied(w.within(w.gate, call(t, 4, "op-within", "v"), "v", true))(4)
	}
	if w.subject.Restored != nil { // of another domain is nothing that this one has to do with
		_, err := w.subject.Restored(w.ctx, fence.Restore{
			Domain: domain + ".other", Until: time.Unix(4_000_000_000, 0), Act: fence.Act{Operator: "anna", Reason: "a backup", At: time.Unix(1_800_000_000, 0)},
			NextFence: func(context.Context, lastword.Resource) (lastword.Token, error) { return lastword.MaxToken, nil },
		})
		w.must(err)
		w.applied(w.apply(t, w.record(twice).LastSeq+1, "op-restored", "v"))(w.record(twice).LastSeq)
	}
	missing := fence.Key{Domain: domain, Resource: "exchange/none"}
	if err := w.subject.Exchange(w.ctx, missing, rec, next, nil); err == nil {
		w.Errorf("R15: a record that does not exist was replaced")
	}
}

func withStep(r fence.Record) fence.Record {
	r.Step += 3
	return r
}
