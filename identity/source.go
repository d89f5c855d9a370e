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
	own, cas    [][]byte // the files' texts: equal ones are no change
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

// Reload reads the files if they have changed. The own certificate with its key and the
// authorities count each by itself: what cannot be used, of either, stays as it was
// before, the error says why, and the next call tries again. So the authorities that were
// taken out are out, even if the own certificate is good no more. A file is best replaced
// by a rename. A certificate and a key that do not fit together yet count as unusable.
func (s *Source) Reload() (changed bool, err error) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	stamps, err := stampsOf(s.files())
	if err == nil && slices.Equal(stamps, s.seen) {
		return false, nil
	}
	next := material{}
	if now := s.now(); now != nil {
		next = *now
	}
	newTrust, trustErr := s.readTrust(&next)
	newOwn, ownErr := s.readOwn(&next)
	if err = errors.Join(trustErr, ownErr); next.trust == nil || next.certificate.Leaf == nil {
		return false, firstOf(ownErr, trustErr)
	}
	if newTrust || newOwn {
		s.current.Store(&next)
	}
	if err == nil {
		s.seen = stamps
	}
	return newTrust || newOwn, firstOf(trustErr, ownErr)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// readOwn takes the own certificate in, if it is another one, and refuses what the other
// side would.
func (s *Source) readOwn(m *material) (changed bool, err error) {
	texts, err := readAll([]string{s.cfg.CertFile, s.cfg.KeyFile}, s.cfg.KeyFile)
	if err != nil || slices.EqualFunc(m.own, texts, bytes.Equal) {
		return false, err
	}
	certificate, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		// The error of the library says what is wrong, and nothing of the key.
		return false, invalid("certificate %s with key %s: %v", s.cfg.CertFile, s.cfg.KeyFile, err)
	}
	chain := make([]*x509.Certificate, len(certificate.Certificate))
	for i, der := range certificate.Certificate {
		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return false, invalid("certificate %s: number %d: %v", s.cfg.CertFile, i+1, err)
		}
	}
	certificate.Leaf = chain[0]
	id, err := readLeaf(chain)
	if err != nil {
		return false, s.ownFault(err)
	}
	if !m.id.IsZero() && m.id != id {
		return false, invalid("certificate %s: it is that of %q, and this process is %q", s.cfg.CertFile, id, m.id)
	}
	if m.trust == nil { // the domain of an unnamed file is known only now
		if err := s.firstTrust(m, id.TrustDomain()); err != nil {
			return false, err
		}
	}
	// Where the own domain is not trusted here, its issuer is not known here either.
	if _, err := m.trust.verify(chain, s.cfg.Purpose, s.cfg.Now()); err != nil && ReasonOf(err) != OtherDomain {
		return false, s.ownFault(err)
	}
	m.certificate, m.id, m.own = certificate, id, texts
	return true, nil
}

func (s *Source) ownFault(err error) error {
	e := invalid("certificate %s as that of a %s: %v", s.cfg.CertFile, s.cfg.Purpose, err)
	if ReasonOf(err) == OtherPurpose && s.cfg.Purpose == ForServer {
		e.Hint = "an authority needs a certificate for servers: lastword ca issue --server"
	}
	return e
}

// readTrust takes the authorities in, if they are others.
func (s *Source) readTrust(m *material) (changed bool, err error) {
	if m.id.IsZero() {
		return false, nil // readOwn does, at the first time
	}
	texts, err := readAll(s.files()[2:], "")
	if err != nil || slices.EqualFunc(m.cas, texts, bytes.Equal) {
		return false, err
	}
	bundles, err := s.bundles(m.id.TrustDomain(), texts)
	if err != nil {
		return false, err
	}
	m.trust, m.cas = &trust{bundles}, texts
	return true, nil
}

func (s *Source) firstTrust(m *material, own spiffeid.TrustDomain) error {
	texts, err := readAll(s.files()[2:], "")
	if err != nil {
		return err
	}
	bundles, err := s.bundles(own, texts)
	if err == nil {
		m.trust, m.cas = &trust{bundles}, texts
	}
	return err
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
// cannot be used is logged as an error once, if it is still there at the next look: a
// certificate and its key are not replaced at the same moment. So is a change, and that
// the own certificate has run out.
func (s *Source) Follow(ctx context.Context, interval time.Duration) {
	follow(ctx, interval, func() error {
		changed, err := s.Reload()
		if changed {
			s.cfg.Logger.Info("the files of the identity have changed", "id", s.ID(), "trust_domains", s.Domains(), "expires", s.Expires())
		}
		if err == nil && s.cfg.Now().After(s.Expires()) {
			err = s.ownFault(&Refusal{Reason: Expired, ID: s.ID()})
		}
		return err
	}, func(err error) {
		s.cfg.Logger.Error("the files of the identity cannot be used; what was read before stays in force", "error", err)
	})
}

// follow looks every interval, and raises an alarm when it has failed twice in the same
// way.
func follow(ctx context.Context, interval time.Duration, look func() error, alarm func(error)) {
	const usual = time.Second
	if interval <= 0 {
		interval = usual
	}
	ticker := time.NewTicker(interval) //nolint:forbidigo // how often to look; nothing is decided by it
	defer ticker.Stop()
	last, times := "", 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := look()
		if err == nil {
			last, times = "", 0
			continue
		}
		if text := err.Error(); text != last {
			last, times = text, 0
		}
		if times++; times == 2 { //nolint:mnd // twice
			alarm(err)
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
