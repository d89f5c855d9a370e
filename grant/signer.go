package grant

import (
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/lastword/lastword"
)

// Signer writes the grants and status proofs of one domain. One of [NewSigner] never
// changes; one of [Ring.Signer] follows its ring. It is safe for concurrent use.
type Signer struct {
	domain string
	fixed  *keyset // nil: the ring's
	ring   *Ring
	again  signatures // of grants that are asked for again
}

// keyset is the keys of a signer at one moment. It is immutable.
type keyset struct{ keys []Key } // the first signs

func (s *keyset) find(kid string) (Key, bool) {
	for _, k := range s.keys {
		if k.ID() == kid {
			return k, true
		}
	}
	return Key{}, false
}

// NewSigner returns the signer of a domain. The first key signs; the others are
// still published and can still repeat the grants they signed (R2, R13). It fails
// with [lastword.CodeInvalid] without a key, with a zero, repeated or HS256 key, or if
// domain is not a valid id.
func NewSigner(domain string, keys ...Key) (*Signer, error) {
	return newSigner(domain, false, keys)
}

// NewZoneSigner is NewSigner for one trust zone: it takes HS256 keys too. Whoever can
// check their grants can forge them, so signer and every verifier
// ([VerifierConfig.OneTrustZone]) must be trusted alike.
func NewZoneSigner(domain string, keys ...Key) (*Signer, error) {
	return newSigner(domain, true, keys)
}

func newSigner(domain string, oneZone bool, keys []Key) (*Signer, error) {
	const op = "make signer"
	if err := lastword.CheckID("domain", domain); err != nil {
		return nil, invalid(op, "", err)
	}
	if len(keys) == 0 {
		return nil, invalid(op, "", errors.New("no key"))
	}
	if len(keys) > maxKeys {
		return nil, invalid(op, "", fmt.Errorf("%d keys are more than %d", len(keys), maxKeys))
	}
	set := &keyset{}
	for _, k := range keys {
		if k.k == nil {
			return nil, invalid(op, "", errors.New("a key is the zero value"))
		}
		if k.k.alg == algHS256 && !oneZone {
			return nil, invalid(op, "", errHS256)
		}
		if _, found := set.find(k.ID()); found {
			return nil, invalid(op, "", fmt.Errorf("key %s is given twice", k.ID()))
		}
		set.keys = append(set.keys, k)
	}
	return &Signer{domain: domain, fixed: set}, nil
}

var errHS256 = errors.New("an HS256 key is for one trust zone only, because who can check its grants can forge them: say so explicitly, or take an Ed25519 key")

func (s *Signer) set() *keyset {
	if s.fixed != nil {
		return s.fixed
	}
	return s.ring.now().set
}

// Domain is the domain whose grants s writes.
func (s *Signer) Domain() string { return s.domain }

// KeyID is the id of the key that signs at present.
func (s *Signer) KeyID() string { return s.set().keys[0].ID() }

// Has reports whether s can still sign with the key. A tenure whose key is gone, since
// it was revoked, has no grant any more.
func (s *Signer) Has(kid string) bool {
	_, found := s.set().find(kid)
	return found
}

// Ring is the ring that s follows; nil if its keys are fixed.
func (s *Signer) Ring() *Ring { return s.ring }

// Digest is the digest that the grant of c under the key kid ("" is the present
// one) has: the SHA-256 of its signed bytes. It signs nothing, so it can be stored
// before the grant exists. It fails with [lastword.CodeInvalid] exactly when Sign
// would.
func (s *Signer) Digest(kid string, c Claims) (lastword.Digest, error) {
	_, input, err := s.prepare("digest grant", kid, &c)
	if err != nil {
		return lastword.Digest{}, err
	}
	return lastword.DigestOf(input), nil
}

// Sign writes the grant of c under the key kid ("" is the present one), and its
// digest. The same kid and claims give the same bytes in every process, so a
// repeated acquire gets the grant it got before (R2). It fails with
// [lastword.CodeInvalid] if s does not have the key, c is of another domain or has
// a field that no grant can carry, or the grant would be larger than [MaxBytes].
func (s *Signer) Sign(kid string, c Claims) (grant string, d lastword.Digest, err error) {
	k, input, err := s.prepare("sign grant", kid, &c)
	if err != nil {
		return "", lastword.Digest{}, err
	}
	return k.seal(input), lastword.DigestOf(input), nil
}

// seal appends the signature of input.
func (k Key) seal(input []byte) string { return withSeal(input, k.k.sign(input)) }

