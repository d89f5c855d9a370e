package identity_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword/identity"
)

// patience bounds what a test waits for; a machine that is busy gets it all.
const patience = time.Minute

const (
	authorityID = "spiffe://example.org/authority"
	annID       = "spiffe://example.org/ann"
	benID       = "spiffe://example.org/ben"
)

// pki is an authority of certificates that signs whatever it is told to.
type pki struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newPKI(t testing.TB, domain string) *pki {
	t.Helper()
	p := &pki{t: t, key: newKey(t)}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "CA of " + domain}, SerialNumber: big.NewInt(1),
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		URIs: []*url.URL{{Scheme: "spiffe", Host: domain}}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	p.cert = sign(t, template, template, p.key, p.key)
	return p
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), crypto.Signer(signer))
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// leaf is a good certificate for both uses, changed by but.
func (p *pki) leaf(id string, but ...func(*x509.Certificate)) tls.Certificate {
	p.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		URIs: []*url.URL{uri(p.t, id)}, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, change := range but {
		change(template)
	}
	key := newKey(p.t)
	c := sign(p.t, template, p.cert, key, p.key)
	return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}
}

func uri(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// files are where a source finds what it reads.
type files struct{ cert, key, ca string }

func (f files) config(p identity.Purpose) identity.Config {
	return identity.Config{CertFile: f.cert, KeyFile: f.key, CAFiles: map[string]string{"": f.ca}, Purpose: p}
}

func newFiles(t testing.TB, c tls.Certificate, cas ...*pki) files {
	t.Helper()
	dir := t.TempDir()
	f := files{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")}
	f.put(t, c)
	f.trust(t, cas...)
	return f
}

// put replaces certificate and key, as a rotation does.
func (f files) put(t testing.TB, c tls.Certificate) {
	t.Helper()
	private, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, f.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	var text bytes.Buffer
	for _, der := range c.Certificate {
		_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	replace(t, f.cert, text.Bytes())
}

func (f files) trust(t testing.TB, cas ...*pki) {
	t.Helper()
	var text bytes.Buffer
	for _, p := range cas {
		_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: p.cert.Raw})
	}
	replace(t, f.ca, text.Bytes())
}

func replace(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, cfg identity.Config) *identity.Source {
	t.Helper()
	s, err := identity.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// log keeps what was logged.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// until waits for a condition that others bring about.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: it did not come", what)
		}
	}
}

func contextOf(t testing.TB) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, cancel
}

func chainOf(c tls.Certificate) []*x509.Certificate { return []*x509.Certificate{c.Leaf} }
