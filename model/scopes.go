package model

import (
	"slices"

	"github.com/lastword/lastword/internal/core"
)

// Scope is a named list of worlds.
type Scope struct {
	Name  string
	About string
	// Worlds are the names of its worlds, in the order in which they are explored.
	Worlds []string
}

// Scopes are all named scopes, the smallest first. Each has all worlds of the one
// before it.
func Scopes() []Scope {
	r31 := []string{"r31", "r31-second", "r31-latest"}
	quick := slices.Concat(r31, []string{"again", "work", "places-twice", "operators", "leaked", "jump", "mistakes", "mistakes-latest", "once", "once-registered", "once-same", "confused",
		"leaked-exact", "lock-delay", "lock-delay-restart", "restores-unwitnessed", "exhausted", "strange", "lost", "registered", "went-back", "settle-asked", "first-start", "strikes", "strikes-unmarked", "last-epoch", "bundles", "gates", "gates-late",
		"keeper", "keeper-succeeded", "keeper-released", "keeper-drained", "keeper-revoked", "keeper-repeated", "keeper-again",
		"tenures-short", "requests-late", "requests-again", "results-short", "renewals-alone", "starts-short",
		"restores-short", "restores-running", "settle-short", "segments-short", "undeclared-short",
	})
	ci := slices.Concat(quick, []string{
		"tenures", "requests", "results", "processes", "renewals", "starts", "restores", "segments",
		"latest", "settle", "places", "undeclared", "calm", "three", "segments-closed", "restores-repeated",
		"keeper-twice",
	})
	return []Scope{
		{Name: "r31", About: "two clients, an issuer that starts at 40, one expiry and one hand-over: the declared orders of R31", Worlds: r31},
		{Name: "quick", About: "the smaller worlds", Worlds: quick},
		{Name: "ci", About: "every world, in the bounds that tests have time for", Worlds: ci},
		{Name: "large", About: "these and more: more time, more of each fault, more work", Worlds: slices.Concat(ci, []string{
			"stale", "tenures-long", "requests-long", "results-doubled", "restores-long", "segments-long", "work-long", "three-long", "keeper-long",
		})},
	}
}

func scope(name string) (Scope, bool) {
	for _, s := range Scopes() {
		if s.Name == name {
			return s, true
		}
	}
	return Scope{}, false
}

func scopeNames() (names []string) {
	for _, s := range Scopes() {
		names = append(names, s.Name)
	}
	return names
}

