package soak

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/lab/history"
)

// The model of one resource: who holds it, and what its record and its document say. It
// is what the rules come to for somebody who looks at one resource from outside, and
// knows nothing of clocks but that a promise lasts (R4, R8, R35).

const (
	wordBits     = 64
	maxWords     = 8
	maxOperation = wordBits * maxWords
)

// view is a state of the model. It is comparable.
type view struct {
	fence   lastword.Token // granted last
	attempt string         // whose tenure it is
	held    bool
	until   time.Duration // it was promised until then, if nobody ends it
	high    lastword.Token
	value   string
	applied [maxWords]uint64 // operations that had their effect
}

func (v view) has(op int) bool { return v.applied[op/wordBits]&(1<<(op%wordBits)) != 0 }

func (v view) with(op int, value string, fence lastword.Token) view {
	v.applied[op/wordBits] |= 1 << (op % wordBits)
	v.value, v.high = value, fence
	return v
}

// move is one operation of a history: a call, and what is known of it by now.
type move struct {
	Call
	operation int
	perhaps   bool // nobody heard the end of it: it may have been done, or not
	excused   bool // a key was revoked about then, which ends tenures before their time
	mayUndo   bool // the authority was killed about then: an answered release may be undone (R6)
}

// step is what can follow from a state by a move; nothing if it cannot have been.
func step(v view, m move) []view {
	switch m.Op {
	case "acquire":
		return acquired(v, m)
	case "renew":
		return renewed(v, m)
	case "release", "cancel", opRevoke:
		return ended(v, m)
	case opWrite:
		return written(v, m)
	case opAdvance:
		if m.Fence < v.high {
			break
		}
		after := v
		after.high = m.Fence
		if m.Code == "" {
			return []view{after}
		}
		return []view{v, after} // it was refused, or nobody heard
	case opRead:
		if m.Value != v.value || m.Fence != v.high {
			return nil
		}
	}
	return []view{v}
}

func nameOf(m move) string { return m.Owner + " " + m.RequestID }

// over reports whether the tenure that is held may have come to its end by time.
func over(v view, m move) bool { return m.excused || m.Heard >= v.until }

func acquired(v view, m move) []view {
	name := nameOf(m)
	switch {
	case m.perhaps:
		next := v // the time of an open call has no end, so whatever was held may be over
		next.fence, next.attempt, next.held, next.until = m.Fence, name, true, 0
		if m.Fence > v.fence {
			return []view{v, next}
		}
		return []view{v}
	case m.Accepted() && v.held && v.fence == m.Fence && v.attempt == name: // repeated
		v.until = max(v.until, m.Sent+m.Remaining)
		return []view{v}
	case m.Accepted():
		if m.Fence <= v.fence || v.held && !over(v, m) {
			return nil
		}
		v.fence, v.attempt, v.held, v.until = m.Fence, name, true, m.Sent+m.Remaining
		return []view{v}
	case m.Code == lastword.CodeHeld:
		if !v.held || m.Told != 0 && m.Told != v.fence {
			return nil
		}
	case m.Code == lastword.CodeTenureEnded:
		if v.held && v.attempt == name {
			if !over(v, m) {
				return nil
			}
			v.held = false
		}
	}
	return []view{v}
}

func renewed(v view, m move) []view {
	mine := v.held && v.fence == m.Fence
	switch {
	case m.Accepted():
		if !mine {
			return nil
		}
		v.until = max(v.until, m.Sent+m.Remaining)
	case m.Code == lastword.CodeNotHolder && mine:
		if !over(v, m) {
			return nil
		}
		after := v
		after.held = false
		if m.excused { // the holder of a revoked key is refused before its tenure is ended
			return []view{v, after}
		}
		return []view{after}
	}
	return []view{v}
}

