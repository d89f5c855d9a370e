package grant

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastword/lastword"
)

// Ring is the signing keys of one domain's authority, kept in a directory that several
// processes of a host share: one key signs, others are published ahead of their use or
// are retired. A rotation is [Ring.Add], time for the bundle to spread, [Ring.Use],
// [Ring.Retire]; what was stolen is for [Ring.Revoke].
//
// Every change is one atomic, durable step: it is seen whole or not at all, by all
// processes, and gives the trust bundle a larger sequence. An error of code
// UNAVAILABLE can come after the change was made; look, or repeat it. A Ring is safe
// for concurrent use. It holds no lock and no file open between its calls.
//
// A ring is not shared by hosts that do not share its directory. A copy of an old
// directory that is put back would give bundles that resources refuse (R13), and believe
// keys again that were revoked: with [RingConfig].Memory it is refused instead, with
// [lastword.CodeFenceRegression], and so is a ring that is gone ([BeginRing]).
type Ring struct {
	dir     string
	oneZone bool
	memory  string // "" is none

	mu    sync.Mutex // one change or reload of this process at a time
	state atomic.Pointer[ringState]
}

// RingConfig says which ring to open. Dir is required.
type RingConfig struct {
	Dir string // the ring's own directory; its parent must be there
	// Domain whose ring it is. For a ring that has a directory it may be empty: that of
	// the ring.
	Domain string
	// First is the key of an authority from before it had a ring. A ring that has no
	// directory yet begins with it; one that has a directory must know it.
	First Key
	// OneTrustZone admits HS256 keys, see [NewZoneSigner].
	OneTrustZone bool
	// Memory is a file at another place than Dir, on another volume if there is one, that
	// remembers what the ring must not go back behind: its sequence, its epochs and the
	// keys that were revoked. It knows every state before that is used or published, and
	// is made by the first one. "" is none.
	Memory string
}

// ringState is one state of the ring. It is immutable.
type ringState struct {
	file   ringFile
	saved  bool // it is on disk
	stamp  stamp
	keys   map[string]Key
	set    *keyset
	bundle Bundle // zero before the first epoch of a ring that is not on disk
}

// KeyInfo is what people may know of a key in a ring.
type KeyInfo struct {
	ID        string
	Algorithm string
	Epochs    EpochRange // Last is set once it is retired
	Signing   bool       // it signs at present
	Used      bool       // it has signed, or may have
}

// RingInfo is what people may know of a ring.
type RingInfo struct {
	Domain       string
	Sequence     uint64
	CurrentEpoch uint32
	MinimumEpoch uint32
	// NextEpoch, if it is above CurrentEpoch, is the issuer epoch that the authority has
	// to reach because a key was revoked that could sign for the present one: what it
	// made anybody believe is outranked from there on (T20).
	NextEpoch uint32
	Keys      []KeyInfo
	Revoked   []string // ids, oldest first
	// Durable is false for a ring that has no directory yet.
	Durable bool
}

// OpenRing opens a ring. It writes nothing: a ring without a directory consists of
// First alone, until its first change or [Ring.Advance]. It fails with
// [lastword.CodeInvalid] if there is neither a ring nor a first key, the ring is
// another domain's, others can reach its files, or it does not know First; and with
// [lastword.CodeUnavailable] for what the file system refuses.
func OpenRing(cfg RingConfig) (*Ring, error) {
	if cfg.Dir == "" {
		return nil, invalid(opRing, "", errors.New("no directory"))
	}
	r := &Ring{dir: cfg.Dir, oneZone: cfg.OneTrustZone, memory: cfg.Memory}
	s, err := r.load(nil)
	if err != nil {
		return nil, err
	}
	if s == nil && cfg.Memory != "" {
		if m, err := r.recall(); err != nil {
			return nil, err
		} else if m != nil && m.Durable {
			return nil, r.wentBack(m.against(&ringFile{Domain: m.Domain}, false))
		}
	}
	if s != nil && cfg.Domain == "" {
		cfg.Domain = s.file.Domain
	}
	if err := lastword.CheckID("domain", cfg.Domain); err != nil && (s != nil || cfg.First.k != nil) {
		return nil, invalid(opRing, "", err)
	}
	switch {
	case s != nil && s.file.Domain != cfg.Domain:
		return nil, r.bad(fmt.Sprintf("it is the ring of domain %q", s.file.Domain), "name the ring of this domain, or another directory")
	case s != nil && cfg.First.k != nil && !s.file.knows(cfg.First.ID()):
		return nil, r.bad(fmt.Sprintf("it does not know the key %s of the key file", cfg.First.ID()),
			"the ring's keys count; move the key file away, or add that key to the ring")
	case s == nil && cfg.First.k == nil:
		return nil, r.bad("there is no ring, and no key to begin one with", "put the ring back; the first start of an authority makes one")
	case s == nil:
		k := cfg.First
		s, err = r.assemble(ringFile{
			Domain: cfg.Domain, Signing: k.ID(),
			Keys: []ringKey{{ID: k.ID(), Alg: k.Algorithm(), Used: true}},
		}, map[string]Key{k.ID(): k})
		if err != nil {
			return nil, err
		}
	}
	if err := r.looksRight(&s.file, s.saved); err != nil {
		return nil, err
	}
	r.state.Store(s)
	return r, nil
}

