package core

import (
	"cmp"

	"github.com/lastword/lastword"
)

// Policy is the order rule of a record.
type Policy string

// The policies (protocol §4).
const (
	// Ordered: every segment counts. A larger fence starts at seq 1; an equal one
	// continues with last + 1. The default.
	Ordered Policy = "ordered"
	// Latest: the newest state wins. Admitted iff (fence, seq) is
	// lexicographically larger.
	Latest Policy = "latest"
	// Once: one value per tenure. The same value replays, another conflicts.
	Once Policy = "once"
)

func (p Policy) known() bool { return p == Ordered || p == Latest || p == Once }

// StatusMode says what a record wants to hear of the authority before it admits.
type StatusMode string

// The status modes, from the loosest to the strictest; a record's mode can only be
// tightened.
const (
	FenceOnly StatusMode = "fence-only"
	Proof     StatusMode = "proof"
	Query     StatusMode = "query"
)

// Stricter reports whether m asks for more than other.
func (m StatusMode) Stricter(other StatusMode) bool { return m.rank() > other.rank() }

func (m StatusMode) rank() int {
	switch m {
	case FenceOnly:
		return 0
	case Proof:
		return 1
	case Query:
		return 2
	}
	return -1 // unknown: satisfies nothing
}

// satisfiedBy reports whether an answer of mode heard is enough for a record of mode
// m. A mode that this code does not know is never satisfied.
func (m StatusMode) satisfiedBy(heard StatusMode) bool {
	return m.rank() >= 0 && heard.rank() >= m.rank()
}

// DefaultStep is how far a fence may jump inside one epoch without the authority's
// confirmation (R14a).
const DefaultStep = 1 << 20

// FenceRecord is what a guarded place keeps for one (domain, resource). Its high-
// water fence is never lowered.
type FenceRecord struct {
	// Exists is false until a first write or a first registration.
	Exists bool
	// Lost says, of a record that does not exist, that receipts or tombstones of its
	// resource are there all the same: it is not new (R19). It is looked up with the
	// record and never stored.
	Lost bool
	// Fence is the highest one accepted; the next four are of its tenure.
	Fence       lastword.Token
	LeaseID     string // "" once closed: an equal fence is stale (R20)
	GrantDigest lastword.Digest
	Root        lastword.Digest
	LastSeq     uint64
	// LastOperation and LastPayload are of the write that was accepted last.
	LastOperation string
	LastPayload   lastword.Digest
	Policy        Policy
	Status        StatusMode
	Frozen        bool
	// Step is the allowed jump (R14a), 0 for [DefaultStep].
	Step uint64
	// Imported says that the fence is a token of an authority that is not ours (R14b).
	Imported bool
	// Heard is how far the authority was in the newest answer that was heard here: a
	// proof that is older is refused (T14).
	Heard Mark
	// Restored, in milliseconds since 1970, is the mark of an open window after a
	// restore (R20): an operation that was issued at or before it, and has no receipt,
	// may have had its effect. 0 is no window. Of a record that does not exist it is
	// the place's, looked up with the record.
	Restored uint64
	// Shadow says that the record is still being rolled out (R18): a write that would be
	// refused passes, and is counted. It ends once and never begins again. It is looked
	// up with the record, also with one that does not exist, and never stored.
	Shadow bool
	// Unraised says that the whole place was restored and this record has not been
	// raised since (R20). It is looked up with the record and never stored.
	Unraised bool
	// BundleSequence, MinEpoch and MinPolicyGeneration are the highest that a
	// verification at this record was made with.
	BundleSequence      uint64
	MinEpoch            uint32
	MinPolicyGeneration uint64
}

// Mark orders the authority's answers about one resource: the issuer epoch in which it
// answered, and the revision of its record there. In a restored store revisions begin
// again lower, under a new epoch. The zero value is no answer.
type Mark struct {
	Epoch    uint32
	Revision uint64
}

