package rpc

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// ServerConfig bounds a [Server]. The zero value works; 0 in a field is its
// default. No value may be negative.
type ServerConfig struct {
	// MaxWait is the longest wait of an acquire; a longer one is refused. Default
	// 1 h.
	MaxWait time.Duration
	// MaxStreams bounds the calls under way on one connection, waiting ones
	// included; a caller's further calls wait on its side. Default 1024.
	MaxStreams uint32
	// MaxSessions bounds the sessions that are open; a further one is refused as
	// QUOTA, and its client calls one by one. Default 10,000.
	MaxSessions int
	// SessionWindow bounds the calls without an answer of one session, waiting ones
	// included. At least 16; default 16,384.
	SessionWindow int
	// StallTimeout is how long a client may leave answers of its session untaken
	// until the session ends and its calls with it. Default 10 s.
	StallTimeout time.Duration
	// HandshakeTimeout is how long a new connection may take until it is ready
	// for calls. Default 5 s.
	HandshakeTimeout time.Duration
	// RequestTimeout is how long a request may take to arrive after its headers.
	// Default 10 s.
	RequestTimeout time.Duration
	// MaxIdle is how long a connection without calls is kept, and a session without
	// calls, which ends after twice that time at the latest. Default 15 min; clients
	// reconnect by themselves.
	MaxIdle time.Duration
	// PingEvery is the silence after which the server asks whether a caller is
	// still there; one that does not answer for PingEvery/2 is gone, and its waits
	// end. At least 1 s. Default 20 s.
	PingEvery time.Duration

	// Identity secures the transport with mutual TLS: the SPIFFE id of the caller's
	// certificate is the owner of its requests. Credentials, Identify and Tokens are
	// then left out. The caller of [NewServer] lets the source follow its files.
	Identity *identity.Source
	// MaxAge is how long a connection with Identity takes new calls, give or take an
	// eighth; its caller is then asked to make another one, with the certificates of
	// then, and loses nothing. A watch ends, to be begun again. Certificates should
	// live twice as long at least. Default 10 min.
	MaxAge time.Duration
	// Tokens are for development: the owner is whom the token of a call is for. Such a
	// server listens on loopback only.
	Tokens *identity.Tokens
	// Policy says what a caller may do; it needs one of the ways to know who that is.
	// Nil: everything, in its own name. The same policy has to be the authority's
	// ([github.com/lastword/lastword/authority.Config.Policy]), so that what was
	// withdrawn while a caller waited is refused.
	Policy Policy

	// Identify tells who is calling, from what the transport proved. When it is
	// set, its answer is the owner of every request; a request that names another
	// is refused as UNVERIFIED, and so is a caller for whom it fails. A failure
	// that is a *lastword.Error is told as it is. Nil: an owner is what the caller
	// says.
	Identify func(ctx context.Context) (owner string, err error)
	// Credentials secure the transport. Nil: plain text.
	Credentials credentials.TransportCredentials
	// Logger gets panics and failures of the authority. Nil: slog.Default().
	Logger *slog.Logger
}

// minWindow is the smallest window of a session.
const minWindow = 16

