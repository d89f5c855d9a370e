package rpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/tap"
)

// arrival is what a stream's context knows of its beginning and its end.
type arrival struct {
	arrived func()                  // the request has arrived
	end     context.CancelCauseFunc // of the stream, also while it cannot be written
}

type arrivalKey struct{}

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
		return context.WithValue(ctx, arrivalKey{}, arrival{arrived, end}), nil
	}
}

var errNoRequest = errors.New("the request did not arrive in time")

func arrived(ctx context.Context) {
	if a, ok := ctx.Value(arrivalKey{}).(arrival); ok {
		a.arrived()
	}
}

// ending ends the stream of ctx, nil if it is not known how.
func ending(ctx context.Context) context.CancelCauseFunc {
	a, _ := ctx.Value(arrivalKey{}).(arrival)
	return a.end
}

// unary runs after the request has arrived.
func (s *service) unary(ctx context.Context, m any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	arrived(ctx)
	return netted(ctx, s, info.FullMethod, func() (any, error) { return next(ctx, m) })
}

// netted makes a call of the service, unary or of a session. Its net for panics is
// for what is not behind the authority's: a panic before the authority was asked,
// and the health service.
func netted[A any](ctx context.Context, s *service, name string, call func() (A, error)) (answer A, err error) {
	op := operation{name: name}
	_, err = protect(ctx, s, op, "", func() (*struct{}, error) {
		var err error
		answer, err = call()
		return nil, err
	})
	if errors.Is(err, errPanicked) {
		return answer, s.refuse(ctx, op, "", err)
	}
	return answer, err
}

func (s *service) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	arrived(stream.Context())
	_, err := netted(stream.Context(), s, info.FullMethod, func() (struct{}, error) { return struct{}{}, next(srv, stream) })
	return err
}

// unknownMethod answers calls that this version does not know with a refusal, so
// that a newer caller learns that nothing was done.
func unknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	e := invalid("method %q: this authority does not know it", clip(method, 128))
	e.Hint = "the caller is newer than the authority, or speaks to the wrong address"
	r := refusal(operation{name: "call"}, "", e)
	r.code = codes.Unimplemented
	return r
}