const opRing = "key ring"

func (r *Ring) now() *ringState { return r.state.Load() }

// Dir is the ring's directory.
func (r *Ring) Dir() string { return r.dir }

// Signer is a signer that follows the ring: what this process has read of it.
func (r *Ring) Signer() *Signer { return &Signer{domain: r.now().file.Domain, ring: r} }

// Info is the ring as this process has read it last.
func (r *Ring) Info() RingInfo {
	s := r.now()
	f := s.file
	info := RingInfo{
		Domain: f.Domain, Sequence: f.Sequence, CurrentEpoch: f.Current, MinimumEpoch: f.Minimum,
		NextEpoch: f.NextEpoch, Revoked: slices.Clone(f.Revoked), Durable: s.saved,
	}
	for _, k := range f.Keys {
		info.Keys = append(info.Keys, KeyInfo{
			ID: k.ID, Algorithm: k.Alg, Epochs: EpochRange{First: k.First, Last: k.Last},
			Signing: k.ID == f.Signing, Used: k.Used,
		})
	}
	return info
}

// Bundle is the trust bundle of the ring as this process has read it last. A ring that
// no authority has used yet has none, and fails with [lastword.CodeInvalid].
func (r *Ring) Bundle() (Bundle, error) {
	if b := r.now().bundle; b.d != nil {
		return b, nil
	}
	return Bundle{}, r.bad("no authority has used this ring yet, so its issuer epoch is not known", "start the authority first")
}

// Reload reads the ring again if its files changed, which costs a look at one file if
// they did not.
func (r *Ring) Reload() error {
	if s := r.now(); s.saved && r.same(s.stamp) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reread()
}

// reread is Reload under the mutex. A ring that went back, to another domain or to
// nothing is not taken in. Another process may have gone on, and told the memory, after
// this one has read the ring: it reads again.
func (r *Ring) reread() (err error) {
	for range loadAttempts {
		if err = r.rereadOnce(); !errors.Is(err, lastword.ErrRegression) {
			return err
		}
	}
	return err
}

func (r *Ring) rereadOnce() error {
	old := r.now()
	s, err := r.load(old.keys)
	switch {
	case err != nil:
		return err
	case s == nil && old.saved:
		return r.bad("it is gone", "put it back")
	case s == nil:
		return nil
	case s.file.Domain != old.file.Domain:
		return r.bad(fmt.Sprintf("it is the ring of domain %q now", s.file.Domain), "put the right one back")
	case old.saved && s.file.Sequence < old.file.Sequence:
		return r.bad(fmt.Sprintf("it went back from sequence %d to %d", old.file.Sequence, s.file.Sequence), "put the newest one back")
	}
	if err := r.remember(&s.file, true); err != nil {
		return err
	}
	r.state.Store(s)
	return nil
}

// Add publishes a key that does not sign yet: k, or a new Ed25519 key if k is the zero
// value. It fails with [lastword.CodeInvalid] for a key that was revoked or retired, that
// the ring has, or that is one too many.
func (r *Ring) Add(k Key) (KeyInfo, error) {
	if k.k == nil {
		var err error
		if k, err = NewKey(); err != nil {
			return KeyInfo{}, err
		}
	}
	err := r.change(func(f *ringFile, keys map[string]Key) error {
		switch {
		case k.k.alg == algHS256 && !r.oneZone:
			return errHS256
		case slices.Contains(f.Revoked, k.ID()):
			return fmt.Errorf("key %s was revoked", k.ID())
		case slices.Contains(f.Past, k.ID()):
			return fmt.Errorf("key %s was retired", k.ID())
		case f.find(k.ID()) != nil:
			return fmt.Errorf("key %s is in the ring", k.ID())
		case len(f.Keys) >= maxKeys:
			return fmt.Errorf("%d keys are enough: revoke an old one", maxKeys)
		}
		f.Keys = append(f.Keys, ringKey{ID: k.ID(), Alg: k.Algorithm(), First: f.Current})
		keys[k.ID()] = k
		return nil
	})
	if err != nil {
		return KeyInfo{}, err
	}
	return KeyInfo{ID: k.ID(), Algorithm: k.Algorithm(), Epochs: EpochRange{First: r.now().file.find(k.ID()).First}}, nil
}