// ended is a release, a cancel or a revocation.
func ended(v view, m move) []view {
	mine := v.held && v.attempt == nameOf(m)
	after := v
	after.held = after.held && !mine
	switch {
	case m.perhaps, m.Accepted() && m.mayUndo:
		if mine {
			return []view{v, after}
		}
	case m.Accepted():
		return []view{after}
	case m.Code == lastword.CodeNotHolder && mine && m.Op == "release":
		if !over(v, m) {
			return nil
		}
		return []view{after}
	}
	return []view{v}
}

func written(v view, m move) []view {
	admitted := m.Fence >= v.high && !v.has(m.operation)
	switch {
	case m.perhaps:
		if admitted {
			return []view{v, v.with(m.operation, m.Value, m.Fence)}
		}
	case m.Verdict == string(lastword.Applied), m.Verdict == unchecked:
		if !admitted {
			return nil
		}
		return []view{v.with(m.operation, m.Value, m.Fence)}
	case m.Verdict == string(lastword.Replayed):
		if !v.has(m.operation) {
			return nil
		}
	case m.Verdict == string(lastword.StaleOwner):
		if v.high <= m.Fence {
			return nil
		}
	case m.Verdict == string(lastword.Unverified) && m.Why == "": // the authority said that it is not held
		if v.held && v.fence == m.Fence {
			if !over(v, m) {
				return nil
			}
			after := v
			after.held = false
			return []view{v, after} // the authority counts by its own clock
		}
	}
	return []view{v}
}

// check is the history of one resource.
type check struct {
	resource lastword.Resource
	moves    []move
}

// histories are the moves at a cell's resources, with what is known by now of the calls
// that nobody heard the end of.
func (r *run) histories(c *cell, calls []Call, w rows, granted grantedAs) (checks []check) {
	byResource := map[lastword.Resource][]move{}
	index := map[operation]int{}
	used := map[lastword.Resource]int{}
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, byTime)
	for _, call := range calls {
		m := move{Call: call, perhaps: unheard(call), excused: r.about(revokeKey, call), mayUndo: r.about(killAuthority, call)}
		if m.perhaps {
			m.Heard = math.MaxInt64
		}
		switch call.Op {
		case opWrite:
			of := operation{call.Resource, call.Operation}
			if _, ok := index[of]; !ok {
				index[of] = used[call.Resource]
				used[call.Resource]++
			}
			m.operation = index[of]
			if _, found := w.receipts[of]; m.perhaps && !found {
				continue // by now it is known that it was not done
			}
		case "acquire":
			if g := granted[attemptOf(call)]; m.perhaps {
				if g == nil || g.Fence == 0 {
					continue
				}
				m.Fence = g.Fence
			}
		case "renew", "complete":
			if m.perhaps {
				continue // it may have lengthened a promise that nobody heard
			}
		}
		byResource[call.Resource] = append(byResource[call.Resource], m)
	}
	for resource, moves := range byResource {
		if used[resource] > maxOperation {
			r.broke("not_linearizable", fmt.Sprintf("%s: %d operations are more than the checker takes", resource, used[resource]))
			continue
		}
		checks = append(checks, check{resource, moves})
	}
	return checks
}

// about reports whether something was done to the authority while a call was under way,
// or soon before.
func (r *run) about(k kind, c Call) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.turned {
		if t.kind == k && c.Sent-sweeping <= t.ended && (c.Open || c.Heard >= t.began-sweeping) {
			return true
		}
	}
	return false
}

// excusedSince reports whether a key was revoked since a moment, or soon before: then an
// operator ended tenures whose holders need not have heard of it.
func (r *run) excusedSince(from time.Duration) bool {
	return r.about(revokeKey, Call{Fact: history.Fact{Sent: from, Heard: history.Clock()}})
}

var resourceModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{view{}} },
	Step: func(state, input, _ any) (next []any) {
		for _, v := range step(state.(view), input.(move)) {
			next = append(next, v)
		}
		return next
	},
}

