package authority_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/memstore"
)

// kept is an auditor in memory.
type kept struct {
	mu     sync.Mutex
	lines  []string
	refuse bool
}

var errAudit = errors.New("injected: the disk is full")

func (k *kept) Begin(_ context.Context, a authority.Action) (func(string) error, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse {
		return nil, errAudit
	}
	k.lines = append(k.lines, fmt.Sprintf("%s by %s, %s: begun", a.Name, a.Operator, a.Reason))
	return func(outcome string) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.lines = append(k.lines, a.Name+": "+outcome)
		return nil
	}, nil
}

func (k *kept) text() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.lines, "\n")
}

func (w *world) advance(cfg authority.Config, r authority.AdvanceRequest) (authority.Advanced, error) {
	w.t.Helper()
	cfg.Domain, cfg.Witness = domain, w.witness
	return authority.AdvanceEpoch(w.t.Context(), w.memory.Open(), w.signer, cfg, r)
}

// R10: the operator's confirmation of a regression ends the tenures found, outranks what
// was lost, and is kept; the plan of it writes nothing.
func TestR10AnOperatorAdvancesOverARegression(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		lost, kept1 := restored(t, w)
		before, _ := w.witness.Load(t.Context())
		cfg := authority.Config{Domain: domain, Witness: w.witness}
		r := authority.AdvanceRequest{Operator: "ann", Reason: "disk lost"}
		seen, err := authority.PlanAdvance(t.Context(), w.memory.Open(), w.signer, cfg, r)
		if err != nil || seen.Regression == "" || seen.Epoch != 2 || seen.Store != 0 || seen.Witness != 1 || seen.Wait < time.Hour {
			t.Fatalf("the plan is %+v, %v", seen, err)
		}
		if after, _ := w.witness.Load(t.Context()); *after != *before {
			t.Fatal("the plan changed the witness")
		}
		_, err = authority.Open(t.Context(), w.memory.Open(), w.signer, cfg)
		wantCode(t, err, lastword.ErrRegression)
		if !strings.Contains(err.Error(), "lastword epoch advance") {
			t.Fatalf("%v does not name the way out", err)
		}
		audit := &kept{}
		done, err := w.advance(authority.Config{Audit: audit}, r)
		if err != nil || done != seen {
			t.Fatalf("done %+v, planned %+v, %v", done, seen, err)
		}
		if got := audit.text(); got != "epoch advance by ann, disk lost: begun\n"+
			"epoch advance: done: epoch 2, over a regression: the store's epoch is not the witness's" {
			t.Fatalf("kept:\n%s", got)
		}
		a := w.open(authority.Config{}) // a start like any other
		if _, err := a.Renew(t.Context(), kept1.TenureRef); !errors.Is(err, lastword.ErrNotHolder) {
			t.Fatalf("a tenure found was renewed: %v", err)
		}
		at := time.Now()
		r1 := waiting("b", "3", time.Second)
		r1.Wait = 2 * time.Hour
		got := <-background(t.Context(), w.open(authority.Config{MaxWait: 2 * time.Hour}), r1)
		if got.err != nil || got.at.Sub(at) < time.Hour || got.tenure.Fence <= lost.Fence {
			t.Fatalf("%+v after %v", got, got.at.Sub(at))
		}
	})
}

// Without a regression an advance ends nothing.
func TestAnAdvanceOfASoundStoreEndsNoTenure(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		held := mustAcquire(t, a, request("a", "1", time.Minute))
		_ = a.Close()
		done, err := w.advance(authority.Config{}, authority.AdvanceRequest{Operator: "ann", Reason: "counter"})
		if err != nil || done.Epoch != 1 || done.Regression != "" || done.Wait != 0 {
			t.Fatalf("%+v, %v", done, err)
		}
		b := w.open(authority.Config{})
		must(t, second(b.Renew(t.Context(), held.TenureRef)))
		if e := epoch(t, b); e != 2 {
			t.Fatalf("epoch %d, want one more than the operator's", e)
		}
		_ = b.Close()
		// What was found elsewhere, and a store that only a person knows to be old.
		done, err = w.advance(authority.Config{}, authority.AdvanceRequest{Operator: "ann", Reason: "raw copy", Restored: true})
		if err != nil || done.Regression == "" || done.Epoch <= 2 {
			t.Fatalf("%+v, %v", done, err)
		}
		done, err = w.advance(authority.Config{}, authority.AdvanceRequest{Operator: "ann", Reason: "resource is ahead", Above: []uint32{41, 7}})
		if err != nil || done.Epoch != 42 || done.Regression == "" {
			t.Fatalf("%+v, %v", done, err)
		}
		c := w.open(authority.Config{})
		_, err = c.Renew(t.Context(), held.TenureRef)
		wantCode(t, err, lastword.ErrNotHolder)
	})
}

