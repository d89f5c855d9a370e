package model

import (
	"encoding/binary"
	"strconv"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// A state is a row of small numbers, each the name of one part's value: what is
// durable at the authority, what a process remembers, what a client believes, and so
// on. The values themselves are kept once (see pool).
type state struct {
	store   [2]uint16 // 0: there is none
	backup  uint16
	witness uint16
	ghost   uint16
	place   uint16
	kept    uint16 // backup of the place
	proc    [maxProcesses]uint16
	client  [maxClients]uint16
	net     [maxNet]uint16 // messages under way, sorted; a set
	left    [budgets]uint8
	now     uint8
	calm    uint8
	paused  uint8 // clients that are stopped
}

// hash mixes all of s.
func (s *state) hash() uint64 {
	const a, b = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
	mix := func(h, v uint64) uint64 {
		h = (h ^ v) * a
		return h ^ h>>32
	}
	four := func(a, b, c, d uint16) uint64 {
		return uint64(a) | uint64(b)<<16 | uint64(c)<<32 | uint64(d)<<48
	}
	h := mix(b, four(s.store[0], s.store[1], s.backup, s.witness))
	h = mix(h, four(s.ghost, s.place, s.kept, s.proc[0]))
	h = mix(h, four(s.proc[1], s.client[0], s.client[1], s.client[2]))
	h = mix(h, four(s.net[0], s.net[1], s.net[2], s.net[3]))
	if s.net[4] != 0 {
		h = mix(h, four(s.net[4], s.net[5], s.net[6], s.net[7]))
		h = mix(h, four(s.net[8], s.net[9], 1, 0))
	}
	h = mix(h, uint64(s.left[0])|uint64(s.left[1])<<8|uint64(s.left[2])<<16|uint64(s.left[3])<<24|
		uint64(s.left[4])<<32|uint64(s.left[5])<<40|uint64(s.left[6])<<48|uint64(s.left[7])<<56)
	h = mix(h, uint64(s.left[8])|uint64(s.left[9])<<8|uint64(s.left[10])<<16|uint64(s.now)<<24|
		uint64(s.calm)<<32|uint64(s.paused)<<40|uint64(s.left[11])<<48|uint64(s.left[12]^s.left[13]<<3^s.left[14]<<6^s.left[15]<<7)<<56)
	return h * b
}

// storeState is what is durable at the authority.
type storeState struct {
	h   core.Header
	rec core.Record
	req [maxClients * maxAttempts]core.Request // ID "" is none
}

func slot(client, attempt uint8) int { return int(client)*maxAttempts + int(attempt) - 1 }

// request is the record of one request id, nil if there is none.
func (s *storeState) request(client, attempt uint8) *core.Request {
	if attempt == 0 {
		return nil
	}
	if r := &s.req[slot(client, attempt)]; r.ID != "" {
		return r
	}
	return nil
}

// key is all of s as text: slices keep it from being compared.
func (s *storeState) key(b []byte) []byte {
	b = putText(b, s.h.Identity)
	b = putNumbers(b, flag(s.h.Exists), uint64(s.h.Epoch), uint64(s.h.Tick), uint64(s.h.Floor), uint64(s.h.HoldUntil), flag(s.h.Witnessed))
	r, l := &s.rec, &s.rec.Lease
	b = putNumbers(b, r.Revision, uint64(r.Epoch), r.Counter, uint64(l.Fence), uint64(l.TTL), uint64(l.Ticks),
		uint64(l.Deadline), l.GrantedRevision, uint64(l.EndedTick), flag(l.Completed))
	b = putText(b, l.ID, l.Owner, l.RequestID, string(l.State), string(l.Result), string(l.Root[:2]))
	b = putText(b, string(r.Previous.State), r.Previous.LeaseID, r.Previous.Owner, string(r.Previous.Result))
	b = putNumbers(b, uint64(r.Previous.Fence), flag(r.Previous.Completed))
	for i := range s.req {
		q := &s.req[i]
		if b = putText(b, q.ID); q.ID == "" {
			continue
		}
		b = putText(b, q.LeaseID, string(q.State), string(q.Result), string(q.Params[:2]))
		b = putNumbers(b, uint64(q.Fence), flag(q.Completed), uint64(q.EndedTick))
	}
	return b
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func putText(b []byte, texts ...string) []byte {
	for _, t := range texts {
		b = append(b, byte(len(t)))
		b = append(b, t...)
	}
	return b
}

func putNumbers(b []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// procState is what an authority process holds in memory.
type procState struct {
	id    uint8
	up    bool
	at    uint8  // the store that it is connected to
	held  uint32 // epoch
	ident string // of the store that it started on

	aged     bool // a tick of time has gone by since its last look
	revision uint64
	watched  core.Span // for how long it has seen that revision stand
	tick     core.Tick
	stood    bool // it has seen the counter stand for a tick

	// In a world with a keeper: the revision that it granted or renewed at, and the
	// time since.
	wrote uint64
	age   uint8

	// What it has read and decided, and not yet committed.
	read, message uint16
	waited        core.Span

	// A start under way: which of the three steps comes next, and the plan.
	step      uint8
	plan      uint16 // witness
	planEpoch uint32
	found     uint32
	empty     bool // the store was, then
}

// clientState is what a client believes.
type clientState struct {
	id      uint8
	phase   phase
	attempt uint8
	sent    uint8 // when the newest acquire was sent
	resent  uint8
	refused bool // the newest acquire was answered HELD
	checked bool // it has passed its own check and is about to write

	trust   core.Trust
	lease   string
	fence   lastword.Token
	renewed uint8

	seq    lastword.Sequence
	open   bool // a write is under way
	tries  uint8
	next   uint8 // intent that it works on
	drawn  lastword.Token
	woken  bool  // it has been stopped and continued
	wished bool  // of a broken system: it has asked for a number
	born   uint8 // times it has crashed

	stage stage
	kept  kept
}

type phase uint8

const (
	idle phase = iota
	asking
	holding
	ended
	finished
)

// stage is what a holder does beside its writes.
type stage uint8

const (
	working stage = iota
	completing
	completed
	advancing
	advanced
	looking
)

// placeState is what is durable at the guarded place: record, receipts, business
// value, and what the value went through.
type placeState struct {
	rec      core.FenceRecord
	receipts [maxIntents * 2]receipt // by operation
	tombs    uint8

	value   int8 // client + 1 whose value stands there
	by      lastword.Token
	effects [maxIntents]uint8 // by intent
	top     uint8             // newest generation that it has accepted, from 1
	shut    bool              // restored and not yet declared
	frozen  bool              // two leases came under one fence
	seen    seen              // what its verifications were made with
}

type receipt struct {
	known   bool
	intent  uint8
	seq     uint8
	fence   lastword.Token
	lease   string
	payload uint8
}

// issue is one grant that was made.
type issue struct {
	fence   lastword.Token
	lease   string
	client  uint8
	attempt uint8
}

// ghost is what only the observer knows.
type ghost struct {
	n         uint8
	issues    [maxIssues]issue
	since     uint8  // time + 1 of the newest grant or renewal of a tenure that nobody ended
	excused   uint8  // generations that an operator or a cancel ended under the holder
	cancelled uint16 // request ids
	absent    uint8  // generation that settled A's first intent as not done
	era       uint8  // restores of the authority's store
}

// find is the generation of a grant, from 1; 0 if there never was one.
func (g *ghost) find(fence lastword.Token, lease string) uint8 {
	for i := g.n; i > 0; i-- {
		if g.issues[i-1].fence == fence && g.issues[i-1].lease == lease {
			return i
		}
	}
	return 0
}

// tenure is the generation of a lease, whatever number it goes by; 0 if there is none.
func (g *ghost) tenure(lease string) uint8 {
	for i := g.n; i > 0; i-- {
		if g.issues[i-1].lease == lease {
			return i
		}
	}
	return 0
}

type witnessState struct {
	exists bool
	w      core.Witness
}

func (w *witnessState) mark() *core.Witness {
	if !w.exists {
		return nil
	}
	return &w.w
}

// message is one message under way.
type message struct {
	kind    messageKind
	client  uint8
	attempt uint8
	sent    uint8 // when, of acquire and renewal
	op      uint8 // operation
	intent  uint8
	seq     uint8
	own     uint8
	fence   lastword.Token
	lease   string
	code    string // code or verdict
	whole   bool   // the answer extended the tenure, or granted it
	found   bool
	told    toldStatus // of the tenure that was asked for
	left    core.Span  // of a tenure that had been granted before

	// Of a write whose status has been asked.
	asked bool
	heard core.Heard
	look  bool // the record was looked for and not found
	// Of a broken place: what it had read in its first step, from 1.
	read   uint16
	forged bool
	leaked bool  // forged with the authority's key
	gate   uint8 // that it is in, from 1; 0: none yet, or there is one alone
	ask    bool  // its gate asks the authority
	behind bool  // told STALE_OWNER: the next fence is asked for
	jump   bool  // told FENCE_JUMP: the next fence is asked for

	// Of a client that makes a mistake.
	otherRoot, otherPayload bool
}

type messageKind uint8

const (
	_ messageKind = iota // none
	// To an authority process.
	askAcquire
	askRenew
	askRelease
	askComplete
	askCancel
	askRevoke
	askStatus
	askNumber
	// To the place.
	doWrite
	doAdvance
	doLookup
	// To a client.
	reAcquire
	reRenew
	reStatus
	reComplete
	reNumber
	reWrite
	reAdvance
	reLookup
)

// result is what a completion brings.
func (q message) result() []byte {
	if q.otherPayload {
		return []byte("done otherwise")
	}
	return []byte("done " + requestID(q.client, q.attempt))
}

var clientNames = [maxClients]string{"A", "B", "C"}

func requestID(client, attempt uint8) string {
	return clientNames[client] + strconv.Itoa(int(attempt))
}
