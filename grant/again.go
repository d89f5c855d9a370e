package grant

import (
	"crypto/ed25519"
	"sync"

	"github.com/lastword/lastword"
)

// maxSignatures is how many signatures a signer keeps for [Signer.SignAgain]: so many
// live leases, each renewed in its turn, are never signed twice. They take 20 MB.
const maxSignatures = 128 << 10

// SignAgain is Sign of a grant that has been asked for before and will be again, as
// renewals do: it gives the same bytes for a tenth of the time, as long as its signature
// is among the last 131,072 that were asked for here.
func (s *Signer) SignAgain(kid string, c Claims) (grant string, d lastword.Digest, err error) {
	k, input, err := s.prepare("sign grant", kid, &c)
	if err != nil {
		return "", lastword.Digest{}, err
	}
	d = lastword.DigestOf(input)
	if k.k.alg != algEdDSA { // as quick as a look
		return k.seal(input), d, nil
	}
	sig, found := s.again.get(d)
	if !found {
		sig = signature(k.k.sign(input))
		s.again.put(d, sig)
	}
	return withSeal(input, sig[:]), d, nil
}

type signature [ed25519.SignatureSize]byte

// signatures are kept by the digest of what was signed, which names the key. There are
// two generations, of which the older is dropped when the younger is full.
type signatures struct {
	mu         sync.Mutex
	half       int // 0 is maxSignatures
	young, old map[lastword.Digest]signature
}

func (m *signatures) get(d lastword.Digest) (signature, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sig, found := m.young[d]
	if !found {
		if sig, found = m.old[d]; found {
			m.putLocked(d, sig)
		}
	}
	return sig, found
}

func (m *signatures) put(d lastword.Digest, sig signature) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.putLocked(d, sig)
}

func (m *signatures) putLocked(d lastword.Digest, sig signature) {
	if m.half == 0 {
		m.half = maxSignatures
	}
	if len(m.young) >= m.half {
		m.old, m.young = m.young, nil
	}
	if m.young == nil {
		m.young = make(map[lastword.Digest]signature)
	}
	m.young[d] = sig
}
