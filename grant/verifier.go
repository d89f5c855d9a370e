package grant

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/lastword/lastword"
)

const opOpen = "verify grant"

// VerifierConfig is how a verifier works. The zero value works.
type VerifierConfig struct {
	// Memory is about how many opened grants are remembered, so that the next
	// sight of one costs no signature check. 0 is 4096, a negative number is none.
	Memory int
	// Floor is what a verifier of this resource has seen before this process.
	Floor BundleFloor
	// OneTrustZone has the HS256 keys ([NewZoneKey]) that this verifier shares with
	// the signer. Whoever can check a MAC can forge it, so they are given here by
	// hand, and only where signer and verifier are trusted alike. A bundle names
	// them and never holds them: one that it does not name is not believed.
	OneTrustZone []Key
}

// BundleFloor is the lowest bundle that a verifier accepts (R13). The zero value
// accepts all.
type BundleFloor struct {
	Sequence     uint64
	MinimumEpoch uint32
}

// maxLeap is how many changes of keys a resource may have missed. A sequence further
// ahead, of its floor and of the bundle's own epoch, is nobody's count: believed once, it
// would keep the live authority out for ever.
const maxLeap = 4096

// Refuses says why a bundle with this sequence and these epochs is not taken by a
// resource that has seen f; "" is no objection.
func (f BundleFloor) refuses(d *bundleData) Reason {
	switch {
	case d.sequence < f.Sequence || d.minimum < f.MinimumEpoch:
		return ReasonBundleRollback
	case f.Sequence > 0 && d.sequence > max(f.Sequence, uint64(d.current)+1)+maxLeap:
		return ReasonBundleLeap
	}
	return ""
}

// Beyond is what a resource that has seen f has seen with the newest bundle that v has
// taken, whatever was verified with it; false if that is nothing newer, or nothing that
// such a resource takes. It asks nobody.
func (v *Verifier) Beyond(f BundleFloor) (BundleFloor, bool) {
	t := v.trust.Load()
	if t == nil || f.refuses(t.bundle.d) != "" {
		return f, false
	}
	next := BundleFloor{Sequence: t.bundle.d.sequence, MinimumEpoch: t.bundle.d.minimum}
	return next, next != f
}

// Verifier opens the grants of one domain. It is safe for concurrent use and owns
// no goroutine.
type Verifier struct {
	domain string
	source BundleSource
	limit  int
	zone   map[string]*publicKey // the keys of one trust zone, by id

	trust atomic.Pointer[trust] // nil before the first bundle
	mu    sync.Mutex            // guards changes of trust, and floor
	floor BundleFloor

	asking chan struct{} // holds one token while the source is asked again
	begun  atomic.Uint64 // how often that was begun
	answer *Bundle       // of the last time, nil if it failed; whoever holds the token may touch it
}

// trust is one bundle and what was opened with it.
type trust struct {
	bundle   Bundle
	keys     map[string]*publicKey
	memory   *memory[opened]
	statuses *memory[StatusClaims]
}

// NewVerifier returns a verifier of the grants of domain that believes the bundles
// of source. It asks the source for nothing yet. It fails with
// [lastword.CodeInvalid] without a source or if domain is not a valid id.
func NewVerifier(domain string, source BundleSource, cfg VerifierConfig) (*Verifier, error) {
	const op, defaultMemory = "make verifier", 4096
	if err := lastword.CheckID("domain", domain); err != nil {
		return nil, invalid(op, "", err)
	}
	if source == nil {
		return nil, invalid(op, "", errors.New("no source of the trust bundle"))
	}
	if cfg.Memory == 0 {
		cfg.Memory = defaultMemory
	}
	zone := make(map[string]*publicKey, len(cfg.OneTrustZone))
	for _, k := range cfg.OneTrustZone {
		if k.k == nil || k.k.alg != algHS256 {
			return nil, invalid(op, "", errors.New("a key that is given for one trust zone is not an HS256 key"))
		}
		zone[k.ID()] = k.k.check()
	}
	return &Verifier{
		domain: domain, source: source, limit: max(cfg.Memory, 0), zone: zone,
		floor: cfg.Floor, asking: make(chan struct{}, 1),
	}, nil
}

// Want is what a grant must be bound to.
type Want struct {
	// Resource must be equal. The zero value matches no grant.
	Resource lastword.Resource
	// Owner is the authenticated caller, which must be the grant's owner; "" if no
	// caller was authenticated, which compares nothing (T1).
	Owner string
	// Root must be equal, none included; nil compares nothing.
	Root *lastword.Digest
	// Class must be equal; "" is [lastword.ClassWrite]. Every grant admits
	// [lastword.ClassAdvance].
	Class lastword.Class
	// PolicyGeneration is the mutation's, which must be the grant's; 0 compares
	// nothing.
	PolicyGeneration uint64
	// MinPolicyGeneration is the resource's minimum.
	MinPolicyGeneration uint64
	// Bundle is the newest trust bundle that the resource has seen, as its record
	// keeps it. A verifier with an older one asks the source once more, and refuses
	// with BUNDLE_ROLLBACK if that has none (R13). It binds this call only, so that
	// one record does not speak for others.
	Bundle BundleFloor
}

