package rpc

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// minPing is the shortest time between two keep-alive pings of a client; the
// server cuts off who pings more often.
const minPing = 10 * time.Second

// ClientConfig adjusts a [Client]. The zero value works.
type ClientConfig struct {
	// Timeout bounds every call whose context has no deadline; an acquire gets
	// its wait on top. Not negative. Default 5 s.
	Timeout time.Duration
	// Identity secures the transport with mutual TLS. Its SPIFFE id is the owner of
	// every request; [Client.Owner] has it. Authority is then required, and
	// Credentials is left out. Until [Client.Close] the source follows its files.
	Identity *identity.Source
	// Authority is the SPIFFE id that the authority has to prove (T4).
	Authority string
	// Token is for development, and only sent on loopback: it says who is calling. Its
	// name is the owner of every request.
	Token identity.Token
	// Credentials secure the transport. Nil: plain text, for loopback.
	Credentials credentials.TransportCredentials
	// OneByOne makes every call a unary one, for paths that let no stream through.
	// Otherwise calls go through one session, and one by one only while none can be
	// opened.
	OneByOne bool
}

// Client calls an authority over gRPC. It has the methods of [Authority] and is
// safe for concurrent use. Its errors are as the package comment says: what the
// authority said, or [lastword.ErrUnknownOutcome], or [lastword.CodeUnavailable]
// when the call is certain not to have left.
//
// Status, List, Watch and Bundle change nothing and so have no outcome that could be unknown:
// without an answer they fail with [lastword.CodeUnavailable].
type Client struct {
	timeout time.Duration
	owner   string
	follow  context.CancelFunc // nil without an identity
	conns   [2]*grpc.ClientConn
	session *links // nil: call one by one
	calls   wire.AuthorityServiceClient
	// Unary acquires that wait have a connection of their own: they may use up its
	// streams, and no renewal must queue behind them.
	waits wire.AuthorityServiceClient
}

// Dial makes a client of the authority at addr, "host:port". It connects with the
// first call and again whenever a call finds no connection; so an address where
// nobody listens is found by the first call. [Client.Close] it.
func Dial(addr string, cfg ClientConfig) (*Client, error) {
	if cfg.Timeout < 0 {
		return nil, invalid("client configuration: Timeout is %s, less than 0", cfg.Timeout)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	host, err := splitAddress(addr)
	if err != nil {
		return nil, err
	}
	if host == "" || strings.ContainsAny(host, "/?#@ ") {
		return nil, invalid("address %q: it names no host", clip(addr, 64))
	}
	c := &Client{timeout: cfg.Timeout}
	if c.owner, err = cfg.secured(addr); err != nil {
		return nil, err
	}
	for i := range c.conns {
		// passthrough: the name is resolved by the dialer, and no DNS record
		// can bring a service config.
		if c.conns[i], err = grpc.NewClient("passthrough:///"+addr, dialOptions(cfg)...); err != nil {
			return nil, errors.Join(invalid("address %q: %v", clip(addr, 64), err), c.Close())
		}
	}
	if cfg.Identity != nil {
		ctx, cancel := context.WithCancel(context.Background())
		c.follow = cancel
		go cfg.Identity.Follow(ctx, 0)
	}
	c.calls = wire.NewAuthorityServiceClient(c.conns[0])
	c.waits = wire.NewAuthorityServiceClient(c.conns[1])
	if !cfg.OneByOne {
		c.session = &links{stub: c.calls}
	}
	return c, nil
}

func dialOptions(cfg ClientConfig) []grpc.DialOption {
	creds := cfg.Credentials
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	const connect, pong = 2 * time.Second, 5 * time.Second
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		// Not through a proxy of the environment: it would make certain
		// failures uncertain.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithStatsHandler(departures{}),
		grpc.WithMaxHeaderListSize(2 * maxHeaderBytes),
		grpc.WithDefaultCallOptions(
			grpc.WaitForReady(false),
			grpc.MaxCallSendMsgSize(MaxRequestBytes),
			grpc.MaxCallRecvMsgSize(maxAnswerBytes),
		),
		// A lease does not wait two minutes for the next try to connect.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: connect,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 2 * minPing, Timeout: pong}),
	}
	if cfg.Token.Name() != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(tokenCredentials{cfg.Token}))
	}
	return opts
}

// Owner is the identity that [ClientConfig.Identity] proves or [ClientConfig.Token]
// stands for, and with it the owner of every request; "" if owners are what callers say.
func (c *Client) Owner() string { return c.owner }

// Close ends the connections. Calls under way fail, those that had left with an
// unknown outcome.
func (c *Client) Close() error {
	if c.session != nil {
		c.session.close()
	}
	if c.follow != nil {
		c.follow()
	}
	var errs []error
	for _, conn := range c.conns {
		if conn != nil {
			errs = append(errs, conn.Close())
		}
	}
	return errors.Join(errs...)
}