// worlds are the casts that scopes are made of.
func worlds() map[string]world {
	named := map[string]world{}
	for _, w := range casts() {
		named[w.name] = w
	}
	longer := func(name, of string, change func(*world)) {
		w := named[of]
		w.name = name
		change(&w)
		named[name] = w
	}
	longer("tenures-long", "tenures", func(w *world) { w.horizon = 5 })
	longer("results-doubled", "results", func(w *world) {
		w.horizon, w.dups = 2, 1
		w.wants &^= outs(outByCounter)
	})
	longer("restores-long", "restores", func(w *world) { w.horizon = 3 })
	longer("restores-repeated", "restores", func(w *world) {
		w.crashes, w.resends, w.cancels, w.writes = 0, 1, 1, 0
		w.wants = w.wants&^outs(outEarly, outStale) | outs(outGrantedAgain)
		w.happens &^= steps(evCrash, evStart)
	})
	longer("requests-long", "requests", func(w *world) { w.plain = false })
	longer("segments-long", "segments", func(w *world) { w.horizon = 3 })
	longer("work-long", "work", func(w *world) { w.horizon, w.attempts, w.others = 4, 2, 1 })
	longer("three-long", "three", func(w *world) {
		w.horizon, w.release = 3, false
		w.wants = w.wants&^outs(outReleased) | outs(outByCounter)
	})
	longer("places-twice", "places", func(w *world) { w.horizon, w.writes, w.seqZero = 2, 2, true })
	longer("mistakes-latest", "mistakes", func(w *world) {
		w.policy, w.clients, w.attempts, w.others, w.writes = core.Latest, 1, 2, 0, 3
		w.wants = outs(outApplied, outConflict, outOutOfOrder, outRootMismatch)
	})
	longer("leaked-exact", "leaked", func(w *world) {
		w.step, w.far = 41, 42
		w.wants &^= outs(outJump)
	})
	longer("gates-late", "gates", func(w *world) {
		w.horizon, w.writes, w.mistakes, w.release = 2, 1, 0, false
		w.wants = outs(outApplied, outStale, outUnverified)
	})
	longer("keeper-succeeded", "keeper", func(w *world) {
		w.clients, w.writes = 2, 0
		w.wants = w.wants&^outs(outApplied) | outs(outByWatching, outHeld)
	})
	longer("keeper-released", "keeper", func(w *world) {
		w.release, w.writes, w.call = true, 0, 2*w.ttl
		w.wants = w.wants&^outs(outApplied) | outs(outReleased, outNotReleased)
	})
	longer("keeper-drained", "keeper", func(w *world) {
		w.release, w.questions, w.horizon, w.drain, w.maxHold = true, 0, 5, 2*tick, 4*tick
		w.wants = outs(outUnknown, outExpired, outMaxHold, outDrained, outOverrun, outReleased, outLateAnswer)
		w.happens = steps(evNoRenewal, evStop, evOverrun)
	})
	longer("keeper-revoked", "keeper", func(w *world) {
		w.writes, w.horizon, w.revokes, w.call = 0, 5, 1, tick/2
		w.wants = w.wants&^outs(outApplied, outLongHeld) | outs(outRevoked)
	})
	longer("keeper-repeated", "keeper", func(w *world) {
		w.writes, w.resends, w.byRate = 0, 1, true
		w.wants = w.wants&^outs(outApplied) | outs(outGrantedAgain, outTenureEnded)
	})
	longer("keeper-again", "keeper", func(w *world) {
		w.renewals, w.questions, w.writes = 2, 2, 0
		w.wants &^= outs(outApplied)
	})
	longer("keeper-twice", "keeper", func(w *world) { w.renewals, w.questions = 2, 2 })
	longer("keeper-long", "keeper", func(w *world) {
		w.clients, w.renewals, w.writes, w.horizon = 2, 2, 0, 7
		w.wants = w.wants&^outs(outApplied) | outs(outByWatching)
	})
	longer("lock-delay-restart", "lock-delay", func(w *world) {
		w.clients, w.attempts, w.crashes, w.release, w.horizon = 1, 2, 1, false, 5
		w.wants &^= outs(outReleased)
	})
	longer("restores-unwitnessed", "restores", func(w *world) {
		w.clients, w.horizon, w.strikes, w.starts = 1, 0, 1, 3
		w.wants = outs(outGranted, outApplied)
		w.happens = steps(evRestore, evAdvanceEpoch, evLoseWitness)
	})
	longer("settle-asked", "settle", func(w *world) { w.horizon, w.status = 2, core.Query })
	longer("once-registered", "once", func(w *world) {
		w.registers, w.mistakes, w.horizon, w.dups = true, 0, 0, 1
		w.wants |= outs(outRegistered)
	})
	longer("once-same", "once", func(w *world) {
		w.alike, w.shared, w.mistakes, w.horizon = true, false, 0, 0
		w.wants = outs(outApplied, outReplayed)
	})
	longer("strikes-unmarked", "strikes", func(w *world) {
		w.unmarked, w.strikes = true, 1
		w.wants |= outs(outAdopted)
	})
	// The small ones of worlds that are told in full.
	longer("tenures-short", "tenures", func(w *world) { w.horizon, w.renewals, w.others = 3, 0, 1 })
	longer("requests-late", "requests", func(w *world) {
		w.resends = 0
		w.wants &^= outs(outGrantedAgain, outTenureEnded)
	})
	longer("requests-again", "requests", func(w *world) {
		w.horizon = 1
		w.wants &^= outs(outCancelLate, outByWatching)
	})
	longer("results-short", "results", func(w *world) {
		w.horizon, w.resubmits = 2, 1
		w.wants = w.wants&^outs(outByCounter) | outs(outCompletedAgain)
	})
	longer("renewals-alone", "renewals", func(w *world) { w.processes = 1 })
	longer("starts-short", "starts", func(w *world) {
		w.writes = 0
		w.wants &^= outs(outEarly, outStale)
	})
	longer("restores-short", "restores", func(w *world) {
		w.horizon = 1
		w.wants &^= outs(outEarly, outStale, outByWatching)
	})
	longer("restores-running", "restores", func(w *world) {
		w.crashes, w.writes = 0, 0
		w.wants &^= outs(outEarly, outStale)
		w.happens &^= steps(evCrash, evStart)
	})
	longer("settle-short", "settle", func(w *world) { w.horizon = 2 })
	longer("segments-short", "segments", func(w *world) {
		w.clientCrashes, w.release, w.attempts = 0, false, 1
		w.wants &^= outs(outReleased)
		w.happens &^= steps(evClientCrash)
	})
	longer("undeclared-short", "undeclared", func(w *world) { w.horizon = 2 })
	longer("segments-closed", "segments", func(w *world) {
		w.horizon, w.dups = 1, 1
		w.wants &^= outs(outByWatching, outUnverified)
	})
	return named
}