func TestAnAdvanceNeedsOperatorAndReasonAndAnAuditThatCanBeWritten(t *testing.T) {
	w := newWorld(t)
	_ = w.open(authority.Config{}).Close()
	for _, r := range []authority.AdvanceRequest{{Operator: "ann"}, {Reason: "r"}, {Operator: "a\nb", Reason: "r"}, {Operator: "a", Reason: "r", Above: []uint32{lastword.MaxEpoch + 1}}} {
		_, err := w.advance(authority.Config{}, r)
		wantCode(t, err, lastword.ErrInvalid)
	}
	before, _ := w.witness.Load(t.Context())
	_, err := w.advance(authority.Config{Audit: &kept{refuse: true}}, authority.AdvanceRequest{Operator: "ann", Reason: "r"})
	wantCode(t, err, lastword.ErrUnavailable)
	if after, _ := w.witness.Load(t.Context()); *after != *before {
		t.Fatal("advanced although it could not be written down")
	}
	a := w.open(authority.Config{Audit: &kept{refuse: true}})
	defer w.close()
	held := mustAcquire(t, a, request("a", "1", time.Minute))
	wantCode(t, a.Revoke(t.Context(), held.Resource, held.Fence, "ann", "r"), lastword.ErrUnavailable)
	must(t, second(a.Renew(t.Context(), held.TenureRef)))
}

// R7: who revoked what, and why, is kept before anything is done, and then what came of it.
func TestR7ARevocationIsKept(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	audit := &kept{}
	a := w.open(authority.Config{Audit: audit})
	held := mustAcquire(t, a, request("a", "1", time.Minute))
	must(t, a.Revoke(t.Context(), held.Resource, held.Fence, "ann", "host is gone"))
	wantCode(t, a.Revoke(t.Context(), held.Resource, held.Fence, "ann", "again"), lastword.ErrNotHolder)
	want := "revoke by ann, host is gone: begun\nrevoke: done\nrevoke by ann, again: begun\nrevoke: NOT_HOLDER"
	if got := audit.text(); got != want {
		t.Fatalf("kept:\n%s", got)
	}
}

func TestR10AResumptionIsKept(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	audit := &kept{}
	a := w.open(authority.Config{Audit: audit})
	wantCode(t, second(a.Resume(t.Context(), "jobs/nightly", 1, "ann", "looked at it")), lastword.ErrRequestConflict) // nothing was reported
	if got := audit.text(); got != "resume by ann, looked at it: begun\nresume: REQUEST_CONFLICT" {
		t.Fatalf("kept:\n%s", got)
	}
	audit.refuse = true
	wantCode(t, second(a.Resume(t.Context(), "jobs/nightly", 1, "ann", "again")), lastword.ErrUnavailable)
}

