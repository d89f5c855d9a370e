package simulate

import "fmt"

// verifyAll is the one look at the end of a world: receipts, business rows and history
// have to say the same, and nothing may be left open.
func (w *world) verifyAll() {
	for l := range w.lanes {
		ln, ls := &w.lanes[l], &w.place.lane[l]
		w.count.ProtectedMutations += ls.changes
		w.count.CheckedMutations += ls.kept
		if w.wiring.Skips != 0 || ln.spoiled {
			continue
		}
		for i := range ln.done {
			switch {
			case i == junk:
			case ln.done[i] && ls.effects[i] != 1:
				w.violate(acknowledgedWithoutEffect, -1, "at the end an intent counts as done that has not one effect")
			case !ln.done[i] && ln.touched[i]:
				w.count.UnknownOpen++
				w.violate(unknownLeftOpen, -1, fmt.Sprintf("at the end the outcome of intent %d of %s is unknown, %d is next", i, laneNames[l], ln.first()))
			case !ln.done[i] && ls.effects[i] != 0:
				w.violate(refusedButDone, -1, "at the end an intent that counts as not done has an effect")
			}
			if w.stopped {
				return
			}
		}
		if ls.kept != ls.changes {
			w.violate(receiptDisagrees, -1, "at the end receipts and business rows differ")
		}
		var highest, of uint64
		for i := range ls.receipts {
			if r := &ls.receipts[i]; r.known {
				highest, of = max(highest, uint64(r.fence)), of+1
				w.check(w.ghost[l].find(r.fence, r.lease) > 0 || w.lanes[l].mistaken, unauthorizedAccept, -1, "at the end a receipt is of a fence that was never granted")
			}
		}
		w.check(of == ls.kept, receiptDisagrees, -1, "at the end receipts are missing")
		w.check(highest <= uint64(ls.rec.Fence) || !ls.rec.Exists, wrongRecord, -1, "at the end the record is below a receipt")
		if w.gate != nil {
			w.gate.verify(w, uint8(l))
		}
		if w.stopped {
			return
		}
	}
}
