package model

import (
	"fmt"
	"strings"

	"github.com/lastword/lastword"
)

// Event is one step of a schedule: who did what. Its text form is "who: what".
type Event struct {
	Actor string
	Text  string
}

// String is "who: what".
func (e Event) String() string { return e.Actor + ": " + e.Text }

// MarshalText implements encoding.TextMarshaler.
func (e Event) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. The error is
// [lastword.CodeInvalid].
func (e *Event) UnmarshalText(b []byte) error {
	who, what, ok := strings.Cut(string(b), ": ")
	if !ok {
		return &lastword.Error{Code: lastword.CodeInvalid, Op: "replay", Message: fmt.Sprintf("the event %q has no actor", b)}
	}
	e.Actor, e.Text = who, what
	return nil
}

// value is the business value of the resource: "-", or whose it is and under which
// fence it was written.
func (m *machine) value(s *state) string {
	p := m.places.at(s.place)
	if p.value == 0 {
		return "-"
	}
	return clientNames[p.value-1] + "@" + number(p.by)
}

// number is a fence for people: the counter alone in the first epoch.
func number(f lastword.Token) string {
	if f.Epoch() == 0 {
		return f.String()
	}
	return fmt.Sprintf("%d.%d", f.Epoch(), f.Counter())
}

// describe tells one step.
func (m *machine) describe(before, after *state, ev event) Event {
	return Event{Actor: actorNames[ev.who], Text: m.text(before, after, ev)}
}

func (m *machine) text(before, after *state, ev event) string {
	switch ev.kind {
	case evServe, evServeTwice, evCommit, evCommitFailed:
		return m.servedText(after, ev)
	case evTransact, evTransactTwice, evSecondStep:
		return m.placeText(before, after, ev)
	case evHear:
		return "hears " + m.heardText(m.msgs.at(ev.a))
	case evTick:
		return fmt.Sprintf("time %d", after.now)
	case evRound:
		return m.roundText(before, after, ev)
	case evStart, evAdvanceEpoch, evMoved:
		p := m.procs.at(after.proc[ev.who-process1])
		word := map[eventKind]string{evStart: "starts", evAdvanceEpoch: "an operator advances; starts", evMoved: "goes on"}[ev.kind]
		return fmt.Sprintf("%s in epoch %d", word, p.held)
	case evCrash:
		at := m.procs.at(before.proc[ev.who-process1]).at
		return fmt.Sprintf("crashes; the counter in the store is %d", m.stores.at(after.store[at]).rec.Counter)
	case evStartStep:
		p := m.procs.at(after.proc[ev.who-process1])
		if ev.extra == 1 {
			return fmt.Sprintf("announces epoch %d in the witness", p.planEpoch)
		}
		return fmt.Sprintf("sets epoch %d in the store", p.planEpoch)
	case evDeclare:
		return "the restore of the resource is declared: closed below " + number(m.places.at(after.place).rec.Fence+1)
	case evRevoke:
		return "an operator revokes fence " + number(m.sent(before, after).fence)
	case evForge:
		q := m.sent(before, after)
		what := "a write"
		if q.kind == doAdvance {
			what = "a registration"
		}
		if q.leaked {
			return "somebody sends " + what + " with a grant signed by a leaked key, fence " + number(q.fence)
		}
		return "somebody sends " + what + " with a forged grant, fence " + number(q.fence)
	case evCalm:
		if ev.extra == 1 {
			return "the end: somebody still waits"
		}
		return "the faults stop"
	}
	if text, ok := plainTexts[ev.kind]; ok {
		return text
	}
	return m.clientText(before, after, ev)
}

