package simulate

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

type messageKind uint8

const (
	_ messageKind = iota
	// To an authority process.
	askAcquire
	askRenew
	askRelease
	askComplete
	askCancel
	askStatus
	askRevoke
	askNumber // only broken systems have it
	askHeld   // of the resource: is this tenure held?
	// To the resource.
	doWrite
	doAdvance
	doLookup
	// To an owner.
	reAcquire
	reRenew
	reRelease
	reComplete
	reStatus
	reNumber
	reWrite
	reAdvance
	reLookup
	// To the resource.
	reHeld
	messageKinds
)

var messageNames = [messageKinds]string{
	askAcquire: "an acquire", askRenew: "a renewal", askRelease: "a release", askComplete: "a completion", askCancel: "a cancellation",
	askStatus: "a question about the own tenure", askRevoke: "a revocation", askNumber: "a wish for a number", askHeld: "the resource's question",
	doWrite: "a write", doAdvance: "a registration", doLookup: "a lookup",
	reAcquire: "the answer to an acquire", reRenew: "the answer to a renewal", reRelease: "the answer to a release",
	reComplete: "the answer to a completion", reStatus: "the answer about the own tenure", reNumber: "a number",
	reWrite: "the answer to a write", reAdvance: "the answer to a registration", reLookup: "the answer to a lookup", reHeld: "the authority's answer",
}

// message is what is under way, or waits somewhere.
type message struct {
	id    uint32
	life  uint32 // a message that is gone has a later one
	kind  messageKind
	lane  uint8
	to    uint8 // process
	used  bool
	round int16  // whose it is
	no    uint16 // of the messages of its round

	sent   int64 // on its sender's clock
	fence  lastword.Token
	lease  string
	grant  string
	op     int16
	intent int16
	seq    uint64
	code   string

	// Of an answer.
	ttl, remaining int64
	own            uint64
	waited, again  bool
	found          bool
	how            lastword.State
	state          lastword.State // of the resource

	// Of what is at the resource.
	heard       core.Heard
	asked       bool // the authority has been asked
	look        bool // the record was looked for and not found
	behind      bool // STALE_OWNER: the next fence is asked for
	jump        bool // FENCE_JUMP: the next fence is asked for
	rounds      uint8
	about       uint32 // message that a question is about
	aboutL      uint32 // its life
	class       uint8  // of forgery, 0 for none
	wrong       mistake
	digest      lastword.Digest
	leaked      bool   // forged with the authority's own key
	fault       *fault // that made it late or a copy
	known       bool   // the operation had a receipt when it was decided
	torn        *torn  // what its first half had read
	holder      string // whose tenure is the present one
	holderFence lastword.Token
	gate        *passing
	root        bool   // of another piece of work
	era         int32  // restores of the resource when it was answered
	gen         uint64 // policy generation of the grant
	minimum     uint32
	floor       uint64
}

// mistake is what an owner gets wrong about one write.
type mistake uint8

const (
	noMistake    mistake = iota
	otherRoot            // of another piece of work
	otherContent         // an operation that has been done, with other content
	numberAhead          // a number is left out
	numberTaken          // a number that has been used
	mistakes
)

// alloc is an unused message.
func (w *world) alloc() *message {
	if len(w.free) == 0 {
		chunk := make([]message, 64)
		for i := range chunk {
			chunk[i].id = uint32(len(w.post))
			w.post = append(w.post, &chunk[i])
			w.free = append(w.free, chunk[i].id)
		}
	}
	n := len(w.free) - 1
	m := w.post[w.free[n]]
	w.free = w.free[:n]
	return m
}

// new is an empty message of a round.
func (w *world) new(kind messageKind, o *owner) *message {
	m := w.alloc()
	*m = message{id: m.id, life: m.life + 1, kind: kind, used: true, round: o.round, lane: o.lane}
	return m
}

// copy is a message that says the same.
func (w *world) copy(of *message) *message {
	m := w.alloc()
	id, life := m.id, m.life+1
	*m = *of
	m.id, m.life = id, life
	return m
}

// drop forgets a message.
func (w *world) drop(m *message) {
	if m.used {
		m.used = false
		m.life++
		w.free = append(w.free, m.id)
	}
}
