// Package server runs an authority as a service: it opens the store, the signing
// key, the witness and the listeners for gRPC and HTTP, and takes them down again in
// the right order. Beside the calls, HTTP has /healthz (the process answers), /readyz
// (the authority grants), /metrics, /openapi.json, the trust bundle at
// /.well-known/lastword/bundle.json, and a plain page at /.
//
// # Guarantees
//
// [Open] either gives a server that owns all it needs, or fails with one error that
// names what was wrong and leaves nothing open and no address taken. The listeners are
// taken first, so that a second server on the same address touches no file.
// [Server.Serve] returns when its context ends, after the calls under way have been
// answered or their time is over.
//
// # Not guaranteed
//
// Without [Config.TLS] an owner is what a caller says, or what a development token
// stands for, in plain text; such a server listens on loopback only. Without
// [Config.Policy] every caller may do everything in its own name.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the embedded engine, without cgo

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/identity"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/rpc/httpapi"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/sqlstore"
)

// maxLockDelay is the longest lock-delay.
const maxLockDelay = 24 * time.Hour

// cachedRecords and cachedBytes bound what the store keeps in memory. A renewal whose
// record is there reads nothing: so many live leases, each renewed in its turn, are no
// load of reading. A lease takes 0.7 kB, which the store counts as 1.5.
const cachedRecords, cachedBytes = 160 << 10, 256 << 20

// The addresses of the listeners.
const (
	DefaultGRPC = "127.0.0.1:7420"
	DefaultHTTP = "127.0.0.1:7421"
)

// Config of a [Server]. Store and Domain are required.
type Config struct {
	// Store is where the authority keeps its state: "sqlite:PATH".
	Store string
	// Domain names the set of resources whose fences it issues.
	Domain string
	// GRPC is the listen address; "" is [DefaultGRPC]. Port 0 takes a free one.
	GRPC string
	// HTTP is the listen address of JSON over HTTP and the pages beside it, such as
	// [DefaultHTTP]; "" is none. Port 0 takes a free one.
	HTTP string
	// TLS says who callers are, by their certificates, at both listeners. With it they
	// may be on other addresses than loopback.
	TLS TLS
	// DevTokens is a file with tokens for development, by caller's name
	// ([identity.OpenTokens]); not with TLS. "" is none.
	DevTokens string
	// Policy is a file that says what callers may do ([identity.Policy]), read again
	// when it changes; "" lets every caller do everything in its own name. It needs TLS
	// or DevTokens, and binds callers in the same process, too.
	Policy string
	// KeyFile holds the first signing key, and is made at the first start; "" is
	// PATH.key beside the store. The directory KeyFile.ring beside it is the key ring,
	// in which keys are rotated and revoked ([grant.Ring]); where it cannot be written,
	// the first key stays the only one.
	KeyFile string
	// NewKey lets a key be made although the store has been used with another one,
	// which is missing, and a key ring be begun above what is remembered of one that is
	// missing or went back. Grants that are alive then stop verifying.
	NewKey bool
	// Witness is "file:PATH", or "sqlite:PATH" for a SQLite database of its own; "" is a
	// file beside the store (R10). One that is named marks the store as witnessed: from
	// then on a start that does not find it is refused.
	Witness string
	// Audit is the file that keeps what operators do; "" is PATH.audit beside the store.
	Audit string
	// OnRegression is "stop" (default) or "advance".
	OnRegression string
	// LockDelay is the time between an expiry and the next grant, by prefix (R3).
	LockDelay map[string]time.Duration
	// DrainTimeout bounds how long calls under way are waited for; 0 is 5 s.
	DrainTimeout time.Duration
	// Authority adjusts what is not named above; Domain, Witness, OnRegression,
	// LockDelay and Logger are taken from here.
	Authority authority.Config
	// Logger gets what an operator should know; nil discards.
	Logger *slog.Logger
}

// Files are where a server keeps what it has to remember.
type Files struct {
	Store   string // a SQLite file
	Key     string // the signing key, PKCS#8 PEM
	Witness string // the issuer epoch, outside the store
	Policy  string // the highest generation of the policy that was in force
	Audit   string // what operators did, JSON lines
}

// Server is a running authority with its listeners. It is safe for concurrent use.
type Server struct {
	cfg       Config
	files     Files
	grpc      net.Listener
	web       net.Listener // nil for none
	store     store.Store
	witness   witness
	ring      *grant.Ring
	authority *authority.Authority
	rpc       *rpc.Server
	http      *httpapi.Server
	metrics   http.Handler

	identity *identity.Source     // nil without TLS
	tokens   *identity.Tokens     // nil without tokens
	policy   *identity.PolicyFile // nil without one

	once     sync.Once // release
	released error
}

// Open makes everything ready to serve. It fails with [lastword.CodeInvalid] for
// what the caller has to change, and with [lastword.CodeUnavailable] for what is
// taken or out of reach.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	s, err := open(ctx, cfg)
	if err != nil {
		return nil, opened(err)
	}
	return s, nil
}

