package core

import "github.com/lastword/lastword"

// Report decides on a fence that a resource tells of, with the lease of its verified
// grant (R10). It counts if this record cannot have issued it: it is not below the next
// fence, or the record knows another lease of it. Then the record is stopped, which is
// accepted (code ""); a fence that contradicts nothing is NOT_HOLDER and changes
// nothing, and so is one that is not above what was reported before.
func Report(rec Record, h Header, fence lastword.Token, lease string) (Change, Answer) {
	switch {
	case fence != 0 && fence == rec.Reported:
		return Change{}, Answer{Repeated: true}
	case !rec.contradicts(h, fence, lease) || fence < rec.Reported:
		return Change{}, Answer{Code: lastword.CodeNotHolder, Lease: rec.Lease}
	}
	next := rec.next()
	next.Reported = fence
	return Change{Write: true, Record: next}, Answer{Lease: next.Lease}
}

func (rec Record) contradicts(h Header, fence lastword.Token, lease string) bool {
	for _, known := range [...]lastword.Ending{rec.Lease.ending(), rec.Previous} {
		if known.LeaseID != "" && known.Fence == fence {
			return lease != known.LeaseID
		}
	}
	if next, ok := rec.nextFence(h); ok {
		return fence >= next
	}
	return fence > rec.issued() // there is no next one
}

// issued is the highest fence that the record has issued, 0 if none.
func (rec Record) issued() lastword.Token {
	fence, err := lastword.MakeToken(rec.Epoch, rec.Counter)
	if err != nil {
		return 0
	}
	return fence
}

// Resume lets a resource be granted again, for an operator (R10). reported must be what
// stopped it; else, and if nothing did, it is REQUEST_CONFLICT. A tenure that is still open ends as REVOKED,
// since another one may have its fence, and the next fence is above every one that was
// reported. A fence of an issuer epoch above this store's is FENCE_REGRESSION: first the
// store needs an epoch above it.
func Resume(rec Record, h Header, c Clock, reported lastword.Token) (Change, Answer) {
	settled, change := rec.settle(h, c)
	switch {
	case rec.Reported == 0: // nobody confirms what was not reported
		return change, Answer{Code: lastword.CodeRequestConflict, Lease: settled.Lease}
	case reported != rec.Reported:
		return change, Answer{Code: lastword.CodeRequestConflict, Lease: settled.Lease}
	case reported.Epoch() > h.Epoch:
		return change, Answer{Code: lastword.CodeFenceRegression, Lease: settled.Lease}
	}
	switch {
	case settled.Lease.open():
		change = rec.end(lastword.StateRevoked, c.Tick)
	case !change.Write:
		change = Change{Write: true, Record: rec.next()}
	}
	next := &change.Record
	next.Reported = 0
	if reported > rec.issued() {
		next.Epoch, next.Counter = reported.Epoch(), reported.Counter()
	}
	return change, Answer{Lease: next.Lease}
}