// Before reports whether m is an older answer than o.
func (m Mark) Before(o Mark) bool {
	return m.Epoch < o.Epoch || m.Epoch == o.Epoch && m.Revision < o.Revision
}

// KnownOperation is what the place remembers of an operation id.
type KnownOperation struct {
	Receipt bool            // a receipt is there
	Payload lastword.Digest // of the receipt
	// Tombstone: its receipt was pruned, or may have been: there is none, and the
	// issue time in its id is not above the record's pruning watermark.
	Tombstone bool
}

// Heard is what the authority said about the tenure.
type Heard struct {
	// Mode is the strictest status mode that this answer satisfies.
	Mode StatusMode
	// State is HELD, PENDING, or how the tenure ended.
	State lastword.State
	// NextFence is the number the next grant would carry, 0 if not told.
	NextFence lastword.Token
	// AfterLook says that the question was asked after the record was looked for
	// and not found (R19).
	AfterLook bool
	// Mark is how far the authority was when it answered; the zero value is not told.
	Mark Mark
}

// Attempt is one verified write, or registration, at a record.
type Attempt struct {
	Fence       lastword.Token
	LeaseID     string
	GrantDigest lastword.Digest
	Root        lastword.Digest
	Seq         uint64 // 0 takes the record's next one
	Operation   string
	Payload     lastword.Digest
	// Policy and Status are what the caller configured for the record; "" keeps
	// what is stored, at a new record [Ordered] and [Query].
	Policy Policy
	Status StatusMode
	// Step is the configured jump (R14a): a new record takes it, and an old one if it
	// is smaller than its own. 0 keeps what is stored.
	Step uint64
	// Imported says that Fence is a token of an authority that is not ours (R14b).
	Imported            bool
	BundleSequence      uint64
	MinEpoch            uint32
	PolicyGeneration    uint64
	MinPolicyGeneration uint64
	Heard               Heard
}

// Again says what must be done anew before a decision is possible.
type Again string

// The reasons to begin again.
const (
	// AgainVerify: the record has seen a newer bundle or minimum.
	AgainVerify Again = "verify"
	// AgainAsk: the record wants a stricter answer, or one asked after it was
	// looked for.
	AgainAsk Again = "ask"
)

// Decision is what a resource does with an attempt.
type Decision struct {
	Verdict lastword.Verdict
	// Again, when not "", means that there is no verdict yet.
	Again Again
	// Why tells the case apart where one verdict has several ("NOT_HELD").
	Why string
	// Record is to be stored with the effect and the receipt, if Write is set.
	Write  bool
	Record FenceRecord
	// Shadow says of a refusal that it is only told: the record is in shadow, so the
	// effect runs, and nothing else is stored (R18).
	Shadow bool
	// Seq is the number that the write consumes.
	Seq uint64
	// ReplayOf is the operation whose receipt answers, with REPLAYED.
	ReplayOf string
	// Freeze asks for the record to be frozen in a transaction of its own, after
	// this one was rolled back (R16b).
	Freeze bool
	// Quarantine asks for the payload to be kept for people to look at (R16b).
	Quarantine bool
}

// Admit decides on a write (protocol §4). All of what it is shown must have been
// read under the record's lock, in the transaction that stores what it returns.
func Admit(rec FenceRecord, known KnownOperation, a Attempt) Decision {
	d := admit(rec, known, a)
	d.Shadow = rec.Shadow && d.refuses()
	return d
}

// refuses: a verdict that runs no effect and shows no receipt.
func (d Decision) refuses() bool {
	return d.Verdict != "" && d.Verdict != lastword.Applied && d.Verdict != lastword.Replayed
}

func admit(rec FenceRecord, known KnownOperation, a Attempt) Decision {
	if d := door(rec, a); d.Verdict != "" || d.Again != "" {
		return d
	}
	if known.Receipt {
		if known.Payload == a.Payload {
			return Decision{Verdict: lastword.Replayed, ReplayOf: a.Operation}
		}
		return Decision{Verdict: lastword.Conflict, Why: "OTHER_PAYLOAD", Quarantine: true}
	}
	if d := guard(rec, a, lastword.StateHeld, known.Tombstone || rec.forgot(a.Operation)); d.Verdict != "" || d.Again != "" {
		return d
	}
	return order(rec, a)
}

