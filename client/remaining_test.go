package client_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

func TestRemainingCountsDownToTheLocalDeadlineAndARenewalMakesItLonger(t *testing.T) { // R25
	inBubble(t, func(t *testing.T, w *world) {
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		want := func(want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := l.Remaining(); got != want {
				t.Errorf("remaining: got %s, want %s", got, want)
			}
		}
		want(ttl - margin)
		time.Sleep(9 * time.Second)
		want(ttl - margin - 9*time.Second)
		time.Sleep(2 * time.Second) // renewed at 10 s
		want(ttl - margin - time.Second)
		w.suffer(outage)
		time.Sleep(20 * time.Second)
		wantState(t, l, lastword.HolderUnknown)
		want(ttl - margin - 21*time.Second)
		wantEnd(t, l, client.ErrExpired)
		want(0)
	})
}

func TestRemainingKnowsTheLongestHold(t *testing.T) { // R28
	inBubble(t, func(t *testing.T, w *world) {
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{MaxHold: 12 * time.Second})
		time.Sleep(2 * time.Second)
		if got := l.Remaining(); got != 10*time.Second {
			t.Errorf("remaining: got %s, want 10s", got)
		}
		wantEnd(t, l, client.ErrMaxHold)
		if got := l.Remaining(); got != 0 {
			t.Errorf("remaining: got %s after the end", got)
		}
	})
}
