package model

import "github.com/lastword/lastword/internal/core"

// Sizes of the largest world.
const (
	maxClients   = 3
	maxProcesses = 2
	maxAttempts  = 3
	maxIntents   = 4
	maxIssues    = 8
	maxNet       = 10
	maxTime      = 31
)

// Time in a world: one unit is one tick of the store's counter, a tenure lasts two.
const (
	tick core.Span = 100
	ttl  core.Span = 200
)

// world is a bounded cast and what may befall it. Everything that the bounds admit
// is explored.
type world struct {
	name  string
	about string

	clients, processes int
	attempts           int  // acquires of one client, each with a request id of its own
	others             int  // the same for all clients but A; 0: as A
	plain              bool // all clients but A neither cancel nor repeat an acquire on their own
	writes             int  // business intents of one client
	horizon            uint8
	// calm, if not 0, lets the faults stop in any state; from there on time goes on
	// to calm, and whoever waits must be granted.
	calm uint8

	epoch   uint32
	counter uint64 // of the record at the beginning

	status  core.StatusMode
	policy  core.Policy
	seqZero bool // clients leave the number of a write to the record

	split     bool // a process reads and commits in two steps
	steps     bool // a start is three durable steps
	clone     bool // the second process may start on a copy of the store
	pause     bool // a client may be stopped between its own check and its write
	settler   bool // B settles what A left unknown (R22) instead of writing
	registers bool // clients register their fence, too
	alike     bool // all contents are the same
	shared    bool // all clients have the same intents
	complete  bool
	release   bool
	script    bool  // the prefix of R31
	before    uint8 // intents that A has finished in it

	// overlap says that a copy of the store runs: numbers are promised, tenures are
	// not (R10, not covered).
	overlap bool

	// Of the holder: how often a tenure is renewed, an attempt and a write repeated.
	renewals, resends, resubmits uint8
	// keeper: A does all that a holder's runtime does, with so many questions, and the
	// others only acquire.
	keeper         bool
	questions      uint8
	maxHold, drain core.Span
	call           core.Span // that the keeper is told a renewal may take
	byRate         bool      // the rate of the clocks makes the keeper's margin, not its floor
	// prompt: each process looks at every tick.
	prompt bool
	// ttl is what is granted, 0 the usual one; delay comes between an expiry and the
	// next grant (R3).
	ttl, delay core.Span

	// What may go wrong, and how often.
	crashes, clientCrashes, dups, cancels uint8
	starts                                uint8 // 0: one for each crash and each process that is down
	revokes, backups, placeBackups        uint8
	raw                                   bool  // a restore of the authority is a raw copy put back behind its back (R10, not covered)
	undeclared                            bool  // a restore of the place is not declared
	mistakes                              uint8 // of a client: see mistake
	fresh, unmarked                       bool  // the store is empty, and there is no witness; the store does not know that there is one
	strikes                               uint8 // of witness or store, which are lost or exchanged
	losses                                uint8 // of the record, while its receipts stay
	opens                                 uint8 // records that an operator releases
	forgeries                             uint8
	leaked                                bool // grants are forged with the authority's own key

	// Of the place.
	step, far uint64 // allowed jump (R14a), and that of a forged grant; 0 is the default, and 50
	gates     []gate // ways into it; none: one, as status and policy say

	// What must be reachable in the right system: without it the exploration says
	// nothing of what the world is there for.
	wants   outcomes
	happens uint64 // set of eventKind
}

// tries is how many acquires client c may make.
func (w *world) tries(c uint8) int {
	if c > 0 && w.others > 0 {
		return w.others
	}
	return w.attempts
}

// delayTicks is the lock-delay in ticks of the counter.
func (w *world) delayTicks() core.Tick {
	if w.delay == 0 {
		return 0
	}
	return core.Ticks(w.delay, tick)
}

// budget is what is left of the faults.
type budget uint8

const (
	crashBudget budget = iota
	clientCrashBudget
	dupBudget
	cancelBudget
	revokeBudget
	backupBudget
	restoreBudget
	placeBackupBudget
	placeRestoreBudget
	forgeBudget
	cloneBudget
	startBudget
	openBudget
	mistakeBudget
	loseBudget
	strikeBudget
	budgets
)

func (w *world) budgets() [budgets]uint8 {
	starts := w.starts
	if starts == 0 {
		starts = w.crashes + b2u(w.clone || w.steps) + 2*w.backups
	}
	return [budgets]uint8{
		crashBudget: w.crashes, clientCrashBudget: w.clientCrashes, dupBudget: w.dups,
		cancelBudget: w.cancels, revokeBudget: w.revokes,
		backupBudget: w.backups, restoreBudget: w.backups,
		placeBackupBudget: w.placeBackups, placeRestoreBudget: w.placeBackups,
		forgeBudget: w.forgeries, cloneBudget: b2u(w.clone), startBudget: starts, openBudget: w.opens, mistakeBudget: w.mistakes, loseBudget: w.losses, strikeBudget: w.strikes,
	}
}

func b2u(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