// Advance registers a fence without a write (R16a).
func Advance(rec FenceRecord, a Attempt) Decision {
	if d := door(rec, a); d.Verdict != "" || d.Again != "" {
		return d
	}
	if d := guard(rec, a, lastword.StatePending, false); d.Verdict != "" || d.Again != "" {
		return d
	}
	if rec.Exists && a.Fence == rec.Fence {
		return Decision{Verdict: lastword.Applied, Record: rec}
	}
	next := rec.raise(a)
	next.LastSeq, next.LastOperation, next.LastPayload = 0, "", lastword.Digest{}
	return Decision{Verdict: lastword.Applied, Write: true, Record: next}
}

// door turns away what no verifier lets through, and what has to be verified or
// asked again.
func door(rec FenceRecord, a Attempt) Decision {
	if !a.Fence.Valid() || a.LeaseID == "" {
		return Decision{Verdict: lastword.Unverified, Why: "NO_FENCE"}
	}
	return Decision{Again: outdated(rec, a)}
}

// outdated: was the verification made with what the record has since seen?
func outdated(rec FenceRecord, a Attempt) Again {
	older := a.BundleSequence < rec.BundleSequence || a.Fence.Epoch() < rec.MinEpoch || a.PolicyGeneration < rec.MinPolicyGeneration
	switch {
	case older && !a.Imported: // of an imported token nothing was verified
		return AgainVerify
	case !rec.mode(a).satisfiedBy(a.Heard.Mode):
		return AgainAsk
	}
	return ""
}

// guard is the part that write and registration share: everything before the
// order rule. pending admits a tenure that is only pending.
func guard(rec FenceRecord, a Attempt, least lastword.State, tombstone bool) Decision {
	if a.Fence < rec.Fence || rec.closed() && a.Fence == rec.Fence {
		return Decision{Verdict: lastword.StaleOwner}
	}
	if a.Heard.Mode != FenceOnly && a.Heard.State != lastword.StateHeld && a.Heard.State != least {
		return Decision{Verdict: lastword.Unverified, Why: "NOT_HELD"}
	}
	if a.Heard.Mode == Proof && a.Heard.Mark.Before(rec.Heard) {
		return Decision{Verdict: lastword.Unverified, Why: "PROOF_OLD"}
	}
	if why := rec.foreign(a); why != "" {
		return Decision{Verdict: lastword.Unverified, Why: why}
	}
	if tombstone {
		return Decision{Verdict: lastword.ReceiptExpired}
	}
	if !rec.Exists && rec.Lost {
		return Decision{Verdict: lastword.FenceRegression, Why: "RECORD_LOST"}
	}
	if rec.Unraised {
		return Decision{Verdict: lastword.FenceRegression, Why: "RESTORED"}
	}
	if rec.Frozen && (a.Imported || a.Fence.Epoch() <= rec.Fence.Epoch()) {
		return Decision{Verdict: lastword.FenceRegression, Why: "FROZEN"}
	}
	if rec.Exists && a.Fence == rec.Fence && a.LeaseID != rec.LeaseID {
		return Decision{Verdict: lastword.FenceRegression, Why: "OTHER_LEASE", Freeze: true}
	}
	if rec.Exists && a.Fence == rec.Fence && a.Root != rec.Root {
		return Decision{Verdict: lastword.RootMismatch}
	}
	if !rec.Exists && rec.mode(a) == Query && !a.Heard.AfterLook {
		return Decision{Again: AgainAsk}
	}
	if rec.jumps(a) && a.Heard.NextFence <= a.Fence {
		return Decision{Verdict: lastword.FenceJump}
	}
	if !rec.policy(a).known() {
		return Decision{Verdict: lastword.OutOfOrder, Why: "UNKNOWN_POLICY"}
	}
	return Decision{}
}

