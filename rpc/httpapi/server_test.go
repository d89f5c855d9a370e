package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/rpc/httpapi"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// A name that somebody else lets point to this machine is not ours (DNS rebinding),
// and a page of another origin must not act here.
func TestAPageOfSomebodyElseCannotActHere(t *testing.T) {
	t.Parallel()
	pages := map[string]http.Handler{"/{$}": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") })}
	d := open(t, untouched(t), httpapi.Config{Pages: pages, Hosts: []string{"lastword.internal"}})
	for _, host := range []string{
		"evil.example", "evil.example:7421", "127.0.0.1.evil.example", "localhost.evil.example", "192.0.2.1", "0.0.0.0", "[::]:7421", "[2001:db8::1]", "10.0.0.1:80",
		"127.0.0.1@evil.example", "evil.example#127.0.0.1",
	} {
		for _, path := range []string{"/v1/status?resource=doc/a", "/", "/openapi.json", "/nothing"} {
			r := d.request(http.MethodGet, path, "")
			r.Host = host
			if a := d.do(r); a.status != http.StatusMisdirectedRequest && a.status != http.StatusBadRequest {
				t.Errorf("Host %s: %s", host, a)
			}
		}
	}
	for name, set := range map[string]map[string]string{
		"another origin":   {"Origin": "http://evil.example"},
		"a sandboxed page": {"Origin": "null"},
		"another port":     {"Origin": "http://127.0.0.1:1"},
		"another scheme":   {"Origin": "https://" + d.addr},
		"says the browser": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
		"a sibling":        {"Sec-Fetch-Site": "same-site"},
	} {
		for _, r := range []*http.Request{
			d.request(http.MethodPost, "/v1/acquire", acquireBody), d.request(http.MethodPost, "/v1/revoke", "{}"), d.request(http.MethodGet, "/v1/status?resource=doc/a", ""),
		} {
			for k, v := range set {
				r.Header.Set(k, v)
			}
			a := d.do(r)
			wantProblem(t, a, http.StatusForbidden, "INVALID", "not_done")
			for h := range a.header {
				if strings.HasPrefix(h, "Access-Control-") {
					t.Errorf("%s: it has %s", name, h)
				}
			}
		}
	}
	r := d.request(http.MethodOptions, "/v1/acquire", "") // what a browser asks first
	r.Header.Set("Origin", "http://evil.example")
	r.Header.Set("Access-Control-Request-Method", "POST")
	if a := d.do(r); a.status != http.StatusForbidden || a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("preflight: %s", a)
	}
}

func TestThisMachineHasSeveralNames(t *testing.T) {
	t.Parallel()
	d := open(t, granting(), httpapi.Config{Hosts: []string{"lastword.internal"}})
	for _, host := range []string{"localhost", "LOCALHOST:7421", "127.0.0.1", "127.1.2.3:1", "[::1]:7421", "[::1]", "lastword.internal:7421"} {
		r := d.request(http.MethodPost, "/v1/acquire", acquireBody)
		r.Host = host
		r.Header.Set("Origin", "http://"+host)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if a := d.do(r); a.status != http.StatusOK {
			t.Errorf("Host %s: %s", host, a)
		}
	}
}

func TestAFollowedLinkMayShowAPage(t *testing.T) {
	t.Parallel()
	pages := map[string]http.Handler{"/{$}": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") })}
	d := open(t, untouched(t), httpapi.Config{Pages: pages})
	r := d.request(http.MethodGet, "/", "")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	if a := d.do(r); a.status != http.StatusOK || a.text != "page" {
		t.Errorf("got %s", a)
	}
	wantProblem(t, d.post("/", "{}"), http.StatusMethodNotAllowed, "INVALID", "not_done")
}

// queue is an authority whose acquires wait until they are let go.
type queue struct {
	*fake
	waiting atomic.Int64
	left    chan error
	wake    chan struct{}
}

func newQueue() *queue {
	q := &queue{fake: granting(), left: make(chan error, 1024), wake: make(chan struct{})}
	q.acquire = func(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
		if r.Wait == 0 {
			return granted(r), nil
		}
		q.waiting.Add(1)
		defer q.waiting.Add(-1)
		select {
		case <-q.wake:
			return granted(r), nil
		case <-ctx.Done():
			q.left <- context.Cause(ctx)
			return lastword.Tenure{}, &lastword.Error{Code: lastword.CodeUnavailable, Message: "the caller is gone", Err: ctx.Err()}
		}
	}
	return q
}

func (q *queue) waiters(t *testing.T, n int64) {
	t.Helper()
	for deadline := time.Now().Add(patience); q.waiting.Load() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait, want %d", q.waiting.Load(), n)
		}
	}
}

