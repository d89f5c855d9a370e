package rpc

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

var opWatch = operation{"watch", false}

// Watch implements the service. A reader that does not read holds up its own stream
// and nobody else: what changes meanwhile is merged by the authority.
func (s *service) Watch(m *wire.WatchRequest, stream grpc.ServerStreamingServer[wire.WatchResponse]) error {
	ctx, cancel := s.untilShutdown(stream.Context())
	defer cancel()
	var old atomic.Bool
	if left, ends := s.age(ctx); ends {
		timer := time.AfterFunc(left, func() { old.Store(true); cancel() }) //nolint:forbidigo // the age of a connection
		defer timer.Stop()
	}
	read := func() (string, error) {
		if err := s.identify(ctx, new(string), false); err != nil {
			return "", err
		}
		if err := checkKnown(m); err != nil {
			return "", err
		}
		if err := lastword.CheckPrefix(m.GetPrefix()); err != nil {
			return "", err
		}
		return m.GetPrefix(), s.allow(ctx, identity.Watch, m.GetPrefix())
	}
	_, err := handle(ctx, s, opWatch, "", read, func(prefix string) (*struct{}, error) {
		for sight, err := range s.authority.Watch(ctx, prefix) {
			if s.stopping.Err() != nil {
				return nil, ended("the server is shutting down")
			}
			if old.Load() {
				return nil, ended("the connection has reached its age")
			}
			if err := s.still(ctx, identity.Watch, prefix); err != nil {
				return nil, err
			}
			if err != nil {
				return nil, err
			}
			if err := stream.Send(sightResponse(sight)); err != nil {
				return nil, ended("the caller has gone")
			}
		}
		return nil, ended("the watch ended without a reason")
	})
	return err
}

func ended(why string) error {
	return &lastword.Error{Code: lastword.CodeUnavailable, Op: opWatch.name, Message: why, Hint: "watch again"}
}

func sightResponse(s lastword.Sight) *wire.WatchResponse {
	if s.Complete {
		return &wire.WatchResponse{Complete: true}
	}
	m := SightMessage(s.Status)
	m.Waiters = 0 // nobody follows it: a number would be old at once
	return &wire.WatchResponse{Status: m}
}

// WatchMessage is s in the schema's words.
func WatchMessage(s lastword.Sight) *wire.WatchResponse { return sightResponse(s) }

// Watch implements [Authority]: one stream, which ends with an error, or without one
// when the loop that ranges over it ends. It does not begin again by itself: whoever
// does is shown everything anew. The first sight has to come within the configured
// time-out; after it nothing has to come. When ctx ends it ends with an error of
// [lastword.CodeUnavailable] that is also ctx.Err(), by errors.Is.
func (c *Client) Watch(ctx context.Context, prefix string) iter.Seq2[lastword.Sight, error] {
	return func(yield func(lastword.Sight, error) bool) {
		q := question{op: opWatch}
		if err := lastword.CheckPrefix(prefix); err != nil {
			yield(lastword.Sight{}, q.refused(err))
			return
		}
		if ctx.Err() != nil {
			yield(lastword.Sight{}, q.notSent(ctx.Err()))
			return
		}
		caller := ctx
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		left := new(atomic.Bool)
		err := c.watch(context.WithValue(ctx, leftKey{}, left), cancel, prefix, yield)
		ended := endOf(caller, err)
		if e := (*lastword.Error)(nil); err != nil && !errors.As(err, &e) {
			err = q.failed(ctx, err, left.Load())
		}
		if err != nil && ended != nil { // whatever came of it on the wire
			err = q.error(lastword.CodeUnavailable, "the watch was ended by its caller", "", ended)
		}
		if err != nil {
			yield(lastword.Sight{}, err)
		}
	}
}

// watch reads one stream. It is nil when the reader wants no more.
func (c *Client) watch(ctx context.Context, cancel func(), prefix string, yield func(lastword.Sight, error) bool) error {
	var late atomic.Bool
	first := time.AfterFunc(c.timeout, func() { late.Store(true); cancel() }) //nolint:forbidigo // bounds the caller's own waiting
	defer first.Stop()
	failed := func(err error) error {
		if late.Load() {
			return &lastword.Error{Code: lastword.CodeUnavailable, Op: opWatch.name, Message: "no answer", Err: context.DeadlineExceeded}
		}
		return err
	}
	stream, err := c.calls.Watch(ctx, &wire.WatchRequest{Prefix: prefix})
	if err != nil {
		return failed(err)
	}
	for {
		m, err := stream.Recv()
		first.Stop()
		switch {
		case errors.Is(err, io.EOF):
			return ended("the watch ended without a reason")
		case err != nil:
			return failed(err)
		}
		sight := lastword.Sight{Complete: m.GetComplete()}
		if m.GetStatus() != nil {
			if sight.Status, err = readSight(m.GetStatus(), prefix); err != nil {
				return &brokenAnswer{err}
			}
		}
		if sight.Complete == (m.GetStatus() != nil) {
			continue // of a later version: neither, or more than is known here
		}
		if !yield(sight, nil) {
			return nil
		}
	}
}

// endOf is caller's error where err came of its end. The server knows the deadline, too,
// and its clock may be the first to notice it.
func endOf(caller context.Context, err error) error {
	const between = 100 * time.Millisecond
	at, limited := caller.Deadline()
	if err != nil && limited && time.Until(at) < between { //nolint:forbidigo // deadlines of contexts are of this clock
		<-caller.Done()
	}
	return caller.Err()
}
