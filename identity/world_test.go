package identity_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/identity"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/rpc/httpapi"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/memstore"
)

const domain = "demo"

// world is an authority behind mutual TLS.
type world struct {
	t         testing.TB
	ca        *pki
	server    files
	source    *identity.Source
	memory    *memstore.Memory
	authority *authority.Authority
	verifier  *grant.Verifier
	addr      string
	web       string // of the same over HTTP
}

// settings are what a test may want otherwise.
type settings struct {
	policy *identity.PolicyFile
	maxAge time.Duration
	tokens *identity.Tokens
	logger *slog.Logger
}

func newWorld(t testing.TB, s settings) *world {
	t.Helper()
	w := &world{t: t, ca: newPKI(t, "example.org"), memory: memstore.New()}
	w.server = newFiles(t, w.ca.leaf(authorityID), w.ca)
	key, err := grant.NewKey()
	check(t, err)
	signer, err := grant.NewSigner(domain, key)
	check(t, err)
	cfg := authority.Config{Domain: domain}
	door := rpc.ServerConfig{MaxAge: s.maxAge, Tokens: s.tokens, Logger: slog.New(slog.DiscardHandler)}
	if s.policy != nil {
		cfg.Policy, door.Policy = s.policy, s.policy
	}
	if s.tokens == nil {
		source := w.server.config(identity.ForServer)
		source.Logger = s.logger
		w.source = open(t, source)
		door.Identity = w.source
	}
	w.authority, err = authority.Open(t.Context(), w.memory.Open(), signer, cfg)
	check(t, err)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	w.addr = lis.Addr().String()
	web, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	w.web = web.Addr().String()
	served := make(chan error, 2)
	server := rpc.NewServer(w.authority, door)
	http := httpapi.NewServer(server.Local(), httpapi.Config{Identity: w.source, MaxAge: s.maxAge, Logger: door.Logger})
	go func() { served <- server.Serve(lis) }()
	go func() { served <- http.Serve(web) }()
	w.verifier, err = grant.NewVerifier(domain, grant.FetchBundle(w.authority.Bundle), grant.VerifierConfig{})
	check(t, err)
	t.Cleanup(func() {
		check(t, server.Shutdown(context.WithoutCancel(t.Context())))
		check(t, http.Shutdown(context.WithoutCancel(t.Context())))
		check(t, <-served)
		check(t, <-served)
		check(t, w.authority.Close())
	})
	return w
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// as is a client with a good certificate.
func (w *world) as(id string) *rpc.Client {
	w.t.Helper()
	c, _, _ := w.asWithFiles(id)
	return c
}

func (w *world) asWithFiles(id string) (*rpc.Client, files, *identity.Source) {
	w.t.Helper()
	f := newFiles(w.t, w.ca.leaf(id), w.ca)
	s := open(w.t, f.config(identity.ForClient))
	return w.dial(rpc.ClientConfig{Identity: s, Authority: authorityID, Timeout: patience}), f, s
}

func (w *world) dial(cfg rpc.ClientConfig) *rpc.Client {
	w.t.Helper()
	c, err := rpc.Dial(w.addr, cfg)
	check(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// raw is a client that shows any certificate, and believes anybody.
func (w *world) raw(certs ...tls.Certificate) *rpc.Client {
	w.t.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}
	if len(certs) > 0 {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certs[0], nil }
	}
	return w.dial(rpc.ClientConfig{Credentials: credentials.NewTLS(config), Timeout: patience, OneByOne: true})
}

// state is everything that the authority keeps of resources.
func (w *world) state() string {
	w.t.Helper()
	s := w.memory.Open()
	defer func() { _ = s.Close() }()
	records, err := s.List(w.t.Context(), "", "", 1000)
	check(w.t, err)
	view, err := s.Read(w.t.Context(), store.Query{Resource: "doc/a"})
	check(w.t, err)
	return fmt.Sprintf("%+v %+v", records, view.Entries)
}

func ask(resource lastword.Resource, id string) lastword.AcquireRequest {
	return lastword.AcquireRequest{Resource: resource, RequestID: id, TTL: time.Minute, Class: lastword.ClassWrite}
}

func acquire(t testing.TB, c *rpc.Client, resource lastword.Resource, id string) lastword.Tenure {
	t.Helper()
	tenure, err := c.Acquire(t.Context(), ask(resource, id))
	check(t, err)
	return tenure
}
