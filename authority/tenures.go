package authority

import (
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// tenures follows what this process has written, for an observer: since when a
// tenure is held, how many are alive, when a resource that somebody waits for became
// free. Nothing is decided by it.
type tenures struct {
	open    map[lastword.Resource]tenure
	sweepAt int
	due     map[core.Tick]int // how many of those that are alive end at which tick
	live    int
	tick    core.Tick
	vacated map[lastword.Resource]time.Duration // when a tenure ended that somebody waited for
}

// tenure is one open tenure.
type tenure struct {
	lease    string
	known    bool          // since is known: this process granted it
	since    time.Duration // when its grant was durable
	extended time.Duration // when the write was sent that granted or renewed it last,
	renewed  bool          // if this process sent it
	ttl      time.Duration
	deadline core.Tick
}

// change is one durable write of a resource's record, as the loop noted it.
type change struct {
	resource lastword.Resource
	was      string // lease that was open before the write, "" for none
	lease    string // of the record now
	open     bool   // that lease is the current one
	ended    lastword.State
	extended bool // the write grants or renews
	woken    bool // it grants to a caller that has waited
	waiting  bool // somebody waits on
	deadline core.Tick
	ttl      time.Duration

	began, sent, done time.Duration // of the round, of its commit
}

// maxVacated bounds the resources that are remembered as free and waited for.
const maxVacated = 1 << 16

func newTenures() *tenures {
	return &tenures{
		open: map[lastword.Resource]tenure{}, sweepAt: 1024, due: map[core.Tick]int{},
		vacated: map[lastword.Resource]time.Duration{},
	}
}

// follow adds what a change tells to the report.
func (t *tenures) follow(c *change, out *Report) {
	if c.was != "" && (c.was != c.lease || !c.open) {
		t.end(c, out)
	}
	if !c.open {
		return
	}
	before, had := t.open[c.resource]
	if had {
		t.count(before, -1)
	}
	next := tenure{lease: c.lease, ttl: c.ttl, deadline: c.deadline}
	switch {
	case c.lease != c.was: // a grant
		if at, ok := t.vacated[c.resource]; ok && c.woken {
			out.HandOvers = append(out.HandOvers, max(0, c.done-at))
		}
		delete(t.vacated, c.resource)
		next.known, next.since = true, c.done
	case had && before.lease == c.lease:
		next.known, next.since = before.known, before.since
		next.renewed, next.extended = before.renewed, before.extended
	}
	if c.extended {
		next.renewed, next.extended = true, c.sent
	}
	if !had && len(t.open) >= maxWatches {
		return
	}
	t.open[c.resource] = next
	t.count(next, 1)
	t.sweep()
}

// end notes that a tenure has ended, and forgets it.
func (t *tenures) end(c *change, out *Report) {
	e, had := t.open[c.resource]
	end := TenureEnd{How: c.ended}
	at, known := c.began, c.ended != lastword.StateExpired
	if had && e.lease == c.was {
		if !known && e.renewed {
			at, known = min(e.extended+e.ttl, c.began), true
		}
		end.Known = e.known && known
		if end.Known {
			end.Held = max(0, at-e.since)
		}
	}
	if had {
		t.count(e, -1)
		delete(t.open, c.resource)
	}
	out.Ended = append(out.Ended, end)
	if known && (c.waiting || c.woken) {
		if len(t.vacated) >= maxVacated {
			clear(t.vacated)
		}
		t.vacated[c.resource] = at
	}
}

// count adds a tenure to those alive, or takes it away, unless its deadline has
// passed.
func (t *tenures) count(e tenure, n int) {
	if e.deadline <= t.tick {
		return
	}
	t.live += n
	if t.due[e.deadline] += n; t.due[e.deadline] == 0 {
		delete(t.due, e.deadline)
	}
}

// advance takes away the tenures whose deadline has come.
func (t *tenures) advance(tick core.Tick) {
	if tick <= t.tick {
		return
	}
	if uint64(tick-t.tick) > uint64(len(t.due)) {
		for at, n := range t.due {
			if at <= tick {
				t.live -= n
				delete(t.due, at)
			}
		}
	} else {
		for at := t.tick + 1; at <= tick; at++ {
			t.live -= t.due[at]
			delete(t.due, at)
		}
	}
	t.tick = tick
}

// sweep forgets the tenures whose deadline has passed, whenever they have doubled.
func (t *tenures) sweep() {
	if len(t.open) < t.sweepAt {
		return
	}
	for resource, e := range t.open {
		if e.deadline <= t.tick {
			delete(t.open, resource)
		}
	}
	t.sweepAt = min(maxWatches, max(1024, 2*len(t.open)))
}
