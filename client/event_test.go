package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

func TestEventsOfALeaseComeInOrderAndEndOnce(t *testing.T) { // R28
	inBubble(t, func(t *testing.T, w *world) {
		var r listener
		start := time.Now()
		l := w.lease(w.client(client.Config{OnEvent: r.take}), client.AcquireOptions{TTL: 6 * time.Second})
		time.Sleep(4500 * time.Millisecond)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		wantWay(t, &r, l, lastword.HolderHeld, lastword.HolderRenewing, lastword.HolderHeld,
			lastword.HolderRenewing, lastword.HolderHeld, lastword.HolderReleased)
		e := r.last()
		if e.Fence != l.Fence() || e.From != lastword.HolderHeld || e.Dropped != 0 || !errors.Is(e.Cause, client.ErrReleased) {
			t.Errorf("the last event: %+v", e)
		}
		if r.events[0].From != lastword.HolderRequested || r.events[1].At != 2*time.Second || time.Since(start) != e.At {
			t.Errorf("events: %+v", r.events)
		}
	})
}

func TestAReceiverThatIsTooSlowLosesTheOldestAndIsTold(t *testing.T) { // KF-15
	inBubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var got []client.Event
		gate := make(chan struct{})
		c := w.client(client.Config{OnEvent: func(e client.Event) {
			mu.Lock()
			got = append(got, e)
			mu.Unlock()
			<-gate
		}})
		l := w.lease(c, client.AcquireOptions{TTL: 6 * time.Second})
		time.Sleep(200*time.Second + time.Second) // 100 renewals, 200 events beside the first one
		if n := w.count("renew"); n != 100 {
			t.Errorf("%d renewals; the receiver holds them up", n)
		}
		_ = l.Close()
		close(gate)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		dropped := 0
		for i, e := range got {
			dropped += e.Dropped
			if i > 0 && (e.Dropped == 0) != (got[i-1].To == e.From && i != 1) {
				t.Errorf("event %d: %+v after %+v", i, e, got[i-1])
			}
		}
		if len(got) != 65 || dropped+len(got) != 202 || !got[64].Final() {
			t.Errorf("%d events told and %d dropped of 202, the last one %+v", len(got), dropped, got[len(got)-1])
		}
	})
}

func TestAReceiverThatPanicsOrBlocksHarmsNobody(t *testing.T) { // R28, KF-15
	for _, trouble := range []string{"panic", "block", "exit", "panicking log", "blocking log"} {
		t.Run(trouble, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				gate := make(chan struct{})
				var told, ended atomic.Int32
				misbehave := func() {
					switch {
					case strings.HasPrefix(trouble, "panic"):
						panic("a receiver's own trouble")
					case trouble == "exit":
						runtime.Goexit()
					}
					<-gate
				}
				cfg := client.Config{CleanupTimeout: time.Second, OnEvent: func(e client.Event) {
					switch {
					case e.Resource == doc:
						told.Add(1)
						misbehave()
					case e.Final():
						ended.Add(1)
					}
				}}
				if strings.HasSuffix(trouble, "log") {
					cfg.Logger = slog.New(nasty{about: doc, do: misbehave})
				}
				c := w.client(cfg)
				start := time.Now()
				bad := w.lease(c, client.AcquireOptions{TTL: 6 * time.Second})
				var good []*client.Lease
				for i := range 49 {
					l, err := c.Acquire(t.Context(), lastword.Resource(fmt.Sprintf("good/%d", i)), client.AcquireOptions{TTL: 6 * time.Second})
					if err != nil {
						t.Fatal(err)
					}
					good = append(good, l)
				}
				time.Sleep(31 * time.Second)
				for _, l := range append(good, bad) {
					wantState(t, l, lastword.HolderHeld)
				}
				w.revoke(doc)
				if got := wantEnd(t, bad, client.ErrRefused).Sub(start); got != 32*time.Second {
					t.Errorf("the loss was found after %s, want with the next renewal", got)
				}
				w.suffer(outage)
				time.Sleep(6 * time.Second)
				synctest.Wait()
				for _, l := range good {
					wantState(t, l, lastword.HolderExpired)
				}
				if ended.Load() != 49 {
					t.Errorf("%d of 49 ends were told", ended.Load())
				}
				closing := time.Now()
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				if got := time.Since(closing); got > time.Second {
					t.Errorf("Close took %s", got)
				}
				close(gate)
				synctest.Wait()
				// HELD, 15 renewals that were answered, one that was refused.
				if n := told.Load(); n != 1+15*2+2 {
					t.Errorf("%d events of the one in trouble were told in the end", n)
				}
			})
		})
	}
}

// nasty is a log handler that does something else when it is told about a resource.
type nasty struct {
	about lastword.Resource
	do    func()
}

func (h nasty) Enabled(context.Context, slog.Level) bool { return true }
func (h nasty) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h nasty) WithGroup(string) slog.Handler            { return h }

func (h nasty) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if r, ok := a.Value.Any().(lastword.Resource); ok && r == h.about {
			h.do()
		}
		return true
	})
	return nil
}

func TestTheLogSaysWhatHappenedAndNeverTheGrant(t *testing.T) { // R29
	inBubble(t, func(t *testing.T, w *world) {
		var b syncBuffer
		log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
		l := w.lease(w.client(client.Config{Logger: log}), client.AcquireOptions{TTL: 6 * time.Second})
		w.suffer(outage)
		<-l.Context().Done()
		synctest.Wait()
		out := b.String()
		for _, want := range []string{"ownership is not known", "the lease ended", "fence=1", "while ownership was not known"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		if strings.Contains(out, l.Grant()) {
			t.Error("the grant is in the log")
		}
	})
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
