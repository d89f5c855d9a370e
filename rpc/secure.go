package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
)

// mutual is TLS in which both sides have a SPIFFE id.
type mutual struct {
	credentials.TransportCredentials
	source *identity.Source
}

// ServerHandshake implements [credentials.TransportCredentials].
func (m *mutual) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := m.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	secured, ok := info.(credentials.TLSInfo)
	if !ok {
		_ = conn.Close() // that nobody is known is what matters
		return nil, nil, errors.New("the connection has no TLS")
	}
	who, err := m.source.Peer(secured.State.PeerCertificates, identity.ForClient)
	if err != nil {
		_ = conn.Close() // as above
		return nil, nil, err
	}
	since := time.Now() //nolint:forbidigo // the age of a connection
	return conn, &caller{TLSInfo: secured, peer: who, conn: conn, since: since}, nil
}

// Clone implements [credentials.TransportCredentials].
func (m *mutual) Clone() credentials.TransportCredentials {
	return &mutual{m.TransportCredentials.Clone(), m.source}
}

// caller is who is at the other end of a connection.
type caller struct {
	credentials.TLSInfo
	peer  *identity.Peer
	conn  net.Conn
	since time.Time
	hang  sync.Once
}

// hangUp ends a connection whose certificate is good no more, after its refusals have
// had time to arrive: the caller comes again with the certificate that it has then.
func (c *caller) hangUp() {
	const grace = time.Second
	c.hang.Do(func() {
		time.AfterFunc(grace, func() { _ = c.conn.Close() }) //nolint:forbidigo // ends a connection that is of no use
	})
}

// callerOf is the other end of a connection with mutual TLS, nil if it is none.
func callerOf(ctx context.Context) *caller {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	c, _ := p.AuthInfo.(*caller)
	return c
}

// certified tells who is calling from the certificate of the connection. A transcoder
// gives that of its own connection as [credentials.TLSInfo] in the context's peer.
func certified(source *identity.Source) func(ctx context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if c := callerOf(ctx); c != nil {
			id, err := c.peer.ID()
			if err != nil {
				c.hangUp()
				return "", notAccepted(err)
			}
			return id, nil
		}
		p, ok := peer.FromContext(ctx)
		if !ok {
			return "", notAccepted(&identity.Refusal{Reason: identity.NoCertificate})
		}
		info, ok := p.AuthInfo.(credentials.TLSInfo)
		if !ok {
			return "", notAccepted(&identity.Refusal{Reason: identity.NoCertificate})
		}
		who, err := source.Peer(info.State.PeerCertificates, identity.ForClient)
		if err != nil {
			return "", notAccepted(err)
		}
		return who.ID()
	}
}

func notAccepted(err error) error {
	return &lastword.Error{
		Code: lastword.CodeUnverified, Message: "the caller's certificate is not accepted: " + err.Error(),
		Hint: "connect again with one that is",
	}
}

const authorization = "authorization"

// tokened tells who is calling from the token that came with the call.
func tokened(tokens *identity.Tokens) func(ctx context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		values := md.Get(authorization)
		if len(values) == 1 {
			if name, ok := tokens.Owner(values[0]); ok {
				return name, nil
			}
		}
		return "", &lastword.Error{
			Code: lastword.CodeUnverified, Message: "the call has no token that is known here",
			Hint: "give the token that the authority's file has for you",
		}
	}
}

// tokenCredentials put a token into every call.
type tokenCredentials struct{ token identity.Token }

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (t tokenCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{authorization: t.token.Bearer()}, nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials]: [Dial] has made
// sure that the token stays on this machine.
func (tokenCredentials) RequireTransportSecurity() bool { return false }

// secure fills in what the ways of knowing a caller need.
func (c *ServerConfig) secure() error {
	switch {
	case c.Identity != nil && (c.Tokens != nil || c.Identify != nil || c.Credentials != nil),
		c.Tokens != nil && (c.Identify != nil || c.Credentials != nil):
		return invalid("server configuration: want one of Identity, Tokens, and Identify with Credentials")
	case c.Identity != nil:
		c.Credentials = &mutual{credentials.NewTLS(c.Identity.ServerTLS()), c.Identity}
		c.Identify = certified(c.Identity)
	case c.Tokens != nil:
		c.Identify = tokened(c.Tokens)
	}
	if c.Policy != nil && c.Identify == nil {
		return invalid("server configuration: a policy needs callers with identities")
	}
	return nil
}

