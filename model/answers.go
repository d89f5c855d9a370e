package model

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// truthful reports whether what the authority answers is so: on what the store had
// when the process decided, and on what that process had watched.
func (m *machine) truthful(st *storeState, p procState, q message, d decision) bool {
	l, a := &st.rec.Lease, d.answer
	live := p.live(st)
	mine := live && l.ID == q.lease && l.Fence == q.fence && l.Owner == clientNames[q.client]
	req := st.request(q.client, q.attempt)
	switch q.kind {
	case askAcquire:
		return m.grantTruthful(st, p, req, q, d)
	case askRenew:
		return (a.Code == "") == mine && (!mine || d.change.Record.Lease.Deadline >= st.h.Tick+l.Ticks)
	case askRelease:
		again := names(q, req) && req.State == lastword.StateReleased
		return a.Code == codeIf(mine || again, lastword.CodeNotHolder) && (a.Code != "" || a.Repeated == !mine)
	case askComplete:
		return completeTruthful(req, mine, q, d)
	case askCancel:
		ends := live && req != nil && l.ID == req.LeaseID
		return a.Code == "" && a.Repeated == (req != nil && !ends) && (!ends || d.change.Record.Lease.State == lastword.StateCanceled)
	case askRevoke:
		return a.Code == codeIf(live && l.Fence == q.fence, lastword.CodeNotHolder)
	case askStatus:
		if req != nil && req.LeaseID == q.lease && l.ID != q.lease && d.told.asked != req.State {
			return false
		}
		return (d.told.asked == lastword.StateHeld) == (live && l.ID == q.lease) && (d.told.lease != "") == live
	case doWrite, doAdvance:
		return (d.state == lastword.StateHeld) == (live && l.ID == q.lease && l.Fence == q.fence)
	default:
		return true
	}
}

// live reports whether the present tenure is valid as far as process p knows: it is
// open, and neither counter nor watching nor a regression has ended it (R4, R8, R10).
func (p procState) live(st *storeState) bool {
	l := &st.rec.Lease
	return open(*l) && st.h.Tick < l.Deadline && p.watched < l.TTL && l.Fence.Epoch() >= st.h.Floor
}

// delayed reports whether the time after an expiry, and only after one, in which
// nothing is granted still runs: neither the counter nor the watching of the process
// says that it is over (R3).
func (m *machine) delayed(st *storeState, p procState) bool {
	l, watched, ended := &st.rec.Lease, p.watched, st.rec.Lease.EndedTick
	if open(*l) {
		watched, ended = watched-l.TTL, min(st.h.Tick, l.Deadline)
	} else if l.State != lastword.StateExpired {
		return false
	}
	return m.w.delay > 0 && st.h.Tick < ended+m.w.delayTicks() && watched < m.w.delay
}

// names reports whether q names the tenure of the request, all of it.
func names(q message, req *core.Request) bool {
	return req != nil && req.LeaseID != "" && req.LeaseID == q.lease && req.Fence == q.fence
}

func codeIf(done bool, otherwise lastword.Code) lastword.Code {
	if done {
		return ""
	}
	return otherwise
}

// grantTruthful is R2 and R3: a known request is answered as it stands, an unknown one
// is granted unless somebody holds or a delay runs.
func (m *machine) grantTruthful(st *storeState, p procState, req *core.Request, q message, d decision) bool {
	l, a, live := &st.rec.Lease, d.answer, p.live(st)
	switch {
	case req != nil && req.LeaseID == "":
		return a.Code == lastword.CodeCanceled
	case req != nil && req.Params != m.paramsOf(q):
		return a.Code == lastword.CodeRequestConflict
	case req != nil && live && l.ID == req.LeaseID:
		return a.Code == "" && a.Repeated && a.Lease.Fence == req.Fence && a.Lease.ID == req.LeaseID
	case req != nil:
		how := req.State
		if open(*l) && l.ID == req.LeaseID { // lapsed, and not yet marked
			how = lastword.StateExpired
		}
		return a.Code == lastword.CodeTenureEnded && a.Ended.State == how && a.Ended.LeaseID == req.LeaseID && a.Ended.Fence == req.Fence
	case live:
		return a.Code == lastword.CodeHeld && !a.Blocked && a.Lease.ID == l.ID
	case st.rec.Epoch > st.h.Epoch:
		return a.Code == lastword.CodeFenceRegression
	case st.rec.Epoch == st.h.Epoch && st.rec.Counter >= lastword.MaxCounter:
		return a.Code == lastword.CodeExhausted
	case st.h.Tick < st.h.HoldUntil, m.delayed(st, p):
		return a.Code == lastword.CodeHeld && a.Blocked
	}
	how := l.State
	if open(*l) {
		how = lastword.StateExpired
	}
	return a.Code == "" && !a.Repeated && a.Previous.LeaseID == l.ID && a.Previous.State == how && a.Previous.Completed == l.Completed
}

// completeTruthful is R6b: one result, told again as often as it is asked for.
func completeTruthful(req *core.Request, mine bool, q message, d decision) bool {
	a := d.answer
	switch {
	case names(q, req) && req.Completed && string(req.Result) != string(q.result()):
		return a.Code == lastword.CodeRequestConflict
	case names(q, req) && req.Completed:
		return a.Code == "" && a.Repeated
	}
	return a.Code == codeIf(mine, lastword.CodeNotHolder) && !a.Repeated
}

func (m *machine) paramsOf(q message) lastword.Digest {
	if q.otherRoot {
		return core.Params(m.ttl, otherRoot, class)
	}
	return core.Params(m.ttl, root, class)
}
