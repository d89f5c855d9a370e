package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/lastword/lastword"
)

// The defaults and bounds of the development CA.
const (
	// DefaultDomain is the trust domain of [InitCA]. Names below .test belong to nobody.
	DefaultDomain = "lastword.test"
	// AuthorityPath is that of the id that [InitCA] issues for the authority.
	AuthorityPath = "/authority"
	// CALife is how long the CA's own certificate is good.
	CALife = 30 * 24 * time.Hour
	// DefaultLife is how long a certificate is good.
	DefaultLife = 24 * time.Hour

	// MaxHosts bounds [IssueConfig.Hosts].
	MaxHosts = 32

	minLife = time.Minute
	// clockSkew is how far the clocks of two machines may differ.
	clockSkew = time.Minute
)

// Issued is a certificate with its key, each in a file of mode 0600.
type Issued struct {
	ID       string
	CertFile string
	KeyFile  string
	NotAfter time.Time
}

// IssueConfig says what [Issue] makes.
type IssueConfig struct {
	// Server makes a certificate for servers, which is also good for the names of this
	// machine's loopback; otherwise it is for clients.
	Server bool
	// Hosts are more names and IP addresses that a server's certificate is good for, at
	// most [MaxHosts]: for tools that look at the name they call, such as curl. Callers of
	// lastword look at the SPIFFE id alone.
	Hosts []string
	// Life is how long it is good: a minute to what is left of the CA; 0 is
	// [DefaultLife], or what is left of the CA if that is less.
	Life time.Duration
	// Force replaces the files of an earlier one of the same id and kind. They are changed one after the other,
	// the key first; a [Source] that follows them waits until they fit.
	Force bool
	// Now is the wall clock; nil is the system's.
	Now func() time.Time
}

// InitCA makes a development CA for a trust domain in the directory dir, which must be
// empty or not there yet, and issues the authority's certificate for servers, good for
// hosts, too, as in [IssueConfig]; domain "" is [DefaultDomain]. Nothing protects the
// CA's key but the modes of dir and file: it is for development. It fails with
// [lastword.CodeInvalid] for what is there already.
func InitCA(dir, domain string, hosts ...string) (ca, authority Issued, err error) {
	const op = "ca init"
	if domain == "" {
		domain = DefaultDomain
	}
	if err := CheckDomain(domain); err != nil {
		return ca, authority, named(err, op)
	}
	if dir == "" {
		return ca, authority, named(invalid("no directory"), op)
	}
	if _, _, err := splitHosts(hosts); err != nil { // before anything is made
		return ca, authority, named(err, op)
	}
	if err := emptyDir(dir); err != nil {
		return ca, authority, named(err, op)
	}
	now := time.Now() //nolint:forbidigo // the dates of a certificate
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return ca, authority, failed(op, "the CA's key", err)
	}
	ca = Issued{ID: "spiffe://" + domain, CertFile: caCert(dir), KeyFile: caKey(dir), NotAfter: now.Add(CALife).Truncate(time.Second)}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "lastword development CA for " + domain},
		NotBefore: now.Add(-clockSkew), NotAfter: ca.NotAfter,
		URIs:                  []*url.URL{{Scheme: "spiffe", Host: domain}},
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if err := write(ca, template, template, key, key, newFile); err != nil {
		return ca, authority, failed(op, dir, err)
	}
	authority, err = Issue(dir, ca.ID+AuthorityPath, IssueConfig{Server: true, Hosts: hosts})
	return ca, authority, named(err, op)
}

func caCert(dir string) string { return filepath.Join(dir, "ca.crt") }
func caKey(dir string) string  { return filepath.Join(dir, "ca.key") }

// emptyDir makes dir, for nobody else to reach.
func emptyDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		entries, err := os.ReadDir(dir)
		switch {
		case err != nil:
			return invalid("%s: %v", dir, pathless(err))
		case len(entries) > 0:
			e := invalid("%s is not empty, and nothing in it is overwritten", dir)
			e.Hint = "name a directory that is not there yet"
			return e
		}
		return os.Chmod(dir, 0o700)
	}
	if err != nil {
		return &lastword.Error{Code: lastword.CodeUnavailable, Message: "cannot make " + dir, Err: pathless(err)}
	}
	return nil
}

// Issue makes a certificate for a SPIFFE id of the CA's trust domain, in two files of
// dir: the id's path, its slashes as dashes, with .crt and .key. It fails with
// [lastword.CodeInvalid] for an id of another domain, and if a file is there already
// that it may not replace.
func Issue(dir, id string, cfg IssueConfig) (Issued, error) {
	const op = "ca issue"
	free, err := lockDir(dir)
	if err != nil {
		return Issued{}, named(err, op)
	}
	defer free()
	out, err := issue(dir, id, cfg)
	var e *lastword.Error
	if err != nil && !errors.As(err, &e) {
		err = failed(op, "the certificate", err)
	}
	return out, named(err, op)
}