// secured is how a client of cfg connects to addr, and who it is there, "" if that is
// its own to say.
func (c *ClientConfig) secured(addr string) (owner string, err error) {
	if c.Identity != nil && (c.Token.Name() != "" || c.Credentials != nil) || c.Token.Name() != "" && c.Credentials != nil {
		return "", invalid("client configuration: want one of Identity, Token and Credentials")
	}
	switch {
	case c.Identity != nil && c.Authority == "":
		err := invalid("client configuration: no Authority: the SPIFFE id that the authority has to prove")
		err.Hint = "such as spiffe://example.org/authority"
		return "", err
	case c.Identity != nil:
		var config *tls.Config
		if config, err = c.Identity.ClientTLS(c.Authority); err != nil {
			return "", err
		}
		c.Credentials = credentials.NewTLS(config)
		return c.Identity.ID(), nil
	case c.Token.Name() != "":
		if err := LoopbackOnly(addr); err != nil {
			return "", invalid("address %q: a token is sent in plain text, and only to this machine", clip(addr, 64))
		}
		return c.Token.Name(), nil
	}
	return "", nil
}

// age is how long the connection of ctx takes new calls; it is false for one that has no
// such end. gRPC asks the caller to make another one a tenth of MaxAge later at most.
func (s *service) age(ctx context.Context) (left time.Duration, ends bool) {
	c := callerOf(ctx)
	if c == nil {
		return 0, false
	}
	const late = 8                                                          // an eighth, to be after gRPC
	return max(0, s.cfg.MaxAge+s.cfg.MaxAge/late-time.Since(c.since)), true //nolint:forbidigo // the age of a connection
}

// Policy says what an authenticated caller may do. What may be acquired is also for the
// authority to say, when it decides.
type Policy interface {
	// May reports whether caller may do this to a resource, or for [identity.List] and
	// [identity.Watch] to all with a prefix. It depends on nothing else (T18).
	May(caller string, action identity.Action, name string) bool
}

// Allow says whether the caller of ctx may do this to what name names, as it would be
// said to a call: for what is answered beside the calls, such as a page that shows what
// a list shows. It is nil where callers have no identities. The error has
// [lastword.CodeUnverified].
func (s *Server) Allow(ctx context.Context, action identity.Action, name string) error {
	if s.err != nil {
		return s.err
	}
	return s.svc.still(ctx, action, name)
}

// allow refuses what the policy does not allow, with the same words whatever there is,
// and before anything is asked.
func (s *service) allow(ctx context.Context, action identity.Action, name string) error {
	ok, err := s.allowed(ctx, action, name)
	if err != nil || ok {
		return err
	}
	return &lastword.Error{
		Code: lastword.CodeUnverified, Message: "the policy does not allow this to this caller",
		Hint: "ask whoever keeps the authority's policy",
	}
}

func (s *service) allowed(ctx context.Context, action identity.Action, name string) (bool, error) {
	if s.cfg.Policy == nil {
		return true, nil
	}
	id, err := s.caller(ctx)
	if err != nil {
		return false, err
	}
	return s.cfg.Policy.May(id, action, name), nil
}

// still refuses what goes on for long once its caller is not who it was, or may not do
// it any more.
func (s *service) still(ctx context.Context, action identity.Action, name string) error {
	if s.cfg.Identify == nil {
		return nil
	}
	if _, err := s.caller(ctx); err != nil {
		return err
	}
	return s.allow(ctx, action, name)
}

// discreet is err for a caller who may not see the resource: it does not say who holds
// it, or that anybody does.
func (s *service) discreet(ctx context.Context, resource string, err error) error {
	var e *lastword.Error
	if !errors.As(err, &e) || e.Code != lastword.CodeNotHolder {
		return err
	}
	if ok, failed := s.allowed(ctx, identity.Status, resource); failed != nil || ok {
		return err
	}
	return &lastword.Error{Code: e.Code, Op: e.Op, Resource: e.Resource, Message: "it is not the current tenure, or it is over"}
}
