package simulate

import (
	"fmt"
	"time"

	"github.com/lastword/lastword"
)

// note is a kind of line in a trace.
type note uint8

const (
	noteNothing note = iota
	noteAcquire
	noteGranted
	noteHears
	noteNotGranted
	notePark
	noteRenew
	noteRenewed
	noteRenewedHeard
	noteEnded
	noteLost
	noteWrite
	noteApplied
	noteRefused
	noteVerdict
	noteAdvance
	noteRegistered
	noteLookup
	noteLookedUp
	noteComplete
	noteRelease
	noteLeaves
	noteCancel
	noteDone
	noteFault
	noteStops
	noteResumes
	noteKilled
	noteCrash
	noteStarted
	noteStopped
	noteMoved
	noteAdvanced
	noteAgain
	noteUnsynced
	noteBackup
	noteRestored
	noteDeclared
	noteReopened
	noteCloned
	noteWitness
	noteLostRecord
	noteFrozen
	noteOpened
	noteBundle
	notePolicy
	noteKey
	noteTightened
	noteForged
	noteForgedRefused
	noteCalm
	noteViolation
)

// shown are the notes that people see, and the words for them.
var shown = map[note]string{
	noteAcquire: "asks for %s", noteGranted: "grants fence %f to %o", noteHears: "hears of its fence %f: %s", noteNotGranted: "is not granted: %s",
	noteRenewed: "renews fence %f", noteEnded: "ends fence %f: %s", noteLost: "trusts fence %f no more: %s",
	noteWrite: "writes under fence %f", noteApplied: "accepts the write of %o under fence %f", noteRefused: "refuses the write of %o under fence %f: %s",
	noteVerdict: "hears %s", noteAdvance: "registers fence %f", noteRegistered: "registers fence %f", noteLookup: "is asked for a receipt of %o",
	noteLookedUp: "finds the earlier write %s", noteComplete: "completes", noteRelease: "releases fence %f", noteLeaves: "leaves without a release",
	noteCancel: "cancels its attempt", noteFault: "%F", noteStops: "stops", noteResumes: "goes on", noteKilled: "is killed", noteCrash: "is killed %s",
	noteStarted: "starts, epoch %f", noteStopped: "stops: %s", noteMoved: "goes on with epoch %f", noteAdvanced: "advances the epoch to %f",
	noteUnsynced: "a release that was not synced is gone", noteBackup: "makes a backup", noteRestored: "puts the backup back %s", noteDeclared: "declares the resource restored",
	noteReopened: "closes the window after the restore", noteCloned: "the store is cloned, both processes start", noteWitness: "the witness is lost or exchanged",
	noteLostRecord: "the record is lost", noteFrozen: "freezes the record at fence %f", noteOpened: "releases the record at fence %f", noteBundle: "gets trust bundle %f",
	notePolicy: "raises the policy generation to %f", noteKey: "changes the signing key", noteTightened: "tightens the record to query",
	noteForged: "sends a forged grant: %s", noteForgedRefused: "refuses a forged grant: %s", noteCalm: "the faults stop", noteViolation: "%s",
}

type actor int16

const (
	actorStore actor = -1 - iota
	actorResource
	actorOperator
	actorFault
	actorObserver
	actorForger
	actorAuthority1
	actorAuthority2
)

func actorOwner(o *owner) actor  { return actor(o.round) }
func actorProcess(p *proc) actor { return actorAuthority1 - actor(p.id) }

// rawEvent is a line that is not written yet.
type rawEvent struct {
	at    int64
	what  note
	who   actor
	round int16
	fence uint64
	text  string
}

// note adds to the trace.
func (w *world) note(what note, who actor, round int16, fence uint64, text string) {
	h := w.trace ^ uint64(w.now)*0x9e3779b97f4a7c15
	h = (h ^ uint64(what)<<48 ^ uint64(uint16(who))<<32 ^ uint64(uint16(round))) * 0xd6e8feb86659fd93
	h ^= h >> 32
	h = (h ^ fence) * 0x9e3779b97f4a7c15
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 0x100000001b3
	}
	w.trace = h ^ h>>29
	if w.recording {
		w.events = append(w.events, rawEvent{w.now, what, who, round, fence, text})
	}
}

func (w *world) actorName(a actor) string {
	switch {
	case a >= 0 && int(a) >= planned:
		return fmt.Sprintf("owner of the calm %d", int(a)-planned+1)
	case a >= 0:
		return fmt.Sprintf("owner of round %d", a)
	}
	return [...]string{"authority", "resource", "operator", "fault", "observer", "forger", "authority 1", "authority 2"}[-1-a]
}

// fenceText is a fence as people read it: epoch and counter.
func fenceText(f uint64) string {
	t := lastword.Token(f)
	if t.Epoch() == 0 {
		return fmt.Sprintf("%d", t.Counter())
	}
	return fmt.Sprintf("%d.%d", t.Epoch(), t.Counter())
}

// event is the line for people, false if they do not see it.
func (w *world) event(e *rawEvent) (Event, bool) {
	format, ok := shown[e.what]
	if !ok {
		return Event{}, false
	}
	text := ""
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			text += format[i : i+1]
			continue
		}
		i++
		switch format[i] {
		case 'f':
			if e.what == noteStarted || e.what == noteMoved || e.what == noteAdvanced || e.what == noteBundle || e.what == notePolicy {
				text += fmt.Sprint(e.fence)
			} else {
				text += fenceText(e.fence)
			}
		case 's':
			if e.what == noteAcquire {
				text += string(laneNames[w.owners[e.round].lane])
			} else {
				text += e.text
			}
		case 'o':
			text += "round " + fmt.Sprint(e.round)
		case 'F':
			text += catalogue[faultKind(e.fence)].name
		}
	}
	out := Event{At: time.Duration(e.at), Actor: w.actorName(e.who), Text: text}
	switch e.what { //nolint:exhaustive // the others are none of its
	case noteApplied:
		out.Verdict, out.Fence = string(lastword.Applied), e.fence
	case noteRefused:
		out.Fence = e.fence
		for i := range len(e.text) {
			if e.text[i] == ' ' {
				out.Verdict = e.text[:i]
				break
			}
		}
	case noteGranted, noteHears, noteRelease, noteRegistered, noteWrite:
		out.Fence = e.fence
	default:
	}
	return out, true
}
