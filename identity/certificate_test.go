package identity_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
	"github.com/lastword/lastword/rpc"
)

// badCertificate is one that a client shows.
type badCertificate struct {
	name  string
	certs []tls.Certificate
	want  identity.Reason
}

func badCertificates(t *testing.T, ca *pki) []badCertificate {
	t.Helper()
	named := func(id string, but ...func(*x509.Certificate)) []tls.Certificate {
		return []tls.Certificate{ca.leaf(id, but...)}
	}
	long := annID + "/" + strings.Repeat("x", lastword.MaxIDBytes)
	same, other := newPKI(t, "example.org"), newPKI(t, "other.org")
	chain := ca.leaf(annID)
	for range 8 {
		chain.Certificate = append(chain.Certificate, ca.cert.Raw)
	}
	return []badCertificate{
		{"none", nil, identity.NoCertificate},
		{"a chain without an end", []tls.Certificate{chain}, identity.TooLarge},
		{"no URI name", named(annID, func(c *x509.Certificate) { c.URIs = nil; c.DNSNames = []string{"ann.example.org"} }), identity.NoID},
		{"two URI names", named(annID, func(c *x509.Certificate) { c.URIs = append(c.URIs, uri(t, benID)) }), identity.SeveralIDs},
		{"a wildcard as path", named("spiffe://example.org/*"), identity.BadID},
		{"an empty segment", named("spiffe://example.org//ann"), identity.BadID},
		{"a slash at the end", named(annID + "/"), identity.BadID},
		{"a dot segment", named("spiffe://example.org/ops/../ann"), identity.BadID},
		{"a query", named(annID + "?admin"), identity.BadID},
		{"an escaped letter", named("spiffe://example.org/%61nn"), identity.BadID},
		{"no path", named("spiffe://example.org"), identity.BadID},
		{"capitals in the domain", named("spiffe://EXAMPLE.org/ann"), identity.BadID},
		{"another scheme", named("https://example.org/ann"), identity.BadID},
		{"too long for an owner", named(long), identity.BadID},
		{"another trust domain", []tls.Certificate{other.leaf("spiffe://other.org/ann")}, identity.OtherDomain},
		{"another trust domain, by our authority", named("spiffe://other.org/ann"), identity.OtherDomain},
		{"our trust domain, by another authority", []tls.Certificate{other.leaf(annID)}, identity.Untrusted},
		{"another authority of the same name", []tls.Certificate{same.leaf(annID)}, identity.Untrusted},
		{"an authority's as a leaf", named(annID, func(c *x509.Certificate) {
			c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
		}), identity.IsAuthority},
		{"a key for encryption alone", named(annID, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }), identity.KeyUsage},
		{"a leaf that may sign", named(annID, func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign }), identity.KeyUsage},
		{"a server's", named(annID, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), identity.OtherPurpose},
		{"not yet valid", named(annID, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(30 * time.Minute) }), identity.NotYetValid},
		{"expired", named(annID, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), identity.Expired},
	}
}

// T2: every kind of bad certificate has its reason, and changes nothing.
func TestABadCertificateIsRefusedWithItsReasonAndChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settings{})
	held := acquire(t, w.as(annID), "doc/a", "first")
	before := w.state()
	for _, bad := range badCertificates(t, w.ca) {
		t.Run(bad.name, func(t *testing.T) {
			var chain []*x509.Certificate
			for _, c := range bad.certs {
				for _, der := range c.Certificate {
					parsed, err := x509.ParseCertificate(der)
					check(t, err)
					chain = append(chain, parsed)
				}
			}
			if _, err := w.source.Peer(chain, identity.ForClient); identity.ReasonOf(err) != bad.want {
				t.Errorf("the reason is %v, want %s", err, bad.want)
			}
			err := handshake(t, w.source.ServerTLS(), bad.certs)
			if err == nil {
				t.Fatal("the handshake went well")
			}
			// The library itself refuses a client without any, before it asks us.
			if got := identity.ReasonOf(err); got != bad.want && bad.want != identity.NoCertificate {
				t.Errorf("the handshake failed with %v, want %s", err, bad.want)
			}
			c := w.raw(bad.certs...)
			for _, call := range []func() error{
				func() error { _, err := c.Acquire(t.Context(), owned(ask("doc/b", "x"), annID)); return err },
				func() error { _, err := c.Acquire(t.Context(), owned(ask("doc/a", "first"), annID)); return err },
				func() error { return c.Release(t.Context(), held.TenureRef) },
				func() error { return c.Revoke(t.Context(), "doc/a", held.Fence, annID, "because") },
				func() error { _, err := c.Bundle(t.Context()); return err },
			} {
				if err := call(); !errors.Is(err, lastword.ErrUnavailable) {
					t.Errorf("the call ended with %v, want one that has certainly not been made", err)
				}
			}
			if after := w.state(); after != before {
				t.Errorf("it changed something:\n%s\n%s", before, after)
			}
		})
	}
	if _, err := w.as(annID).Renew(t.Context(), held.TenureRef); err != nil {
		t.Errorf("the good certificate: %v", err)
	}
}

func owned(r lastword.AcquireRequest, owner string) lastword.AcquireRequest {
	r.Owner = owner
	return r
}

