package observe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/observe"
)

const (
	unsettledName = "lastword_fence_unsettled_operations"
	oldestName    = "lastword_fence_oldest_unsettled_age_seconds"
)

func wantUnsettled(w *world, n float64, oldest time.Duration) {
	w.Helper()
	got := gathered(w.T, w.registry)
	if got[unsettledName] != n || got[oldestName] != oldest.Seconds() {
		w.Errorf("got %v unsettled, the oldest for %vs; want %v, %v", got[unsettledName], got[oldestName], n, oldest)
	}
}

// TestR24TheOldestUnknownOutcomeGrowsOlderUntilItIsSettled by the same call.
func TestR24TheOldestUnknownOutcomeGrowsOlderUntilItIsSettled(t *testing.T) {
	inBubble(t, func(w *world) {
		c := w.client("a")
		defer c.Close()
		l := w.acquire(c, "doc/1", client.AcquireOptions{TTL: time.Hour})
		wantUnsettled(w, 0, 0)
		w.place.lose, w.place.undone = 2, true
		for range 2 { // the second try is unknown, too, and does not make it younger
			_, err := w.apply(l, "op-1")
			wantIs(t, err, lastword.ErrUnknownOutcome)
			time.Sleep(5 * time.Minute)
		}
		wantUnsettled(w, 1, 10*time.Minute)
		time.Sleep(10 * time.Minute)
		wantUnsettled(w, 1, 20*time.Minute)
		w.must(second(w.apply(l, "op-1")))
		wantUnsettled(w, 0, 0)
	})
}

// TestR22WhatSettlesAnUnknownOutcome, and what does not.
func TestR22WhatSettlesAnUnknownOutcome(t *testing.T) {
	const mine, newer, older = 5, 6, 4
	say := func(op fence.Op, operation string, number lastword.Token, v lastword.Verdict) fence.Answer {
		return fence.Answer{Op: op, Place: "p", Domain: domain, Resource: "r", Operation: operation, Fence: number, Verdict: v}
	}
	lost := say(fence.OpApply, "op", mine, lastword.MutationUnknown)
	elsewhere := say(fence.OpApply, "op", mine, lastword.Applied)
	elsewhere.Resource = "other"
	failed := say(fence.OpLookup, "op", 0, "")
	failed.Code = lastword.CodeUnavailable
	for _, c := range []struct {
		name    string
		first   fence.Answer
		then    []fence.Answer
		settled bool
	}{
		{"applied again", lost, []fence.Answer{say(fence.OpApply, "op", mine, lastword.Applied)}, true},
		{"replayed", lost, []fence.Answer{say(fence.OpApply, "op", newer, lastword.Replayed)}, true},
		{"found", lost, []fence.Answer{say(fence.OpLookup, "op", 0, lastword.Replayed)}, true},
		{"refused as stale", lost, []fence.Answer{say(fence.OpApply, "op", mine, lastword.StaleOwner)}, true},
		{"in front of a person", lost, []fence.Answer{say(fence.OpApply, "op", mine, lastword.ReceiptExpired)}, true},
		{"not found after a newer fence", lost, []fence.Answer{
			say(fence.OpAdvance, "", newer, lastword.Applied), say(fence.OpLookup, "op", 0, ""),
		}, true},
		{"a registration repeated", say(fence.OpAdvance, "", mine, lastword.MutationUnknown), []fence.Answer{say(fence.OpAdvance, "", mine, lastword.Applied)}, true},
		{"a registration overtaken", say(fence.OpAdvance, "", mine, lastword.MutationUnknown), []fence.Answer{say(fence.OpApply, "x", newer, lastword.Applied)}, true},
		{"a registration refused", say(fence.OpAdvance, "", mine, lastword.MutationUnknown), []fence.Answer{say(fence.OpAdvance, "", mine, lastword.StaleOwner)}, true},

		{"not found", lost, []fence.Answer{say(fence.OpLookup, "op", 0, "")}, false},
		{"not found after the same fence", lost, []fence.Answer{
			say(fence.OpApply, "x", mine, lastword.Applied), say(fence.OpLookup, "op", 0, ""),
		}, false},
		{"a lookup that failed", lost, []fence.Answer{say(fence.OpAdvance, "", newer, lastword.Applied), failed}, false},
		{"tried once more after the newer fence", lost, []fence.Answer{
			say(fence.OpAdvance, "", newer, lastword.Applied), say(fence.OpApply, "op", newer, lastword.MutationUnknown), say(fence.OpLookup, "op", 0, ""),
		}, false},
		{"a newer fence alone", lost, []fence.Answer{say(fence.OpAdvance, "", newer, lastword.Applied)}, false},
		{"another operation", lost, []fence.Answer{say(fence.OpApply, "x", mine, lastword.Applied)}, false},
		{"another resource", lost, []fence.Answer{elsewhere}, false},
		{"provisional", lost, []fence.Answer{say(fence.OpWithin, "op", mine, lastword.Applied)}, false},
		{"not decided", lost, []fence.Answer{say(fence.OpApply, "op", mine, lastword.StatusUnavailable)}, false},
		{"an older tenure's refusal", lost, []fence.Answer{say(fence.OpApply, "op", older, lastword.StaleOwner)}, false},
		{"an older registration", say(fence.OpAdvance, "", mine, lastword.MutationUnknown), []fence.Answer{say(fence.OpAdvance, "", older, lastword.StaleOwner)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				tell := w.observers.Fence
				tell.Answered(w.Context(), c.first)
				time.Sleep(time.Minute)
				for _, a := range c.then {
					tell.Answered(w.Context(), a)
				}
				if c.settled {
					wantUnsettled(w, 0, 0)
				} else {
					wantUnsettled(w, 1, time.Minute)
				}
			})
		})
	}
}

// TestAWaitersAgeGoesOnWithoutNews: the authority may be what is stuck.
func TestAWaitersAgeGoesOnWithoutNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		metrics, err := observe.NewMetrics(registry)
		if err != nil {
			t.Fatal(err)
		}
		metrics.Authority.Report(authority.Report{State: authority.State{Waiters: 1, OldestWaiter: time.Minute}})
		time.Sleep(10 * time.Minute)
		if got := gathered(t, registry)["lastword_authority_oldest_waiter_age_seconds"]; got != 11*60 {
			t.Errorf("got %v, want 660", got)
		}
	})
}

func TestAWaitersAgeIsThatOfTheOldest(t *testing.T) {
	inBubble(t, func(w *world) {
		a := lastword.AcquireRequest{Resource: "r", Owner: "a", RequestID: "1", TTL: time.Hour}
		_, err := w.authority.Acquire(w.Context(), a)
		w.must(err)
		ctx, leave := context.WithCancel(w.Context())
		b, done := a, make(chan error)
		b.Owner, b.Wait = "b", time.Hour
		go func() { done <- second(w.authority.Acquire(ctx, b)) }()
		time.Sleep(10 * time.Minute)
		const name = "lastword_authority_oldest_waiter_age_seconds"
		if got := gathered(t, w.registry)[name]; got < 599.9 || got > 600 {
			t.Errorf("%s: got %v, want 600", name, got)
		}
		leave()
		if err := <-done; !errors.Is(err, lastword.ErrUnavailable) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if got := gathered(t, w.registry); got[name] != 0 || got["lastword_authority_waiters"] != 0 || got["lastword_authority_live_leases"] != 1 {
			t.Errorf("nobody waits any more: %v", got)
		}
	})
}
