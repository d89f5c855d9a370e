package lab

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/rpc"
)

// place is a business database behind its fence.
type place struct {
	*business
	*sqlfence.Fence
}

func newPlace(t testing.TB, addr string, cfg fence.Config, documents ...string) place {
	t.Helper()
	b, err := newBusiness(t.Context(), filepath.Join(t.TempDir(), "business.db"), documents...)
	if err != nil {
		t.Fatal(err)
	}
	f, err := newGate(t.Context(), b.db, dial(t, addr), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	return place{b, f}
}

func newGate(ctx context.Context, db *sql.DB, authority *rpc.Client, cfg fence.Config) (*sqlfence.Fence, error) {
	v, err := grant.NewVerifier(Domain, grant.FetchBundle(authority.Bundle), grant.VerifierConfig{})
	if err != nil {
		return nil, err
	}
	cfg.Domain, cfg.Verifier, cfg.Status = Domain, v, authority
	return sqlfence.New(ctx, db, sqlfence.Config{Config: cfg})
}

func setting(value, document string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, setValue, value, document)
		return err
	}
}

func (p place) write(ctx context.Context, h lastword.Holder, operation, document, value string) (lastword.Receipt, error) {
	return p.Apply(ctx, h, operation, []byte(value), setting(value, document))
}

// put writes with nothing but a grant.
func (p place) put(ctx context.Context, t lastword.Tenure, seq uint64, operation, value string) (lastword.Receipt, error) {
	m := lastword.Mutation{Grant: t.Grant, Seq: seq, Operation: operation, Payload: lastword.DigestOf([]byte(value))}
	return p.ApplyMutation(ctx, t.Resource, m, setting(value, string(t.Resource)))
}