var plainTexts = map[eventKind]string{
	evStartFailed: "another start was faster; begins again", evStopped: "stops granting",
	evClone: "the store is cloned, authority 2 is to start on the copy", evBackup: "the authority's store is backed up",
	evRestore: "the authority's backup is put back", evPlaceBackup: "the resource is backed up",
	evPlaceRestore: "the resource's backup is put back", evPause: "is stopped after its own check",
	evResume: "is continued", evCheck: "checks that it holds", evClientCrash: "crashes and forgets",
	evRelease: "releases", evCancel: "gives up and cancels", evDraw: "asks for a fresh number",
	evOpen: "an operator releases the record", evAsk: "asks what is known of its tenure", evNoRenewal: "has no answer to its renewal",
	evNoStatus: "has no answer to its question", evStop: "tells its work to stop", evOverrun: "waits no longer for its work",
	evLoseWitness: "the witness is lost", evOtherWitness: "the witness is exchanged for that of another store", evLoseStore: "the store is lost; an empty one takes its place",
	evLose: "the record is lost, its receipts stay", evRegister: "asks the resource to register its fence", evLookup: "asks whether op-0 happened",
	evComplete: "completes", evRenew: "asks to renew",
}

// sent is the message that is under way after a step and was not before.
func (m *machine) sent(before, after *state) message {
	for _, msg := range after.net {
		if msg != 0 && !before.carries(msg) {
			return *m.msgs.at(msg)
		}
	}
	return message{}
}

func (m *machine) clientText(before, after *state, ev event) string {
	q := m.msgs.at(ev.a)
	switch ev.kind {
	case evAcquire:
		return "acquires with request " + requestID(q.client, q.attempt)
	case evRepeat:
		return "asks again with request " + requestID(q.client, q.attempt)
	case evMistake:
		if q.kind < doWrite {
			return "sends by mistake: " + m.requestText(q) + m.mistakeText(q)
		}
		return "by mistake sends " + mistaken(q) + " under " + number(q.fence)
	case evWrite:
		return fmt.Sprintf("sends %s under %s", numbered(q), number(q.fence))
	case evResubmit:
		if ev.a == 0 {
			return "goes on without the answer"
		}
		return fmt.Sprintf("sends %s again under %s", numbered(q), number(q.fence))
	default:
		return eventNames[ev.kind]
	}
}

// mistakeText is what is wrong with a request.
func (m *machine) mistakeText(q *message) string {
	switch {
	case q.otherRoot:
		return ", for other work"
	case q.otherPayload:
		return ", with another result"
	case q.kind == askAcquire:
		return ""
	default:
		return ", of lease " + q.lease
	}
}

func mistaken(q *message) string {
	switch text := numbered(q); {
	case q.otherRoot:
		return text + " of other work"
	case q.otherPayload:
		return text + " with other content"
	default:
		return text
	}
}

func (m *machine) roundText(before, after *state, ev event) string {
	at := m.procs.at(before.proc[ev.who-process1]).at
	if before.store[at] == after.store[at] {
		return "looks"
	}
	return fmt.Sprintf("moves the counter to %d", m.stores.at(after.store[at]).h.Tick)
}

func (m *machine) servedText(after *state, ev event) string {
	q := m.msgs.at(ev.a)
	text := m.requestText(q)
	switch ev.kind {
	case evServe:
		if m.procs.at(after.proc[ev.who-process1]).read != 0 {
			return "reads and decides on " + text
		}
	case evServeTwice:
		text += " (a copy stays under way)"
	case evCommitFailed:
		return "cannot commit " + text + ": what it had read is no more"
	case evCommit:
		text = "commits: " + text
	default:
	}
	if ev.b == 0 {
		return text
	}
	r := m.msgs.at(ev.b)
	switch {
	case q.kind == askAcquire && r.code == "":
		return text + ": granted " + number(r.fence)
	case q.kind == askNumber:
		return text + ": number " + number(r.fence)
	case r.kind == doWrite || r.kind == doAdvance:
		return text + ": " + string(r.heard.State)
	case r.kind == reStatus:
		return text + ": " + toldText(r)
	case r.code == "":
		return text + ": done"
	}
	return text + ": " + r.code
}

