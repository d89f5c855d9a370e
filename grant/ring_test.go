package grant_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

const ringHint = 10 * time.Second

// openRing opens the ring of a first key that is the same in every test.
func openRing(t testing.TB, dir string) *grant.Ring {
	t.Helper()
	r, err := grant.OpenRing(grant.RingConfig{Dir: dir, Domain: domain, First: key(t, 0)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newRing(t testing.TB, epoch uint32) *grant.Ring {
	t.Helper()
	r := openRing(t, filepath.Join(t.TempDir(), "ring"))
	must(t, r.Advance(epoch, ringHint))
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func bundleOfRing(t testing.TB, r *grant.Ring) grant.Bundle {
	t.Helper()
	b, err := r.Bundle()
	must(t, err)
	return b
}

// grantAt is a grant that the ring's present key signs for an epoch.
func grantAt(t testing.TB, r *grant.Ring, epoch uint32) string {
	t.Helper()
	c := claims(t)
	c.Fence = fence(t, epoch, 41)
	g, _, err := r.Signer().Sign("", c)
	must(t, err)
	return g
}

// verdictOf is what a resource that has the ring's present bundle says to a grant.
func verdictOf(t testing.TB, r *grant.Ring, g string) string {
	t.Helper()
	v, err := grant.NewVerifier(domain, grant.StaticBundle(bundleOfRing(t, r)), grant.VerifierConfig{})
	must(t, err)
	_, err = v.Open(t.Context(), g, want(t))
	return reasonOf(err)
}

// R13: a rotation refuses no grant on its way, whatever bundle a resource has.
func TestARotationByOverlapRefusesNothing(t *testing.T) {
	r := newRing(t, 4)
	old := grantAt(t, r, 4)
	first := r.Signer().KeyID()
	sequences := []uint64{bundleOfRing(t, r).Sequence()}
	step := func(what string, err error) {
		t.Helper()
		must(t, err)
		s := bundleOfRing(t, r).Sequence()
		if s != sequences[len(sequences)-1]+1 {
			t.Fatalf("%s: sequence %d after %v", what, s, sequences)
		}
		sequences = append(sequences, s)
		for _, g := range []string{old, grantAt(t, r, r.Info().CurrentEpoch)} {
			if got := verdictOf(t, r, g); got != "opened" {
				t.Fatalf("%s: a good grant is %s", what, got)
			}
		}
	}
	second, err := r.Add(grant.Key{})
	step("add", err)
	if r.Signer().KeyID() != first || second.Epochs.First != 4 {
		t.Fatalf("a key signs as soon as it is published, or for the past: %+v", second)
	}
	step("use", r.Use(second.ID))
	if r.Signer().KeyID() != second.ID {
		t.Fatal("the new key does not sign")
	}
	if again, _, err := r.Signer().Sign(first, func() grant.Claims { c := claims(t); return c }()); err != nil || again != old {
		t.Fatalf("R2: the old key does not repeat its grants: %v", err)
	}
	step("retire", r.Retire(first))
	step("next epoch", r.Advance(5, ringHint))

	c := claims(t)
	c.Fence = fence(t, 5, 1)
	late, _, err := r.Signer().Sign(first, c)
	must(t, err)
	if got := verdictOf(t, r, late); got != "EPOCH_OUTSIDE_KEY" {
		t.Fatalf("a retired key that signs on is %s", got)
	}
	// The ring forgets a key of which nothing is good any more.
	must(t, r.RevokeEpochs(5))
	if i := r.Info(); len(i.Keys) != 1 || i.MinimumEpoch != 5 || len(i.Revoked) != 0 {
		t.Fatalf("got %+v", i)
	}
	if got := verdictOf(t, r, old); got != "UNKNOWN_KEY" {
		t.Fatalf("a forgotten key's grant is %s", got)
	}
}

// R13, T20, T27: revoking a key refuses it at once and raises the minimum above what it
// signed, for the present epoch as soon as there is a later one.
func TestRevokingTheSigningKeyOfThePresentEpoch(t *testing.T) {
	r := newRing(t, 4)
	stolen := r.Signer().KeyID()
	old := grantAt(t, r, 4)
	must(t, r.Revoke(stolen))
	i := r.Info()
	if i.MinimumEpoch != 4 || i.NextEpoch != 5 || len(i.Keys) != 1 || !i.Keys[0].Signing || i.Keys[0].ID == stolen || !slices.Equal(i.Revoked, []string{stolen}) {
		t.Fatalf("got %+v", i)
	}
	if got := verdictOf(t, r, old); got != "UNKNOWN_KEY" {
		t.Fatalf("a revoked key's grant is %s", got)
	}
	if r.Signer().Has(stolen) {
		t.Fatal("the signer has a revoked key")
	}
	between := grantAt(t, r, 4)
	if got := verdictOf(t, r, between); got != "opened" {
		t.Fatalf("a grant between revocation and new epoch is %s", got)
	}
	must(t, r.Advance(5, ringHint))
	if i := r.Info(); i.MinimumEpoch != 5 || i.NextEpoch != 0 {
		t.Fatalf("after the new epoch: %+v", i)
	}
	if got := verdictOf(t, r, between); got != "EPOCH_BELOW_MINIMUM" {
		t.Fatalf("a grant of the revoked epoch is %s", got)
	}
	if got := verdictOf(t, r, grantAt(t, r, 5)); got != "opened" {
		t.Fatalf("a grant of the new epoch is %s", got)
	}
	if _, err := os.Lstat(filepath.Join(r.Dir(), stolen+".pem")); err == nil {
		t.Fatal("the file of the revoked key is still there")
	}
	seq := r.Info().Sequence
	must(t, r.Revoke(stolen)) // again
	if _, err := r.Add(key(t, 0)); !errors.Is(err, lastword.ErrInvalid) {
		t.Fatalf("a revoked key came back: %v", err)
	}
	if r.Info().Sequence != seq {
		t.Fatal("what changes nothing has a new sequence")
	}
	// The key file of before the ring may still be there; it does not come back either.
	again := openRing(t, r.Dir())
	if again.Signer().Has(stolen) || again.Signer().KeyID() != r.Signer().KeyID() {
		t.Fatal("the first key came back with the file it is from")
	}
}

func TestRevokingOtherKeys(t *testing.T) {
	// A key that was published and never used: no minimum, but a new epoch.
	r := newRing(t, 4)
	good := grantAt(t, r, 4)
	spare, err := r.Add(grant.Key{})
	must(t, err)
	must(t, r.Revoke(spare.ID))
	if i := r.Info(); i.MinimumEpoch != 0 || i.NextEpoch != 5 {
		t.Fatalf("a key that never signed: %+v", i)
	}
	must(t, r.Advance(5, ringHint))
	if got := verdictOf(t, r, good); got != "opened" {
		t.Fatalf("a good key's grant is %s", got)
	}
	// A key that was retired epochs ago: the minimum goes above its last one, now.
	first := r.Signer().KeyID()
	next, err := r.Add(grant.Key{})
	must(t, err)
	must(t, r.Use(next.ID))
	must(t, r.Retire(first))
	must(t, r.Advance(6, ringHint))
	must(t, r.Advance(7, ringHint))
	must(t, r.Revoke(first))
	if i := r.Info(); i.MinimumEpoch != 6 || i.NextEpoch != 0 {
		t.Fatalf("a key that was retired in epoch 5: %+v", i)
	}
	// The newest key that is not retired takes over.
	standby, err := r.Add(grant.Key{})
	must(t, err)
	must(t, r.Revoke(next.ID))
	if r.Signer().KeyID() != standby.ID {
		t.Fatal("the standby key did not take over")
	}
	for what, err := range map[string]error{
		"use of an unknown key":     r.Use(first),
		"retiring an unknown key":   r.Retire("x"),
		"retiring the signing key":  r.Retire(standby.ID),
		"revoking an unknown key":   r.Revoke("x"),
		"a minimum above all":       r.RevokeEpochs(lastword.MaxEpoch + 1),
		"a sequence that is no end": r.RaiseSequence(grant.MaxNumber),
		"a second domain":           second(grant.OpenRing(grant.RingConfig{Dir: r.Dir(), Domain: "staging"})),
		"a first key it never had":  second(grant.OpenRing(grant.RingConfig{Dir: r.Dir(), Domain: domain, First: key(t, 9)})),
	} {
		if !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// R13: the sequence is durable and only grows, whoever changes the ring and however
// often it is opened; a minimum never falls.
func TestTheSequenceGrowsAcrossRestartsAndProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	var last uint64
	var bundle string
	grew := func(r *grant.Ring) {
		t.Helper()
		b := bundleOfRing(t, r)
		raw, err := b.Marshal()
		must(t, err)
		if b.Sequence() < last || b.Sequence() == last && string(raw) != bundle {
			t.Fatalf("sequence %d after %d:\n%s\n%s", b.Sequence(), last, bundle, raw)
		}
		last, bundle = b.Sequence(), string(raw)
	}
	for epoch := range uint32(4) {
		a, b := openRing(t, dir), openRing(t, dir)
		must(t, a.Advance(epoch, ringHint))
		grew(a)
		if epoch == 0 && last != 1 {
			t.Fatalf("the first sequence is %d; one key in epoch 0 is 1 with and without a ring", last)
		}
		k, err := b.Add(grant.Key{}) // b has not heard of a's step
		must(t, err)
		grew(b)
		must(t, a.Use(k.ID))
		grew(a)
		must(t, b.RevokeEpochs(epoch))
		grew(b)
		must(t, a.Reload())
		grew(a)
		if a.Info().MinimumEpoch != epoch {
			t.Fatalf("got %+v", a.Info())
		}
	}
	r := openRing(t, dir)
	must(t, r.RaiseSequence(1000))
	if r.Info().Sequence != 1001 {
		t.Fatalf("got %+v", r.Info())
	}
}

// A ring without a directory that an authority published under epoch + 1 is never under
// that sequence again with other content.
func TestARingThatGetsItsDirectoryLate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	r := openRing(t, dir)
	if _, err := r.Add(grant.Key{}); err != nil { // before any authority told the epoch
		t.Fatal(err)
	}
	must(t, r.Advance(7, ringHint))
	if s := r.Info().Sequence; s != 9 {
		t.Fatalf("sequence %d, want 9: 8 was one key alone in epoch 7", s)
	}
}

// Where the file system is not writable the one key goes on, and nothing can be changed.
func TestARingThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone", "ring") // like a directory that cannot be made
	r := openRing(t, dir)
	if err := r.Advance(3, ringHint); !errors.Is(err, lastword.ErrUnavailable) {
		t.Fatalf("a parent that is not there: %v", err)
	}
	parent := t.TempDir()
	must(t, os.Chmod(parent, 0o500))
	if os.Getuid() == 0 {
		parent = "/sys" // where not even root makes a directory
	}
	r = openRing(t, filepath.Join(parent, "lastword-ring"))
	must(t, r.Advance(3, ringHint))
	must(t, r.Advance(4, ringHint))
	if i := r.Info(); i.Durable || i.Sequence != 5 || i.CurrentEpoch != 4 {
		t.Fatalf("got %+v", i)
	}
	if _, err := r.Add(grant.Key{}); !errors.Is(err, lastword.ErrUnavailable) {
		t.Fatalf("a change that is not durable: %v", err)
	}
}

// Several processes change one ring at the same time: every change counts, each under a
// sequence of its own.
func TestConcurrentChangesAreAllKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	must(t, openRing(t, dir).Advance(1, ringHint))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r := openRing(t, dir)
			for range 3 {
				k, err := r.Add(grant.Key{})
				if err == nil {
					err = r.Use(k.ID)
				}
				if err == nil {
					err = r.Reload()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r := openRing(t, dir)
	if i := r.Info(); len(i.Keys) != 25 || i.Sequence != 2+48 {
		t.Fatalf("%d keys under sequence %d, want 25 under 50", len(i.Keys), i.Sequence)
	}
}

// T17: key files of a ring are 0600 and stay so; anything wider is refused.
func TestRingFilesAreChecked(t *testing.T) {
	r := newRing(t, 4)
	kid := r.Signer().KeyID()
	pem := filepath.Join(r.Dir(), kid+".pem")
	for path, mode := range map[string]os.FileMode{pem: 0o600, r.Dir(): 0o700, filepath.Join(r.Dir(), "ring.json"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(r.Dir(), "ring.json")); err != nil || strings.Contains(string(b), "PRIVATE") {
		t.Errorf("ring.json holds a secret: %v", err)
	}
	open := func() error {
		_, err := grant.OpenRing(grant.RingConfig{Dir: r.Dir(), Domain: domain})
		return err
	}
	refused := func(what, says string, spoil, repair func() error) {
		t.Helper()
		must(t, open())
		must(t, spoil())
		if err := open(); !errors.Is(err, lastword.ErrInvalid) && !errors.Is(err, lastword.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v does not say %q", what, err, says)
		}
		must(t, repair())
	}
	mode := func(path string, m os.FileMode) func() error { return func() error { return os.Chmod(path, m) } }
	json := filepath.Join(r.Dir(), "ring.json")
	pipe := func() error { return errors.Join(os.Rename(json, json+".away"), syscall.Mkfifo(json, 0o600)) }
	refused("a ring that is a named pipe", "no regular file", pipe, func() error { return os.Rename(json+".away", json) })
	good, err := os.ReadFile(json)
	must(t, err)
	content := func(b string) func() error { return func() error { return os.WriteFile(json, []byte(b), 0o600) } }
	refused("a key that others can read", "0640", mode(pem, 0o640), mode(pem, 0o600))
	refused("a directory that others can enter", "0711", mode(r.Dir(), 0o711), mode(r.Dir(), 0o700))
	refused("a ring that others can write", "others can write", mode(json, 0o602), mode(json, 0o600))
	refused("no JSON", "not the JSON", content("x"), content(string(good)))
	refused("another version", "version", content(strings.Replace(string(good), `"version": 1`, `"version": 2`, 1)), content(string(good)))
	refused("a member of a later version", "update", content(strings.Replace(string(good), `"version"`, `"later": 1, "version"`, 1)), content(string(good)))
	refused("a kid that is a path", "thumbprint", content(strings.ReplaceAll(string(good), kid, "../../etc/passwd")), content(string(good)))
	refused("a key that is missing", "no such file", func() error { return os.Rename(pem, pem+".away") }, func() error { return os.Rename(pem+".away", pem) })
	refused("another key under its name", "another key", func() error { return os.WriteFile(pem, keyPEM(t, private(3)), 0o600) }, func() error { return os.WriteFile(pem, keyPEM(t, private(0)), 0o600) })
	must(t, os.RemoveAll(r.Dir()))
	refusedGone := r.Reload()
	if !errors.Is(refusedGone, lastword.ErrInvalid) {
		t.Errorf("a ring that is gone: %v", refusedGone)
	}
}

// R13: a ring that was put back from an old copy is not taken in by who has seen more.
func TestARingThatWentBackIsNotTakenIn(t *testing.T) {
	r := newRing(t, 4)
	json := filepath.Join(r.Dir(), "ring.json")
	old, err := os.ReadFile(json)
	must(t, err)
	must(t, r.RevokeEpochs(3))
	before := r.Info()
	must(t, os.WriteFile(json, old, 0o600))
	if err := r.Reload(); !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), "went back") {
		t.Fatalf("got %v", err)
	}
	if got := r.Info(); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Fatalf("it was taken in: %+v", got)
	}
	if err := r.RevokeEpochs(4); !errors.Is(err, lastword.ErrInvalid) {
		t.Fatalf("a change on top of it: %v", err)
	}
}

// What a process leaves that dies between two files of one step is nothing.
func TestLeftoversOfADeadProcessAreNothing(t *testing.T) {
	r := newRing(t, 4)
	before := bundleOfRing(t, r)
	stray := filepath.Join(r.Dir(), key(t, 5).ID()+".pem")
	must(t, os.WriteFile(stray, keyPEM(t, private(5)), 0o644)) // a key without a ring.json that names it
	must(t, os.WriteFile(filepath.Join(r.Dir(), ".lastword-key-1"), nil, 0o600))
	again := openRing(t, r.Dir())
	if bundleOfRing(t, again).Sequence() != before.Sequence() || again.Signer().Has(key(t, 5).ID()) {
		t.Fatal("a leftover counts")
	}
	if _, err := again.Add(key(t, 5)); err != nil { // the same change once more
		t.Fatal(err)
	}
	entries, err := os.ReadDir(r.Dir())
	must(t, err)
	if len(entries) != 4 { // two keys, ring.json, lock
		t.Fatalf("left: %v", entries)
	}
	if info, err := os.Stat(stray); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the key file is %v, %v", info.Mode(), err)
	}
}

// The exported file is the bundle of now, and ParseBundle reads it.
func TestExportIsTheBundle(t *testing.T) {
	r := newRing(t, 4)
	path := filepath.Join(t.TempDir(), "bundle.json")
	for range 2 {
		must(t, r.Export(path))
		raw, err := os.ReadFile(path)
		must(t, err)
		b, err := grant.ParseBundle(raw)
		must(t, err)
		if b.Sequence() != r.Info().Sequence || b.RefreshHint() != ringHint || b.CurrentEpoch() != 4 {
			t.Fatalf("got %s", raw)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
			t.Fatalf("%v, %v", info.Mode(), err)
		}
		must(t, r.RevokeEpochs(2))
	}
	fresh, err := grant.OpenRing(grant.RingConfig{Dir: filepath.Join(t.TempDir(), "r"), Domain: domain, First: key(t, 0)})
	must(t, err)
	if err := fresh.Export(path); !errors.Is(err, lastword.ErrInvalid) {
		t.Fatalf("a bundle without an epoch: %v", err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	must(t, err)
	if len(entries) != 1 {
		t.Fatalf("left behind: %v", entries)
	}
}

// A slip of the hand: what is no earlier bundle of this domain stays as it is.
func TestExportReplacesABundleAndNothingElse(t *testing.T) {
	r := newRing(t, 4)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	other, err := grant.OpenRing(grant.RingConfig{Dir: filepath.Join(t.TempDir(), "r"), Domain: "another", First: key(t, 1)})
	must(t, err)
	must(t, other.Advance(0, ringHint))
	must(t, other.Export(at("another domain's")))
	must(t, os.WriteFile(at("a key"), keyPEM(t, private(0)), 0o600))
	must(t, os.WriteFile(at("a text"), []byte("hello"), 0o600))
	must(t, os.WriteFile(at("too large"), make([]byte, grant.MaxBundleBytes+1), 0o600))
	must(t, os.Mkdir(at("a directory"), 0o700))
	must(t, syscall.Mkfifo(at("a pipe"), 0o600))
	must(t, os.Symlink(at("nowhere"), at("a link to nothing")))
	must(t, os.Symlink(at("a key"), at("a link to a key")))
	before, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range before {
		info, err := os.Lstat(at(e.Name()))
		must(t, err)
		if err := r.Export(at(e.Name())); !errors.Is(err, lastword.ErrInvalid) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", e.Name(), err)
		}
		if now, err := os.Lstat(at(e.Name())); err != nil || !os.SameFile(now, info) || now.Size() != info.Size() {
			t.Errorf("%s was replaced: %v", e.Name(), err)
		}
	}
	if err := r.Export(""); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
	after, err := os.ReadDir(dir)
	must(t, err)
	if len(after) != len(before) {
		t.Errorf("left behind: %v", after)
	}
	// A file that mktemp has made, an earlier bundle, and one behind a link.
	must(t, os.WriteFile(at("empty"), nil, 0o600))
	must(t, r.Export(at("empty")))
	must(t, os.Symlink(at("empty"), at("a link")))
	must(t, r.RevokeEpochs(2))
	must(t, r.Export(at("a link")))
	raw, err := os.ReadFile(at("empty"))
	must(t, err)
	b, err := grant.ParseBundle(raw)
	must(t, err)
	if info, err := os.Lstat(at("a link")); err != nil || info.Mode()&os.ModeSymlink == 0 || b.Sequence() != r.Info().Sequence {
		t.Errorf("behind a link: sequence %d, %v", b.Sequence(), err)
	}
}

func ExampleRing() {
	dir, err := os.MkdirTemp("", "lastword")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	first, err := grant.NewKey()
	if err != nil {
		panic(err)
	}
	ring, err := grant.OpenRing(grant.RingConfig{Dir: filepath.Join(dir, "ring"), Domain: "billing", First: first})
	if err != nil {
		panic(err)
	}
	fmt.Println(ring.Advance(0, 10*time.Second)) // what an authority does when it starts

	next, err := ring.Add(grant.Key{}) // published
	fmt.Println(ring.Info().Sequence, len(ring.Info().Keys), ring.Signer().KeyID() == first.ID(), err)
	fmt.Println(ring.Use(next.ID), ring.Signer().KeyID() == next.ID) // when it has spread
	fmt.Println(ring.Retire(first.ID()), ring.Info().Sequence)
	fmt.Println(ring.Revoke(next.ID), ring.Info().NextEpoch, ring.Info().Revoked[0] == next.ID)
	// Output:
	// <nil>
	// 2 2 true <nil>
	// <nil> true
	// <nil> 4
	// <nil> 1 true
}

// R11: a later epoch can be asked for without a revocation; it is asked for once, and the
// last one has no next.
func TestALaterEpochCanBeAskedFor(t *testing.T) {
	r := newRing(t, 4)
	g := grantAt(t, r, 4)
	for range 2 {
		if wanted, err := r.BeginEpoch(); err != nil || wanted != 5 || r.Info().NextEpoch != 5 {
			t.Fatalf("wanted %d, %v, %+v", wanted, err, r.Info())
		}
	}
	must(t, r.Advance(5, ringHint))
	if info := r.Info(); info.NextEpoch != 0 || info.MinimumEpoch != 0 {
		t.Fatalf("got %+v", info)
	}
	if got := verdictOf(t, r, g); got != "opened" {
		t.Fatalf("a grant of the epoch before is refused: %s", got)
	}
	last := newRing(t, lastword.MaxEpoch)
	before := last.Info()
	if _, err := last.BeginEpoch(); !errors.Is(err, lastword.ErrExhausted) || last.Info().Sequence != before.Sequence {
		t.Fatalf("after the last epoch: %v", err)
	}
	// A ring that is there knows its own domain.
	again, err := grant.OpenRing(grant.RingConfig{Dir: r.Dir()})
	if err != nil || again.Info().Domain != domain {
		t.Fatalf("%+v, %v", again, err)
	}
	if _, err := grant.OpenRing(grant.RingConfig{Dir: filepath.Join(t.TempDir(), "none")}); !errors.Is(err, lastword.ErrInvalid) {
		t.Fatalf("a ring that is not there: %v", err)
	}
}

// The key file that a ring began with stays where it was made. That its key was rotated
// out and forgotten must not keep the authority from starting.
func TestAFirstKeyThatWasForgottenIsNoStranger(t *testing.T) {
	r := newRing(t, 0)
	first := r.Signer().KeyID()
	k, err := r.Add(grant.Key{})
	must(t, err)
	must(t, r.Use(k.ID))
	must(t, r.Retire(first))
	must(t, r.RevokeEpochs(1))
	must(t, r.Advance(1, ringHint))
	if r.Signer().Has(first) {
		t.Fatal("a key of which nothing verifies is still there")
	}
	again := openRing(t, r.Dir()) // with the same first key
	if again.Signer().KeyID() != k.ID || again.Signer().Has(first) {
		t.Fatal("the forgotten key came back")
	}
	if _, err := again.Add(key(t, 0)); !errors.Is(err, lastword.ErrInvalid) {
		t.Fatalf("a retired key was added again: %v", err)
	}
}
