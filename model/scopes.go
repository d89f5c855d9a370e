package model

import "github.com/lastword/lastword/internal/core"

// Scope is a named list of worlds.
type Scope struct {
	Name  string
	About string
	// Worlds are the names of its worlds, in the order in which they are explored.
	Worlds []string
}

// Scopes are all named scopes, the smallest first.
func Scopes() []Scope {
	return []Scope{
		{Name: "r31", About: "two clients, an issuer that starts at 40, one expiry and one hand-over: the declared orders of R31", Worlds: []string{"r31"}},
		{Name: "quick", About: "the smaller worlds", Worlds: []string{
			"r31", "again", "work", "places-twice", "operators",
		}},
		{Name: "ci", About: "every world, in the bounds that tests have time for", Worlds: []string{
			"r31", "tenures", "requests", "results", "processes", "renewals", "starts", "restores", "segments",
			"again", "work", "latest", "settle", "places", "places-twice", "undeclared", "operators", "calm", "three", "segments-closed", "restores-repeated",
		}},
		{Name: "large", About: "more time, more of each fault, more work", Worlds: []string{
			"r31", "stale", "tenures-long", "requests-long", "results-doubled", "renewals", "restores-long", "segments-long",
			"work-long", "settle", "starts", "places-twice", "undeclared", "calm", "three-long",
		}},
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
	longer("results-doubled", "results", func(w *world) { w.horizon, w.dups = 2, 1 })
	longer("restores-long", "restores", func(w *world) { w.horizon = 3 })
	longer("restores-repeated", "restores", func(w *world) { w.crashes, w.resends, w.cancels, w.writes = 0, 1, 1, 0 })
	longer("requests-long", "requests", func(w *world) { w.plain = false })
	longer("segments-long", "segments", func(w *world) { w.horizon = 3 })
	longer("work-long", "work", func(w *world) { w.horizon, w.attempts, w.others = 4, 2, 1 })
	longer("three-long", "three", func(w *world) { w.horizon, w.release = 3, false })
	longer("places-twice", "places", func(w *world) { w.horizon, w.writes, w.seqZero = 2, 2, true })
	longer("segments-closed", "segments", func(w *world) { w.horizon, w.dups = 1, 1 })
	return named
}

func casts() []world {
	return []world{
		{
			name: "r31", about: "A acquires, is stopped and expires; another authority process goes on; B acquires; then every order of writes, replies and recovery",
			clients: 2, processes: 2, attempts: 1, writes: 1, counter: 40, horizon: 4,
			status: core.FenceOnly, policy: core.Ordered, seqZero: true, pause: true, script: true,
			crashes: 1, dups: 1, resubmits: 1,
		},
		{
			name: "tenures", about: "two clients: acquire, renew, write, release; late and lost messages",
			clients: 2, processes: 1, attempts: 1, writes: 1, counter: 40, horizon: 4,
			status: core.FenceOnly, policy: core.Ordered, release: true,
			renewals: 1,
		},
		{
			name: "requests", about: "request ids: repeated, late, cancelled",
			clients: 2, processes: 1, attempts: 2, others: 1, plain: true, writes: 0, counter: 40, horizon: 2,
			status: core.FenceOnly, policy: core.Ordered, release: true,
			cancels: 1, resends: 1,
		},
		{
			name: "results", about: "completions, lost and late, and releases",
			clients: 2, processes: 1, attempts: 1, writes: 0, counter: 40, horizon: 3,
			status: core.FenceOnly, policy: core.Ordered, complete: true, release: true,
		},
		{
			name: "processes", about: "two authority processes that read and commit in two steps, crash and start",
			clients: 2, processes: 2, attempts: 1, writes: 0, counter: 40, horizon: 2,
			status: core.FenceOnly, policy: core.Ordered, split: true,
		},
		{
			name: "renewals", about: "two authority processes that share a store: renewals at one, watching at the other",
			clients: 2, processes: 2, attempts: 1, writes: 0, counter: 40, horizon: 3,
			status: core.FenceOnly, policy: core.Ordered,
			renewals: 1,
		},
		{
			name: "starts", about: "starts in three durable steps, on the store and on a copy of it",
			clients: 2, processes: 2, attempts: 1, writes: 1, counter: 40, horizon: 1,
			status: core.FenceOnly, policy: core.Ordered, steps: true, clone: true, overlap: true,
			crashes: 1,
		},
		{
			name: "restores", about: "the authority's store is backed up and put back",
			clients: 2, processes: 1, attempts: 1, writes: 1, counter: 40, horizon: 2,
			status: core.FenceOnly, policy: core.Ordered,
			crashes: 1, backups: 1,
		},
		{
			name: "segments", about: "several records of one tenure, doubled writes, lost replies, a crash of the client; the resource asks for the status",
			clients: 1, processes: 1, attempts: 2, writes: 2, counter: 40, horizon: 2,
			status: core.Query, policy: core.Ordered, release: true,
			clientCrashes: 1, resubmits: 1,
		},
		{
			name: "again", about: "one client, two records, two tenures",
			clients: 1, processes: 1, attempts: 2, writes: 2, counter: 40, horizon: 3,
			status: core.FenceOnly, policy: core.Ordered, release: true, resends: 1,
		},
		{
			name: "stale", about: "two authority processes that read and commit in two steps, and renewals",
			clients: 2, processes: 2, attempts: 1, writes: 0, counter: 40, horizon: 3,
			status: core.FenceOnly, policy: core.Ordered, split: true, renewals: 1,
		},
		{
			name: "work", about: "two clients at one piece of work: the same operations, two records a tenure",
			clients: 2, processes: 1, attempts: 1, writes: 2, shared: true, counter: 40, horizon: 2,
			status: core.FenceOnly, policy: core.Ordered,
			resubmits: 1,
		},
		{
			name: "latest", about: "two clients whose newest state wins, two records a tenure",
			clients: 2, processes: 1, attempts: 1, writes: 2, counter: 40, horizon: 2,
			status: core.FenceOnly, policy: core.Latest, release: true,
			resubmits: 1, dups: 1,
		},
		{
			name: "settle", about: "B settles what A left unknown: fence first, then the look",
			clients: 2, processes: 1, attempts: 1, writes: 1, counter: 40, horizon: 3,
			status: core.FenceOnly, policy: core.Ordered, settler: true,
			dups: 1,
		},
		{
			name: "places", about: "the resource is backed up, put back and declared",
			clients: 2, processes: 1, attempts: 1, writes: 1, counter: 40, horizon: 3,
			status: core.FenceOnly, policy: core.Ordered,
			placeBackups: 1,
		},
		{
			name: "undeclared", about: "the resource is put back and nobody says so; it asks for the status",
			clients: 2, processes: 1, attempts: 1, writes: 1, counter: 40, horizon: 3,
			status: core.Query, policy: core.Ordered,
			placeBackups: 1, undeclared: true,
		},
		{
			name: "operators", about: "an operator revokes; grants are forged",
			clients: 2, processes: 1, attempts: 1, writes: 1, counter: 40, horizon: 2,
			status: core.FenceOnly, policy: core.Ordered, release: true,
			revokes: 1, forgeries: 1,
		},
		{
			name: "calm", about: "the faults stop in every state, and whoever waits is granted",
			clients: 2, processes: 1, attempts: 1, writes: 1, counter: 40, horizon: 2, calm: 9,
			status: core.FenceOnly, policy: core.Ordered, release: true,
			crashes: 1, clientCrashes: 1, resends: 1,
		},
		{
			name: "three", about: "three clients, one after the other",
			clients: 3, processes: 1, attempts: 1, writes: 1, counter: 40, horizon: 2,
			status: core.FenceOnly, policy: core.Ordered, release: true,
		},
	}
}