// Acquire implements [Authority]. Without a deadline of ctx it gives up after
// r.Wait and the configured time-out. The deadline of ctx bounds the wait, too.
func (c *Client) Acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	m := &wire.AcquireRequest{
		Resource: string(r.Resource), RequestId: r.RequestID, Owner: r.Owner,
		Ttl: durationpb.New(r.TTL), Wait: durationpb.New(r.Wait),
		Root: r.Root.String(), Class: string(r.Class), ProofLife: lifeMessage(r.ProofLife),
	}
	q := question{op: opAcquire, resource: r.Resource, wait: r.Wait}
	if _, err := acquireRequest(m); err != nil {
		return lastword.Tenure{}, q.refused(err)
	}
	t, err := ask(ctx, c, q, func(ctx context.Context) (lastword.Tenure, error) {
		a, err := c.send(ctx, q, &wire.SessionCall{Request: &wire.SessionCall_Acquire{Acquire: m}})
		return readTenureOf(a.GetAcquire().GetTenure(), lastword.TenureRef{Resource: r.Resource, Owner: r.Owner, RequestID: r.RequestID}, err)
	})
	return t, c.withResult(ctx, r, err)
}

// Renew implements [Authority].
func (c *Client) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	return c.RenewProof(ctx, ref, 0)
}

// Release implements [Authority].
func (c *Client) Release(ctx context.Context, ref lastword.TenureRef) error {
	m := &wire.ReleaseRequest{
		Resource: string(ref.Resource), Owner: ref.Owner, RequestId: ref.RequestID, LeaseId: ref.LeaseID, Fence: uint64(ref.Fence),
	}
	q := question{op: opRelease, resource: ref.Resource}
	if _, err := tenureRef(m); err != nil {
		return q.refused(err)
	}
	_, err := ask(ctx, c, q, func(ctx context.Context) (*wire.ReleaseResponse, error) {
		a, err := c.send(ctx, q, &wire.SessionCall{Request: &wire.SessionCall_Release{Release: m}})
		return readDone(a.GetRelease(), err)
	})
	return err
}

// Complete implements [Authority].
func (c *Client) Complete(ctx context.Context, ref lastword.TenureRef, result []byte) error {
	m := &wire.CompleteRequest{
		Resource: string(ref.Resource), Owner: ref.Owner, RequestId: ref.RequestID, LeaseId: ref.LeaseID, Fence: uint64(ref.Fence),
		Result: result,
	}
	q := question{op: opComplete, resource: ref.Resource}
	if _, err := completion(m); err != nil {
		return q.refused(err)
	}
	_, err := ask(ctx, c, q, func(ctx context.Context) (*wire.CompleteResponse, error) {
		a, err := c.send(ctx, q, &wire.SessionCall{Request: &wire.SessionCall_Complete{Complete: m}})
		return readDone(a.GetComplete(), err)
	})
	return err
}

// Cancel implements [Authority].
func (c *Client) Cancel(ctx context.Context, resource lastword.Resource, owner, requestID string) error {
	m := &wire.CancelRequest{Resource: string(resource), Owner: owner, RequestId: requestID}
	q := question{op: opCancel, resource: resource}
	if _, err := cancelRequest(m); err != nil {
		return q.refused(err)
	}
	_, err := ask(ctx, c, q, func(ctx context.Context) (*wire.CancelResponse, error) {
		a, err := c.send(ctx, q, &wire.SessionCall{Request: &wire.SessionCall_Cancel{Cancel: m}})
		return readDone(a.GetCancel(), err)
	})
	return err
}

// Status implements [Authority].
func (c *Client) Status(ctx context.Context, query lastword.StatusQuery) (lastword.Status, error) {
	m := &wire.StatusRequest{
		Resource: string(query.Resource), LeaseId: query.LeaseID, Owner: query.Owner, RequestId: query.RequestID,
	}
	q := question{op: opStatus, resource: query.Resource}
	if _, err := statusQuery(m); err != nil {
		return lastword.Status{}, q.refused(err)
	}
	return ask(ctx, c, q, func(ctx context.Context) (lastword.Status, error) {
		a, err := c.send(ctx, q, &wire.SessionCall{Request: &wire.SessionCall_Status{Status: m}})
		if err != nil {
			return lastword.Status{}, err
		}
		return readStatusOf(a.GetStatus().GetStatus(), query)
	})
}

// Bundle implements [Authority].
func (c *Client) Bundle(ctx context.Context) ([]byte, error) {
	return ask(ctx, c, question{op: opBundle}, func(ctx context.Context) ([]byte, error) {
		// Beside the session's connection, whose streams may all be in use.
		a, err := c.waits.Bundle(ctx, &wire.BundleRequest{})
		return a.GetBundle(), err
	})
}

// withResult fetches the result of an ended tenure that was too large for a
// refusal, so that the error is the one that the authority made.
func (c *Client) withResult(ctx context.Context, r lastword.AcquireRequest, err error) error {
	var o *omittedResult
	if !errors.As(err, &o) {
		return err
	}
	st, statusErr := c.Status(ctx, lastword.StatusQuery{Resource: r.Resource, Owner: r.Owner, RequestID: r.RequestID})
	if statusErr == nil && st.AskedCompleted {
		o.refusal.Ended.Result = st.AskedResult
	} else if o.refusal.Hint == "" {
		o.refusal.Hint = "its result is not shown here: ask for the status of the request id"
	}
	return o.refusal
}

// within bounds a call that has no deadline of its own.
func (c *Client) within(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	if wait > math.MaxInt64-c.timeout {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, wait+c.timeout)
}
