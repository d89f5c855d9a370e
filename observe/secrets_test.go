package observe_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/server"
)

// log keeps every record, of every level, as text.
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

func (l *log) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.Level(-100), AddSource: false}))
}

// secrets are what no record and no error may hold.
type secrets map[string]string

// grant adds a grant and those of its parts that are its own.
func (s secrets) grant(what, compact string) {
	s[what] = compact
	for i, part := range strings.Split(compact, ".") {
		if i > 0 && len(part) >= 16 { // the header is the same for all
			s[fmt.Sprintf("part %d of %s", i, what)] = part
		}
	}
}

// key adds a signing key in every spelling that it may have.
func (s secrets) key(t *testing.T, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(content)
	if block == nil {
		t.Fatal("the key file is no PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	seed := parsed.(ed25519.PrivateKey).Seed()
	s["the key file"] = strings.TrimSpace(strings.Split(string(content), "\n")[1])
	s["the key, base64url, as a JWK has it"] = base64.RawURLEncoding.EncodeToString(seed)
	s["the key, base64"] = base64.RawStdEncoding.EncodeToString(seed)
	s["the key, hex"] = hex.EncodeToString(seed)
	s["the key, decimal"] = strings.Trim(fmt.Sprintf("%d", seed), "[]")
	s["the key, raw"] = string(seed)
}

// in is what of the secrets text holds.
func (s secrets) in(text string) (found []string) {
	for what, secret := range s {
		if strings.Contains(text, secret) {
			found = append(found, what)
		}
	}
	return found
}

// TestT17NoRecordHoldsASecret runs the whole path with every logger at its lowest
// level: a server, its wire, clients, gates, and everything that they refuse or cannot
// do.
func TestT17NoRecordHoldsASecret(t *testing.T) {
	var all log
	old := slog.Default()
	slog.SetDefault(all.logger())
	defer slog.SetDefault(old)
	known := secrets{}
	var told []error
	want := func(err, is error) {
		t.Helper()
		wantIs(t, err, is)
		told = append(told, err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	cfg := server.Config{
		Store: "sqlite:" + filepath.Join(t.TempDir(), "s.db"), Domain: domain, GRPC: "127.0.0.1:0",
		Logger: all.logger(), DrainTimeout: time.Second,
	}
	s, err := server.Open(t.Context(), cfg)
	must(err)
	known.key(t, s.Files().Key)
	_, err = server.Open(t.Context(), server.Config{Store: cfg.Store, Domain: domain, GRPC: s.Addr().String(), Logger: all.logger()})
	want(err, lastword.ErrUnavailable)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	remote, err := rpc.Dial(s.Addr().String(), rpc.ClientConfig{Timeout: time.Second})
	must(err)
	defer remote.Close()

	// The holder: granted, refused, renewed, completed, revoked, given back.
	c, err := client.New(remote, client.Config{Owner: "a", Logger: all.logger(), CleanupTimeout: time.Second, OnEvent: func(client.Event) { panic("receiver") }})
	must(err)
	l, err := c.Acquire(ctx, "doc/1", client.AcquireOptions{})
	must(err)
	known.grant("a's grant", l.Grant())
	_, err = c.Acquire(ctx, "doc/1", client.AcquireOptions{})
	want(err, lastword.ErrHeld)
	_, err = remote.Renew(ctx, l.Ref())
	must(err)
	wrong := l.Ref()
	wrong.LeaseID = "lease-of-nobody"
	_, err = remote.Renew(ctx, wrong)
	want(err, lastword.ErrNotHolder)
	known["a's result"] = "the result is forty-two"
	must(l.Complete(ctx, []byte(known["a's result"])))
	want(l.Complete(ctx, []byte("another")), lastword.ErrRequestConflict)
	lost, err := c.Acquire(ctx, "doc/2", client.AcquireOptions{TTL: 300 * time.Millisecond})
	must(err)
	known.grant("a grant that was revoked", lost.Grant())
	must(s.Authority().Revoke(ctx, "doc/2", lost.Fence(), "operator", "a test"))
	<-lost.Context().Done()
	told = append(told, context.Cause(lost.Context()))

	// The gate: admitted, repeated, stale, forged, frozen.
	raw, err := s.Authority().Bundle(ctx)
	must(err)
	bundle, err := grant.ParseBundle(raw)
	must(err)
	verifier, err := grant.NewVerifier(domain, grant.StaticBundle(bundle), grant.VerifierConfig{})
	must(err)
	gate, err := fence.NewGate(fence.Config{Domain: domain, Verifier: verifier, Status: remote, StatusReuse: -1, AskTimeout: time.Second, Logger: all.logger()})
	must(err)
	place := memfence.New("app")
	apply := func(compact, operation string, seq uint64) error {
		known["the payload of "+operation] = "payload of " + operation
		return second(fence.Apply(ctx, gate, place, fence.Call{
			Resource: "doc/1", Content: []byte(known["the payload of "+operation]),
			Mutation: lastword.Mutation{Operation: operation, Grant: compact, Seq: seq},
		}, nothing))
	}
	must(apply(l.Grant(), "op-1", 1))
	must(apply(l.Grant(), "op-1", 1))
	want(apply(l.Grant(), "op-2", 9), lastword.ErrOutOfOrder)
	want(second(fence.Apply(ctx, gate, place, fence.Call{
		Resource: "doc/1", Content: []byte("other content"), Mutation: lastword.Mutation{Operation: "op-1", Grant: l.Grant(), Seq: 1},
	}, nothing)), lastword.ErrConflict)
	for i, forged := range forgeries(t, l) {
		known.grant(fmt.Sprint("forged grant ", i), forged)
		want(apply(forged, "op-3", 2), lastword.ErrUnverified)
	}
	twin, err := twinOf(t, s.Files().Key, l)
	must(err)
	known.grant("a grant with the same fence", twin)
	offline, err := fence.NewGate(fence.Config{Domain: domain, Verifier: verifier, Mode: fence.FenceOnly, Logger: all.logger()})
	must(err)
	elsewhere := memfence.New("elsewhere")
	for i, compact := range []string{l.Grant(), twin} {
		_, err := fence.Advance(ctx, offline, elsewhere, fence.Call{Resource: "doc/1", Mutation: lastword.Mutation{Grant: compact}})
		if i == 0 {
			must(err)
		} else {
			want(err, lastword.ErrRegression)
		}
	}
	must(l.Close())

	// Nobody is there any more.
	open, err := c.Acquire(ctx, "doc/3", client.AcquireOptions{TTL: 2 * time.Second})
	must(err)
	known.grant("a grant that outlives its authority", open.Grant())
	stop()
	must(<-served)
	want(second(fence.Apply(t.Context(), gate, place, fence.Call{
		Resource: "doc/3", Content: []byte("x"), Mutation: lastword.Mutation{Operation: "op-9", Grant: open.Grant(), Seq: 1},
	}, nothing)), lastword.ErrStatusUnavailable)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = c.Acquire(short, "doc/4", client.AcquireOptions{Wait: time.Minute})
	told = append(told, err)
	<-open.Context().Done()
	told = append(told, context.Cause(open.Context()), c.Close())

	text := all.String()
	for _, message := range []string{
		"made a signing key", "the state of the lease changed", "a receiver of events panicked", `"revoke"`, "the lease ended",
		"grant not believed", "record frozen", "no answer to the acquire yet", "ownership is not known",
	} {
		if !strings.Contains(text, message) {
			t.Errorf("no record says %q: the path was not gone", message)
		}
	}
	for _, what := range known.in(text) {
		t.Errorf("a record holds %s", what)
	}
	for _, err := range told {
		if err == nil {
			continue
		}
		for _, what := range known.in(err.Error()) {
			t.Errorf("an error holds %s: %v", what, err)
		}
		var e *lastword.Error
		if errors.As(err, &e) {
			for _, what := range known.in(fmt.Sprintf("%#v", e)) {
				if !strings.HasPrefix(what, "a's result") { // TENURE_ENDED tells it on purpose
					t.Errorf("a field of an error holds %s", what)
				}
			}
		}
	}

	// The check itself: a record with a grant is found.
	all.logger().Debug("a slip", "lease", l.Grant())
	if found := known.in(all.String()); len(found) < 2 {
		t.Errorf("a logged grant was not noticed: %q", found)
	}
}

// forgeries are grants that nobody believes, made of a good one.
func forgeries(t *testing.T, l *client.Lease) []string {
	t.Helper()
	parts := strings.Split(l.Grant(), ".")
	key, err := grant.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := grant.NewSigner(domain, key)
	if err != nil {
		t.Fatal(err)
	}
	foreign, _, err := stranger.Sign("", claimsOf(l, "lease-forged"))
	if err != nil {
		t.Fatal(err)
	}
	changed := "A" + parts[2][1:]
	if changed == parts[2] {
		changed = "B" + parts[2][1:]
	}
	return []string{
		parts[0] + "." + parts[1] + "." + changed,
		parts[0] + "." + parts[1][:len(parts[1])-4] + "AAAA." + parts[2],
		foreign,
		"no-grant-but-long-enough-to-be-noticed",
	}
}

// twinOf is a grant with the fence of another one's, signed with the right key, as an
// authority would issue it that was restored.
func twinOf(t *testing.T, file string, l *client.Lease) (string, error) {
	t.Helper()
	key, _, err := grant.LoadOrCreateKey(file)
	if err != nil {
		return "", err
	}
	signer, err := grant.NewSigner(domain, key)
	if err != nil {
		return "", err
	}
	twin, _, err := signer.Sign("", claimsOf(l, "lease-twin"))
	return twin, err
}

func claimsOf(l *client.Lease, lease string) grant.Claims {
	return grant.Claims{
		Domain: domain, Resource: l.Resource(), Owner: "b", RequestID: "forged", LeaseID: lease, Fence: l.Fence(),
		Revision: 1, Class: lastword.ClassWrite, TTL: time.Minute, IssuedAt: time.Unix(1_800_000_000, 0).UTC(),
	}
}
