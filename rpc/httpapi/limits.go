package httpapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/lastword/lastword"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// none is the deadline of what may take any time.
var none time.Time

// call is one request that is being answered.
type call struct {
	route route
	asked atomic.Bool // the service was called
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil {
		c = &call{}
	}
	return c
}

// limited is the service with room for so many calls that stay open.
type limited struct {
	grpc.ClientConnInterface
	room chan struct{}
}

// Invoke implements [grpc.ClientConnInterface].
func (l *limited) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if m, ok := args.(*wire.AcquireRequest); ok && (m.GetWait().GetSeconds() != 0 || m.GetWait().GetNanos() != 0) {
		leave, err := l.enter()
		if err != nil {
			return err
		}
		defer leave()
	}
	callOf(ctx).asked.Store(true)
	return l.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements [grpc.ClientConnInterface].
func (l *limited) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	leave, err := l.enter()
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, leave) // the transcoder ends it with the request
	callOf(ctx).asked.Store(true)
	return l.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}

func (l *limited) enter() (leave func(), err error) {
	select {
	case l.room <- struct{}{}:
		return func() { <-l.room }, nil
	default:
		return nil, &lastword.Error{
			Code: lastword.CodeQuota, Message: fmt.Sprintf("%d calls wait here already", cap(l.room)), Hint: "try later, or without a wait",
		}
	}
}

// patient is a writer that gives a reader so long for each write. What cannot be
// written any more is dropped: the end of the connection ends the request's context.
type patient struct {
	http.ResponseWriter
	limit *http.ResponseController
	cfg   *Config
}

// Write implements [http.ResponseWriter].
func (p *patient) Write(b []byte) (int, error) {
	_ = p.limit.SetWriteDeadline(p.cfg.Now().Add(p.cfg.WriteTimeout)) // a recorder has none
	_, _ = p.ResponseWriter.Write(b)
	return len(b), nil
}

// FlushError is how [http.ResponseController] flushes.
func (p *patient) FlushError() error {
	_ = p.limit.SetWriteDeadline(p.cfg.Now().Add(p.cfg.WriteTimeout))
	_ = p.limit.Flush()
	return nil
}

// Unwrap lets [http.ResponseController] find the rest.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// bounded is a listener with room for so many connections. One above that is told
// so, in a few bytes and a second, and closed; with TLS it is closed.
type bounded struct {
	net.Listener
	room    chan struct{}
	telling chan struct{}
	refusal []byte
	cfg     *Config
}

func newBounded(l net.Listener, cfg *Config) *bounded {
	const tellAtOnce = 64
	p := said(&wire.Refusal{
		Reason: string(lastword.CodeUnavailable), Message: fmt.Sprintf("%d connections are open here already", cfg.MaxConnections), Hint: "try later",
	})
	body := append(problemJSON(p), '\n')
	return &bounded{
		Listener: l, room: make(chan struct{}, cfg.MaxConnections), telling: make(chan struct{}, tellAtOnce), cfg: cfg,
		refusal: fmt.Appendf(nil, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s",
			len(body), body),
	}
}

// Accept implements [net.Listener].
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.room <- struct{}{}:
			return &counted{Conn: c, leave: sync.OnceFunc(func() { <-b.room })}, nil
		default:
		}
		if b.cfg.Identity != nil {
			_ = c.Close() // who expects TLS cannot read it
			continue
		}
		select {
		case b.telling <- struct{}{}:
			go b.tell(c)
		default:
			_ = c.Close()
		}
	}
}

// tell answers once something comes, since many clients do not take an answer to what
// they have not asked yet, and then reads the rest: closing before would take the answer
// away from its reader.
func (b *bounded) tell(c net.Conn) {
	defer func() { <-b.telling }()
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(b.cfg.Now().Add(time.Second))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return
	}
	if _, err := c.Write(b.refusal); err != nil {
		return
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(c, 1<<20))
}

type counted struct {
	net.Conn
	leave func()
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