func withSeal(input, sig []byte) string {
	return string(base64.RawURLEncoding.AppendEncode(append(input, '.'), sig))
}

// key finds a key of s.
func (s *Signer) key(op, kid, domain string, resource lastword.Resource) (Key, error) {
	set := s.set()
	k, found := set.keys[0], true
	if kid != "" {
		k, found = set.find(kid)
	}
	switch {
	case !found:
		return Key{}, invalid(op, resource, errors.New("the signer does not have the key that is asked for"))
	case domain != s.domain:
		return Key{}, invalid(op, resource, fmt.Errorf("domain %q is not the signer's %q", domain, s.domain))
	}
	return k, nil
}

// prepare finds the key and writes the bytes to sign.
func (s *Signer) prepare(op, kid string, c *Claims) (Key, []byte, error) {
	k, err := s.key(op, kid, c.Domain, c.Resource)
	if err != nil {
		return Key{}, nil, err
	}
	if err := c.check(); err != nil {
		return Key{}, nil, invalid(op, c.Resource, err)
	}
	input := signingInput(k, c)
	if size := len(input) + 1 + sealLen; size > MaxBytes {
		return Key{}, nil, invalid(op, c.Resource,
			fmt.Errorf("the grant would have %d bytes, more than %d: use shorter ids", size, MaxBytes))
	}
	return k, input, nil
}

// SignStatus writes a status proof under the key that signs at present. It fails with
// [lastword.CodeInvalid] if c is of another domain or has a field that no proof can
// carry.
func (s *Signer) SignStatus(c StatusClaims) (string, error) {
	const op = "sign status"
	k, err := s.key(op, "", c.Domain, c.Resource)
	if err != nil {
		return "", err
	}
	if err := c.check(); err != nil {
		return "", invalid(op, c.Resource, err)
	}
	var payload [1024]byte
	input := joined(k, StatusType, appendStatus(payload[:0], &c, StatusVersion, uint64(c.Epoch)))
	if size := len(input) + 1 + sealLen; size > MaxBytes {
		return "", invalid(op, c.Resource, fmt.Errorf("the proof would have %d bytes, more than %d: use shorter ids", size, MaxBytes))
	}
	return k.seal(input), nil
}

// Bundle is the trust bundle with the public halves of all keys of s. It fails
// with [lastword.CodeInvalid] if b contradicts itself.
func (s *Signer) Bundle(b BundleInfo) (Bundle, error) {
	set := s.set()
	for kid := range b.Epochs {
		if _, found := set.find(kid); !found {
			return Bundle{}, invalid("make bundle", "", fmt.Errorf("epochs are given for key %q, which the signer does not have", kid))
		}
	}
	return set.bundle(s.domain, b)
}

func (s *keyset) bundle(domain string, b BundleInfo) (Bundle, error) {
	data := bundleData{
		domain: domain, sequence: b.Sequence,
		current: b.CurrentEpoch, minimum: b.MinimumEpoch, refreshHint: b.RefreshHint,
	}
	for _, k := range s.keys {
		data.keys = append(data.keys, publicKey{id: k.ID(), alg: k.k.alg, ed: k.k.public, epochs: b.Epochs[k.ID()]})
	}
	return newBundle("make bundle", data)
}

// Publish is the trust bundle of an authority that grants under epoch. Fixed keys may
// sign for every epoch, and the sequence follows the epoch, since nothing else changes.
// A ring is read again if its files changed; if epoch is new to it, it is written there
// first, with the hint (see [Ring.Advance]).
func (s *Signer) Publish(epoch uint32, hint time.Duration) (Bundle, error) {
	if s.fixed != nil {
		return s.Bundle(BundleInfo{Sequence: uint64(epoch) + 1, CurrentEpoch: epoch, RefreshHint: hint})
	}
	if err := s.ring.Reload(); err != nil {
		return Bundle{}, err
	}
	if err := s.ring.Advance(epoch, hint); err != nil {
		return Bundle{}, err
	}
	return s.ring.now().bundle, nil
}

// invalid is a request that cannot be done as it is.
func invalid(op string, resource lastword.Resource, why error) error {
	var e *lastword.Error
	if errors.As(why, &e) && e.Code == lastword.CodeInvalid && e.Op == "" {
		return &lastword.Error{Code: e.Code, Op: op, Resource: resource, Message: e.Message, Hint: e.Hint}
	}
	return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Resource: resource, Message: why.Error()}
}
