package grant

import (
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/lastword/lastword"
)

// Signer writes the grants of one domain. It is immutable and safe for concurrent
// use.
type Signer struct {
	domain string
	keys   []Key // the first signs
}

// NewSigner returns the signer of a domain. The first key signs; the others are
// still published and can still repeat the grants they signed (R2, R13). It fails
// with [lastword.CodeInvalid] without a key, with a zero or repeated key, or if
// domain is not a valid id.
func NewSigner(domain string, keys ...Key) (*Signer, error) {
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
	s := &Signer{domain: domain}
	for _, k := range keys {
		if k.k == nil {
			return nil, invalid(op, "", errors.New("a key is the zero value"))
		}
		if _, found := s.find(k.ID()); found {
			return nil, invalid(op, "", fmt.Errorf("key %s is given twice", k.ID()))
		}
		s.keys = append(s.keys, k)
	}
	return s, nil
}

// Domain is the domain whose grants s writes.
func (s *Signer) Domain() string { return s.domain }

// KeyID is the id of the key that signs at present.
func (s *Signer) KeyID() string { return s.keys[0].ID() }

func (s *Signer) find(kid string) (Key, bool) {
	for _, k := range s.keys {
		if k.ID() == kid {
			return k, true
		}
	}
	return Key{}, false
}

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
	d = lastword.DigestOf(input)
	seal := k.k.sign(input)
	return string(base64.RawURLEncoding.AppendEncode(append(input, '.'), seal)), d, nil
}

// prepare finds the key and writes the bytes to sign.
func (s *Signer) prepare(op, kid string, c *Claims) (Key, []byte, error) {
	if kid == "" {
		kid = s.KeyID()
	}
	k, found := s.find(kid)
	switch {
	case !found:
		return Key{}, nil, invalid(op, c.Resource, errors.New("the signer does not have the key that is asked for"))
	case c.Domain != s.domain:
		return Key{}, nil, invalid(op, c.Resource, fmt.Errorf("domain %q is not the signer's %q", c.Domain, s.domain))
	}
	if err := c.check(); err != nil {
		return Key{}, nil, invalid(op, c.Resource, err)
	}
	input := signingInput(kid, c)
	if size := len(input) + 1 + sealLen; size > MaxBytes {
		return Key{}, nil, invalid(op, c.Resource,
			fmt.Errorf("the grant would have %d bytes, more than %d: use shorter ids", size, MaxBytes))
	}
	return k, input, nil
}

// Bundle is the trust bundle with the public halves of all keys of s. It fails
// with [lastword.CodeInvalid] if b contradicts itself.
func (s *Signer) Bundle(b BundleInfo) (Bundle, error) {
	data := bundleData{
		domain: s.domain, sequence: b.Sequence,
		current: b.CurrentEpoch, minimum: b.MinimumEpoch, refreshHint: b.RefreshHint,
	}
	for _, k := range s.keys {
		r := b.Epochs[k.ID()]
		data.keys = append(data.keys, publicKey{id: k.ID(), alg: algEdDSA, ed: k.k.public, epochs: r})
	}
	for kid := range b.Epochs {
		if _, found := s.find(kid); !found {
			return Bundle{}, invalid("make bundle", "", fmt.Errorf("epochs are given for key %q, which the signer does not have", kid))
		}
	}
	return newBundle("make bundle", data)
}

// invalid is a request that cannot be done as it is.
func invalid(op string, resource lastword.Resource, why error) error {
	var e *lastword.Error
	if errors.As(why, &e) && e.Code == lastword.CodeInvalid && e.Op == "" {
		return &lastword.Error{Code: e.Code, Op: op, Resource: resource, Message: e.Message, Hint: e.Hint}
	}
	return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Resource: resource, Message: why.Error()}
}
