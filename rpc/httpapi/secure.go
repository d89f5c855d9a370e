package httpapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// listenerTLS is that of every listener of the source, but for callers who show no
// certificate: whether one is needed depends on what is asked, and that is for who
// answers it to say. One that is shown has to be good.
func listenerTLS(source *identity.Source) *tls.Config {
	c := source.ServerTLS()
	c.ClientAuth = tls.RequestClientCert
	verify := c.VerifyConnection
	c.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return nil
		}
		return verify(state)
	}
	return c
}

// known is r with what tells who calls, where the service looks for it with gRPC: the
// connection, and the Authorization header.
func known(r *http.Request) *http.Request {
	ctx := r.Context()
	if r.TLS != nil {
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: address(r.RemoteAddr), AuthInfo: credentials.TLSInfo{
			State: *r.TLS, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		}})
	}
	if tokens := r.Header.Values("Authorization"); len(tokens) > 0 {
		ctx = metadata.NewIncomingContext(ctx, metadata.MD{"authorization": tokens})
	}
	return r.WithContext(ctx)
}

// address is one that has been written down.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

type sinceKey struct{}

// dated notes when a connection was made.
func (s *Server) dated(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, sinceKey{}, s.cfg.Now())
}

// renewing makes this answer the last one of a connection that has reached its age, so
// that its caller comes again with the certificate that it has then.
func (s *Server) renewing(w http.ResponseWriter, r *http.Request) {
	if s.aged(r) {
		w.Header().Set("Connection", "close")
	}
}

func (s *Server) aged(r *http.Request) bool {
	since, ok := r.Context().Value(sinceKey{}).(time.Time)
	return ok && r.TLS != nil && s.cfg.Now().Sub(since) >= s.cfg.MaxAge
}

// parting ends a connection whose certificate may be good no more.
func parting(w http.ResponseWriter, r *http.Request, p *wire.Problem) {
	if r.TLS != nil && p.GetReason() == string(lastword.CodeUnverified) {
		w.Header().Set("Connection", "close")
	}
}

// serverLog takes what net/http says. Why a handshake failed the source of the
// identities logs, with a bound; scanners would fill a log otherwise.
type serverLog struct{ log *slog.Logger }

// Write implements [io.Writer].
func (l serverLog) Write(b []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.HasPrefix(b, []byte("http: TLS handshake error")) {
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, string(bytes.TrimSpace(b)))
	return len(b), nil
}
