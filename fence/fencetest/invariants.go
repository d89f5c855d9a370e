package fencetest

import (
	"github.com/lastword/lastword"
)

// checkInvariants looks at the final state of a case: P1 (no effect of an older
// fence after one of a newer), P4 (no operation twice), and that effects, receipts
// and what was acknowledged are the same set.
func (w *world) checkInvariants() {
	w.Helper()
	if w.unchecked {
		return
	}
	for _, r := range w.resources() {
		w.checkResource(r)
	}
}

func (w *world) checkResource(r lastword.Resource) {
	w.Helper()
	value, effects := w.read(r)
	rec := w.record(r)
	seen := map[string]bool{}
	var last lastword.Receipt
	for i, e := range effects {
		if seen[e.Operation] {
			w.Errorf("P4: operation %q has had its effect on %q twice", e.Operation, r)
		}
		seen[e.Operation] = true
		receipt, found, err := w.subject.Lookup(w.ctx, w.gate, r, e.Operation)
		if err != nil {
			w.Fatalf("lookup %q: %v", e.Operation, err)
		}
		if !found {
			if !w.pruned {
				w.Errorf("R16: operation %q had its effect on %q and has no receipt", e.Operation, r)
			}
			continue
		}
		if receipt.Payload != lastword.DigestOf([]byte(e.Value)) {
			w.Errorf("P4: the receipt of %q on %q is not of what was written", e.Operation, r)
		}
		if i > 0 && (receipt.Fence < last.Fence || receipt.Fence == last.Fence && receipt.Seq <= last.Seq) {
			w.Errorf("P1: on %q, operation %q of (fence %s, seq %d) came after (fence %s, seq %d)",
				r, e.Operation, receipt.Fence, receipt.Seq, last.Fence, last.Seq)
		}
		if receipt.Fence > rec.Fence {
			w.Errorf("P1: the record of %q has the fence %s, below the accepted %s", r, rec.Fence, receipt.Fence)
		}
		last = receipt
	}
	if n := len(effects); n > 0 && effects[n-1].Value != value {
		w.Errorf("R16: the value of %q is %q, its last effect wrote %q", r, value, effects[n-1].Value)
	}
	w.checkReceipts(r, seen)
}

// checkReceipts: no receipt without an effect, and what was acknowledged stays.
func (w *world) checkReceipts(r lastword.Resource, effects map[string]bool) {
	w.Helper()
	for _, o := range w.operations(r) {
		_, found, err := w.subject.Lookup(w.ctx, w.gate, r, o)
		if err != nil {
			w.Fatalf("lookup %q: %v", o, err)
		}
		if found && !effects[o] {
			w.Errorf("R16: operation %q has a receipt on %q and had no effect", o, r)
		}
	}
	for _, ack := range w.acked {
		if ack.Resource != r || w.pruned {
			continue
		}
		got, found, err := w.subject.Lookup(w.ctx, w.gate, r, ack.Operation)
		if err != nil {
			w.Fatalf("lookup %q: %v", ack.Operation, err)
		}
		ack.Verdict = lastword.Replayed
		if !found || !sameReceipt(got, ack) {
			w.Errorf("R16: the receipt that was returned for %q on %q is not the stored one: found %v\n%+v\n%+v",
				ack.Operation, r, found, got, ack)
		}
	}
}
