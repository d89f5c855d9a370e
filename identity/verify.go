package identity

import (
	"crypto/x509"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// Purpose is what a certificate is used for.
type Purpose string

// The purposes.
const (
	ForClient Purpose = "client"
	ForServer Purpose = "server"
)

// What a chain has at most.
const (
	maxChain      = 8
	maxChainBytes = 64 << 10
)

// trust is whom a source believes: a set for each domain, so that no domain's authority
// can speak for another one.
type trust struct{ bundles *x509bundle.Set }

// verify looks at a chain, leaf first. The first thing that is wrong is the reason.
func (t *trust) verify(chain []*x509.Certificate, p Purpose, now time.Time) (spiffeid.ID, error) {
	id, err := readLeaf(chain)
	if err != nil {
		return id, err
	}
	leaf := chain[0]
	refuse := func(r Reason, cause error) (spiffeid.ID, error) {
		return spiffeid.ID{}, &Refusal{Reason: r, ID: clip(id.String()), Err: cause}
	}
	switch {
	case !t.bundles.Has(id.TrustDomain()):
		return refuse(OtherDomain, nil)
	case leaf.IsCA:
		return refuse(IsAuthority, nil)
	case leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0 || leaf.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0:
		return refuse(KeyUsage, nil)
	case !serves(leaf, p):
		return refuse(OtherPurpose, nil)
	case now.Before(leaf.NotBefore):
		return refuse(NotYetValid, nil)
	case now.After(leaf.NotAfter):
		return refuse(Expired, nil)
	}
	if _, _, err := x509svid.Verify(chain, t.bundles, x509svid.WithTime(now)); err != nil {
		return refuse(Untrusted, err)
	}
	return id, nil
}

// readLeaf finds the one name of a certificate.
func readLeaf(chain []*x509.Certificate) (spiffeid.ID, error) {
	if len(chain) == 0 {
		return spiffeid.ID{}, &Refusal{Reason: NoCertificate}
	}
	size := 0
	for _, c := range chain {
		size += len(c.Raw)
	}
	leaf := chain[0]
	switch {
	case len(chain) > maxChain || size > maxChainBytes:
		return spiffeid.ID{}, &Refusal{Reason: TooLarge}
	case len(leaf.URIs) == 0:
		return spiffeid.ID{}, &Refusal{Reason: NoID}
	case len(leaf.URIs) > 1:
		return spiffeid.ID{}, &Refusal{Reason: SeveralIDs}
	}
	// The name as it stands there: one that another spelling would repair is none.
	name := leaf.URIs[0].String()
	id, err := parseID(name)
	if err != nil {
		return spiffeid.ID{}, &Refusal{Reason: BadID, ID: clip(name)}
	}
	return id, nil
}

// serves: a certificate without extended key usage is for everything (SPIFFE X509-SVID
// §4.4).
func serves(leaf *x509.Certificate, p Purpose) bool {
	want := x509.ExtKeyUsageClientAuth
	if p == ForServer {
		want = x509.ExtKeyUsageServerAuth
	}
	none := len(leaf.ExtKeyUsage) == 0 && len(leaf.UnknownExtKeyUsage) == 0
	return none || slices.Contains(leaf.ExtKeyUsage, want)
}

// Peer is the other side of a connection. It is safe for concurrent use.
type Peer struct {
	source  *Source
	chain   []*x509.Certificate
	purpose Purpose
	id      string
	trusted atomic.Pointer[trust] // that found it good
}

// Peer verifies a chain, leaf first, for this purpose. The error is a [*Refusal].
func (s *Source) Peer(chain []*x509.Certificate, p Purpose) (*Peer, error) {
	t := s.now().trust
	id, err := t.verify(chain, p, s.cfg.Now())
	if err != nil {
		return nil, err
	}
	peer := &Peer{source: s, chain: chain, purpose: p, id: id.String()}
	peer.trusted.Store(t)
	return peer, nil
}

// ID is the peer's SPIFFE id. It fails with a [*Refusal] once the certificate has run
// out, or its authority is trusted no more, although the connection is still there.
func (p *Peer) ID() (string, error) {
	now := p.source.cfg.Now()
	if t := p.source.now().trust; t != p.trusted.Load() {
		if _, err := t.verify(p.chain, p.purpose, now); err != nil {
			return "", err
		}
		p.trusted.Store(t)
	}
	if now.After(p.chain[0].NotAfter) {
		return "", &Refusal{Reason: Expired, ID: clip(p.id)}
	}
	return p.id, nil
}