// checkerTime bounds the check of one resource. One that takes longer has not been
// checked, which is a failure. To look for all orders of a history that has none takes
// long: of a system with a defect there is no need to.
const (
	checkerTime       = 30 * time.Second
	defectCheckerTime = time.Second
)

func (r *run) checkLinearizable(checks []check, f *findings) {
	began := history.Clock()
	model := resourceModel.ToModel()
	var running sync.WaitGroup
	work := make(chan check)
	for range 2 {
		running.Go(func() {
			for c := range work {
				r.checkOne(model, c)
			}
		})
	}
	for _, c := range checks {
		f.resources++
		f.operations += len(c.moves)
		work <- c
	}
	close(work)
	running.Wait()
	f.linearizableIn = since(began)
}

func (r *run) checkOne(model porcupine.Model, c check) {
	ops := make([]porcupine.Operation, 0, len(c.moves))
	clients := map[string]int{}
	for _, m := range c.moves {
		if _, ok := clients[m.Who]; !ok {
			clients[m.Who] = len(clients)
		}
		ops = append(ops, porcupine.Operation{ClientId: clients[m.Who], Input: m, Call: int64(m.Sent), Return: int64(m.Heard)})
	}
	limit := checkerTime
	if r.opts.Variant != "none" {
		limit = defectCheckerTime
	}
	result, info := porcupine.CheckOperationsVerbose(model, ops, limit)
	switch result {
	case porcupine.Ok:
	case porcupine.Unknown:
		r.broke("checker_timeouts", fmt.Sprintf("%s: its history of %d operations was not checked within %v", c.resource, len(ops), limit))
	case porcupine.Illegal:
		r.broke("not_linearizable", fmt.Sprintf("%s: no order explains its %d operations; %s", c.resource, len(ops), stuck(c, ops, info)+r.near(c)))
	}
}

// stuck names the first operations that the longest explanation leaves out.
func stuck(c check, ops []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []int
	for _, parts := range info.PartialLinearizations() {
		for _, p := range parts {
			if len(p) > len(longest) {
				longest = p
			}
		}
	}
	in := map[int]bool{}
	for _, i := range longest {
		in[i] = true
	}
	text := fmt.Sprintf("explained are %d", len(longest))
	shown := 0
	from := max(0, len(longest)-4)
	for _, i := range longest[from:] {
		text += "; [" + describe(c.moves[i]) + "]"
	}
	for i := range ops {
		if !in[i] && shown < 4 {
			shown++
			text += "; not explained: " + describe(c.moves[i])
		}
	}
	return text
}

// near names what was done to the authority while a resource was in use.
func (r *run) near(c check) (text string) {
	first, last := time.Duration(math.MaxInt64), time.Duration(0)
	for _, m := range c.moves {
		first, last = min(first, m.Sent), max(last, m.Sent)
	}
	for _, t := range r.turned {
		if t.ended >= first && t.began <= last {
			text += fmt.Sprintf("; %s from %v to %v", t.kind, t.began, t.ended)
		}
	}
	return text
}

func describe(m move) string {
	text := fmt.Sprintf("%s %s fence %d of %s %s, sent %v heard %v", m.Who, m.Op, m.Fence, m.Owner, m.RequestID, m.Sent, m.Heard)
	if m.perhaps {
		text += ", no answer"
	}
	if m.Op == opWrite {
		text += fmt.Sprintf(", %s %s", m.Operation, m.Verdict)
	}
	if m.Op == opRead {
		text += fmt.Sprintf(", %q", m.Value)
	}
	if m.Code != "" {
		text += ", " + string(m.Code)
	}
	if m.Said != "" {
		text += fmt.Sprintf(" (%s)", m.Said)
	}
	if m.Told != 0 {
		text += fmt.Sprintf(" %d", m.Told)
	}
	if m.Remaining != 0 {
		text += fmt.Sprintf(", until %v", m.Sent+m.Remaining)
	}
	return text
}