func issue(dir, name string, cfg IssueConfig) (out Issued, err error) {
	id, err := parseID(name)
	if err != nil {
		return out, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now //nolint:forbidigo // the one place where the default is taken
	}
	if len(cfg.Hosts) > 0 && !cfg.Server {
		return out, invalid("hosts are of a certificate for servers")
	}
	names, addresses, err := splitHosts(cfg.Hosts)
	if err != nil {
		return out, err
	}
	ca, caPrivate, err := readCA(dir)
	if err != nil {
		return out, err
	}
	if domain := ca.URIs[0].Host; id.TrustDomain().Name() != domain {
		e := invalid("%s is of another trust domain than this CA, %s", name, domain)
		e.Hint = "such as spiffe://" + domain + id.Path()
		return out, e
	}
	out, err = prepare(dir, id, cfg, ca)
	if err != nil {
		return out, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return out, err
	}
	place := newFile
	if cfg.Force {
		place = replaceFile
	}
	leaf := leafTemplate(out, id, cfg)
	leaf.DNSNames, leaf.IPAddresses = append(leaf.DNSNames, names...), append(leaf.IPAddresses, addresses...)
	return out, write(out, leaf, ca, key, caPrivate, place)
}

// prepare says which files it will be, and for how long.
func prepare(dir string, id spiffeid.ID, cfg IssueConfig, ca *x509.Certificate) (out Issued, err error) {
	now := cfg.Now()
	left := ca.NotAfter.Sub(now)
	life := cfg.Life
	if life == 0 {
		life = min(DefaultLife, left)
	}
	if life < minLife || life > left {
		e := invalid("life %s: want %s to what is left of the CA, %s", life, minLife, max(0, left.Truncate(time.Second)))
		if left < minLife {
			e.Message, e.Hint = "the CA has expired", "make a new one: lastword ca init"
		}
		return out, e
	}
	base := filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(id.Path(), "/"), "/", "-"))
	out = Issued{ID: id.String(), CertFile: base + ".crt", KeyFile: base + ".key", NotAfter: now.Add(life).Truncate(time.Second)}
	if out.CertFile == caCert(dir) {
		return out, invalid("the files of %s would be those of the CA", id)
	}
	for _, path := range []string{out.CertFile, out.KeyFile} {
		info, err := os.Lstat(path)
		switch {
		case err == nil && !cfg.Force:
			e := invalid("%s exists", path)
			e.Hint = "replace it with --force"
			return out, e
		case err == nil && !info.Mode().IsRegular(): // before one of the two is replaced
			return out, invalid("%s is not a regular file", path)
		}
	}
	return out, sameUse(out, cfg)
}

// sameUse refuses to replace the certificate of another identity, whose name gives the
// same files, and one of the other kind: of a server by one for callers, or the reverse.
// What is no certificate is nobody's.
func sameUse(out Issued, cfg IssueConfig) error {
	text, err := readFile(out.CertFile, false)
	if err != nil {
		return nil //nolint:nilerr // there is none
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil
	}
	old, err := x509.ParseCertificate(block.Bytes)
	if err != nil || len(old.URIs) != 1 {
		return nil //nolint:nilerr // as above
	}
	if whose := old.URIs[0].String(); whose != out.ID {
		e := invalid("%s is of %s, and is not replaced by one of %s", out.CertFile, whose, out.ID)
		e.Hint = "choose an id whose path gives other files, or move these away"
		return e
	}
	server := slices.Contains(old.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	switch {
	case server && !cfg.Server:
		e := invalid("%s is for a server, and is not replaced by one for callers", out.CertFile)
		e.Hint = "say --server, or move the two files away"
		return e
	case !server && cfg.Server:
		e := invalid("%s is for callers, and is not replaced by one for a server", out.CertFile)
		e.Hint = "leave --server out, or move the two files away"
		return e
	}
	return nil
}

func leafTemplate(out Issued, id spiffeid.ID, cfg IssueConfig) *x509.Certificate {
	t := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "lastword development"},
		NotBefore:             cfg.Now().Add(-clockSkew),
		NotAfter:              out.NotAfter,
		URIs:                  []*url.URL{id.URL()},
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if cfg.Server {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		t.DNSNames = []string{"localhost"} // for tools that look at names, such as curl
		t.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	}
	return t
}

// write signs, and makes the two files: the key first, so that a certificate is never
// there without one.
func write(out Issued, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey, place func(string, []byte) error) error {
	const serialBits = 127
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := place(out.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})); err != nil {
		return placed(out.KeyFile, err)
	}
	return placed(out.CertFile, place(out.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

func placed(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot write %s: %w", path, pathless(err))
}

// readCA reads the CA of dir and wants it to be one of [InitCA].
func readCA(dir string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	texts, err := readAll([]string{caCert(dir), caKey(dir)}, caKey(dir))
	if errors.Is(err, fs.ErrNotExist) {
		e := invalid("%s holds no CA", dir)
		e.Hint = "make one: lastword ca init " + dir
		return nil, nil, e
	}
	if err != nil {
		return nil, nil, err
	}
	cas, err := parseCAs(texts[0])
	if err != nil || len(cas) != 1 || len(cas[0].URIs) != 1 {
		return nil, nil, invalid("%s is no certificate of a development CA", caCert(dir))
	}
	block, _ := pem.Decode(texts[1])
	if block == nil {
		return nil, nil, invalid("%s is no key of a development CA", caKey(dir))
	}
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := private.(*ecdsa.PrivateKey)
	if err != nil || !ok || !key.PublicKey.Equal(cas[0].PublicKey) {
		return nil, nil, invalid("%s is not the key of %s", caKey(dir), caCert(dir))
	}
	return cas[0], key, nil
}

func failed(op, what string, err error) error {
	return &lastword.Error{Code: lastword.CodeUnavailable, Op: op, Message: "cannot make " + what, Err: err}
}
