package rpc

import (
	"context"
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// Local calls the service in the same process, for a transcoder: the same door, the
// same refusals, and no connection between. What the caller's context carries the
// service sees; it ends the call, and so does [Server.Shutdown] as far as it ends
// waits. Messages are copied at the border. Calls whose requests are a stream are
// refused with UNIMPLEMENTED.
func (s *Server) Local() grpc.ClientConnInterface { return &local{s} }

type local struct{ server *Server }

// Invoke implements [grpc.ClientConnInterface].
func (l *local) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	if l.server.err != nil {
		return l.server.err
	}
	for _, m := range wire.AuthorityService_ServiceDesc.Methods {
		if m.MethodName != nameOf(method) {
			continue
		}
		a, err := m.Handler(l.server.svc, ctx, copyFrom(args), l.server.svc.unary)
		if err != nil {
			return err
		}
		return copyFrom(a)(reply)
	}
	return unknownLocal(method)
}

// NewStream implements [grpc.ClientConnInterface].
func (l *local) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	if l.server.err != nil {
		return nil, l.server.err
	}
	for _, d := range wire.AuthorityService_ServiceDesc.Streams {
		if d.StreamName == nameOf(method) && !d.ClientStreams && !desc.ClientStreams {
			ctx, cancel := context.WithCancel(ctx)
			return &localStream{
				ctx: ctx, cancel: cancel, service: l.server.svc, desc: d, method: method,
				answers: make(chan any), ended: make(chan struct{}),
			}, nil
		}
	}
	return nil, unknownLocal(method)
}

func nameOf(method string) string {
	name, _ := strings.CutPrefix(method, "/"+wire.AuthorityService_ServiceDesc.ServiceName+"/")
	return name
}

func unknownLocal(method string) error {
	return status.Errorf(codes.Unimplemented, "method %q cannot be called in the process", clip(method, 128))
}

// copyFrom copies a message into another one of its type.
func copyFrom(from any) func(to any) error {
	return func(to any) error {
		m, ok := from.(proto.Message)
		if !ok {
			return status.Errorf(codes.Internal, "%T is no message", from)
		}
		proto.Merge(to.(proto.Message), m)
		return nil
	}
}

// localStream is a call with one request and many answers, seen by its caller. Its
// methods but Header and RecvMsg are called before those, by one goroutine.
type localStream struct {
	ctx     context.Context
	cancel  context.CancelFunc
	service *service
	desc    grpc.StreamDesc
	method  string
	request any
	first   any      // an answer that Header has met
	answers chan any // no room: who does not read holds the service up, and nothing piles up
	ended   chan struct{}
	err     error // of the service, once ended is closed
}

// SendMsg implements [grpc.ClientStream].
func (c *localStream) SendMsg(m any) error {
	c.request = m
	return nil
}

// CloseSend implements [grpc.ClientStream].
func (c *localStream) CloseSend() error {
	info := &grpc.StreamServerInfo{FullMethod: c.method, IsServerStream: true}
	go func() {
		defer c.cancel()
		defer close(c.ended)
		c.err = c.service.stream(c.service, &localServerStream{caller: c}, info, c.desc.Handler)
	}()
	return nil
}

// Header implements [grpc.ClientStream]: it waits for the first answer, and fails if
// there is none because the call has failed.
func (c *localStream) Header() (metadata.MD, error) {
	m, err := c.next()
	c.first = m
	if errors.Is(err, io.EOF) {
		err = nil // RecvMsg tells it again
	}
	return nil, err
}

// RecvMsg implements [grpc.ClientStream].
func (c *localStream) RecvMsg(m any) error {
	a, err := c.first, error(nil)
	if c.first = nil; a == nil {
		a, err = c.next()
	}
	if err != nil {
		return err
	}
	return copyFrom(a)(m)
}

func (c *localStream) next() (any, error) {
	select {
	case a := <-c.answers:
		return a, nil
	case <-c.ended:
		if c.err == nil {
			return nil, io.EOF
		}
		return nil, c.err
	case <-c.ctx.Done():
	}
	// The end of the service ends the context, too, and has more to say.
	select {
	case <-c.ended:
		if c.err == nil {
			return nil, io.EOF
		}
		return nil, c.err
	default:
		return nil, status.FromContextError(c.ctx.Err()).Err()
	}
}

// Trailer implements [grpc.ClientStream].
func (c *localStream) Trailer() metadata.MD { return nil }

// Context implements [grpc.ClientStream].
func (c *localStream) Context() context.Context { return c.ctx }

// localServerStream is the same call, seen by the service.
type localServerStream struct {
	caller *localStream
	asked  bool
}

// SendMsg implements [grpc.ServerStream].
func (s *localServerStream) SendMsg(m any) error {
	select {
	case s.caller.answers <- m:
		return nil
	case <-s.caller.ctx.Done():
		return status.FromContextError(s.caller.ctx.Err()).Err()
	}
}

// RecvMsg implements [grpc.ServerStream].
func (s *localServerStream) RecvMsg(m any) error {
	if s.asked {
		return io.EOF
	}
	s.asked = true
	return copyFrom(s.caller.request)(m)
}

// SetHeader implements [grpc.ServerStream].
func (s *localServerStream) SetHeader(metadata.MD) error { return nil }

// SendHeader implements [grpc.ServerStream].
func (s *localServerStream) SendHeader(metadata.MD) error { return nil }

// SetTrailer implements [grpc.ServerStream].
func (s *localServerStream) SetTrailer(metadata.MD) {}

// Context implements [grpc.ServerStream].
func (s *localServerStream) Context() context.Context { return s.caller.ctx }
