package simulate

import (
	"context"
	"errors"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/model"
)

const domain = "simulated"

// seal is what signs and opens grants: the real signer, ring of keys and verifier of
// package grant. Keys are made anew in each run; nothing of them is in a trace.
type seal struct {
	keys     [4]grant.Key
	signers  [4]*grant.Signer // with the first keys published, the last of them signing
	stranger *grant.Signer    // a key that no bundle has
	foreign  *grant.Signer    // another domain's
	bundles  map[bundle]grant.Bundle
	verifier *grant.Verifier
	world    *world
	made     map[string]made // by lease
}

// made is a grant that was made.
type made struct {
	grant  string
	digest lastword.Digest
	claims grant.Claims
}

func newSeal() (*seal, error) {
	s := &seal{bundles: map[bundle]grant.Bundle{}, made: map[string]made{}}
	var err error
	for i := range s.keys {
		if s.keys[i], err = grant.NewKey(); err != nil {
			return nil, err
		}
		keys := make([]grant.Key, 0, i+1)
		for k := i; k >= 0; k-- { // the newest one signs
			keys = append(keys, s.keys[k])
		}
		if s.signers[i], err = grant.NewSigner(domain, keys...); err != nil {
			return nil, err
		}
	}
	strange, err := grant.NewKey()
	if err != nil {
		return nil, err
	}
	if s.stranger, err = grant.NewSigner(domain, strange); err != nil {
		return nil, err
	}
	s.foreign, err = grant.NewSigner("another", s.keys[0])
	return s, err
}

// again is a seal with the same keys, for a world beside this one.
func (s *seal) again() *seal {
	c := *s
	c.made = map[string]made{}
	c.verifier, c.world = nil, nil
	return &c
}

func (s *seal) reset(w *world) {
	s.world = w
	clear(s.made)
	s.forget()
}

// forget begins a program at the resource anew: what its verifier had seen is gone.
func (s *seal) forget() {
	v, err := grant.NewVerifier(domain, source{s}, grant.VerifierConfig{Memory: 256})
	if err != nil {
		panic(err) // the domain is a constant
	}
	s.verifier = v
}

// source is where the resource's verifier gets its bundle from.
type source struct{ s *seal }

var errLate = errors.New("the bundle cannot be had")

// Bundle implements [grant.BundleSource].
func (b source) Bundle(_ context.Context, refresh bool) (grant.Bundle, error) {
	w := b.s.world
	if refresh && !w.refresh() {
		return grant.Bundle{}, errLate
	}
	return b.s.bundle(w.place.bundle), nil
}

// bundle is the signed world's form of a bundle.
func (s *seal) bundle(b bundle) grant.Bundle {
	if g, ok := s.bundles[b]; ok {
		return g
	}
	g, err := s.signers[b.keys].Bundle(grant.BundleInfo{Sequence: b.sequence, CurrentEpoch: b.current, MinimumEpoch: b.minimum})
	if err != nil {
		panic(err) // a bundle that contradicts itself is a mistake of the simulator
	}
	s.bundles[b] = g
	return g
}

// signing is the id of the key that signs at present.
func (w *world) signing() string {
	if w.seal == nil {
		return keyID
	}
	return w.seal.keys[w.bundle.keys].ID()
}

func (s *seal) claims(lane uint8, l *core.Lease) grant.Claims {
	return grant.Claims{
		Domain: domain, Resource: laneNames[lane], Owner: l.Owner, RequestID: l.RequestID, LeaseID: l.ID, Fence: l.Fence,
		Revision: l.GrantedRevision, PolicyGeneration: l.PolicyGeneration, Root: l.Root, Class: l.Class,
		TTL: duration(int64(l.TTL)), IssuedAt: time.Unix(l.IssuedAt, 0).UTC(),
	}
}

// sign is the grant of a lease. Said again it is the same (R2).
func (w *world) sign(lane uint8, l *core.Lease) string {
	s := w.seal
	if s == nil {
		return ""
	}
	c := s.claims(lane, l)
	signed, digest, err := s.signers[len(s.signers)-1].Sign(l.KeyID, c)
	if err != nil {
		w.violate(wrongAnswer, -1, "a grant cannot be signed: "+err.Error())
		return ""
	}
	if before, ok := s.made[l.ID]; ok && before.grant != signed && w.only == "" {
		w.violate(wrongAnswer, -1, "a grant that is said again is another one")
	}
	s.made[l.ID] = made{signed, digest, c}
	return signed
}

// digest is that of the grant that m carries.
func (w *world) digest(m *message) lastword.Digest {
	if w.seal != nil {
		return m.digest
	}
	return leaseDigest(m.lease, m.fence)
}

// leaseDigest stands for the digest of a grant where nothing is signed.
func leaseDigest(lease string, fence lastword.Token) (d lastword.Digest) {
	copy(d[:16], lease)
	for i := range 8 {
		d[16+i] = byte(fence >> (8 * i))
	}
	return d
}

// open is R12 with the real verifier, "" if the grant is believed.
func (s *seal) open(w *world, m *message) string {
	want := grant.Want{
		Resource: laneNames[m.lane], Owner: w.caller(m), Root: &work, Class: class, MinPolicyGeneration: w.place.minGen,
		Bundle: grant.BundleFloor{Sequence: w.place.lane[m.lane].rec.BundleSequence, MinimumEpoch: w.place.lane[m.lane].rec.MinEpoch},
	}
	if m.kind == doAdvance {
		want.Class = lastword.ClassAdvance
	}
	if m.root {
		want.Root = &otherWork
	}
	if w.wiring.Seal == model.AnySeal && m.class != 0 {
		m.floor, m.minimum = w.place.bundle.sequence, w.place.bundle.minimum
		return ""
	}
	v, err := s.verifier.Open(context.Background(), m.grant, want)
	if err != nil {
		return string(grant.ReasonOf(err))
	}
	c := v.Claims()
	if w.wiring.Seal == model.GrantSeal {
		m.fence = c.Fence
	}
	m.lease, m.gen, m.digest = c.LeaseID, c.PolicyGeneration, v.Digest()
	m.floor, m.minimum = v.BundleSequence(), v.MinimumEpoch()
	return ""
}

// caller is who is authenticated at the resource.
func (w *world) caller(m *message) string {
	if m.round < 0 {
		return ""
	}
	if m.class != 0 && !m.leaked && forgeries[m.class-1].stolen {
		return "thief"
	}
	return w.owners[m.round].name
}
