package authority_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
)

func TestOpenRefusesWhatCannotWork(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for name, cfg := range map[string]authority.Config{
			"no domain":           {},
			"the signer's domain": {Domain: "another"},
			"no witness to mark":  {Domain: domain, Witnessed: true},
			"no such choice":      {Domain: domain, OnRegression: "ignore"},
			"KF-19 tick":          {Domain: domain, Tick: time.Microsecond},
			"KF-20 ttl bounds":    {Domain: domain, MaxTTL: 100 * time.Hour},
			"KF-19 lock-delay":    {Domain: domain, LockDelay: map[string]time.Duration{"": -1}},
		} {
			if _, err := authority.Open(t.Context(), w.memory.Open(), w.signer, cfg); !errors.Is(err, lastword.ErrInvalid) {
				t.Errorf("%s: %v, want INVALID", name, err)
			}
		}
		if _, err := authority.Open(t.Context(), w.memory.Open(), nil, authority.Config{Domain: domain}); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("no signer: %v, want INVALID", err)
		}
		synctest.Wait()
	})
}

func TestBadInputIsRefusedAtTheDoor(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		for name, r := range map[string]lastword.AcquireRequest{
			"KF-27 empty segment": {Resource: "a//b", Owner: "o", RequestID: "1", TTL: time.Second},
			"KF-29 empty owner":   {Resource: "a", RequestID: "1", TTL: time.Second},
			"KF-29 long owner":    {Resource: "a", Owner: string(make([]byte, 64<<10)), RequestID: "1", TTL: time.Second},
			"KF-19 no ttl":        {Resource: "a", Owner: "o", RequestID: "1"},
			"KF-19 negative ttl":  {Resource: "a", Owner: "o", RequestID: "1", TTL: -1},
			"KF-19 short ttl":     {Resource: "a", Owner: "o", RequestID: "1", TTL: 10 * time.Millisecond},
			"KF-20 huge ttl":      {Resource: "a", Owner: "o", RequestID: "1", TTL: 1<<63 - 1},
			"KF-20 negative wait": {Resource: "a", Owner: "o", RequestID: "1", TTL: time.Second, Wait: -1},
			"KF-20 huge wait":     {Resource: "a", Owner: "o", RequestID: "1", TTL: time.Second, Wait: 1<<63 - 1},
			"no request id":       {Resource: "a", Owner: "o", TTL: time.Second},
		} {
			_, err := a.Acquire(t.Context(), r)
			if !errors.Is(err, lastword.ErrInvalid) {
				t.Errorf("%s: got %v, want INVALID", name, err)
			}
		}
		st, err := a.Status(t.Context(), lastword.StatusQuery{Resource: "a"})
		if err != nil || st.State != lastword.StateFree || st.NextFence != 1 {
			t.Fatalf("after refusals: %+v, %v", st, err)
		}
	})
}

func TestAGrantThatCannotBeSignedIsNotMade(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		long := func(n int) string { return strings.Repeat("\"", n) }
		r := lastword.AcquireRequest{
			Resource: lastword.Resource(strings.Repeat("\"", 512)), Owner: long(lastword.MaxIDBytes), RequestID: long(lastword.MaxIDBytes),
			TTL: time.Second, Class: lastword.Class(long(lastword.MaxIDBytes)),
		}
		_, err := a.Acquire(t.Context(), r)
		if err == nil {
			t.Skip("every combination of allowed ids fits into a grant")
		}
		wantCode(t, err, lastword.ErrInvalid)
		st, err := a.Status(t.Context(), lastword.StatusQuery{Resource: r.Resource})
		if err != nil || st.NextFence != 1 {
			t.Fatalf("a fence was issued: %+v, %v", st, err)
		}
	})
}
