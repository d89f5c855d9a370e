package core_test

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

const day core.Span = 24 * 60 * 60 * 1e9

// R8: a duration is ⌈d / tick⌉ + 1 ticks; never fewer.
func TestTicksRoundUpAndAddTheTickThatHasBegun(t *testing.T) {
	for _, c := range []struct {
		d, tick core.Span
		want    core.Tick
	}{
		{-1, 10, 1}, {0, 10, 1}, {1, 10, 2}, {9, 10, 2}, {10, 10, 2}, {11, 10, 3}, {20, 10, 3},
		{day, 1e8, 864001}, {day, 1, core.Tick(day) + 1},
		{math.MaxInt64, 1, 1 << 63}, {math.MaxInt64, math.MaxInt64, 2}, {math.MaxInt64, 2, 1<<62 + 1},
		{math.MinInt64, 1, 1}, {1, 0, math.MaxUint64}, {1, -5, math.MaxUint64}, {0, 0, 1},
	} {
		if got := core.Ticks(c.d, c.tick); got != c.want {
			t.Errorf("%d in ticks of %d: %d, want %d", c.d, c.tick, got, c.want)
		}
	}
}

func TestTicksAreNeverShorterThanTheDuration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := core.Span(rapid.Int64Range(1, math.MaxInt64).Draw(t, "d"))
		tick := core.Span(rapid.Int64Range(1, math.MaxInt64).Draw(t, "tick"))
		ticks := new(big.Int).SetUint64(uint64(core.Ticks(d, tick)))
		// All but the tick that has begun must cover d, and one less must not.
		ticks.Sub(ticks, big.NewInt(1))
		covered := new(big.Int).Mul(ticks, big.NewInt(int64(tick)))
		if covered.Cmp(big.NewInt(int64(d))) < 0 {
			t.Fatalf("%v ticks of %d do not cover %d", ticks, tick, d)
		}
		if covered.Sub(covered, big.NewInt(int64(tick))).Cmp(big.NewInt(int64(d))) >= 0 {
			t.Fatalf("%v ticks of %d are too many for %d", ticks, tick, d)
		}
	})
}

// R8: a frozen process that thaws has watched for one tick at most.
func TestPaceCountsAGapAsOneTickAtMost(t *testing.T) {
	for _, c := range []struct{ gap, tick, want core.Span }{
		{0, 10, 0}, {9, 10, 9}, {10, 10, 10}, {11, 10, 10}, {math.MaxInt64, 10, 10}, {-1, 10, 0}, {math.MinInt64, 10, 0}, {5, 0, 0}, {5, -1, 0},
	} {
		if got := core.Pace(c.gap, c.tick); got != c.want {
			t.Errorf("a gap of %d with ticks of %d: %d, want %d", c.gap, c.tick, got, c.want)
		}
	}
}

// A deadline that would lie behind the last tick stops there; it never comes out
// earlier than the tick it was computed from, nor than the one before.
func TestADeadlineNeverWraps(t *testing.T) {
	h := core.Header{Exists: true, TickSpan: 1}
	for _, now := range []core.Tick{0, 1, math.MaxUint64 - core.Tick(day), math.MaxUint64 - 2, math.MaxUint64 - 1} {
		for _, ttl := range []core.Span{1, 1e8, day, math.MaxInt64} {
			c := core.Clock{Tick: now}
			in := core.AcquireInput{Owner: "A", RequestID: "r", LeaseID: "l", TTL: ttl, Ticks: core.Ticks(ttl, 1)}
			change, granted := core.Acquire(core.Record{}, nil, h, c, in)
			if granted.Code != "" || granted.Lease.Deadline <= now {
				t.Fatalf("%d for %d: until %d", now, ttl, granted.Lease.Deadline)
			}
			renewed, answer := core.Renew(change.Record, h, c, lastword.TenureRef{Owner: "A", LeaseID: "l", Fence: granted.Lease.Fence})
			if answer.Code != "" || renewed.Record.Lease.Deadline < change.Record.Lease.Deadline {
				t.Fatalf("renewed at %d for %d: %+v", now, ttl, answer)
			}
		}
	}
}

// A lock-delay near the last tick, or of the largest span, still delays.
func TestALockDelayNeverWraps(t *testing.T) {
	h := core.Header{Exists: true, TickSpan: 1}
	expired := core.Record{Revision: 2, Counter: 1, Lease: core.Lease{
		ID: "l", Owner: "A", RequestID: "r", Fence: 1, State: lastword.StateExpired, TTL: 5, EndedTick: math.MaxUint64 - 3,
	}}
	in := core.AcquireInput{Owner: "B", RequestID: "q", LeaseID: "m", TTL: 5, Ticks: 6, LockDelay: math.MaxInt64, LockDelayTicks: core.Ticks(math.MaxInt64, 1)}
	_, answer := core.Acquire(expired, nil, h, core.Clock{Tick: math.MaxUint64 - 2}, in)
	if answer.Code != lastword.CodeHeld || !answer.Blocked {
		t.Fatalf("%+v", answer)
	}
	open := expired
	open.Lease.State, open.Lease.Deadline = lastword.StateHeld, math.MaxUint64-3
	_, answer = core.Acquire(open, nil, h, core.Clock{Tick: math.MaxUint64 - 2, Watched: 0}, in)
	if answer.Code != lastword.CodeHeld || !answer.Blocked {
		t.Fatalf("not marked yet: %+v", answer)
	}
}