func open(ctx context.Context, cfg Config) (*Server, error) {
	cfg, files, err := cfg.check()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, files: files}
	if err := s.assemble(ctx); err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

// assemble takes the addresses first and makes files last, so that a start which is
// refused leaves as little as can be.
func (s *Server) assemble(ctx context.Context) (err error) {
	if s.grpc, err = listen(ctx, s.cfg.GRPC, "--grpc"); err != nil {
		return err
	}
	if s.cfg.HTTP != "" {
		if s.web, err = listen(ctx, s.cfg.HTTP, "--listen"); err != nil {
			return err
		}
	}
	if err := s.openSecurity(); err != nil {
		return err
	}
	if s.witness, err = openWitness(s.cfg.Witness, s.files.Store); err != nil {
		return err
	}
	mark, err := s.witness.Load(ctx)
	if err != nil {
		return err
	}
	// A key that is there is looked at before a store is made.
	var signer *grant.Signer
	if haveKeys(s.files.Key) && !s.cfg.NewKey {
		if signer, err = s.signer(ctx); err != nil {
			return err
		}
	}
	opened, err := sqlstore.Open(ctx, s.files.Store, sqlstore.Config{Driver: "sqlite", CacheRecords: cachedRecords, CacheBytes: cachedBytes})
	if err != nil {
		return err
	}
	s.store = opened
	view, err := s.store.Read(ctx)
	if err == nil {
		err = mayAdopt(ctx, s.files, s.cfg.Witness, mark, view.Header)
	}
	if err != nil {
		return err
	}
	s.warnOfReaders()
	if signer == nil {
		if err := s.mayMakeKey(ctx); err != nil && !exists(ringMemory(s.files.Witness)) {
			return err // what is remembered of a ring says more
		}
		if signer, err = s.signer(ctx); err != nil {
			return err
		}
	}
	cfg := s.cfg.Authority
	cfg.Domain, cfg.Witness, cfg.Logger = s.cfg.Domain, s.witness, s.cfg.Logger
	cfg.Witnessed, cfg.Audit = cfg.Witnessed || s.cfg.Witness != "", newAuditor(s.files.Audit)
	if cfg.Observer, err = s.observed(cfg.Observer); err != nil {
		return err
	}
	cfg.OnRegression, cfg.LockDelay = authority.OnRegression(s.cfg.OnRegression), s.cfg.LockDelay
	if err := s.openPolicy(); err != nil {
		return err
	}
	door := rpc.ServerConfig{Logger: s.cfg.Logger}
	s.secured(&door, &cfg)
	if s.authority, err = authority.Open(ctx, s.store, signer, cfg); err != nil {
		return err
	}
	s.rpc = rpc.NewServer(s.authority, door)
	if s.web != nil {
		s.http = httpapi.NewServer(s.rpc.Local(), httpapi.Config{
			Identity: s.identity, Pages: s.pages(), Hosts: s.hosts(), Logger: s.cfg.Logger,
		})
	}
	return nil
}

// warnOfReaders tells of a store that others may read: it was made by an older version,
// or somebody has chosen its mode, which therefore stays.
func (s *Server) warnOfReaders() {
	const others = 0o077
	if info, err := os.Stat(s.files.Store); err == nil && info.Mode()&others != 0 {
		s.cfg.Logger.Warn("others may read the store, which tells the ids of all tenures",
			"store", s.files.Store, "mode", fmt.Sprintf("%#o", info.Mode().Perm()), "hint", "chmod 600, also of -wal and -shm")
	}
}

// mayMakeKey refuses to make a key beside a store that has been used with another
// one: the grants of tenures that are alive would stop verifying.
func (s *Server) mayMakeKey(ctx context.Context) error {
	view, err := s.store.Read(ctx)
	if err != nil || !view.Header.Exists || s.cfg.NewKey {
		return err
	}
	return &lastword.Error{
		Code: lastword.CodeInvalid, Message: "the store " + s.files.Store + " has been used, and its signing key " + s.files.Key + " is missing",
		Hint: "put the key file back, or start once with --new-key: grants that are alive then stop verifying",
	}
}

// check fills in the defaults and refuses what cannot work, before anything is
// touched.
func (c Config) check() (Config, Files, error) {
	c, err := c.withDefaults()
	if err != nil {
		return c, Files{}, err
	}
	files := Files{}
	if files.Store, err = storePath(c.Store); err == nil {
		files.Store, err = resolvedStore(files.Store)
	}
	if err == nil {
		files.Key, err = resolved(c.KeyFile)
	}
	if err == nil {
		files.Audit, err = resolved(c.Audit)
	}
	if err != nil {
		return c, files, err
	}
	named, err := openWitness(c.Witness, files.Store)
	if err != nil {
		return c, files, err
	}
	if files.Witness = named.path; files.Key == "" {
		files.Key = files.Store + ".key"
	}
	files.Policy = files.Store + ".policy"
	if files.Audit == "" {
		files.Audit = defaultAudit(files.Store)
	}
	return c, files, files.distinct()
}

