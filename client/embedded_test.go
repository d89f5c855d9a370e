package client_test

import (
	"context"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite" // the driver of the authority on SQLite

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/memstore"
	"github.com/lastword/lastword/store/sqlstore"
)

// embedded is a real authority on a store in memory. It is closed with the test,
// after the clients that were made later.
func embedded(t *testing.T) *authority.Authority {
	t.Helper()
	return embeddedOn(t, memstore.New().Open())
}

func embeddedOn(t *testing.T, s store.Store) *authority.Authority {
	t.Helper()
	key, err := grant.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := grant.NewSigner("test", key)
	if err != nil {
		t.Fatal(err)
	}
	a, err := authority.Open(context.WithoutCancel(t.Context()), s, signer, authority.Config{Domain: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// lossy loses the answer to one renewal that the authority has made durable, as a
// connection does that is cut after the commit.
type lossy struct {
	client.Authority
	lose atomic.Bool
}

func (a *lossy) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	t, err := a.Authority.Renew(ctx, ref)
	if err == nil && a.lose.CompareAndSwap(true, false) {
		return lastword.Tenure{}, &lastword.Error{Code: lastword.CodeUnknown, Op: "renew", Message: "connection reset"}
	}
	return t, err
}

// Status takes a while, so that there is something to see.
func (a *lossy) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	time.Sleep(100 * time.Millisecond)
	return a.Authority.Status(ctx, q)
}

// TTL 6 s, renewal each 2 s, on the authority in a SQLite file.
func TestALostReplyOfARenewalOnSQLiteIsFoundOut(t *testing.T) { // R26, KF-03
	inBubble(t, func(t *testing.T, w *world) {
		s, err := sqlstore.Open(context.WithoutCancel(t.Context()), filepath.Join(t.TempDir(), "authority.db"), sqlstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		real := embeddedOn(t, s)
		a := &lossy{Authority: real}
		var r listener
		start := time.Now()
		c, err := client.New(a, client.Config{
			Owner: "a", OnEvent: r.take, Jitter: func() float64 { return 0.99 }, // long pauses: the question comes first
			Elapsed: func() time.Duration { return time.Since(start) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		l, err := c.Acquire(t.Context(), doc, client.AcquireOptions{TTL: 6 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for want := range uint64(3) {
			if n, err := write(l); err != nil || n != want+1 {
				t.Fatalf("write: %d, %v", n, err)
			}
		}
		a.lose.Store(true)
		for l.State().Admits() { // until the renewal whose answer is lost
			time.Sleep(10 * time.Millisecond)
		}
		_, err = write(l)
		wantIs(t, err, client.ErrOwnershipUnknown)
		time.Sleep(150 * time.Millisecond)
		synctest.Wait()
		wantState(t, l, lastword.HolderHeld)
		if n, err := write(l); err != nil || n != 4 {
			t.Errorf("repeated: number %d, %v", n, err)
		}
		if got := client.LocalDeadline(l); got < 7*time.Second {
			t.Errorf("trusted until %s only, although the renewal was made", got)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		wantState(t, l, lastword.HolderHeld)
		way := r.states(l)
		if len(way) < 4 || !slices.Equal(way[:4], []lastword.HolderState{lastword.HolderHeld, lastword.HolderRenewing, lastword.HolderUnknown, lastword.HolderHeld}) {
			t.Errorf("the lease went %v", way)
		}
		fence := l.Fence()
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("release: %v", err)
		}
		st, err := real.Status(t.Context(), lastword.StatusQuery{Resource: doc})
		if err != nil || st.State != lastword.StateReleased || st.NextFence != fence+1 {
			t.Errorf("status %+v, %v", st, err)
		}
	})
}
