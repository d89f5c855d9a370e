package client_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

func TestAConfigOutOfBoundsIsRefused(t *testing.T) {
	for name, cfg := range map[string]client.Config{
		"owner with a line end": {Owner: "a\nb"},
		"owner too long":        {Owner: strings.Repeat("a", lastword.MaxIDBytes+1)},
		"negative clock rate":   {ClockRate: -1},
		"huge clock rate":       {ClockRate: 200_001},
		"negative margin":       {Margin: -1},
		"huge margin":           {Margin: time.Minute},
		"tiny call time-out":    {CallTimeout: time.Microsecond},
		"tiny clean-up":         {CleanupTimeout: time.Millisecond},
		"negative max-hold":     {MaxHold: -time.Second},
		"negative drain":        {DrainTimeout: -time.Second},
		"endless drain":         {DrainTimeout: math.MaxInt64},
	} {
		_, err := client.New(newFake(), cfg)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		wantIs(t, err, lastword.ErrInvalid)
	}
	_, err := client.New(nil, client.Config{})
	wantIs(t, err, lastword.ErrInvalid)
}

func TestAnAcquireOutOfBoundsIsRefusedBeforeAnyCall(t *testing.T) { // KF-20
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(client.Config{ClockRate: 200_000, Margin: 50 * time.Millisecond})
		for name, o := range map[string]client.AcquireOptions{
			"ttl too short":        {TTL: 99 * time.Millisecond},
			"ttl negative":         {TTL: -1},
			"ttl too long":         {TTL: 24*time.Hour + 1},
			"ttl of 2^62 ns":       {TTL: 1 << 62},
			"the largest ttl":      {TTL: math.MaxInt64},
			"the smallest ttl":     {TTL: math.MinInt64},
			"the smallest wait":    {Wait: math.MinInt64},
			"the largest max-hold": {MaxHold: math.MaxInt64},
			"ttl below 3 margins":  {TTL: 149 * time.Millisecond},
			"wait negative":        {Wait: -1},
			"wait beyond reason":   {Wait: math.MaxInt64},
			"max-hold negative":    {MaxHold: -1},
			"request id not clean": {RequestID: "a\x00"},
		} {
			if _, err := c.Acquire(t.Context(), doc, o); err == nil {
				t.Errorf("%s: accepted", name)
			} else {
				wantIs(t, err, lastword.ErrInvalid)
			}
		}
		_, err := c.Acquire(t.Context(), "doc//1", client.AcquireOptions{})
		wantIs(t, err, lastword.ErrInvalid)
		wantIs(t, c.Run(t.Context(), doc, client.AcquireOptions{}, nil), lastword.ErrInvalid)
		if len(w.calls) != 0 {
			t.Errorf("calls: %v", w.calls)
		}
	})
}

func TestTwoClientsAreTwoOwners(t *testing.T) { // R3
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.client(client.Config{}), w.client(client.Config{})
		if a.Owner() == b.Owner() || lastword.CheckID("owner", a.Owner()) != nil {
			t.Errorf("owners %q and %q", a.Owner(), b.Owner())
		}
	})
}

func TestTheSystemsClockRuns(t *testing.T) { // real time: not in a bubble
	c, err := client.New(newFake(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	l, err := c.Acquire(t.Context(), doc, client.AcquireOptions{TTL: 300 * time.Millisecond, MaxHold: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	wantEnd(t, l, client.ErrMaxHold)
}
