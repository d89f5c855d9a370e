package identity

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/lastword/lastword"
)

// Config of a [Source].
type Config struct {
	// CertFile holds the own certificate and what stands between it and its authority,
	// PEM, leaf first; KeyFile its private key, PEM, for nobody else to read.
	CertFile, KeyFile string
	// CAFiles are the certificates of the authorities, PEM, by trust domain. "" stands
	// for the trust domain of the own certificate. A domain that is not named is not
	// trusted. At least one.
	CAFiles map[string]string
	// Purpose is what the own certificate is used for; "" is [ForClient].
	Purpose Purpose

	// Now is the wall clock, which certificates are compared with; nil is the system's.
	Now func() time.Time
	// Logger gets what [Source.Follow] meets; nil discards.
	Logger *slog.Logger
}

// Source has the own certificate and whom it trusts, as the files last had them when
// they were usable. It is safe for concurrent use.
type Source struct {
	cfg     Config
	current atomic.Pointer[material]

	refused quiet

	reloading sync.Mutex
	seen      []stamp // of the files, when they were read last
}

// material is what was read at one time.
type material struct {
	certificate tls.Certificate
	id          spiffeid.ID
	trust       *trust
	texts       [][]byte // of the files: equal ones are no change
}

func (s *Source) now() *material { return s.current.Load() }

// Open reads the files. It fails with [lastword.CodeInvalid] for what does not fit
// together or is no certificate for this purpose, and with [lastword.CodeUnavailable]
// for what cannot be read.
func Open(cfg Config) (*Source, error) {
	if cfg.Purpose == "" {
		cfg.Purpose = ForClient
	}
	if cfg.Now == nil {
		cfg.Now = time.Now //nolint:forbidigo // the one place where the default is taken
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.CAFiles = maps.Clone(cfg.CAFiles)
	if err := cfg.validate(); err != nil {
		return nil, named(err, opOpen)
	}
	s := &Source{cfg: cfg}
	if _, err := s.Reload(); err != nil {
		return nil, named(err, opOpen)
	}
	return s, nil
}

const opOpen = "open identity"

func (c Config) validate() error {
	switch {
	case c.CertFile == "" || c.KeyFile == "":
		return invalid("an identity needs a certificate and its key")
	case len(c.CAFiles) == 0:
		return invalid("no certificates of an authority: nobody could be trusted")
	case c.Purpose != ForClient && c.Purpose != ForServer:
		return invalid("purpose %q: want %s or %s", c.Purpose, ForClient, ForServer)
	}
	for domain, file := range c.CAFiles {
		if file == "" {
			return invalid("the trust domain %q has no file of authorities", clip(domain))
		}
		if domain != "" {
			if err := CheckDomain(domain); err != nil {
				return err
			}
		}
	}
	return nil
}

// ID is the own SPIFFE id. It never changes.
func (s *Source) ID() string { return s.now().id.String() }

// Domains are the trust domains that are trusted, in order.
func (s *Source) Domains() []string {
	var names []string
	for _, b := range s.now().trust.bundles.Bundles() {
		names = append(names, b.TrustDomain().Name())
	}
	slices.Sort(names)
	return names
}

// Expires is when the own certificate ends.
func (s *Source) Expires() time.Time { return s.now().certificate.Leaf.NotAfter }

// files are the paths, in an order that stays.
func (s *Source) files() []string {
	list := []string{s.cfg.CertFile, s.cfg.KeyFile}
	for _, domain := range slices.Sorted(maps.Keys(s.cfg.CAFiles)) {
		list = append(list, s.cfg.CAFiles[domain])
	}
	return list
}

// Reload reads the files if they have changed. If they cannot be used, the error says
// why, and what was read before stays; the next call tries again. A file is best
// replaced by a rename. Files that do not fit together yet, as a new certificate beside
// the old key, count as unusable.
func (s *Source) Reload() (changed bool, err error) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	stamps, err := stampsOf(s.files())
	if err == nil && slices.Equal(stamps, s.seen) {
		return false, nil
	}
	var texts [][]byte
	if err == nil {
		texts, err = readAll(s.files(), s.cfg.KeyFile)
	}
	if err != nil {
		return false, err
	}
	if m := s.now(); m != nil && slices.EqualFunc(m.texts, texts, bytes.Equal) {
		s.seen = stamps
		return false, nil
	}
	m, err := s.read(texts)
	if err != nil {
		return false, err
	}
	s.current.Store(m)
	s.seen = stamps
	return true, nil
}