// Use makes a key of the ring the one that signs. The one before still verifies, and
// still repeats what it signed. It changes nothing if the key signs already, and fails
// with [lastword.CodeInvalid] if the ring does not have it or it is retired.
func (r *Ring) Use(kid string) error {
	return r.change(func(f *ringFile, _ map[string]Key) error {
		k := f.find(kid)
		switch {
		case k == nil:
			return r.unknown(kid)
		case f.Signing == kid:
			return errNoChange
		case k.Last != nil:
			return fmt.Errorf("key %s is retired", kid)
		}
		f.Signing, k.Used = kid, true
		return nil
	})
}

// Retire ends the range of a key with the present issuer epoch: grants that it signed
// stay good, and it is believed for no later epoch. When the minimum epoch has passed
// it the ring forgets it. It changes nothing if the key is retired, and fails with
// [lastword.CodeInvalid] if the ring does not have it or it signs.
func (r *Ring) Retire(kid string) error {
	return r.change(func(f *ringFile, _ map[string]Key) error {
		k := f.find(kid)
		switch {
		case k == nil:
			return r.unknown(kid)
		case f.Signing == kid:
			return fmt.Errorf("key %s signs: use another one first", kid)
		case k.Last != nil:
			return errNoChange
		}
		last := f.Current
		k.Last = &last
		return nil
	})
}

// Revoke takes a key that may be in wrong hands out of the bundle at once and for ever,
// and removes its file. If it signed, the newest key that is not retired takes over, or
// a new one. What it signed is refused from then on, and so is all else of the issuer
// epochs it signed in: the minimum epoch is raised above them.
//
// Of the present epoch that can only be done when there is a later one. Until then the
// minimum is the present epoch, and [RingInfo.NextEpoch] says that the authority has to
// begin another; with it the minimum goes up ([Ring.Advance]). A key that was published
// and never used raises no minimum, but wants a new epoch too: its thief may have used
// up numbers of the present one (T20).
//
// It changes nothing if the key was revoked before, and fails with
// [lastword.CodeInvalid] if the ring does not have it.
func (r *Ring) Revoke(kid string) error {
	spare, err := NewKey()
	if err != nil {
		return err
	}
	return r.change(func(f *ringFile, keys map[string]Key) error {
		k := f.find(kid)
		switch {
		case slices.Contains(f.Revoked, kid):
			return errNoChange
		case k == nil:
			return r.unknown(kid)
		}
		last := f.Current
		if k.Last != nil {
			last = min(last, *k.Last)
		}
		if k.Used {
			f.raise(last + 1)
		}
		if last == f.Current {
			f.NextEpoch = f.Current + 1
		}
		f.Revoked = append(f.Revoked, kid)
		f.Keys = slices.DeleteFunc(f.Keys, func(o ringKey) bool { return o.ID == kid })
		if f.Signing == kid {
			f.succeed(spare, keys)
		}
		return nil
	})
}

// RevokeEpochs raises the minimum issuer epoch: grants below it are refused wherever the
// bundle arrives. A minimum above the present epoch takes effect when the authority has
// reached it; until then the minimum is the present epoch. It never falls: a lower one
// changes nothing.
func (r *Ring) RevokeEpochs(minimum uint32) error {
	return r.change(func(f *ringFile, _ map[string]Key) error {
		switch {
		case minimum > lastword.MaxEpoch:
			return fmt.Errorf("minimum epoch %d is above %d", minimum, lastword.MaxEpoch)
		case minimum <= max(f.Minimum, f.NextMinimum):
			return errNoChange
		}
		f.raise(minimum)
		f.NextEpoch = max(f.NextEpoch, f.NextMinimum)
		return nil
	})
}

// BeginEpoch asks the authority for a later issuer epoch than the present one, as a
// revocation does, and returns the one that it has to reach ([RingInfo.NextEpoch]). An
// authority that follows the ring does so by itself, another one when it is started. It
// changes nothing if one is wanted already, and fails with [lastword.CodeExhausted] in the
// last epoch.
func (r *Ring) BeginEpoch() (wanted uint32, err error) {
	exhausted := false
	err = r.change(func(f *ringFile, _ map[string]Key) error {
		wanted = max(f.NextEpoch, f.Current+1)
		switch {
		case f.Current >= lastword.MaxEpoch:
			exhausted = true
			return errNoChange
		case f.NextEpoch > f.Current:
			return errNoChange
		}
		f.NextEpoch = wanted
		return nil
	})
	if exhausted {
		return 0, &lastword.Error{
			Code: lastword.CodeExhausted, Op: opRing, Message: "the last issuer epoch is in use", Hint: "a new domain is the way out",
		}
	}
	return wanted, err
}

