package soak

import "time"

// Domain is the domain of a run's authority.
const Domain = "soak"

// order is one line that a hand reads.
type order struct {
	ID        int           `json:"id"`
	Do        string        `json:"do"` // open, acquire, again, renew, write, release, complete, state
	Hold      string        `json:"hold,omitempty"`
	Ask       string        `json:"ask,omitempty"`
	Token     string        `json:"token,omitempty"` // file of the owner's
	Database  string        `json:"database,omitempty"`
	Owner     string        `json:"owner,omitempty"`
	Variant   string        `json:"variant,omitempty"`
	Resource  string        `json:"resource,omitempty"`
	Request   string        `json:"request,omitempty"`
	TTL       time.Duration `json:"ttl,omitempty"`
	Wait      time.Duration `json:"wait,omitempty"`
	Operation string        `json:"operation,omitempty"`
	Value     string        `json:"value,omitempty"`
	Raw       bool          `json:"raw,omitempty"` // by the grant alone, whatever the lease says
	Seq       uint64        `json:"seq,omitempty"` // of a raw write; 0 is the record's next one
	Point     point         `json:"point,omitempty"`
	Act       act           `json:"act,omitempty"`
}

// said is one line that a hand writes.
type said struct {
	ID      int    `json:"id,omitempty"`
	Event   string `json:"event"` // answer, at, call, change
	Code    string `json:"code,omitempty"`
	Verdict string `json:"verdict,omitempty"`
	Fence   uint64 `json:"fence,omitempty"`
	Seq     uint64 `json:"seq,omitempty"`
	Grant   string `json:"grant,omitempty"` // for the run's forger
	State   string `json:"state,omitempty"`
	Failed  string `json:"failed,omitempty"` // what no round expects
	Point   point  `json:"point,omitempty"`
	Call    *Call  `json:"call,omitempty"`
	From    string `json:"from,omitempty"` // of a change of a lease
	To      string `json:"to,omitempty"`
	// At is when it was, by the history's clock: of an answer to release when that was
	// sent, of one to acquire when the lease was there.
	At time.Duration `json:"at,omitempty"`
}

// point is a place in the way of one write at which something can happen to its worker.
type point string

// The points, in the order in which a write passes them.
const (
	beforeSend   point = "before send"   // the worker has decided to write
	beforeAsk    point = "before ask"    // before the status question is sent
	afterAsk     point = "after ask"     // the authority has answered, no transaction yet
	beforeEffect point = "before effect" // admitted, in the transaction
	afterEffect  point = "after effect"  // the business rows are changed
	beforeCommit point = "before commit" // record and receipt, too
	afterCommit  point = "after commit"  // durable, and nobody has heard so
	beforeAnswer point = "before answer" // the worker's own call has returned
)

var points = []point{beforeSend, beforeAsk, afterAsk, beforeEffect, afterEffect, beforeCommit, afterCommit, beforeAnswer}

// locks reports whether a worker that stands there keeps the database's write lock.
func (p point) locks() bool { return p == beforeEffect || p == afterEffect || p == beforeCommit }

// act is what happens at a point.
type act string

const (
	freeze act = "freeze" // it stops itself: SIGSTOP
	die    act = "die"    // it ends itself: SIGKILL
	hold   act = "hold"   // the write waits before its transaction, the worker goes on
	lose   act = "lose"   // the connection breaks: nobody hears what became of the commit
)