// A wait ends with its caller, as over gRPC.
func TestAWaitEndsWhenItsCallerGoesAway(t *testing.T) {
	t.Parallel()
	q := newQueue()
	d := open(t, q, httpapi.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		res, err := d.client.Do(d.request(http.MethodPost, "/v1/acquire", waitBody).WithContext(ctx))
		if err == nil {
			_ = res.Body.Close()
		}
		gone <- err
	}()
	q.waiters(t, 1)
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller got %v", err)
	}
	select {
	case <-q.left:
	case <-time.After(patience):
		t.Fatal("the wait goes on")
	}
}

// T23: a flood of acquires that wait leaves room for those who renew, and who comes
// above the bound is told so.
func TestT23AFloodOfWaitsLeavesRoomForRenewals(t *testing.T) {
	t.Parallel()
	q := newQueue()
	d := open(t, q, httpapi.Config{MaxConnections: 40, MaxWaiting: 30})
	served := make(chan int, 30)
	for range 30 {
		go func() {
			res, err := d.client.Do(d.request(http.MethodPost, "/v1/acquire", waitBody))
			if err != nil {
				served <- 0
				return
			}
			_ = res.Body.Close()
			served <- res.StatusCode
		}()
	}
	q.waiters(t, 30)
	a := d.post("/v1/acquire", waitBody)
	wantProblem(t, a, http.StatusTooManyRequests, "QUOTA", "not_done")
	if a.header.Get("Retry-After") == "" || a.object["op"] != "acquire" {
		t.Errorf("got %s", a)
	}
	wantProblem(t, d.get("/v1/watch"), http.StatusTooManyRequests, "QUOTA", "not_done")
	for range 5 {
		if a := d.post("/v1/renew", renewBody); a.status != http.StatusOK {
			t.Errorf("renew: %s", a)
		}
		if a := d.post("/v1/acquire", acquireBody); a.status != http.StatusOK {
			t.Errorf("an acquire that does not wait: %s", a)
		}
	}
	close(q.wake)
	for range 30 {
		if code := <-served; code != http.StatusOK {
			t.Errorf("a waiter got %d", code)
		}
	}
	if a := d.post("/v1/acquire", waitBody); a.status != http.StatusOK {
		t.Errorf("the places are not free again: %s", a)
	}
}

// T23: one connection above the bound is told so and closed; when another one ends its
// place is free again.
func TestT23AConnectionAboveTheBoundIsToldSo(t *testing.T) {
	t.Parallel()
	const most = 3
	d := open(t, granting(), httpapi.Config{MaxConnections: most})
	var open []net.Conn
	for range most {
		c, err := net.Dial("tcp", d.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(patience))
		// Answered once, it has its place for certain.
		if _, err := fmt.Fprintf(c, "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("got %v, %v", res, err)
		}
		defer func() { _ = res.Body.Close() }()
		open = append(open, c)
	}
	a := d.post("/v1/acquire", acquireBody)
	wantProblem(t, a, http.StatusServiceUnavailable, "UNAVAILABLE", "not_done")
	_ = open[0].Close()
	for deadline := time.Now().Add(patience); ; {
		if a = d.post("/v1/acquire", acquireBody); a.status == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("its place is not free again: %s", a)
		}
	}
}

// A browser opens connections that it says nothing on. They do not hold up a shutdown.
func TestAShutdownAnswersWaitsAndDoesNotWaitForSilence(t *testing.T) {
	t.Parallel()
	q := newQueue()
	d := open(t, q, httpapi.Config{})
	silent, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	got := make(chan answer, 1)
	go func() { got <- d.post("/v1/acquire", waitBody) }()
	q.waiters(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	begun := time.Now()
	if err := d.rpc.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := d.http.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	wantProblem(t, <-got, http.StatusServiceUnavailable, "UNAVAILABLE", "not_done")
	if took := time.Since(begun); took > 4*time.Second { // net/http alone waits for 5 s
		t.Errorf("it took %v", took)
	}
}

func TestAShutdownThatCutsACallSaysSo(t *testing.T) {
	t.Parallel()
	f := granting()
	entered, release := make(chan struct{}), make(chan struct{})
	f.release = func(context.Context, lastword.TenureRef) error {
		close(entered)
		<-release
		return nil
	}
	d := open(t, f, httpapi.Config{})
	cut := make(chan error, 1)
	go func() {
		res, err := d.client.Do(d.request(http.MethodPost, "/v1/release", renewBody))
		if err == nil {
			_ = res.Body.Close()
		}
		cut <- err
	}()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := d.http.Shutdown(ctx); !errors.Is(err, lastword.ErrUnknownOutcome) {
		t.Errorf("got %v, want UNKNOWN", err)
	}
	if err := <-cut; err == nil {
		t.Error("the caller got an answer")
	}
	close(release)
}

// shown is a service of which only Watch is called.
type shown struct {
	lines chan proto.Message
	err   error
}

func (s *shown) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return errors.New("not to be called")
}

