package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

func mustChaos(t *testing.T, a client.Authority, cfg client.ChaosConfig) *client.Chaos {
	t.Helper()
	c, err := client.NewChaos(a, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestAChaosOutOfBoundsIsRefused(t *testing.T) {
	for name, cfg := range map[string]client.ChaosConfig{
		"share above 1":    {LoseReply: 1.01},
		"negative share":   {DelayReply: -0.1},
		"no number":        {Duplicate: math.NaN()},
		"negative delay":   {MaxDelay: -1},
		"huge delay":       {MaxDelay: 2 * time.Hour},
		"unknown op":       {Ops: []string{"renew", "Release"}},
		"lost beyond hope": {LoseRequest: math.Inf(1)},
	} {
		if _, err := client.NewChaos(newFake(), cfg); err == nil {
			t.Errorf("%s: accepted", name)
		} else {
			wantIs(t, err, lastword.ErrInvalid)
		}
	}
	_, err := client.NewChaos(nil, client.ChaosConfig{})
	wantIs(t, err, lastword.ErrInvalid)
}

// chaosStory is what 40 questions about each of some resources come to.
func chaosStory(t *testing.T, w *world, seed uint64, resources ...lastword.Resource) map[lastword.Resource][]string {
	c := mustChaos(t, w.fake, client.ChaosConfig{Seed: seed, LoseRequest: 0.2, LoseReply: 0.2, DelayRequest: 0.3, DelayReply: 0.3, Duplicate: 0.2})
	story := map[lastword.Resource][]string{}
	for range 40 {
		for _, r := range resources {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			start, n := time.Now(), w.count("status")
			_, err := c.Status(ctx, lastword.StatusQuery{Resource: r})
			took := time.Since(start)
			cancel()
			time.Sleep(5 * time.Second) // copies and late ones arrive
			story[r] = append(story[r], fmt.Sprint(took, err != nil, w.count("status")-n))
		}
	}
	return story
}

func TestChaosIsTheSameForTheSameSeed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		alone := chaosStory(t, w, 7, "a")
		among := chaosStory(t, w, 7, "b", "a", "c")
		if !reflect.DeepEqual(alone["a"], among["a"]) {
			t.Errorf("alone %v\namong others %v", alone["a"], among["a"])
		}
		if reflect.DeepEqual(among["a"], among["b"]) || reflect.DeepEqual(alone, chaosStory(t, w, 8, "a")) {
			t.Error("another resource or another seed gives the same")
		}
	})
}

func TestChaosDoesWhatItSays(t *testing.T) {
	request := lastword.AcquireRequest{Resource: doc, Owner: "a", RequestID: "R1", TTL: ttl}
	for name, c := range map[string]struct {
		cfg     client.ChaosConfig
		unknown bool
		arrive  int // messages at the authority
	}{
		"nothing":       {client.ChaosConfig{}, false, 1},
		"lost request":  {client.ChaosConfig{LoseRequest: 1}, true, 0},
		"lost reply":    {client.ChaosConfig{LoseReply: 1}, true, 1},
		"late request":  {client.ChaosConfig{DelayRequest: 1, MaxDelay: time.Hour}, true, 1},
		"late reply":    {client.ChaosConfig{DelayReply: 1, MaxDelay: time.Hour}, true, 1},
		"copy":          {client.ChaosConfig{Duplicate: 1}, false, 2},
		"another op":    {client.ChaosConfig{LoseRequest: 1, Ops: []string{"renew", "release"}}, false, 1},
		"this op":       {client.ChaosConfig{LoseRequest: 1, Ops: []string{"renew", "acquire"}}, true, 0},
		"hopeless copy": {client.ChaosConfig{Duplicate: 1, LoseRequest: 1}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				x := mustChaos(t, w.fake, c.cfg)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := x.Acquire(ctx, request)
				if (err != nil) != c.unknown || err != nil && !errors.Is(err, lastword.ErrUnknownOutcome) {
					t.Errorf("got %v", err)
				}
				time.Sleep(time.Hour + time.Minute)
				synctest.Wait()
				if n := w.count("acquire"); n != c.arrive {
					t.Errorf("%d messages arrived, want %d", n, c.arrive)
				}
				if n := x.Counts(); n.Calls != 1 {
					t.Errorf("counts: %+v", n)
				}
			})
		})
	}
}

func TestAClosedChaosLeavesNothingOnItsWay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		x := mustChaos(t, w.fake, client.ChaosConfig{DelayRequest: 1, MaxDelay: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = x.Release(ctx, lastword.TenureRef{Resource: doc})
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour)
		if n := w.count("release"); n != 0 {
			t.Errorf("%d messages arrived after Close", n)
		}
		wantIs(t, x.Release(t.Context(), lastword.TenureRef{Resource: doc}), lastword.ErrUnavailable)
	})
}
