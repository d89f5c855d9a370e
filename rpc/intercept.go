package rpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

type arrivedKey struct{}

// arrivalLimit ends a stream whose request has not arrived within d after its
// headers. gRPC bounds the handshake of a connection and the silence of an idle
// one, but not a request that never comes (T22).
func arrivalLimit(d time.Duration) tap.ServerInHandle {
	return func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		ctx, end := context.WithCancelCause(ctx)
		timer, stopTimer := context.WithTimeout(ctx, d)
		detach := context.AfterFunc(timer, func() { end(errNoRequest) })
		arrived := func() {
			detach()
			stopTimer()
		}
		return context.WithValue(ctx, arrivedKey{}, arrived), nil
	}
}

var errNoRequest = errors.New("the request did not arrive in time")

func arrived(ctx context.Context) {
	if f, ok := ctx.Value(arrivedKey{}).(func()); ok {
		f()
	}
}

// unary runs after the request has arrived. Its own net for panics is for what is
// not behind the authority's: a panic before the authority was asked, and the
// health service.
func (s *service) unary(ctx context.Context, m any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	arrived(ctx)
	op := operation{name: info.FullMethod}
	a, err := protect(ctx, s, op, "", func() (*any, error) {
		a, err := next(ctx, m)
		return &a, err
	})
	switch {
	case errors.Is(err, errPanicked):
		return nil, s.refuse(ctx, op, "", err)
	case err != nil:
		return nil, err
	}
	return *a, nil
}

func (s *service) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	arrived(stream.Context())
	op := operation{name: info.FullMethod}
	_, err := protect(stream.Context(), s, op, "", func() (*struct{}, error) { return nil, next(srv, stream) })
	if errors.Is(err, errPanicked) {
		return s.refuse(stream.Context(), op, "", err)
	}
	return err
}

// unknownMethod answers calls that this version does not know with a refusal, so
// that a newer caller learns that nothing was done.
func unknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	e := invalid("method %q: this authority does not know it", clip(method, 128))
	e.Hint = "the caller is newer than the authority, or speaks to the wrong address"
	st := refusalStatus(operation{name: "call"}, "", e).Proto()
	st.Code = int32(codes.Unimplemented)
	return status.FromProto(st).Err()
}