// R10: what the trust bundle knows is evidence: store and witness that went back together
// are noticed, and the way out is above it.
func TestR10StoreAndWitnessThatWentBackTogetherAreNoticedByTheKeyRing(t *testing.T) {
	w, ring := newRingWorld(t)
	defer w.close()
	a := w.open(authority.Config{})
	mustAcquire(t, a, request("a", "1", time.Second))
	backup, mark := w.memory.Copy(), *must2(w.witness.Load(t.Context()))
	_ = a.Close()
	for range 3 {
		a = w.open(authority.Config{})
		_ = a.Close()
	}
	w.memory, w.witness = backup, authority.NewMemoryWitness()
	if ok, err := w.witness.Swap(t.Context(), nil, mark); !ok || err != nil {
		t.Fatal(err)
	}
	_, err := authority.Open(t.Context(), w.memory.Open(), w.signer, authority.Config{Domain: domain, Witness: w.witness})
	wantCode(t, err, lastword.ErrRegression)
	if !strings.Contains(err.Error(), "trust bundle") {
		t.Fatal(err)
	}
	// The longest TTL that such a witness knows may be one of long ago.
	seen, err := authority.PlanAdvance(t.Context(), w.memory.Open(), w.signer, authority.Config{Domain: domain, Witness: w.witness}, authority.AdvanceRequest{})
	if err != nil || seen.Wait < 24*time.Hour {
		t.Fatalf("%+v, %v", seen, err)
	}
	audit := &kept{}
	b := w.open(authority.Config{OnRegression: authority.Advance, Audit: audit})
	if e := epoch(t, b); e != 4 || ring.Info().CurrentEpoch != 3 && ring.Info().CurrentEpoch != 4 {
		t.Fatalf("epoch %d", e)
	}
	if !strings.HasPrefix(audit.text(), "epoch advance by --on-regression=advance, ") || !strings.HasSuffix(audit.text(), "epoch advance: done") {
		t.Fatalf("kept:\n%s", audit.text())
	}
	// Everything is lost but the keys (KF-36, an empty volume).
	_ = b.Close()
	w.memory, w.witness = memstore.New(), authority.NewMemoryWitness()
	_, err = authority.Open(t.Context(), w.memory.Open(), w.signer, authority.Config{Domain: domain, Witness: w.witness})
	wantCode(t, err, lastword.ErrRegression)
	cfg := authority.Config{Domain: domain, Witness: w.witness}
	if seen, err := authority.PlanAdvance(t.Context(), w.memory.Open(), w.signer, cfg, authority.AdvanceRequest{}); err != nil || seen.Wait < 24*time.Hour {
		t.Fatalf("%+v, %v", seen, err)
	}
	done, err := w.advance(authority.Config{}, authority.AdvanceRequest{Operator: "ann", Reason: "volume lost", LongestTTL: time.Minute})
	if err != nil || done.Epoch != 5 || done.Wait < time.Minute || done.Wait > 2*time.Minute {
		t.Fatalf("%+v, %v", done, err)
	}
}

func must2[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func initWitness(t *testing.T, w *world, to authority.Witness, from authority.MovableWitness) (authority.Mark, error) {
	t.Helper()
	return authority.InitWitness(t.Context(), w.memory.Open(), w.signer, authority.Config{Domain: domain, Witness: to}, from, "ann", "another volume")
}

// R10: a witness is moved, after an interruption too, and the old place is of no use then.
func TestR10AWitnessIsMoved(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t)
	defer w.close()
	old, next := authority.NewFileWitness(filepath.Join(dir, "old")), authority.NewFileWitness(filepath.Join(dir, "new"))
	w.witness = old
	a := w.open(authority.Config{})
	held := mustAcquire(t, a, request("a", "1", time.Hour))
	_ = a.Close()
	want, _ := old.Load(t.Context())
	// Interrupted after the new one was made: then somebody went on with the old one.
	if ok, err := next.Swap(t.Context(), nil, *want); !ok || err != nil {
		t.Fatal(err)
	}
	_ = w.open(authority.Config{}).Close()
	want, _ = old.Load(t.Context())
	// A place that knows more of this store than the source is not overwritten.
	for _, more := range []authority.Mark{{Store: want.Store, Current: want.Current + 1, Pending: want.Pending}, {Store: want.Store, Current: want.Current, Pending: want.Pending + 1}} {
		ahead := authority.NewMemoryWitness()
		must(t, second(ahead.Swap(t.Context(), nil, more)))
		_, err := initWitness(t, w, ahead, old)
		wantCode(t, err, lastword.ErrInvalid)
		if m, _ := ahead.Load(t.Context()); *m != more {
			t.Fatalf("it says %+v now", *m)
		}
	}
	for range 2 { // and once more, when nothing is left to do
		got, err := initWitness(t, w, next, old)
		if err != nil || got != *want {
			t.Fatalf("moved %+v, want %+v: %v", got, *want, err)
		}
	}
	if m, err := old.Load(t.Context()); m != nil || err != nil {
		t.Fatalf("the old place still says %+v, %v", m, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "old.moved")); err != nil {
		t.Fatal(err)
	}
	_, err := authority.Open(t.Context(), w.memory.Open(), w.signer, authority.Config{Domain: domain, Witness: old})
	wantCode(t, err, lastword.ErrRegression)
	w.witness = next
	b := w.open(authority.Config{})
	must(t, second(b.Renew(t.Context(), held.TenureRef)))
}