// validate fills in the defaults.
func (c *ServerConfig) validate() error {
	for _, f := range []struct {
		name  string
		value *time.Duration
		want  time.Duration
	}{
		{"MaxWait", &c.MaxWait, time.Hour},
		{"HandshakeTimeout", &c.HandshakeTimeout, 5 * time.Second},
		{"StallTimeout", &c.StallTimeout, 10 * time.Second},
		{"RequestTimeout", &c.RequestTimeout, 10 * time.Second},
		{"MaxIdle", &c.MaxIdle, 15 * time.Minute},
		{"PingEvery", &c.PingEvery, 20 * time.Second},
		{"MaxAge", &c.MaxAge, 10 * time.Minute},
	} {
		if *f.value < 0 {
			return invalid("server configuration: %s is %s, less than 0", f.name, *f.value)
		}
		if *f.value == 0 {
			*f.value = f.want
		}
	}
	if c.PingEvery < time.Second {
		return invalid("server configuration: PingEvery is %s, less than 1s", c.PingEvery)
	}
	if c.MaxStreams == 0 {
		c.MaxStreams = 1024
	}
	if c.MaxSessions == 0 {
		c.MaxSessions = 10_000
	}
	if c.SessionWindow == 0 {
		c.SessionWindow = 16 << 10
	}
	if c.MaxSessions < 0 || c.SessionWindow < minWindow || c.SessionWindow > math.MaxInt32 {
		return invalid("server configuration: MaxSessions is %d and SessionWindow %d; want more than 0, and at least %d", c.MaxSessions, c.SessionWindow, minWindow)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c.secure()
}

// Server serves an [Authority] over gRPC. Its methods are safe for concurrent
// use.
type Server struct {
	cfg    ServerConfig
	err    error // of the configuration
	grpc   *grpc.Server
	svc    *service
	health *healthService
	stop   context.CancelFunc
}

// NewServer makes a server of a. It listens nowhere until [Server.Serve], which
// also reports a configuration that is not valid.
func NewServer(a Authority, cfg ServerConfig) *Server {
	s := &Server{}
	s.err = cfg.validate()
	s.cfg = cfg
	stopping, stop := context.WithCancel(context.Background())
	s.stop = stop
	if s.err != nil {
		return s
	}
	svc := &service{authority: a, cfg: cfg, stopping: stopping}
	context.AfterFunc(stopping, svc.crew.close)
	s.svc = svc
	s.health = &healthService{Server: health.NewServer(), stopping: stopping}
	s.SetServing(false)
	s.grpc = grpc.NewServer(s.options(svc)...)
	wire.RegisterAuthorityServiceServer(s.grpc, svc)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	return s
}

func (s *Server) options(svc *service) []grpc.ServerOption {
	age := time.Duration(0) // none
	if s.cfg.Identity != nil {
		age = s.cfg.MaxAge
	}
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(MaxRequestBytes),
		grpc.MaxSendMsgSize(maxAnswerBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(s.cfg.MaxStreams),
		grpc.ConnectionTimeout(s.cfg.HandshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: s.cfg.MaxIdle,
			MaxConnectionAge:  age,
			Time:              s.cfg.PingEvery,
			Timeout:           s.cfg.PingEvery / 2,
		}),
		// A client that pings more often than its own default is cut off.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.InTapHandle(arrivalLimit(s.cfg.RequestTimeout)),
		grpc.UnaryInterceptor(svc.unary),
		grpc.StreamInterceptor(svc.stream),
		grpc.UnknownServiceHandler(unknownMethod),
	}
	if s.cfg.Credentials != nil {
		opts = append(opts, grpc.Creds(s.cfg.Credentials))
	}
	return opts
}

// Serve accepts connections of lis, which it closes in the end, until
// [Server.Shutdown]; it then returns nil. Health is SERVING from now on. Without
// identities, [ServerConfig.Identify] with [ServerConfig.Credentials], it refuses
// a TCP listener that is not on loopback.
func (s *Server) Serve(lis net.Listener) error {
	err := s.err
	if tcp, ok := lis.Addr().(*net.TCPAddr); ok && err == nil && !tcp.IP.IsLoopback() &&
		(s.cfg.Identify == nil || s.cfg.Credentials == nil) {
		err = notLoopback(lis.Addr().String(), "it is not a loopback address")
	}
	if err != nil {
		_ = lis.Close() // the refusal is what matters
		return err
	}
	s.SetServing(true)
	// Stopped before it began is stopped.
	if err := s.grpc.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return &lastword.Error{Code: lastword.CodeUnavailable, Op: "serve", Message: "the listener failed", Err: err}
	}
	return nil
}

// SetServing tells the health service whether the authority is ready. Calls are
// handled either way; after [Server.Shutdown] it has no effect.
func (s *Server) SetServing(ready bool) {
	if s.health == nil {
		return
	}
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		state = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", state)
	s.health.SetServingStatus(wire.AuthorityService_ServiceDesc.ServiceName, state)
}

// Shutdown stops the server: health is NOT_SERVING, listeners are closed, waits
// and watches end, and other calls under way may finish. When ctx ends first,
// connections are cut; if calls that change something were under way, it returns an
// error of [lastword.CodeUnknown], since their callers do not know the outcome. It
// does not wait for an authority that ignores its context, and not for longer than
// ctx for a watcher that does not read.
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.stop()
	if s.grpc == nil {
		return nil
	}
	s.health.Shutdown()
	s.stop()
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		s.grpc.GracefulStop()
	}()
	select {
	case <-graceful:
		return nil
	case <-ctx.Done():
		cut := s.svc.mutating.Load() > 0
		s.grpc.Stop()
		if !cut {
			return nil
		}
		return &lastword.Error{Code: lastword.CodeUnknown, Op: "shutdown", Message: "calls were cut off; their callers do not know the outcome", Err: context.Cause(ctx)}
	}
}

// healthService ends the watches of the standard service at shutdown, which would
// otherwise outlast every graceful stop.
type healthService struct {
	*health.Server
	stopping context.Context
}

// Watch implements the standard service.
func (h *healthService) Watch(r *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(h.stopping, cancel)()
	return h.Server.Watch(r, &watchStream{stream, ctx})
}

type watchStream struct {
	healthpb.Health_WatchServer
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (w *watchStream) Context() context.Context { return w.ctx }