// read makes material of the files' texts, and refuses what the other side would.
func (s *Source) read(texts [][]byte) (*material, error) {
	m := &material{texts: texts}
	var err error
	if m.certificate, err = tls.X509KeyPair(texts[0], texts[1]); err != nil {
		// The error of the library says what is wrong, and nothing of the key.
		return nil, invalid("certificate %s with key %s: %v", s.cfg.CertFile, s.cfg.KeyFile, err)
	}
	chain := make([]*x509.Certificate, len(m.certificate.Certificate))
	for i, der := range m.certificate.Certificate {
		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return nil, invalid("certificate %s: number %d: %v", s.cfg.CertFile, i+1, err)
		}
	}
	m.certificate.Leaf = chain[0]
	if m.id, err = readLeaf(chain); err != nil {
		return nil, s.ownFault(err)
	}
	if now := s.now(); now != nil && now.id != m.id {
		return nil, invalid("certificate %s: it is that of %q, and this process is %q", s.cfg.CertFile, m.id, now.id)
	}
	bundles, err := s.bundles(m.id.TrustDomain(), texts[2:])
	if err != nil {
		return nil, err
	}
	m.trust = &trust{bundles}
	return m, s.checkOwn(m, chain)
}

// checkOwn looks at the own certificate as the other side will. Where the own domain is
// not trusted here, its issuer is not known here either.
func (s *Source) checkOwn(m *material, chain []*x509.Certificate) error {
	_, err := m.trust.verify(chain, s.cfg.Purpose, s.cfg.Now())
	if ReasonOf(err) == OtherDomain {
		err = nil
	}
	return s.ownFault(err)
}

func (s *Source) ownFault(err error) error {
	if err == nil {
		return nil
	}
	e := invalid("certificate %s as that of a %s: %v", s.cfg.CertFile, s.cfg.Purpose, err)
	if ReasonOf(err) == OtherPurpose && s.cfg.Purpose == ForServer {
		e.Hint = "an authority needs a certificate for servers: lastword ca issue --server"
	}
	return e
}

// bundles reads the authorities of each domain, in the order of files.
func (s *Source) bundles(own spiffeid.TrustDomain, texts [][]byte) (*x509bundle.Set, error) {
	set := x509bundle.NewSet()
	for i, domain := range slices.Sorted(maps.Keys(s.cfg.CAFiles)) {
		file := s.cfg.CAFiles[domain]
		td := own
		if domain != "" {
			td, _ = spiffeid.TrustDomainFromString(domain) // validate has looked
		}
		if set.Has(td) {
			return nil, invalid("the trust domain %q is there twice", td.Name())
		}
		cas, err := parseCAs(texts[i])
		if err != nil {
			return nil, invalid("authorities %s: %v", file, err)
		}
		set.Add(x509bundle.FromX509Authorities(td, cas))
	}
	return set, nil
}

// parseCAs wants certificates of authorities and nothing else.
func parseCAs(text []byte) ([]*x509.Certificate, error) {
	var cas []*x509.Certificate
	for rest := bytes.TrimSpace(text); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("want PEM certificates and nothing else")
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		if !c.BasicConstraintsValid || !c.IsCA {
			return nil, fmt.Errorf("number %d is no certificate of an authority", len(cas)+1)
		}
		cas = append(cas, c)
	}
	if len(cas) == 0 {
		return nil, errors.New("it has no certificate")
	}
	return cas, nil
}

// Follow reloads every interval until ctx ends; 0 is 1 s. A reason for which the files
// cannot be used is logged once, and so is their change.
func (s *Source) Follow(ctx context.Context, interval time.Duration) {
	follow(ctx, interval, func(last string) string {
		changed, err := s.Reload()
		switch {
		case err != nil && err.Error() != last:
			s.cfg.Logger.Error("the files of the identity cannot be used; what was read before stays in force", "error", err)
		case changed:
			s.cfg.Logger.Info("the files of the identity have changed", "id", s.ID(), "trust_domains", s.Domains(), "expires", s.Expires())
		}
		if err != nil {
			return err.Error()
		}
		if s.cfg.Now().After(s.Expires()) {
			const over = "the own certificate has expired; others will refuse it"
			if over != last {
				s.cfg.Logger.Error(over, "file", s.cfg.CertFile)
			}
			return over
		}
		return ""
	})
}

// follow calls look every interval, with what it returned before.
func follow(ctx context.Context, interval time.Duration, look func(last string) string) {
	const usual = time.Second
	if interval <= 0 {
		interval = usual
	}
	ticker := time.NewTicker(interval) //nolint:forbidigo // how often to look; nothing is decided by it
	defer ticker.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			last = look(last)
		}
	}
}

// named gives err the operation, if it has none.
func named(err error, op string) error {
	var e *lastword.Error
	if !errors.As(err, &e) || e.Op != "" {
		return err
	}
	out := *e
	out.Op = op
	return &out
}