// Verified is a grant that [Verifier.Open] believed. Nothing else can fill it; the
// zero value is not valid (R14).
type Verified struct {
	o       *opened
	seq     uint64
	minimum uint32
}

// Valid reports whether Open filled v.
func (v Verified) Valid() bool { return v.o != nil }

// Claims are the fields of the grant; none if v is not valid.
func (v Verified) Claims() Claims {
	if v.o == nil {
		return Claims{}
	}
	return v.o.claims
}

// Digest is the SHA-256 of the signed bytes; none if v is not valid.
func (v Verified) Digest() lastword.Digest {
	if v.o == nil {
		return lastword.Digest{}
	}
	return v.o.digest
}

// BundleSequence is the sequence of the bundle that was believed.
func (v Verified) BundleSequence() uint64 { return v.seq }

// MinimumEpoch is the minimum issuer epoch of that bundle.
func (v Verified) MinimumEpoch() uint32 { return v.minimum }

// Open checks a grant in the order of R12 up to the policy generation; the status
// question is the caller's. The first failure decides: an error of code UNVERIFIED
// whose [Refusal] has the reason. A grant that is ahead of the bundle (an unknown
// key, an epoch above the current one) makes it ask the source once more. If the
// bundle cannot be had, the reason is BUNDLE_UNAVAILABLE: fail closed, but the
// grant was not judged.
//
// A grant that was opened before under the same bundle costs no signature check;
// what it is bound to is compared every time.
func (v *Verifier) Open(ctx context.Context, grant string, want Want) (Verified, error) {
	if len(grant) > MaxBytes {
		return Verified{}, refused(opOpen, want.Resource, &Refusal{Reason: ReasonTooLarge})
	}
	t, again, unsure := v.present(ctx, want.Bundle)
	if unsure == nil {
		if o := t.memory.get(grant); o != nil {
			return t.bind(o, &want)
		}
	}
	p, why := parse(grant)
	if why == nil {
		why = unsure
	}
	if why == nil {
		t, why = v.believe(ctx, t, &p.sealed, again)
	}
	if why != nil {
		return Verified{}, refused(opOpen, want.Resource, why)
	}
	o := &opened{claims: p.claims, digest: lastword.DigestOf(p.signed)}
	t.memory.put(grant, o)
	return t.bind(o, &want)
}

// Remembered is what a grant says that [Verifier.Open] has believed under the bundle
// that is the newest here; false if it is not remembered. It costs no parsing, asks
// nobody and believes nothing anew: only Open says whether the grant is good for
// what is wanted now.
func (v *Verifier) Remembered(grant string) (Claims, bool) {
	if t := v.trust.Load(); t != nil {
		if o := t.memory.get(grant); o != nil {
			return o.claims, true
		}
	}
	return Claims{}, false
}

// believe checks seal and trust of s, and says under which bundle it did. again is
// false if the source was asked again already.
func (v *Verifier) believe(ctx context.Context, t *trust, s *sealed, again bool) (*trust, *Refusal) {
	reason := t.judge(s)
	if again && (reason == ReasonUnknownKey || reason == ReasonEpochAhead) {
		newer, why := v.refresh(ctx)
		if why != nil {
			return nil, why
		}
		t, reason = newer, newer.judge(s)
	}
	if reason != "" {
		return nil, &Refusal{Reason: reason}
	}
	return t, nil
}

// judge is R12 from the key to the issuer epoch; "" is no objection.
func (t *trust) judge(s *sealed) Reason {
	key := t.keys[s.kid]
	if key == nil {
		return ReasonUnknownKey
	}
	epoch := uint32(min(s.epoch, uint64(lastword.MaxEpoch)+1))
	switch {
	case s.alg != key.alg:
		return ReasonAlgorithm
	case !key.verifies(s.signed, s.sig):
		return ReasonSignature
	case s.domain != t.bundle.d.domain:
		return ReasonDomain
	case s.odd:
		return ReasonEpoch
	case !key.epochs.holds(epoch):
		return ReasonEpochOfKey
	case epoch < t.bundle.d.minimum:
		return ReasonEpochRevoked
	case epoch > t.bundle.d.current:
		return ReasonEpochAhead
	}
	return ""
}