// Behind reports whether the authority has gone back behind rec (FENCE_REGRESSION,
// protocol §4): next is its next_fence, told in an answer to a question that was
// asked after rec was read; 0, not told, proves nothing. It is for an attempt that
// was STALE_OWNER; who finds it so freezes the record, if it still carries rec.Fence.
func Behind(rec FenceRecord, next lastword.Token) bool {
	return rec.Exists && next != 0 && next <= rec.Fence
}

// closed: the stored tenure admits nothing more (R20).
func (rec FenceRecord) closed() bool { return rec.Exists && rec.LeaseID == "" }

// newer: a would begin a tenure that the record does not know.
func (rec FenceRecord) newer(a Attempt) bool { return !rec.Exists || a.Fence > rec.Fence }

// policy is the order rule that a is judged by: it changes only with a larger fence.
func (rec FenceRecord) policy(a Attempt) Policy {
	if rec.newer(a) {
		return cmp.Or(a.Policy, rec.Policy, Ordered)
	}
	return cmp.Or(rec.Policy, Ordered)
}

// mode is the status mode that a has to satisfy: the stricter one of what is stored
// and what is configured. One that this code does not know stays and is never
// satisfied.
func (rec FenceRecord) mode(a Attempt) StatusMode {
	if !rec.Exists && rec.Restored > 0 {
		return Query // what the record was that the restore lost, nobody knows (R20)
	}
	stored := cmp.Or(rec.Status, a.Status, Query)
	if a.Status == "" || stored.rank() < 0 {
		return stored
	}
	if a.Status.rank() < 0 || a.Status.Stricter(stored) {
		return a.Status
	}
	return stored
}

// jumps reports whether the fence is further ahead than the record's step (R14a): from
// the stored one, or from the beginning of an epoch that is new to the record. An
// imported token has no epochs and no step (R14b).
func (rec FenceRecord) jumps(a Attempt) bool {
	step := cmp.Or(rec.step(a), DefaultStep)
	switch {
	case a.Imported:
		return false
	case rec.Exists && !rec.Imported && a.Fence.Epoch() == rec.Fence.Epoch():
		return uint64(a.Fence)-uint64(rec.Fence) > step
	}
	return a.Fence.Counter() > step
}

// step is the record's step under a: configured for a new record, and after that only
// made smaller.
func (rec FenceRecord) step(a Attempt) uint64 {
	switch {
	case a.Step == 0:
		return rec.Step
	case !rec.Exists:
		return a.Step
	case a.Step < cmp.Or(rec.Step, DefaultStep):
		return a.Step
	}
	return rec.Step
}

// foreign says why a cannot follow what is stored: grants and imported tokens are not
// numbers of one counter (R14b). Grants take over from imported tokens with an epoch
// above every one of them, and there is no way back.
func (rec FenceRecord) foreign(a Attempt) string {
	switch {
	case !rec.Exists || rec.Imported == a.Imported:
		return ""
	case a.Imported:
		return "NOT_IMPORTED"
	case a.Fence.Epoch() <= rec.Fence.Epoch():
		return "IMPORTED"
	}
	return ""
}

// forgot reports whether the receipt of an operation may have been lost with a restore
// (R20): it is not told after a look that found none.
func (rec FenceRecord) forgot(operation string) bool {
	if rec.Restored == 0 {
		return false
	}
	issued, ok := IssueTime(operation)
	return !ok || issued <= rec.Restored
}

// order applies the record's policy.
func order(rec FenceRecord, a Attempt) Decision {
	next := rec.raise(a)
	seq := a.Seq
	if seq == 0 {
		seq = next.LastSeq + 1
	}
	if !rec.newer(a) {
		if d := within(rec, a, seq); d.Verdict != "" {
			return d
		}
	} else if next.Policy == Ordered && seq != 1 {
		return Decision{Verdict: lastword.OutOfOrder}
	}
	next.LastSeq, next.LastOperation, next.LastPayload = seq, a.Operation, a.Payload
	return Decision{Verdict: lastword.Applied, Write: true, Record: next, Seq: seq}
}