// handshake is what a server says of a client with these certificates.
func handshake(t *testing.T, server *tls.Config, certs []tls.Certificate) error {
	t.Helper()
	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	go func() {
		c := tls.Client(far, &tls.Config{
			MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(certs) == 0 {
					return &tls.Certificate{}, nil
				}
				return &certs[0], nil
			},
		})
		_ = c.Handshake()
		_, _ = c.Read(make([]byte, 1))
	}()
	return tls.Server(near, server).HandshakeContext(t.Context())
}

func TestTLSBelowThirteenIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settings{})
	conn, err := tls.Dial("tcp", w.addr, &tls.Config{
		MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true, //nolint:gosec // what is tried
		Certificates: []tls.Certificate{w.ca.leaf(annID)},
	})
	if err == nil {
		_ = conn.Close()
		t.Fatal("TLS 1.2 was accepted")
	}
	if c := w.dial(rpc.ClientConfig{}); true {
		if _, err := c.Bundle(t.Context()); err == nil {
			t.Error("plain text was accepted")
		}
	}
}

// T4: a client talks to the pinned authority and to nobody else, and sends nothing to
// anybody else.
func TestAClientRefusesAnotherAuthority(t *testing.T) {
	t.Parallel()
	ca, same := newPKI(t, "example.org"), newPKI(t, "example.org")
	for name, c := range map[string]struct {
		server tls.Certificate
		want   identity.Reason
	}{
		"another workload of the domain": {ca.leaf(benID), identity.OtherPeer},
		"the same id, by another issuer": {same.leaf(authorityID), identity.Untrusted},
		"a client's certificate": {ca.leaf(authorityID, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}), identity.OtherPurpose},
		"an expired one": {ca.leaf(authorityID, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), identity.Expired},
		"a host name":    {ca.leaf(authorityID, func(c *x509.Certificate) { c.URIs, c.DNSNames = []*url.URL{}, []string{"localhost"} }), identity.NoID},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			check(t, err)
			defer func() { _ = lis.Close() }()
			read := make(chan int, 16)
			go fake(lis, c.server, read)
			client, err := rpc.Dial(lis.Addr().String(), rpc.ClientConfig{
				Identity:  open(t, newFiles(t, ca.leaf(annID), ca).config(identity.ForClient)),
				Authority: authorityID,
			})
			check(t, err)
			defer func() { _ = client.Close() }()
			_, err = client.Acquire(t.Context(), owned(ask("doc/a", "x"), annID))
			if !errors.Is(err, lastword.ErrUnavailable) || !strings.Contains(err.Error(), string(c.want)) {
				t.Errorf("it ended with %v, want UNAVAILABLE with %s", err, c.want)
			}
			if n := <-read; n != 0 {
				t.Errorf("%d bytes were sent to it", n)
			}
		})
	}
}

// fake is an authority that counts what clients say to it.
func fake(lis net.Listener, cert tls.Certificate, read chan<- int) {
	for {
		raw, err := lis.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = raw.Close() }()
			c := tls.Server(raw, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
			_ = c.Handshake()
			n, _ := c.Read(make([]byte, 1<<10))
			select {
			case read <- n:
			default:
			}
		}()
	}
}

func TestAClientWithoutAPinIsRefused(t *testing.T) {
	t.Parallel()
	ca := newPKI(t, "example.org")
	source := open(t, newFiles(t, ca.leaf(annID), ca).config(identity.ForClient))
	for _, pin := range []string{"", "spiffe://example.org", "spiffe://example.org/*", "localhost", "spiffe://other.org/authority"} {
		if _, err := rpc.Dial("127.0.0.1:1", rpc.ClientConfig{Identity: source, Authority: pin}); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("the pin %q: %v, want INVALID", pin, err)
		}
	}
}

// The owner is who the certificate says: it may be left out, and no other can be named.
func TestTheOwnerIsTheCallersIdentity(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settings{})
	ann, ben := w.as(annID), w.as(benID)
	tenure := acquire(t, ann, "doc/a", "1")
	if tenure.Owner != annID {
		t.Errorf("the owner is %q, want %q", tenure.Owner, annID)
	}
	if _, err := ben.Acquire(t.Context(), owned(ask("doc/b", "1"), annID)); !errors.Is(err, lastword.ErrUnverified) {
		t.Errorf("acquire in another's name: %v, want UNVERIFIED", err)
	}
	before := w.state()
	if err := ben.Release(t.Context(), tenure.TenureRef); !errors.Is(err, lastword.ErrUnverified) {
		t.Errorf("release of another's tenure: %v, want UNVERIFIED", err)
	}
	ref := tenure.TenureRef
	ref.Owner = ""
	if _, err := ben.Renew(t.Context(), ref); !errors.Is(err, lastword.ErrNotHolder) {
		t.Errorf("renewal of another's tenure without its name: %v, want NOT_HOLDER", err)
	}
	if after := w.state(); after != before {
		t.Errorf("it changed something:\n%s\n%s", before, after)
	}
	if _, err := ann.Renew(t.Context(), ref); err != nil {
		t.Errorf("renewal by the holder without its name: %v", err)
	}
}