// R2: a request record is kept until its end is retention ticks ago, an open one for
// ever, and one from the future (the counter went back with a restore) as well.
func TestARequestRecordIsKeptLongEnough(t *testing.T) {
	for _, c := range []struct {
		state     lastword.State
		ended     core.Tick
		now       core.Tick
		retention core.Tick
		want      bool
	}{
		{lastword.StateExpired, 10, 109, 100, false},
		{lastword.StateExpired, 10, 110, 100, true},
		{lastword.StateCanceled, 10, 110, 100, true},
		{lastword.StateHeld, 0, math.MaxUint64, 100, false},
		{lastword.StatePending, 0, math.MaxUint64, 100, false},
		{lastword.StateReleased, 10, 9, 0, false},
		{lastword.StateReleased, math.MaxUint64, 5, 100, false},
		{lastword.StateReleased, 10, 10, 0, true},
	} {
		if got := (core.Request{State: c.state, EndedTick: c.ended}).Prunable(c.now, c.retention); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// What a status tells of one named tenure: the current one by lease or by request, an
// older one by its request record, else nothing.
func TestAskedTellsOfTheNamedTenureOnly(t *testing.T) {
	rec := core.Record{Lease: core.Lease{ID: "l2", Owner: "B", RequestID: "r2", Fence: 2, State: lastword.StateHeld, Completed: true, Result: []byte("so far")}}
	current := &core.Request{Owner: "B", ID: "r2", LeaseID: "l2", Fence: 2, State: lastword.StateHeld}
	older := &core.Request{Owner: "A", ID: "r1", LeaseID: "l1", Fence: 1, State: lastword.StateExpired}
	canceled := &core.Request{Owner: "A", ID: "r0", State: lastword.StateCanceled}
	for _, c := range []struct {
		req   *core.Request
		lease string
		want  string
	}{
		{nil, "l2", "HELD 2 HELD"},
		{current, "l2", "HELD 2 HELD"},
		{current, "", "HELD 2 HELD"},
		{older, "l1", "EXPIRED 1 EXPIRED"},
		{older, "", "EXPIRED 1 EXPIRED"},
		{canceled, "", "CANCELED 0 CANCELED"},
		{nil, "l9", "FREE 0 "},
		{nil, "", "FREE 0 "},
	} {
		state, ending := core.Asked(rec, c.req, c.lease)
		if got := fmt.Sprintf("%s %d %s", state, ending.Fence, ending.State); got != c.want {
			t.Errorf("lease %q, request %+v: %s, want %s", c.lease, c.req, got, c.want)
		}
	}
	if state, ending := core.Asked(core.Record{}, canceled, ""); state != lastword.StateCanceled || ending.LeaseID != "" {
		t.Errorf("a record without a tenure answers for a cancelled request: %s %+v", state, ending)
	}
}

// P2: a header that went back by itself issues no number below an issued one.
func TestARecordOfALaterEpochIsARegression(t *testing.T) {
	rec := core.Record{Revision: 1, Epoch: 3, Counter: 7}
	h := core.Header{Exists: true, TickSpan: 1, Epoch: 2}
	change, answer := core.Acquire(rec, nil, h, core.Clock{}, core.AcquireInput{Owner: "A", RequestID: "r", LeaseID: "l", TTL: 5, Ticks: 6})
	if answer.Code != lastword.CodeFenceRegression || change.Write {
		t.Fatalf("%+v", answer)
	}
	if next := rec.NextFence(h); next != 0 {
		t.Fatalf("the next fence is %s", next.Text())
	}
}

// R2: two requests share their parameters only if all of them are equal.
func TestParamsTellEveryParameterApart(t *testing.T) {
	root := lastword.DigestOf([]byte("root"))
	seen := map[lastword.Digest]string{}
	for _, ttl := range []core.Span{1, 10, 100, -1, math.MaxInt64} {
		for _, r := range []lastword.Digest{{}, root} {
			for _, class := range []lastword.Class{"", "write", "advance", lastword.Class("0" + string(root[:])), lastword.Class(make([]byte, 300))} {
				name := fmt.Sprintf("%d %s %q", ttl, r, class)
				d := core.Params(ttl, r, class)
				if other, ok := seen[d]; ok {
					t.Errorf("%s and %s", name, other)
				}
				seen[d] = name
			}
		}
	}
}