func (m *machine) requestText(q *message) string {
	who := clientNames[q.client]
	switch q.kind {
	case askAcquire:
		return fmt.Sprintf("request %s of time %d", requestID(q.client, q.attempt), q.sent)
	case askRenew:
		return fmt.Sprintf("%s's renewal of %s of time %d", who, number(q.fence), q.sent)
	case askRelease:
		return fmt.Sprintf("%s's release of %s", who, number(q.fence))
	case askComplete:
		return fmt.Sprintf("%s's completion of %s", who, number(q.fence))
	case askCancel:
		return "the cancellation of " + requestID(q.client, q.attempt)
	case askStatus:
		return fmt.Sprintf("%s's question about %s of time %d", who, number(q.fence), q.sent)
	case askRevoke:
		return "the revocation of " + number(q.fence)
	case askNumber:
		return who + "'s wish for a number"
	default:
		return fmt.Sprintf("status of %s's %s", who, number(q.fence))
	}
}

func toldText(q *message) string {
	if q.told.asked == lastword.StateHeld {
		return fmt.Sprintf("%s, %d left", q.told.asked, q.told.left/tick)
	}
	return string(q.told.asked)
}

func (m *machine) placeText(before, after *state, ev event) string {
	q := m.msgs.at(ev.a)
	what := fmt.Sprintf("%s's %s under %s", clientNames[q.client], numbered(q), number(q.fence))
	switch {
	case q.forged:
		what = "a forged write under " + number(q.fence)
	case q.kind == doAdvance:
		what = "registration of " + number(q.fence)
	case q.kind == doLookup:
		what = "lookup of op-0"
	}
	if ev.kind == evTransactTwice {
		what += " (a copy stays under way)"
	}
	if ev.b == 0 {
		switch {
		case ev.kind == evTransact && q.forged:
			return what + ": " + m.verdictOf(before, after)
		case m.places.at(after.place).rec == m.places.at(before.place).rec && after.place == before.place:
			return what + ": looks first"
		}
		return what + ": first half"
	}
	r := m.msgs.at(ev.b)
	if q.kind == doLookup {
		if r.found {
			return what + ": found"
		}
		return what + ": not found"
	}
	return what + ": " + r.code
}

func (m *machine) verdictOf(before, after *state) string {
	if before.place == after.place {
		return string(lastword.Unverified)
	}
	return string(lastword.Applied)
}

func (m *machine) heardText(q *message) string {
	switch q.kind {
	case reAcquire:
		if q.code == "" {
			return fmt.Sprintf("of its grant %s, for request of time %d", number(q.fence), q.sent)
		}
		return fmt.Sprintf("%s, for request of time %d", q.code, q.sent)
	case reRenew:
		if q.code == "" {
			return "that it has renewed"
		}
		return q.code + " to its renewal"
	case reStatus:
		return fmt.Sprintf("that its tenure is %s, asked at time %d", toldText(q), q.sent)
	case reComplete:
		if q.code == "" {
			return "that it has completed"
		}
		return q.code + " to its completion"
	case reNumber:
		return "its number, " + number(q.fence)
	case reLookup:
		return fmt.Sprintf("that the receipt was found: %t", q.found)
	case reAdvance:
		return q.code + " to its registration"
	default:
		return q.code + " to " + numbered(q)
	}
}

// numbered is an operation with its number in the tenure, if the client gave one.
func numbered(q *message) string {
	if q.seq == 0 {
		return operationName(q.op)
	}
	return fmt.Sprintf("%s, seq %d,", operationName(q.op), q.seq)
}

// trace is a finding as events and, for each, the resource's value after it.
func (e *explorer) trace(f finding) (all []Event, values []string) {
	path := e.path(f.parent)
	for k := 1; k < len(path); k++ {
		before, after := *e.at(path[k-1]), *e.at(path[k])
		for _, next := range e.m.successors(&before) {
			if next.s == after {
				all = append(all, e.m.describe(&before, &after, next.ev))
				values = append(values, e.m.value(&after))
				break
			}
		}
	}
	before := *e.at(f.parent)
	all = append(all, e.m.describe(&before, &f.last.s, f.last.ev))
	return all, append(values, e.m.value(&f.last.s))
}
