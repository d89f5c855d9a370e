package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
)

// scripted is an authority whose answers a test chooses.
type scripted struct {
	rpc.Authority
	acquire func(lastword.AcquireRequest) (lastword.Tenure, error)
	renew   func(lastword.TenureRef) (lastword.Tenure, error)
}

func (s scripted) Acquire(_ context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	return s.acquire(r)
}

func (s scripted) Renew(_ context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	return s.renew(ref)
}

func scriptedAt(t *testing.T, a scripted) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := rpc.NewServer(a, rpc.ServerConfig{})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(lis) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shut down: %v", err)
		}
		<-ended
	})
	return lis.Addr().String()
}

// An answer that says "unknown" also says why.
func TestWhatTheAuthorityDoesNotKnowIsToldInItsOwnWords(t *testing.T) {
	t.Parallel()
	addr := scriptedAt(t, scripted{acquire: func(lastword.AcquireRequest) (lastword.Tenure, error) {
		return lastword.Tenure{}, &lastword.Error{
			Code: lastword.CodeUnknown, Op: "acquire", Resource: "doc/a",
			Message: "there is no space left for s.db", Hint: "free some space and try again",
		}
	}})
	got := lastwordCommand(t.Context(), addr, "acquire", "doc/a", "--owner", "A", "--request-id", "R")
	got.want(t, 123, "acquire doc/a: UNKNOWN: there is no space left for s.db; the lease may or may not have been granted (free some space and try again; to find out",
		"--request-id R --owner A")
	if strings.Contains(got.stderr, "no answer") {
		t.Errorf("there was an answer: %s", got.stderr)
	}
}

// Only the acquire was asked for; that a renewal confirms it is nobody's business.
func TestAGrantThatComesTooLateIsAnErrorOfTheAcquire(t *testing.T) {
	t.Parallel()
	for code, want := range map[lastword.Code]string{
		lastword.CodeNotHolder:   "acquire doc/a: NOT_HOLDER: the grant was over before it could be confirmed: it is over (acquire again with a new request id)",
		lastword.CodeUnavailable: "acquire doc/a: UNKNOWN: the grant could not be confirmed: it is over; the lease may or may not",
	} {
		addr := scriptedAt(t, scripted{
			acquire: func(r lastword.AcquireRequest) (lastword.Tenure, error) { return late(t, r) },
			renew: func(ref lastword.TenureRef) (lastword.Tenure, error) {
				return lastword.Tenure{}, &lastword.Error{Code: code, Op: "renew", Resource: ref.Resource, Message: "it is over"}
			},
		})
		lastwordCommand(t.Context(), addr, "acquire", "doc/a", "--owner", "A").want(t, codeExits[code], "lastword: "+want)
	}
}

// late is a tenure of which nothing is left.
func late(t *testing.T, r lastword.AcquireRequest) (lastword.Tenure, error) {
	addr := authorityAt(t)
	c, err := rpc.Dial(addr, rpc.ClientConfig{Timeout: patience})
	if err != nil {
		return lastword.Tenure{}, err
	}
	defer func() { _ = c.Close() }()
	tenure, err := c.Acquire(t.Context(), r)
	tenure.Remaining = 0
	return tenure, err
}

// After a start the authority has watched nobody yet: "0s" would read as "over".
func TestAStatusWithoutAKnownRestDoesNotSayThatNothingIsLeft(t *testing.T) {
	t.Parallel()
	st := lastword.Status{Resource: "doc/a", State: lastword.StateHeld, TTL: 10 * time.Minute, Holder: lastword.TenureRef{Owner: "w"}}
	for left, want := range map[time.Duration]string{
		0: "not known, at most 10m0s", time.Microsecond: "not known, at most 10m0s", time.Second: "1s of 10m0s",
	} {
		st.Remaining = left
		if got := statusRows(st); got[4].name != "remaining" || got[4].value != want {
			t.Errorf("%v left: %v, want %q", left, got[4], want)
		}
	}
}
