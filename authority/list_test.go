package authority_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/sqlstore"
)

// names are ids that a prefix, a separator, a pattern or a collation could take for
// one another.
var names = []string{
	"a", "a/b", "ab", "a:fence", "a.lock", "a%2Fb", "a/manual", "a/b/c", "a b", "a%", "a_", "a_b", "axb", "a*", "a[b]", "a?", `a\b`, "a'b",
	"A", "A/b", "doc/Report", "doc/report", "doc/rep\u00f3rt", "doc/repo\u0301rt", "docs", "doc", "straße", "strasse", "\U0001F512",
}

var prefixes = []string{
	"", "a", "a/", "A", "a%", "a_", "a*", "a[", "a?", `a\`, "a'", "doc", "doc/", "doc/R", "doc/r", "doc/repo", "doc/rep\u00f3", "str", "straß",
	"/", "%", "_", "none", "a/b", "a/b/", "\U0001F512", "\uffff",
}

func listAll(t *testing.T, a *authority.Authority, q lastword.ListQuery) (found []lastword.Status) {
	t.Helper()
	for {
		page, err := a.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if limit := q.Limit; limit > 0 && len(page.Resources) > limit {
			t.Fatalf("%d resources on a page of %d", len(page.Resources), limit)
		}
		found = append(found, page.Resources...)
		if q.After = page.Next; q.After == "" {
			return found
		}
	}
}

func ids(list []lastword.Status) (all []string) {
	for _, st := range list {
		all = append(all, string(st.Resource))
	}
	return all
}

func beginWith(prefix string) (want []string) {
	for _, name := range slices.Sorted(slices.Values(names)) {
		if strings.HasPrefix(name, prefix) {
			want = append(want, name)
		}
	}
	return want
}

// stores are the engines that a list is asked of.
func stores(t *testing.T, f func(t *testing.T, w *world, s store.Store)) {
	t.Run("memory", func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		f(t, w, w.memory.Open())
	})
	t.Run("SQLite", func(t *testing.T) {
		w := newWorld(t)
		s, err := sqlstore.Open(t.Context(), t.TempDir()+"/s.db", sqlstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		defer w.close()
		f(t, w, s)
	})
}

func TestKF27AListBeginsWithItsPrefixByteByByte(t *testing.T) {
	stores(t, func(t *testing.T, w *world, s store.Store) {
		a := w.openOn(s, authority.Config{})
		for i, name := range names {
			r := request([]string{"w1", "w10", "w1_x"}[i%3], "r", time.Hour)
			r.Resource = lastword.Resource(name)
			if got := mustAcquire(t, a, r); got.Fence != 1 {
				t.Fatalf("%q: fence %d, want its own first one", name, got.Fence)
			}
		}
		for _, prefix := range prefixes {
			for _, limit := range []int{0, 1, 3} {
				if got, want := ids(listAll(t, a, lastword.ListQuery{Prefix: prefix, Limit: limit})), beginWith(prefix); !slices.Equal(got, want) {
					t.Errorf("prefix %q, pages of %d:\n got %q\nwant %q", prefix, limit, got, want)
				}
			}
		}
		for _, st := range listAll(t, a, lastword.ListQuery{}) {
			i := slices.Index(names, string(st.Resource))
			owner := []string{"w1", "w10", "w1_x"}[i%3]
			if st.State != lastword.StateHeld || st.Holder.Owner != owner || st.Holder.LeaseID != "" || st.Holder.RequestID != "" || st.Remaining <= 0 || st.Digest.IsZero() || st.NextFence != 2 {
				t.Errorf("%q is shown as %+v, owner %s", st.Resource, st, owner)
			}
		}
	})
}

func TestAListLeavesOutWhatNobodyHoldsUnlessAskedForAll(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		at := func(resource string) lastword.AcquireRequest {
			r := request("o", "r", time.Hour)
			r.Resource = lastword.Resource(resource)
			return r
		}
		done := mustAcquire(t, a, at("released"))
		if err := a.Complete(t.Context(), done.TenureRef, []byte("a result")); err != nil {
			t.Fatal(err)
		}
		if err := a.Release(t.Context(), done.TenureRef); err != nil {
			t.Fatal(err)
		}
		revoked := mustAcquire(t, a, at("revoked"))
		if err := a.Revoke(t.Context(), revoked.Resource, revoked.Fence, "op", "reason"); err != nil {
			t.Fatal(err)
		}
		if err := a.Cancel(t.Context(), "cancelled", "o", "r"); err != nil {
			t.Fatal(err)
		}
		mustAcquire(t, a, at("held"))
		if got := ids(listAll(t, a, lastword.ListQuery{})); !slices.Equal(got, []string{"held"}) {
			t.Errorf("held: %q", got)
		}
		all := listAll(t, a, lastword.ListQuery{All: true})
		var got []string
		for _, st := range all {
			got = append(got, fmt.Sprint(st.Resource, " ", st.State, " ", st.Last.State))
		}
		want := []string{"cancelled FREE ", "held HELD ", "released RELEASED RELEASED", "revoked REVOKED REVOKED"}
		if !slices.Equal(got, want) {
			t.Errorf("all: %q, want %q", got, want)
		}
		if last := all[2].Last; !last.Completed || last.Result != nil || last.Fence != 1 {
			t.Errorf("the ending of the completed one is shown as %+v", last)
		}
	})
}

// R8: a list does what a status does: what has lapsed is EXPIRED, durably, before it
// is told, and a store that does not take the mark tells nothing.
func TestR8AListTellsEXPIREDOnlyOnceItIsDurable(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		h := &hooked{Store: w.memory.Open()}
		a := w.openOn(h, authority.Config{})
		fail := func(err error) {
			h.hook(func(h *hooked) { h.sent = func(context.Context, []store.Step) error { return err } })
		}
		mustAcquire(t, a, request("o", "r", 10*time.Second))
		time.Sleep(10*time.Second + time.Millisecond)
		fail(lastword.ErrUnavailable)
		if page, err := a.List(t.Context(), lastword.ListQuery{All: true}); !errors.Is(err, lastword.ErrUnavailable) {
			t.Fatalf("%+v, %v: a mark that is not durable was told", page, err)
		}
		fail(nil)
		if all := listAll(t, a, lastword.ListQuery{All: true}); len(all) != 1 || all[0].State != lastword.StateExpired {
			t.Fatalf("got %+v, want EXPIRED", all)
		}
		view, err := w.memory.Open().Read(context.Background(), store.Query{Resource: "jobs/nightly"})
		if err != nil || view.Entries[0].Record.Lease.State != lastword.StateExpired {
			t.Errorf("the store has %v, %v", view.Entries[0].Record.Lease.State, err)
		}
	})
}

// R10: an authority whose witness is ahead of its store shows nothing, an empty page
// neither.
func TestR10AnAuthorityThatHasStoppedListsNothing(t *testing.T) {
	for _, filled := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			a := w.open(authority.Config{})
			if filled {
				mustAcquire(t, a, request("o", "r", time.Hour))
			}
			clone := w.memory.Copy()
			w.openOn(clone.Open(), authority.Config{}) // moves the witness on
			time.Sleep(time.Second)
			for _, q := range []lastword.ListQuery{{}, {All: true}, {Prefix: "none"}} {
				if page, err := a.List(t.Context(), q); !errors.Is(err, lastword.ErrRegression) || len(page.Resources) > 0 {
					t.Errorf("%+v: %+v, %v, want FENCE_REGRESSION", q, page, err)
				}
			}
		})
	}
}

// T23, T22: pages are bounded in names as well, and what lies between is passed over.
func TestT23APageIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		long := strings.Repeat("x", 450)
		var all sync.WaitGroup
		for i := range 1200 {
			all.Go(func() {
				r := request(long, "r", time.Hour)
				r.Resource = lastword.Resource(fmt.Sprintf("%04d/%s", i, long))
				if _, err := a.Acquire(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		page, err := a.List(t.Context(), lastword.ListQuery{Limit: 1 << 30})
		if err != nil || len(page.Resources) >= lastword.MaxPage || len(page.Resources) < 50 || page.Next == "" {
			t.Fatalf("a page of %d long names, next %q, %v", len(page.Resources), page.Next, err)
		}
		t.Logf("%d of 1,200 on the first page", len(page.Resources))
		if got := listAll(t, a, lastword.ListQuery{Limit: 1 << 30}); len(got) != 1200 {
			t.Errorf("%d in all pages, want 1200", len(got))
		}
	})
}

func TestAListThatIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		for _, q := range []lastword.ListQuery{{Prefix: "\n"}, {After: "a/"}, {Limit: -1}} {
			_, err := a.List(t.Context(), q)
			wantCode(t, err, lastword.ErrInvalid)
		}
		_ = a.Close()
		_, err := a.List(t.Context(), lastword.ListQuery{})
		wantCode(t, err, lastword.ErrUnavailable)
	})
}

// KF-06, R7: an operator looked at fence 1, and meanwhile another holder has come.
func TestKF06AForcedReleaseHitsOnlyTheTenureThatItNames(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log bytes.Buffer
		a := w.open(authority.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		mustAcquire(t, a, request("a", "1", 10*time.Second))
		time.Sleep(11 * time.Second)
		b := mustAcquire(t, a, request("b", "1", time.Hour))

		var e *lastword.Error
		err := a.Revoke(t.Context(), b.Resource, 1, "op", "a hangs")
		if !errors.As(err, &e) || e.Code != lastword.CodeNotHolder || e.Holder != "b" || e.Fence != 2 {
			t.Fatalf("revoke of fence 1: %+v, want NOT_HOLDER that names b and fence 2", err)
		}
		wantCode(t, a.Revoke(t.Context(), b.Resource, 0, "op", "no fence"), lastword.ErrInvalid)
		wantCode(t, a.Revoke(t.Context(), b.Resource, 3, "op", "a fence to come"), lastword.ErrNotHolder)
		if _, err := a.Renew(t.Context(), b.TenureRef); err != nil {
			t.Fatalf("b has lost its lease to a revocation of another one: %v", err)
		}
		if err := a.Revoke(t.Context(), b.Resource, 2, "op", "b hangs"); err != nil {
			t.Fatal(err)
		}
		_, err = a.Renew(t.Context(), b.TenureRef)
		if !errors.As(err, &e) || e.Code != lastword.CodeNotHolder || e.Ended.State != lastword.StateRevoked {
			t.Errorf("b's renewal: %+v", err)
		}
		err = a.Revoke(t.Context(), b.Resource, 2, "op", "once more")
		if !errors.As(err, &e) || e.Code != lastword.CodeNotHolder || e.Ended.State != lastword.StateRevoked {
			t.Errorf("revoked twice: %+v", err)
		}
		if c := mustAcquire(t, a, request("c", "1", time.Hour)); c.Fence != 3 || c.Previous.State != lastword.StateRevoked {
			t.Errorf("c has fence %d after %+v", c.Fence, c.Previous)
		}
		for _, want := range []string{
			`fence=1 operator=op reason="a hangs" outcome=NOT_HOLDER`,
			`fence=2 operator=op reason="b hangs" outcome=REVOKED owner=b`,
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %s:\n%s", want, log.String())
			}
		}
	})
}