// Advance makes the ring know an issuer epoch, before anything is granted under it, and
// sets the refresh hint of the bundle. It changes nothing if the epoch is known. A ring
// without a directory gets one, if the file system allows it; if it does not, the ring
// goes on in memory, with the sequence that every start can work out from the epoch,
// and cannot be changed.
func (r *Ring) Advance(epoch uint32, hint time.Duration) error {
	if s := r.now(); s.bundle.d != nil && s.file.Current >= epoch {
		return nil
	}
	err := r.change(func(f *ringFile, _ map[string]Key) error {
		if f.Sequence > 0 && f.Current >= epoch {
			return errNoChange
		}
		f.Current, f.Hint = epoch, int64(hint/time.Second)
		// Without a directory the first key alone is published under epoch + 1.
		if f.Sequence == 0 {
			f.Sequence = uint64(epoch)
		} else {
			f.Sequence = max(f.Sequence, uint64(epoch)+1)
		}
		if f.Minimum < f.NextMinimum && epoch >= f.NextMinimum {
			f.Minimum, f.NextMinimum = f.NextMinimum, 0
		}
		if epoch >= f.NextEpoch {
			f.NextEpoch = 0
		}
		return nil
	})
	if s := r.now(); err != nil && !s.saved && notWritable(err) {
		return r.advanceInMemory(epoch, hint)
	}
	return err
}

// advanceInMemory is for a ring that consists of its first key.
func (r *Ring) advanceInMemory(epoch uint32, hint time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.now()
	if s.saved || s.bundle.d != nil && s.file.Current >= epoch {
		return nil
	}
	f := s.file.clone()
	f.Current, f.Hint, f.Sequence = epoch, int64(hint/time.Second), uint64(epoch)+1
	next, err := r.assemble(f, s.keys)
	if err == nil {
		err = r.remember(&next.file, false)
	}
	if err == nil {
		r.state.Store(next)
	}
	return err
}

// RaiseSequence lifts the bundle's sequence above one that resources have seen, after
// an old copy of the ring was put back. Look first whether its keys are the right ones.
func (r *Ring) RaiseSequence(above uint64) error {
	return r.change(func(f *ringFile, _ map[string]Key) error {
		if above >= MaxNumber {
			return fmt.Errorf("sequence %d leaves no room", above)
		}
		if f.Sequence > above {
			return errNoChange
		}
		f.Sequence = above
		return nil
	})
}

func (r *Ring) unknown(kid string) error {
	return fmt.Errorf("the ring does not have the key %q", kid)
}

// errNoChange ends a change that has nothing to do.
var errNoChange = errors.New("nothing to change")

// change is one step of the ring: it reads what is on disk now, changes a copy, and puts
// that in its place under the next sequence.
func (r *Ring) change(edit func(f *ringFile, keys map[string]Key) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	unlock, err := r.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := r.reread(); err != nil {
		return err
	}
	old := r.now()
	f, keys := old.file.clone(), maps.Clone(old.keys)
	if err := edit(&f, keys); err != nil {
		if errors.Is(err, errNoChange) {
			return nil
		}
		return r.bad(err.Error(), "")
	}
	f.Sequence++
	f.forget(keys)
	next, err := r.assemble(f, keys)
	if err != nil {
		return err
	}
	if err := r.save(next, old); err != nil {
		return r.failed("change", err)
	}
	// After the ring, so that a crash between the two leaves a ring that is above what is
	// remembered: whoever reads it next remembers it.
	if err := r.remember(&next.file, true); err != nil {
		return err
	}
	r.state.Store(next)
	return nil
}

// assemble derives from the file what a process works with.
func (r *Ring) assemble(f ringFile, keys map[string]Key) (*ringState, error) {
	s := &ringState{file: f, keys: keys, set: &keyset{}}
	info := BundleInfo{
		Sequence: f.Sequence, CurrentEpoch: f.Current, MinimumEpoch: f.Minimum,
		RefreshHint: time.Duration(f.Hint) * time.Second, Epochs: map[string]EpochRange{},
	}
	for _, k := range f.Keys {
		if k.Alg == algHS256 && !r.oneZone {
			return nil, r.bad(errHS256.Error(), "")
		}
		s.set.keys = append(s.set.keys, keys[k.ID])
		info.Epochs[k.ID] = EpochRange{First: k.First, Last: k.Last}
	}
	i := slices.IndexFunc(f.Keys, func(k ringKey) bool { return k.ID == f.Signing })
	if i < 0 {
		return nil, r.bad("its signing key is not among its keys", "put the newest copy of the ring back")
	}
	s.set.keys[0], s.set.keys[i] = s.set.keys[i], s.set.keys[0]
	if f.Sequence == 0 {
		return s, nil
	}
	// In the order of the file: the same state is the same bundle in every process.
	published := &keyset{}
	for _, k := range f.Keys {
		published.keys = append(published.keys, keys[k.ID])
	}
	var err error
	s.bundle, err = published.bundle(f.Domain, info)
	return s, err
}