func (c Config) withDefaults() (Config, error) {
	if c.GRPC == "" {
		c.GRPC = DefaultGRPC
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.OnRegression == "" {
		c.OnRegression = string(authority.Stop)
	}
	if err := c.validate(); err != nil {
		return c, err
	}
	for _, addr := range []string{c.GRPC, c.HTTP} {
		if addr == "" {
			continue // no HTTP
		}
		if err := c.mayListen(addr); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c Config) validate() error {
	if err := c.validateSecurity(); err != nil {
		return err
	}
	if err := lastword.CheckID("domain", c.Domain); err != nil {
		return err
	}
	if c.DrainTimeout < 0 {
		return invalid("drain time-out %v is negative", c.DrainTimeout)
	}
	if c.OnRegression != string(authority.Stop) && c.OnRegression != string(authority.Advance) {
		return invalid("on-regression %q: want %s or %s", c.OnRegression, authority.Stop, authority.Advance)
	}
	for prefix, delay := range c.LockDelay {
		if err := lastword.CheckID("lock-delay prefix", prefix); err != nil {
			return err
		}
		if delay < 0 || delay > maxLockDelay {
			return invalid("lock-delay %v of %q: want 0 to %v", delay, prefix, maxLockDelay)
		}
	}
	return nil
}

// storePath reads "sqlite:PATH". Other engines come as packages of their own.
func storePath(url string) (string, error) {
	path, ok := strings.CutPrefix(url, "sqlite:")
	switch {
	case !ok:
		return "", &lastword.Error{
			Code: lastword.CodeInvalid, Message: "the store: this server knows sqlite:PATH only", // what was given may have a password
			Hint: "for example sqlite:/var/lib/lastword/lastword.db",
		}
	case path == "" || strings.ContainsAny(path, "?#\x00"):
		return "", invalid("the store: want the path of a file, without ? and #")
	}
	return path, nil
}

func listen(ctx context.Context, addr, flag string) (net.Listener, error) {
	lc := listening()
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, &lastword.Error{
			Code: lastword.CodeUnavailable, Message: "cannot listen on " + addr, Err: err,
			Hint: "is another server running there? choose another address with " + flag,
		}
	}
	return l, nil
}

// Addr is the address that the gRPC listener has.
func (s *Server) Addr() net.Addr { return s.grpc.Addr() }

// HTTPAddr is the address that the HTTP listener has; nil if there is none.
func (s *Server) HTTPAddr() net.Addr {
	if s.web == nil {
		return nil
	}
	return s.web.Addr()
}

// Files are the files that the server uses.
func (s *Server) Files() Files { return s.files }

// Authority is the embedded authority, for callers in the same process.
func (s *Server) Authority() *authority.Authority { return s.authority }

// Serve answers until ctx ends, then takes everything down. It may be called once.
func (s *Server) Serve(ctx context.Context) error {
	unfollow, unwatch := s.followKeys(ctx), s.followFiles(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var doors sync.WaitGroup
	errs := make(chan error, 2)
	door := func(serve func(net.Listener) error, l net.Listener) {
		doors.Go(func() {
			defer cancel() // one that fails takes the other one down
			errs <- serve(l)
		})
	}
	door(s.rpc.Serve, s.grpc)
	if s.http != nil {
		door(s.http.Serve, s.web)
	}
	<-ctx.Done()
	err := s.drain(context.WithoutCancel(ctx))
	doors.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	unfollow()
	unwatch()
	return opened(errors.Join(err, s.release()))
}

// drain lets the calls under way end, those of both doors at the same time: it is the
// shutdown of the service that ends the waits.
func (s *Server) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DrainTimeout)
	defer cancel()
	if s.http == nil {
		return s.rpc.Shutdown(ctx)
	}
	web := make(chan error, 1)
	go func() { web <- s.http.Shutdown(ctx) }()
	return errors.Join(s.rpc.Shutdown(ctx), <-web)
}

// Close releases a server that was opened and is not to be served.
func (s *Server) Close() error { return s.release() }

// release takes down what there is, the user before what it uses. A second call does
// nothing.
func (s *Server) release() error {
	s.once.Do(func() {
		var errs []error
		if s.authority != nil {
			errs = append(errs, s.authority.Close())
		}
		if s.store != nil {
			errs = append(errs, s.store.Close())
		}
		if s.witness.close != nil {
			errs = append(errs, s.witness.close())
		}
		for _, l := range []net.Listener{s.grpc, s.web} {
			if l == nil {
				continue
			}
			if err := l.Close(); !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
		s.released = errors.Join(errs...)
	})
	return s.released
}

// opened names the operation in an error that has none yet.
func opened(err error) error {
	var known *lastword.Error
	if err == nil || !errors.As(err, &known) || known.Op != "" {
		return err
	}
	e := *known
	e.Op = "serve"
	return &e
}

func invalid(format string, args ...any) *lastword.Error {
	return &lastword.Error{Code: lastword.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}