// bind is R12 from the resource to the policy generation.
func (t *trust) bind(o *opened, want *Want) (Verified, error) {
	if reason := mismatch(&o.claims, want); reason != "" {
		return Verified{}, refused(opOpen, want.Resource, &Refusal{Reason: reason})
	}
	return Verified{o: o, seq: t.bundle.d.sequence, minimum: t.bundle.d.minimum}, nil
}

func mismatch(c *Claims, want *Want) Reason {
	class := want.Class
	if class == "" {
		class = lastword.ClassWrite
	}
	switch {
	case c.Resource != want.Resource:
		return ReasonResource
	case want.Owner != "" && c.Owner != want.Owner:
		return ReasonOwner
	case want.Root != nil && c.Root != *want.Root:
		return ReasonRoot
	case class != lastword.ClassAdvance && c.Class != class:
		return ReasonClass
	case want.PolicyGeneration != 0 && c.PolicyGeneration != want.PolicyGeneration:
		return ReasonPolicy
	case c.PolicyGeneration < want.MinPolicyGeneration:
		return ReasonPolicyRevoked
	}
	return ""
}

// present is the trust in the source's present bundle. A source whose answers pass
// each other can look as if it went back, so it is asked again before that is
// believed; again says whether asking once more is still free.
func (v *Verifier) present(ctx context.Context, floor BundleFloor) (t *trust, again bool, why *Refusal) {
	b, err := v.source.Bundle(ctx, false)
	if err != nil {
		return nil, false, &Refusal{Reason: ReasonBundleUnavailable, Err: err}
	}
	t, why = v.adopt(b)
	if why == nil && floor.refuses(t.bundle.d) == "" {
		return t, true, nil
	}
	if why == nil || why.Reason == ReasonBundleRollback || why.Reason == ReasonBundleLeap {
		if t, why = v.refresh(ctx); why == nil {
			if reason := floor.refuses(t.bundle.d); reason != "" {
				why = &Refusal{Reason: reason}
			}
		}
	}
	return t, false, why
}

// refresh asks the source again. One call runs at a time, and its answer serves all
// that came in before it began, so a storm of unknown keys is no storm at the
// source. A failure is not shared: it may be the other caller's own time-out.
func (v *Verifier) refresh(ctx context.Context) (*trust, *Refusal) {
	before := v.begun.Load()
	select {
	case v.asking <- struct{}{}:
		defer func() { <-v.asking }()
	case <-ctx.Done():
		return nil, &Refusal{Reason: ReasonBundleUnavailable, Err: context.Cause(ctx)}
	}
	if v.answer == nil || v.begun.Load() == before {
		v.begun.Add(1)
		v.answer = nil
		b, err := v.source.Bundle(ctx, true)
		if err != nil {
			return nil, &Refusal{Reason: ReasonBundleUnavailable, Err: err}
		}
		v.answer = &b
	}
	return v.adopt(*v.answer)
}

// adopt makes b the trust, unless it goes back (R13). An equal bundle keeps what
// was opened; a newer one starts with nothing opened.
func (v *Verifier) adopt(b Bundle) (*trust, *Refusal) {
	if t := v.trust.Load(); t != nil && t.bundle == b {
		return t, nil
	}
	if b.d == nil || b.d.domain != v.domain {
		return nil, &Refusal{Reason: ReasonBundleInvalid}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if reason := v.floor.refuses(b.d); reason != "" {
		return nil, &Refusal{Reason: reason}
	}
	t := v.trust.Load()
	switch {
	case t == nil || b.d.sequence > t.bundle.d.sequence:
		t = newTrust(b, v.limit, v.zone)
	case !bytes.Equal(b.d.raw, t.bundle.d.raw):
		return nil, &Refusal{Reason: ReasonBundleRollback}
	default: // equal, from another place in memory
		t = &trust{bundle: b, keys: t.keys, memory: t.memory, statuses: t.statuses}
	}
	v.floor = BundleFloor{Sequence: b.d.sequence, MinimumEpoch: b.d.minimum}
	v.trust.Store(t)
	return t, nil
}

func newTrust(b Bundle, limit int, zone map[string]*publicKey) *trust {
	t := &trust{
		bundle: b, keys: make(map[string]*publicKey, len(b.d.keys)),
		memory: newMemory[opened](limit), statuses: newMemory[StatusClaims](limit),
	}
	for i := range b.d.keys {
		k := &b.d.keys[i]
		if k.alg == algHS256 {
			ours := zone[k.id]
			if ours == nil {
				continue // not of this zone: unknown
			}
			k = &publicKey{id: k.id, alg: k.alg, mac: ours.mac, epochs: k.epochs}
		}
		t.keys[k.id] = k
	}
	return t
}
