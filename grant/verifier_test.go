package grant_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// R12, R14: what Open returns is the grant, and the bundle it was believed under.
func TestOpenReturnsWhatWasSigned(t *testing.T) {
	w := newWorld(t)
	v := w.verifier(t, grant.VerifierConfig{})
	c := claims(t)
	g, digest, err := w.signer.Sign("", c)
	if err != nil {
		t.Fatal(err)
	}
	for _, sight := range []string{"first", "second"} {
		got, err := v.Open(t.Context(), g, want(t))
		if err != nil {
			t.Fatalf("%s sight: %v", sight, err)
		}
		if !got.Valid() || got.Claims() != c || got.Digest() != digest ||
			got.BundleSequence() != 11 || got.MinimumEpoch() != 3 {
			t.Fatalf("%s sight: got %+v", sight, got.Claims())
		}
	}
	for name, w := range map[string]grant.Want{
		"only the resource":         {Resource: resource},
		"advance with any class":    {Resource: resource, Class: lastword.ClassAdvance},
		"write by name":             {Resource: resource, Class: lastword.ClassWrite},
		"a lower policy generation": {Resource: resource, MinPolicyGeneration: 6},
	} {
		if _, err := v.Open(t.Context(), g, w); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// R14: nobody but Open makes a valid value.
func TestZeroVerifiedIsNotValid(t *testing.T) {
	var v grant.Verified
	if v.Valid() || v.Claims() != (grant.Claims{}) || !v.Digest().IsZero() || v.BundleSequence() != 0 || v.MinimumEpoch() != 0 {
		t.Fatal("the zero value says something")
	}
}

// T5, P3: no changed byte verifies, at any place, cold or warm.
func TestNoChangedByteVerifies(t *testing.T) {
	w := newWorld(t)
	v := w.verifier(t, grant.VerifierConfig{})
	good := w.sign(t, claims(t))
	if _, err := v.Open(t.Context(), good, want(t)); err != nil {
		t.Fatal(err)
	}
	for i := range len(good) {
		for _, c := range []byte{good[i] ^ 1, good[i] ^ 2, good[i] ^ 32, 'A', '_', '.', '=', '\n', 0, 0xff} {
			if c == good[i] {
				continue
			}
			changed := good[:i] + string([]byte{c}) + good[i+1:]
			if _, err := v.Open(t.Context(), changed, want(t)); !errors.Is(err, lastword.ErrUnverified) {
				t.Fatalf("byte %d changed to %q: %v", i, c, err)
			}
		}
	}
}

// source is a bundle source that a test leads.
type source struct {
	mu              sync.Mutex
	memory, fresh   grant.Bundle
	err, refreshErr error
	refreshed       int
	gate            chan struct{} // if set, a refresh waits for it
}

func (s *source) Bundle(_ context.Context, refresh bool) (grant.Bundle, error) {
	if refresh && s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !refresh {
		return s.memory, s.err
	}
	s.refreshed++
	if s.refreshErr != nil {
		return grant.Bundle{}, s.refreshErr
	}
	s.memory = s.fresh
	return s.memory, nil
}

func bundleOf(t testing.TB, i grant.BundleInfo, keys ...grant.Key) grant.Bundle {
	t.Helper()
	s, err := grant.NewSigner(domain, keys...)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Bundle(i)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// R12, R13: a grant ahead of the bundle makes the verifier ask the source once.
func TestGrantAheadOfTheBundleRefreshesOnce(t *testing.T) {
	w := newWorld(t)
	good := w.sign(t, claims(t))
	old := bundleOf(t, grant.BundleInfo{Sequence: 1, CurrentEpoch: 3}, w.present)
	newer := bundleOf(t, grant.BundleInfo{Sequence: 2, CurrentEpoch: 4}, w.present)
	otherKey := bundleOf(t, grant.BundleInfo{Sequence: 1, CurrentEpoch: 4}, w.retired)
	down := errors.New("the line is down")
	for _, c := range []struct {
		name          string
		memory, fresh grant.Bundle
		refreshErr    error
		want          string
	}{
		{"epoch ahead, newer bundle", old, newer, nil, "opened"},
		{"epoch ahead, same bundle", old, old, nil, "EPOCH_ABOVE_CURRENT"},
		{"epoch ahead, source down", old, newer, down, "BUNDLE_UNAVAILABLE"},
		{"key unknown, newer bundle", otherKey, newer, nil, "opened"},
		{"key unknown, same bundle", otherKey, otherKey, nil, "UNKNOWN_KEY"},
		{"key unknown, source down", otherKey, newer, down, "BUNDLE_UNAVAILABLE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &source{memory: c.memory, fresh: c.fresh, refreshErr: c.refreshErr}
			v, err := grant.NewVerifier(domain, s, grant.VerifierConfig{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := v.Open(t.Context(), good, want(t))
			if reasonOf(err) != c.want || s.refreshed != 1 {
				t.Fatalf("got %s after %d refreshes, want %s after 1", reasonOf(err), s.refreshed, c.want)
			}
			if err == nil && got.BundleSequence() != 2 {
				t.Fatalf("believed under sequence %d", got.BundleSequence())
			}
			if c.refreshErr != nil && !errors.Is(err, down) {
				t.Fatalf("%v does not tell what the source said", err)
			}
		})
	}
}

// R12: a source that fails is no verdict about the grant, and nothing is admitted.
func TestUnavailableBundleFailsClosed(t *testing.T) {
	w := newWorld(t)
	s := &source{err: context.DeadlineExceeded}
	v, err := grant.NewVerifier(domain, s, grant.VerifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	good := w.sign(t, claims(t))
	open := func() error { _, err := v.Open(t.Context(), good, want(t)); return err }
	if err := open(); reasonOf(err) != "BUNDLE_UNAVAILABLE" || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("no bundle yet: %v", err)
	}
	s.memory, s.err = w.bundle, nil
	if err := open(); err != nil {
		t.Fatal(err)
	}
	s.err = errors.New("the bundle is older than its limit")
	if err := open(); reasonOf(err) != "BUNDLE_UNAVAILABLE" {
		t.Fatalf("an opened grant outlived the bundle: %v", err)
	}
	if _, err := v.Open(t.Context(), "x", want(t)); reasonOf(err) != "SEGMENTS" {
		t.Fatalf("first failure decides: %v", err)
	}
	s.err, s.memory = nil, grant.Bundle{}
	if err := open(); reasonOf(err) != "BUNDLE_INVALID" {
		t.Fatalf("zero bundle: %v", err)
	}
}

// R13, T27: a bundle never goes back and never changes under its sequence.
func TestBundleNeverGoesBack(t *testing.T) {
	w := newWorld(t)
	good := w.sign(t, claims(t))
	at := func(seq uint64, current, minimum uint32) grant.Bundle {
		return bundleOf(t, grant.BundleInfo{Sequence: seq, CurrentEpoch: current, MinimumEpoch: minimum}, w.present)
	}
	for _, c := range []struct {
		name          string
		floor         grant.BundleFloor
		first, second grant.Bundle
		want          string
	}{
		{"the same again", grant.BundleFloor{}, at(5, 4, 3), at(5, 4, 3), "opened"},
		{"newer", grant.BundleFloor{}, at(5, 4, 3), at(6, 4, 3), "opened"},
		{"lower sequence", grant.BundleFloor{}, at(5, 4, 3), at(4, 4, 3), "BUNDLE_ROLLBACK"},
		{"changed under its sequence", grant.BundleFloor{}, at(5, 4, 3), at(5, 5, 3), "BUNDLE_ROLLBACK"},
		{"lower minimum", grant.BundleFloor{}, at(5, 4, 3), at(6, 4, 2), "BUNDLE_ROLLBACK"},
		{"below the floor's sequence", grant.BundleFloor{Sequence: 7}, at(7, 4, 3), at(6, 4, 3), "BUNDLE_ROLLBACK"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &source{memory: c.first, fresh: c.second}
			v, err := grant.NewVerifier(domain, s, grant.VerifierConfig{Floor: c.floor})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := v.Open(t.Context(), good, want(t)); err != nil {
				t.Fatal(err)
			}
			s.memory = c.second
			if _, err := v.Open(t.Context(), good, want(t)); reasonOf(err) != c.want {
				t.Fatalf("got %s, want %s", reasonOf(err), c.want)
			}
		})
	}
	for _, floor := range []grant.BundleFloor{{Sequence: 6}, {MinimumEpoch: 4}} {
		v, err := grant.NewVerifier(domain, grant.StaticBundle(at(5, 4, 3)), grant.VerifierConfig{Floor: floor})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Open(t.Context(), good, want(t)); reasonOf(err) != "BUNDLE_ROLLBACK" {
			t.Fatalf("floor %+v: %v", floor, err)
		}
	}
	other, err := grant.NewVerifier("staging", grant.StaticBundle(w.bundle), grant.VerifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Open(t.Context(), good, want(t)); reasonOf(err) != "BUNDLE_INVALID" {
		t.Fatalf("a bundle of another domain: %v", err)
	}
}

// R13: an answer that arrives late does not look like a roll-back.
func TestLateAnswerOfTheSourceIsAskedAgain(t *testing.T) {
	w := newWorld(t)
	old := bundleOf(t, grant.BundleInfo{Sequence: 1, CurrentEpoch: 4}, w.present)
	newer := bundleOf(t, grant.BundleInfo{Sequence: 2, CurrentEpoch: 4}, w.present)
	s := &source{memory: newer, fresh: newer}
	v, err := grant.NewVerifier(domain, s, grant.VerifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	good := w.sign(t, claims(t))
	for _, b := range []grant.Bundle{newer, old} {
		s.memory = b
		if got, err := v.Open(t.Context(), good, want(t)); err != nil || got.BundleSequence() != 2 {
			t.Fatalf("sequence %d, %v", got.BundleSequence(), err)
		}
	}
}

// R12: one Open asks the source again at most once, whatever is wrong.
func TestOneOpenAsksAgainOnce(t *testing.T) {
	w := newWorld(t)
	good := w.sign(t, claims(t))
	old := bundleOf(t, grant.BundleInfo{Sequence: 1, CurrentEpoch: 4}, w.present)
	newer := bundleOf(t, grant.BundleInfo{Sequence: 2, CurrentEpoch: 4}, w.retired)
	s := &source{memory: newer, fresh: newer}
	v, err := grant.NewVerifier(domain, s, grant.VerifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []grant.Bundle{newer, old} { // a late answer, and a key that is not known
		s.memory, s.refreshed = b, 0
		if _, err := v.Open(t.Context(), good, want(t)); reasonOf(err) != "UNKNOWN_KEY" || s.refreshed != 1 {
			t.Fatalf("got %s after %d refreshes, want UNKNOWN_KEY after 1", reasonOf(err), s.refreshed)
		}
	}
}

// R13, T20, T27: revocation reaches a grant that was opened before.
func TestRevocationReachesOpenedGrants(t *testing.T) {
	w := newWorld(t)
	good := w.sign(t, claims(t))
	last := uint32(3)
	for name, c := range map[string]struct {
		next grant.Bundle
		want string
	}{
		"key removed":   {bundleOf(t, grant.BundleInfo{Sequence: 2, CurrentEpoch: 4}, w.retired), "UNKNOWN_KEY"},
		"key retired":   {bundleOf(t, grant.BundleInfo{Sequence: 2, CurrentEpoch: 4, Epochs: map[string]grant.EpochRange{w.present.ID(): {Last: &last}}}, w.present), "EPOCH_OUTSIDE_KEY"},
		"epoch revoked": {bundleOf(t, grant.BundleInfo{Sequence: 2, CurrentEpoch: 5, MinimumEpoch: 5}, w.present), "EPOCH_BELOW_MINIMUM"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &source{memory: bundleOf(t, grant.BundleInfo{Sequence: 1, CurrentEpoch: 4}, w.present)}
			v, err := grant.NewVerifier(domain, s, grant.VerifierConfig{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := v.Open(t.Context(), good, want(t)); err != nil {
				t.Fatal(err)
			}
			s.memory, s.fresh = c.next, c.next
			if _, err := v.Open(t.Context(), good, want(t)); reasonOf(err) != c.want {
				t.Fatalf("got %s, want %s", reasonOf(err), c.want)
			}
		})
	}
}

// T23: a storm of unknown keys asks the source once for all that came in before.
func TestStormOfUnknownKeysIsOneQuestion(t *testing.T) {
	w := newWorld(t)
	g := w.sign(t, claims(t))
	b := bundleOf(t, grant.BundleInfo{Sequence: 1, CurrentEpoch: 4}, w.retired)
	synctest.Test(t, func(t *testing.T) {
		s := &source{memory: b, fresh: b, gate: make(chan struct{})}
		v, err := grant.NewVerifier(domain, s, grant.VerifierConfig{})
		if err != nil {
			t.Fatal(err)
		}
		var refused atomic.Int32
		open := func() {
			if _, err := v.Open(t.Context(), g, want(t)); reasonOf(err) == "UNKNOWN_KEY" {
				refused.Add(1)
			}
		}
		go open()
		synctest.Wait() // the first one asks
		for range 20 {
			go open()
		}
		ctx, cancel := context.WithCancel(t.Context())
		impatient := make(chan error, 1)
		go func() { _, err := v.Open(ctx, g, want(t)); impatient <- err }()
		synctest.Wait() // they wait for it
		cancel()
		if err := <-impatient; reasonOf(err) != "BUNDLE_UNAVAILABLE" || !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that gave up: %v", err)
		}
		close(s.gate)
		synctest.Wait()
		if refused.Load() != 21 || s.refreshed != 2 {
			t.Errorf("%d of 21 refused, after %d questions, want 2", refused.Load(), s.refreshed)
		}
	})
}

// T22: the memory of opened grants is bounded and never wrong.
func TestSmallMemoryForgetsAndStillJudges(t *testing.T) {
	w := newWorld(t)
	v := w.verifier(t, grant.VerifierConfig{Memory: 3})
	for round := range 3 {
		for i := range 10 {
			c := claims(t)
			c.Fence = fence(t, 4, uint64(i+1))
			c.Resource = lastword.Resource(fmt.Sprintf("doc/%d", i))
			g, need := w.sign(t, c), want(t)
			need.Resource = c.Resource
			if got, err := v.Open(t.Context(), g, need); err != nil || got.Claims() != c {
				t.Fatalf("round %d, grant %d: %v", round, i, err)
			}
			need.Resource = "doc/x"
			if _, err := v.Open(t.Context(), g, need); reasonOf(err) != "RESOURCE_MISMATCH" {
				t.Fatalf("round %d, grant %d: %v", round, i, err)
			}
		}
	}
}

// Verifier and Signer are safe for concurrent use while the bundle moves on.
func TestConcurrentOpenWhileTheBundleMoves(t *testing.T) {
	w := newWorld(t)
	good := w.sign(t, claims(t))
	var bundles []grant.Bundle
	for seq := range uint64(20) {
		bundles = append(bundles, bundleOf(t, grant.BundleInfo{Sequence: seq, CurrentEpoch: 4}, w.present))
	}
	s := &source{memory: bundles[0], fresh: bundles[0]}
	v, err := grant.NewVerifier(domain, s, grant.VerifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if _, err := v.Open(t.Context(), good, want(t)); err != nil {
					t.Error(err)
				}
				if g, _, err := w.signer.Sign("", claims(t)); err != nil || g != good {
					t.Error("another grant for the same claims", err)
				}
			}
		})
	}
	for _, b := range bundles[1:] {
		s.mu.Lock()
		s.memory, s.fresh = b, b
		s.mu.Unlock()
		if _, err := v.Open(t.Context(), good, want(t)); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

// R14, style: a verifier is checked when it is made.
func TestNewVerifierRefusesWhatCannotWork(t *testing.T) {
	w := newWorld(t)
	for name, make := range map[string]func() error{
		"no source": func() error { _, err := grant.NewVerifier(domain, nil, grant.VerifierConfig{}); return err },
		"no domain": func() error {
			_, err := grant.NewVerifier("", grant.StaticBundle(w.bundle), grant.VerifierConfig{})
			return err
		},
	} {
		if err := make(); !errors.Is(err, lastword.ErrInvalid) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// R12, R14: Remembered tells of what Open has believed, and of nothing else.
func TestOnlyWhatOpenBelievedIsRemembered(t *testing.T) {
	w := newWorld(t)
	v := w.verifier(t, grant.VerifierConfig{})
	c := claims(t)
	good := w.sign(t, c)
	forged := good[:len(good)-8] + "AAAAAAAA"
	if _, ok := v.Remembered(good); ok {
		t.Fatal("it is remembered before it was opened")
	}
	for _, text := range []string{good, forged} {
		_, _ = v.Open(t.Context(), text, want(t))
	}
	if got, ok := v.Remembered(good); !ok || got != c {
		t.Fatalf("got %+v, %v", got, ok)
	}
	if _, ok := v.Remembered(forged); ok {
		t.Fatal("a forged grant is remembered")
	}
}