// everyNameApart acquires all names at once by as many owners, lets each write its
// own value under its own operation id and retry that once, and releases one by one.
func everyNameApart(t *testing.T, names, owners, operations []string) {
	t.Helper()
	addr := servedAt(t)
	direct := dial(t, addr)
	p := newPlace(t, addr, fence.Config{}, names...)
	tenures := make([]lastword.Tenure, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		owner, operation := owners[i%len(owners)], operations[i%len(operations)]
		all.Go(func() {
			var err error
			if tenures[i], err = direct.Acquire(t.Context(), wanted(name, owner, operation, time.Minute, 0)); err != nil {
				t.Errorf("%q by %q: %v", name, owner, err)
				return
			}
			if tenures[i].Fence.Counter() != 1 || tenures[i].Owner != owner {
				t.Errorf("%q by %q got fence %s as %q", name, owner, tenures[i].Fence.Text(), tenures[i].Owner)
			}
			value := fmt.Sprint("value ", i)
			first, err := p.put(t.Context(), tenures[i], 0, operation, value)
			if err != nil || first.Verdict != lastword.Applied {
				t.Errorf("%q: %v, %v", name, first.Verdict, err)
			}
			again, err := p.put(t.Context(), tenures[i], 0, operation, value)
			if err != nil || again.Verdict != lastword.Replayed || again.LeaseID != tenures[i].LeaseID ||
				string(again.Resource) != name || again.Operation != operation || again.Owner != owner || again.Payload != first.Payload {
				t.Errorf("%q: a foreign receipt %+v (%v)", name, again, err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for i, name := range names {
		if got, err := p.value(t.Context(), name); err != nil || got != fmt.Sprint("value ", i) {
			t.Errorf("%q holds %q (%v)", name, got, err)
		}
		if err := direct.Release(t.Context(), tenures[i].TenureRef); err != nil {
			t.Errorf("release of %q: %v", name, err)
		}
		for j, other := range names {
			st, err := direct.Status(t.Context(), lastword.StatusQuery{Resource: lastword.Resource(other)})
			want := lastword.StateHeld
			if j <= i {
				want = lastword.StateReleased
			}
			if err != nil || st.State != want || want == lastword.StateHeld && st.Holder.Fence != tenures[j].Fence {
				t.Errorf("after the release of %q, %q is %s by %q (%v)", name, other, st.State, st.Holder.Owner, err)
			}
		}
	}
}

func TestKF27PrefixesAndSeparatorsAreApart(t *testing.T) { // without list and watch
	t.Parallel()
	everyNameApart(t,
		[]string{"a", "a/b", "ab", "a:fence", "a.lock", "a%2Fb", "a/manual", "lastword_record", "lastword_fence"},
		[]string{"w1", "w10", "w1_x"}, []string{"op"})
	addr := servedAt(t)
	raw := dial(t, addr)
	for _, name := range []string{"a/", "/a", "a//b", "a/../b", "a/.", "."} {
		_, err := raw.Acquire(t.Context(), wanted(name, "w1", "1", time.Minute, 0))
		wantCode(t, fmt.Sprintf("acquire of %q", name), err, lastword.CodeInvalid)
	}
}

func TestKF27OwnersAreComparedExactly(t *testing.T) {
	t.Parallel()
	direct := dial(t, servedAt(t))
	a := mustAcquire(t, direct, wanted("a", "w1", "1", time.Minute, 0))
	for _, owner := range []string{"w10", "w1_x", "W1", "w", "w1 "} {
		ref := a.TenureRef
		ref.Owner = owner
		_, err := direct.Renew(t.Context(), ref)
		wantCode(t, owner+" renews", err, lastword.CodeNotHolder)
		wantCode(t, owner+" releases", direct.Release(t.Context(), ref), lastword.CodeNotHolder)
	}
}

func TestKF28NamesThatDifferInCaseAccentOrSpaceAreApart(t *testing.T) {
	t.Parallel()
	names := []string{
		"Report", "report", "report ", "rep\u00f3rt", "repo\u0301rt", "stra\u00dfe", "strasse", "\U0001F4DD", "\U0001F4DD\uFE0F", "REPORT", " report",
	}
	everyNameApart(t, names, names, names)
	// And one resource: names of owners and operations alone keep things apart.
	addr := servedAt(t)
	direct := dial(t, addr)
	p := newPlace(t, addr, fence.Config{}, "doc")
	for i, name := range names {
		tenure := mustAcquire(t, direct, wanted("doc", name, "same id", time.Minute, 0))
		if tenure.Repeated || tenure.Fence.Counter() != uint64(i+1) {
			t.Errorf("owner %q got fence %s of another owner", name, tenure.Fence.Text())
		}
		if got, err := p.put(t.Context(), tenure, 0, name, fmt.Sprint(i)); err != nil || got.Verdict != lastword.Applied {
			t.Errorf("operation %q: %v, %v", name, got.Verdict, err)
		}
		if err := direct.Release(t.Context(), tenure.TenureRef); err != nil {
			t.Error(err)
		}
	}
	for i, name := range names {
		got, found, err := p.Lookup(t.Context(), "doc", name)
		if err != nil || !found || got.Owner != name || got.Payload != lastword.DigestOf([]byte(fmt.Sprint(i))) {
			t.Errorf("the receipt of %q is %+v (%v, %v)", name, got, found, err)
		}
	}
}

func TestKF29OwnerNamesGiveNoRight(t *testing.T) {
	t.Parallel()
	addr := servedAt(t)
	direct := dial(t, addr)
	one, two := worker(t, "one"), worker(t, "two")
	acquire := order{Do: "acquire", Authority: addr, Resource: "doc", Owner: "w1", Operation: "1", TTL: time.Minute}
	if got := tell(t, one, acquire); got.Code != "OK" {
		t.Fatal(got.Code)
	}
	acquire.Operation = "2" // the same owner, another attempt
	if got := tell(t, two, acquire); got.Code != string(lastword.CodeHeld) {
		t.Errorf("a second process with the same owner: %s", got.Code)
	}
	held, err := direct.Status(t.Context(), lastword.StatusQuery{Resource: "doc"})
	if err != nil {
		t.Fatal(err)
	}
	guess := lastword.TenureRef{Resource: "doc", Owner: "w1", RequestID: "w1-2", LeaseID: "w1", Fence: held.Holder.Fence}
	_, err = direct.Renew(t.Context(), guess)
	wantCode(t, "renewal with owner and resource", err, lastword.CodeNotHolder)
	wantCode(t, "release with owner and resource", direct.Release(t.Context(), guess), lastword.CodeNotHolder)
	for _, owner := range []string{"", strings.Repeat("o", 64<<10)} {
		_, err := direct.Acquire(t.Context(), wanted("other", owner, "1", time.Minute, 0))
		wantCode(t, fmt.Sprintf("an owner of %d bytes", len(owner)), err, lastword.CodeInvalid)
	}
	x, errX := client.New(direct, client.Config{})
	y, errY := client.New(direct, client.Config{})
	if errX != nil || errY != nil || x.Owner() == y.Owner() {
		t.Errorf("two starts without an owner are %q and %q", x.Owner(), y.Owner())
	}
}

func TestKF29RestartedWorkerWaitsForTheTTLAndItsOldWriteIsStale(t *testing.T) {
	t.Parallel()
	addr := servedAt(t)
	direct := dial(t, addr)
	p := newPlace(t, addr, fence.Config{Mode: fence.FenceOnly, Policy: fence.Latest}, "doc")
	for i := range 2 {
		before := mustAcquire(t, direct, wanted("doc", "w0", fmt.Sprint(i), time.Minute, 0))
		if err := direct.Release(t.Context(), before.TenureRef); err != nil {
			t.Fatal(err)
		}
	}
	const ttl = 2 * time.Second
	acquire := order{Do: "acquire", Authority: addr, Resource: "doc", Owner: "w1", Operation: "1", TTL: ttl}
	old := worker(t, "w1")
	sent := history.Clock()
	if got := tell(t, old, acquire); got.Fence.Counter() != 3 {
		t.Fatalf("w1 has fence %s, want the third", got.Fence.Text())
	}
	delayed := mustAcquire(t, direct, wanted("doc", "w1", "w1-1", ttl, 0)) // the same grant again (R2)
	killNow(t, old)
	again := worker(t, "w1 again")
	acquire.Operation = "2"
	if got := tell(t, again, acquire); got.Code != string(lastword.CodeHeld) {
		t.Errorf("w1, restarted within its ttl: %s", got.Code)
	}
	acquire.Wait = patience
	got := tell(t, again, acquire)
	if waited := history.Clock() - sent; got.Fence != delayed.Fence+1 || waited < ttl {
		t.Errorf("w1 has fence %d after %d, after %v", got.Fence, delayed.Fence, waited)
	}
	fresh := mustAcquire(t, direct, wanted("doc", "w1", "w1-2", ttl, 0))
	if r, err := p.put(t.Context(), fresh, 1, "new", "new"); err != nil || r.Verdict != lastword.Applied {
		t.Errorf("(4, 1): %v, %v", r.Verdict, err)
	}
	_, err := p.put(t.Context(), delayed, 8, "old", "old")
	wantCode(t, "(3, 8) after (4, 1)", err, lastword.CodeStaleOwner)
	if v, err := p.value(t.Context(), "doc"); err != nil || v != "new" {
		t.Errorf("the document holds %q (%v)", v, err)
	}
}