// within is the order rule inside the stored tenure.
func within(rec FenceRecord, a Attempt, seq uint64) Decision {
	switch rec.policy(a) {
	case Latest:
		if seq < rec.LastSeq {
			return Decision{Verdict: lastword.OutOfOrder}
		}
		if seq == rec.LastSeq {
			return Decision{Verdict: lastword.Conflict, Why: "SEQ_TAKEN", Quarantine: true}
		}
	case Once:
		if rec.LastSeq > 0 && a.Payload == rec.LastPayload {
			return Decision{Verdict: lastword.Replayed, ReplayOf: rec.LastOperation}
		}
		if rec.LastSeq > 0 {
			return Decision{Verdict: lastword.Conflict, Why: "ONE_VALUE", Quarantine: true}
		}
	case Ordered:
		if seq <= rec.LastSeq {
			return Decision{Verdict: lastword.Conflict, Why: "SEQ_TAKEN", Quarantine: true}
		}
		if seq != rec.LastSeq+1 {
			return Decision{Verdict: lastword.OutOfOrder}
		}
	default:
		return Decision{Verdict: lastword.OutOfOrder, Why: "UNKNOWN_POLICY"}
	}
	return Decision{}
}

// raise is rec under the attempt's tenure. A policy changes only with a larger
// fence; a status mode is only tightened; what was seen of bundle and minimums only
// grows.
func (rec FenceRecord) raise(a Attempt) FenceRecord {
	next := rec
	next.Policy, next.Status, next.Step = rec.policy(a), rec.mode(a), rec.step(a)
	if rec.newer(a) {
		next.Exists, next.Lost, next.Frozen, next.Imported = true, false, false, a.Imported
		next.Fence, next.LeaseID, next.GrantDigest, next.Root = a.Fence, a.LeaseID, a.GrantDigest, a.Root
		next.LastSeq = 0
	}
	if rec.Heard.Before(a.Heard.Mark) {
		next.Heard = a.Heard.Mark
	}
	next.BundleSequence = max(rec.BundleSequence, a.BundleSequence)
	next.MinEpoch = max(rec.MinEpoch, a.MinEpoch)
	next.MinPolicyGeneration = max(rec.MinPolicyGeneration, a.MinPolicyGeneration)
	return next
}

// Close raises a record to the authority's next fence − 1 and closes it (R20): after
// that only a grant made later is admitted. It never lowers the fence. Next 0 raises
// nothing, which is enough to release a frozen record and not enough after a restore:
// an authority that has no next fence first needs a new issuer epoch.
func Close(rec FenceRecord, next lastword.Token) FenceRecord {
	if next > 0 {
		rec.Fence = max(rec.Fence, min(next-1, lastword.MaxToken))
	}
	rec.Exists, rec.Lost, rec.Frozen, rec.Unraised = true, false, false, false
	rec.LeaseID, rec.GrantDigest, rec.Root = "", lastword.Digest{}, lastword.Digest{}
	rec.LastSeq, rec.LastOperation, rec.LastPayload = 0, "", lastword.Digest{}
	return rec
}

// Restore closes a record of a restored place as [Close] does, and opens its window
// (R20): mark, in milliseconds since 1970, is not before any operation was issued whose
// receipt the restore may have lost. A window never becomes shorter.
func Restore(rec FenceRecord, next lastword.Token, mark uint64) FenceRecord {
	rec = Close(rec, next)
	rec.Restored = max(rec.Restored, mark)
	return rec
}

// CloseWindow ends the window after a restore (R20): a person has reconciled what may
// have been lost with it.
func CloseWindow(rec FenceRecord) FenceRecord {
	rec.Restored = 0
	return rec
}

// Freeze stops a record until a larger epoch or an operator opens it.
func Freeze(rec FenceRecord) FenceRecord {
	rec.Frozen = true
	return rec
}
