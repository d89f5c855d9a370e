package simulate

// faultKind is one kind of what may go wrong.
type faultKind uint8

const (
	loseRequest faultKind = iota
	loseAnswer
	lateMessage
	twiceMessage
	cutAuthority
	cutResource
	cutStatus
	swizzle
	stopOwner
	stopMachine
	stopAuthority
	slowCommit
	stopResource
	crashOwner
	crashBefore
	crashAfter
	crashStart
	powerLoss
	crashResource
	restoreAuthority
	restoreResource
	restoreBoth
	restoreUndeclared
	cloneStore
	loseWitness
	clockRate
	clockJump
	clockBack
	atDeadline
	revokeTenure
	cancelAttempt
	rotateKey
	raiseEpoch
	raisePolicy
	bundleLate
	bundleBack
	tightenMode
	mistakenOwner
	loseRecord
	leakedKey
	faultKinds
)

// faultInfo is what is known of a kind of fault.
type faultInfo struct {
	name   string
	cases  []string
	weight int // of the drawing
	points []point
}

// point is a place in a round at which a fault strikes: a message that is about to be
// sent, a durable step that is about to be taken (before), or one that has been taken
// and not answered yet (after).
type point uint8

const (
	before point = 0x40
	after  point = 0x80
)

var (
	requests = []point{
		point(askAcquire), point(askAcquire), point(askRenew), point(askRelease), point(askComplete),
		point(askStatus), point(doWrite), point(doWrite), point(doAdvance), point(doLookup), point(askHeld),
	}
	answers = []point{
		point(reAcquire), point(reAcquire), point(reRenew), point(reRelease), point(reComplete),
		point(reStatus), point(reWrite), point(reWrite), point(reAdvance), point(reLookup), point(reHeld),
	}
	messages   = append(append([]point{}, requests...), answers...)
	atWrites   = []point{point(doWrite), point(doWrite), point(doWrite) | before, point(doWrite) | after, point(reWrite), point(askHeld), point(reHeld)}
	atWork     = append([]point{point(reAcquire), point(askRenew), point(reRenew), point(askRelease), point(askComplete)}, atWrites...)
	stepsFirst = []point{point(askAcquire) | before, point(askAcquire) | before, point(askRenew) | before, point(askRelease) | before, point(askComplete) | before, point(askHeld) | before}
	stepsLast  = []point{point(askAcquire) | after, point(askAcquire) | after, point(askRenew) | after, point(askRelease) | after, point(askComplete) | after}
	atResource = []point{point(doWrite) | before, point(doWrite) | after}
)

// catalogue has all kinds of faults. Its order and its weights are part of what a seed
// means.
var catalogue = [faultKinds]faultInfo{
	loseRequest:       {"request lost", []string{"X9"}, 50, requests},
	loseAnswer:        {"answer lost, request arrived", []string{"X9"}, 60, answers},
	lateMessage:       {"message late by up to 3 TTL, others pass it", []string{"X11", "X12"}, 80, messages},
	twiceMessage:      {"message delivered 2 to 4 times", []string{"X10"}, 60, messages},
	cutAuthority:      {"owner cut off from the authority", []string{"X6"}, 25, atWork},
	cutResource:       {"owner cut off from the resource, packets queue", []string{"X7"}, 25, atWork},
	cutStatus:         {"resource cut off from the authority", []string{"X8"}, 25, []point{point(askHeld), point(reHeld)}},
	swizzle:           {"every link clogged in turn, unclogged in another order", []string{"X13"}, 8, atWork},
	stopOwner:         {"owner stopped for 0.5 to 12 TTL", []string{"X1"}, 60, append([]point{point(askAcquire)}, atWork...)},
	stopMachine:       {"owner's machine stopped, its clocks with it", []string{"X15", "X16"}, 40, atWork},
	stopAuthority:     {"authority process frozen past a TTL", []string{"X4"}, 20, append(append([]point{}, stepsFirst...), stepsLast...)},
	slowCommit:        {"durable step of the authority takes 12 to 90 ms", nil, 25, stepsFirst},
	stopResource:      {"resource stopped between answer and transaction", []string{"X1"}, 15, atResource},
	crashOwner:        {"owner killed, restarted under its name", []string{"X2"}, 40, atWork},
	crashBefore:       {"authority killed before a durable step", []string{"X3"}, 15, stepsFirst},
	crashAfter:        {"authority killed after a durable step, before its answer", []string{"X3"}, 20, stepsLast},
	crashStart:        {"authority killed between two durable steps of a start", []string{"X3"}, 8, stepsLast},
	powerLoss:         {"power of the authority lost, unsynced steps with it", []string{"X18"}, 15, []point{point(askRelease) | after}},
	crashResource:     {"resource killed before or after its commit", []string{"X3", "X18"}, 15, atResource},
	restoreAuthority:  {"authority restored from a backup", []string{"X20"}, 5, atWork},
	restoreResource:   {"resource restored from a backup, declared", []string{"X21"}, 6, atWrites},
	restoreBoth:       {"both restored, from different moments", []string{"X22"}, 4, atWrites},
	restoreUndeclared: {"resource restored and nobody says so", []string{"X21"}, 10, []point{point(doWrite)}},
	cloneStore:        {"store cloned, two starts at once", []string{"X3", "X20"}, 4, atWork},
	loseWitness:       {"witness lost or exchanged", []string{"X20"}, 4, atWork},
	clockRate:         {"clocks of owner and authority apart by 1 %", []string{"X15"}, 25, []point{point(askAcquire), point(reAcquire)}},
	clockJump:         {"clock of an owner jumps ahead", []string{"X15"}, 15, atWork},
	clockBack:         {"clock of an authority process goes back", []string{"X15"}, 12, atWork},
	atDeadline:        {"renewal exactly at the deadline", []string{"X15"}, 20, []point{point(askRenew)}},
	revokeTenure:      {"tenure revoked by an operator", []string{"X35"}, 15, atWork},
	cancelAttempt:     {"attempt given up and cancelled", []string{"X9"}, 20, []point{point(askAcquire), point(reAcquire)}},
	rotateKey:         {"signing key rotated", []string{"X36"}, 8, atWork},
	raiseEpoch:        {"issuer epochs below the present one revoked", []string{"X36"}, 5, atWork},
	raisePolicy:       {"policy generation raised", []string{"X36"}, 6, atWork},
	bundleLate:        {"trust bundle late at the resource", []string{"X36"}, 6, atWork},
	bundleBack:        {"trust bundle rolled back at the resource", []string{"X36"}, 6, atWork},
	tightenMode:       {"record tightened from fence-only to query", []string{"X37"}, 12, atWrites},
	mistakenOwner:     {"owner mistaken about root, content or number", []string{"X11"}, 25, []point{point(doWrite)}},
	loseRecord:        {"record lost while its receipts stay", []string{"X21"}, 3, atWrites},
	leakedKey:         {"grants forged with the authority's own key", []string{"X35"}, 5, atWrites},
}

// fault is one planned fault of one round.
type fault struct {
	kind  faultKind
	at    point
	nth   uint8  // strikes at the nth such point of its round, from 0
	arg   uint64 // what else is drawn
	round int16

	left          uint8
	fired, effect bool
}

// tally counts what came of the faults.
type tally struct{ planned, fired, effect [faultKinds]uint64 }
