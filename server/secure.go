package server

import (
	"context"
	"net"
	"sync"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/identity"
	"github.com/lastword/lastword/rpc"
)

// TLS is who the server is and whom it believes. The zero value is none: the server
// then speaks plain text, on loopback only.
type TLS struct {
	// Cert and Key are PEM files with the server's own certificate, a SPIFFE id for
	// servers in it, and its private key. They are read again when they change.
	Cert, Key string
	// ClientCA are PEM files with the authorities of callers, by trust domain; "" stands
	// for TrustDomain.
	ClientCA map[string]string
	// TrustDomain is that of the server's own certificate; "" is whatever it is.
	TrustDomain string
}

func (t TLS) on() bool {
	return t.Cert != "" || t.Key != "" || len(t.ClientCA) > 0 || t.TrustDomain != ""
}

// mayListen: without TLS nobody beyond this machine is believed.
func (c Config) mayListen(addr string) error {
	if !c.TLS.on() {
		return rpc.LoopbackOnly(addr)
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return invalid("listen address %q: want host:port", addr)
	}
	return nil
}

// identified says whether callers have identities.
func (c Config) identified() bool { return c.TLS.on() || c.DevTokens != "" }

func (c Config) validateSecurity() error {
	switch {
	case c.TLS.on() && (c.TLS.Cert == "" || c.TLS.Key == "" || len(c.TLS.ClientCA) == 0):
		return &lastword.Error{
			Code: lastword.CodeInvalid, Message: "TLS needs a certificate, its key and the authorities of callers",
			Hint: "give --tls-cert, --tls-key and --tls-client-ca; lastword ca init makes all three",
		}
	case c.TLS.on() && c.DevTokens != "":
		return invalid("development tokens are for a server without TLS")
	case c.Policy != "" && !c.identified():
		return &lastword.Error{
			Code: lastword.CodeInvalid, Message: "a policy needs callers with identities",
			Hint: "give --tls-cert, --tls-key and --tls-client-ca, or for development --dev-tokens",
		}
	}
	return nil
}

// openSecurity reads what says who calls and what callers may do.
func (s *Server) openSecurity() (err error) {
	c := s.cfg
	if c.TLS.on() {
		cas := map[string]string{}
		for domain, file := range c.TLS.ClientCA {
			if domain == "" {
				domain = c.TLS.TrustDomain
			}
			if _, twice := cas[domain]; twice {
				return invalid("the trust domain %q has two files of authorities", domain)
			}
			cas[domain] = file
		}
		if s.identity, err = identity.Open(identity.Config{
			CertFile: c.TLS.Cert, KeyFile: c.TLS.Key, CAFiles: cas, Purpose: identity.ForServer, Logger: c.Logger,
		}); err != nil {
			return err
		}
		if own, _ := identity.DomainOf(s.identity.ID()); c.TLS.TrustDomain != "" && own != c.TLS.TrustDomain {
			return invalid("certificate %s: it is of the trust domain %q, not %q", c.TLS.Cert, own, c.TLS.TrustDomain)
		}
	}
	if c.DevTokens != "" {
		if s.tokens, err = identity.OpenTokens(c.DevTokens); err != nil {
			return err
		}
	}
	if c.Policy != "" {
		_, err = identity.ReadPolicy(c.Policy)
	}
	return err
}

// openPolicy puts the policy in force and remembers its generation, once everything else
// is there. One that was in force does not go away by being left out.
// policyMemory is the file beside a witness that remembers the generation of the policy, too.
func policyMemory(witness string) string { return witness + ".policy" }

func (s *Server) openPolicy() (err error) {
	if s.cfg.Policy == "" {
		if again := policyMemory(s.files.Witness); identity.Remembers(s.files.Policy) || identity.Remembers(again) {
			return &lastword.Error{
				Code: lastword.CodeInvalid, Message: "a policy was in force here, and none is given",
				Hint: "give it with --policy; if none is to hold any more, remove " + s.files.Policy + " and " + again,
			}
		}
		if s.cfg.identified() {
			s.cfg.Logger.Warn("no policy: every caller with an identity may acquire, see and revoke everything in its own name; name one with --policy")
		}
		return nil
	}
	s.policy, err = identity.OpenPolicy(identity.PolicyConfig{File: s.cfg.Policy, State: s.files.Policy, Copy: policyMemory(s.files.Witness), Logger: s.cfg.Logger})
	return err
}

// secured gives the policy to those who ask it: the door and the authority.
func (s *Server) secured(door *rpc.ServerConfig, issuer *authority.Config) {
	door.Identity, door.Tokens = s.identity, s.tokens
	if s.policy != nil {
		door.Policy, issuer.Policy = s.policy, s.policy
	}
}

// followFiles takes in changes of certificates and policy until the returned function is
// called.
func (s *Server) followFiles(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var going sync.WaitGroup
	if s.identity != nil {
		going.Go(func() { s.identity.Follow(ctx, reloadEvery) })
	}
	if s.policy != nil {
		going.Go(func() { s.policy.Follow(ctx, reloadEvery) })
	}
	return func() { cancel(); going.Wait() }
}

// Identity is who the server is and whom it believes, for another listener of the same
// process; nil without TLS.
func (s *Server) Identity() *identity.Source { return s.identity }