func (s *shown) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return &shownStream{ctx: ctx, shown: s}, nil
}

type shownStream struct {
	grpc.ClientStream
	ctx   context.Context
	shown *shown
	first proto.Message
}

func (s *shownStream) SendMsg(any) error { return nil }
func (s *shownStream) CloseSend() error  { return nil }
func (s *shownStream) Header() (metadata.MD, error) {
	select {
	case line, ok := <-s.shown.lines:
		if !ok {
			return nil, s.shown.err
		}
		s.first = line
		return nil, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (s *shownStream) RecvMsg(m any) error {
	if s.first != nil {
		proto.Merge(m.(proto.Message), s.first)
		s.first = nil
		return nil
	}
	select {
	case line, ok := <-s.shown.lines:
		if !ok {
			return s.shown.err
		}
		proto.Merge(m.(proto.Message), line)
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func TestAWatchIsOneObjectALineAtOnceAndEndsWithItsProblem(t *testing.T) {
	t.Parallel()
	refusal, err := status.New(codes.Unavailable, "x").WithDetails(&wire.Refusal{Reason: "UNAVAILABLE", Op: "watch", Message: "the server is shutting down"})
	if err != nil {
		t.Fatal(err)
	}
	s := &shown{lines: make(chan proto.Message), err: refusal.Err()}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httpapi.NewServer(s, httpapi.Config{MaxWaiting: 1})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(lis) }()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+lis.Addr().String()+"/v1/watch?prefix=doc/", nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { s.lines <- &wire.WatchResponse{Status: &wire.Status{Resource: "doc/a", Revision: 1<<53 + 1}} }()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if kind := res.Header.Get("Content-Type"); kind != "application/x-ndjson" {
		t.Errorf("Content-Type %q", kind)
	}
	lines := bufio.NewScanner(res.Body)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Errorf("got %q, %v, want %s", lines.Text(), lines.Err(), want)
		}
	}
	next(`"revision":"9007199254740993"`) // it is here although the stream goes on
	s.lines <- &wire.WatchResponse{Complete: true}
	next(`{"status":null,"complete":true}`)
	close(s.lines)
	next(`"status":503,"detail":"the server is shutting down","reason":"UNAVAILABLE","outcome":"not_done","op":"watch"}`)
	if lines.Scan() {
		t.Errorf("there is more: %q", lines.Text())
	}
	// Its place is free again.
	for deadline := time.Now().Add(patience); ; {
		again, err := http.DefaultClient.Do(r.Clone(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		_ = again.Body.Close()
		if again.StatusCode == http.StatusServiceUnavailable { // the stream's own end
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a second watch: %s", again.Status)
		}
	}
	if err := errors.Join(server.Shutdown(t.Context()), <-ended); err != nil {
		t.Error(err)
	}
}

func TestAServerRefusesWhatOthersCouldReachAndConfigurationsThatAreNone(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Skip(err)
	}
	if err := httpapi.NewServer(&shown{}, httpapi.Config{}).Serve(lis); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("every address: %v", err)
	}
	for _, cfg := range []httpapi.Config{{RequestTimeout: -1}, {WriteTimeout: -1}, {MaxIdle: -1}, {MaxConnections: -1}, {MaxWaiting: -1}} {
		if lis, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if err := httpapi.NewServer(&shown{}, cfg).Serve(lis); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func ExampleNewServer() {
	service := rpc.NewServer(granting(), rpc.ServerConfig{}) // of an authority.Authority
	server := httpapi.NewServer(service.Local(), httpapi.Config{})
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()

	res, err := http.Post("http://"+lis.Addr().String()+"/v1/renew", "application/json",
		strings.NewReader(`{"resource":"doc/a","owner":"w1","request_id":"r1","lease_id":"l1","fence":"0"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = res.Body.Close() }()
	problem, _ := io.ReadAll(res.Body)
	fmt.Println(res.Status)
	fmt.Println(string(problem[strings.Index(string(problem), `"detail"`):]))
	fmt.Println(server.Shutdown(context.Background()), service.Shutdown(context.Background()), <-served)
	// Output:
	// 400 Bad Request
	// "detail":"fence 0: want a number from 1 to 9007199254740991","reason":"INVALID","outcome":"not_done","op":"renew","resource":"doc/a"}
	//
	// <nil> <nil> <nil>
}