func TestR10AWitnessIsAdoptedOnlyByAStoreThatNeverHadOne(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	_, err := initWitness(t, w, authority.NewMemoryWitness(), nil)
	wantCode(t, err, lastword.ErrInvalid) // an empty store
	a := w.open(authority.Config{})
	mustAcquire(t, a, request("a", "1", 30*time.Second))
	_ = a.Close()
	// A witness of another store, or one that says something else, is not overwritten.
	for _, there := range []authority.Mark{{Store: "another"}, {Store: "another", Current: 9, Pending: 9}} {
		taken := authority.NewMemoryWitness()
		must(t, second(taken.Swap(t.Context(), nil, there)))
		_, err := initWitness(t, w, taken, nil)
		wantCode(t, err, lastword.ErrInvalid)
		if m, _ := taken.Load(t.Context()); *m != there {
			t.Fatalf("it says %+v now", *m)
		}
	}
	fresh := authority.NewMemoryWitness()
	mark, err := initWitness(t, w, fresh, nil)
	if err != nil || mark.Longest != store.Span(30*time.Second) || mark.Current != 0 || mark.Starting {
		t.Fatalf("adopted with %+v, %v", mark, err)
	}
	w.witness = fresh
	if e := epoch(t, w.open(authority.Config{})); e != 1 {
		t.Fatalf("epoch %d", e)
	}
	// It is marked now: the next loss is a regression, here too.
	_, err = initWitness(t, w, authority.NewMemoryWitness(), nil)
	wantCode(t, err, lastword.ErrRegression)
	// And so is a source that does not know the store any more.
	stale := authority.NewFileWitness(filepath.Join(t.TempDir(), "w"))
	must(t, second(stale.Swap(t.Context(), nil, authority.Mark{Store: mark.Store, Current: 7, Pending: 7})))
	_, err = initWitness(t, w, authority.NewMemoryWitness(), stale)
	wantCode(t, err, lastword.ErrRegression)
}

// KF-36 (3), T31: authorities on one witness and several copies of a store never issue
// one number twice, and all but the newest stop.
func TestT31ClonesOfOneStoreWithOneWitnessNeverCollide(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		mustAcquire(t, a, request("a", "1", time.Second))
		clone := w.memory.Copy()
		seen, asked := map[lastword.Token]string{}, 0
		take := func(name string, from *authority.Authority, n int) (granted int) {
			for range n {
				asked++
				r := lastword.AcquireRequest{Resource: "x", Owner: name, RequestID: fmt.Sprint(asked), TTL: time.Second}
				got, err := from.Acquire(t.Context(), r)
				if err != nil {
					wantCode(t, err, lastword.ErrRegression)
					return granted
				}
				if before := seen[got.Fence]; before != "" {
					t.Fatalf("fence %s was granted by %s and by %s", got.Fence.Text(), before, name)
				}
				seen[got.Fence] = name
				granted++
				_ = from.Release(t.Context(), got.TenureRef)
			}
			return granted
		}
		take("original", a, 5)
		b := w.openOn(clone.Open(), authority.Config{})
		take("original", a, 5) // it need not have noticed yet
		if take("clone", b, 5) != 5 {
			t.Fatal("the clone, which is the newest, does not grant")
		}
		time.Sleep(100 * time.Millisecond) // the shortest TTL
		if n := take("original", a, 1); n != 0 {
			t.Fatal("the older one still grants")
		}
	})
}

// The keys may be lost with everything else: then a person says what is known.
func TestAnAdvanceGoesWithoutAKeyRing(t *testing.T) {
	w := newWorld(t)
	var none *grant.Signer
	done, err := authority.AdvanceEpoch(t.Context(), w.memory.Open(), none, authority.Config{Domain: domain, Witness: w.witness},
		authority.AdvanceRequest{Operator: "a", Reason: "r", Above: []uint32{6}})
	if err != nil || done.Epoch != 7 {
		t.Fatalf("%+v, %v", done, err)
	}
}
