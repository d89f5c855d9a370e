package httpapi_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/rpc/httpapi"
)

// patience bounds what a test waits for; a machine that is busy gets it all.
const patience = time.Minute

// fake is an authority of functions; what it has none for is not to be called.
type fake struct {
	rpc.Authority
	acquire func(context.Context, lastword.AcquireRequest) (lastword.Tenure, error)
	renew   func(context.Context, lastword.TenureRef) (lastword.Tenure, error)
	release func(context.Context, lastword.TenureRef) error
	status  func(context.Context, lastword.StatusQuery) (lastword.Status, error)
}

func (f *fake) Acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	return f.acquire(ctx, r)
}

func (f *fake) Renew(ctx context.Context, r lastword.TenureRef) (lastword.Tenure, error) {
	return f.renew(ctx, r)
}

func (f *fake) Release(ctx context.Context, r lastword.TenureRef) error { return f.release(ctx, r) }

func (f *fake) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	return f.status(ctx, q)
}

// granted is the tenure that fakes grant.
func granted(r lastword.AcquireRequest) lastword.Tenure {
	return lastword.Tenure{
		TenureRef: lastword.TenureRef{Resource: r.Resource, Owner: r.Owner, RequestID: r.RequestID, LeaseID: "lease-1", Fence: lastword.MaxToken},
		State:     lastword.StateHeld, Grant: "grant", Revision: 1<<64 - 1, TTL: r.TTL, Remaining: r.TTL, Class: r.Class,
	}
}

func granting() *fake {
	return &fake{
		acquire: func(_ context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) { return granted(r), nil },
		renew: func(_ context.Context, r lastword.TenureRef) (lastword.Tenure, error) {
			return lastword.Tenure{TenureRef: r, State: lastword.StateHeld}, nil
		},
		release: func(context.Context, lastword.TenureRef) error { return nil },
		status: func(_ context.Context, q lastword.StatusQuery) (lastword.Status, error) {
			return lastword.Status{Resource: q.Resource, State: lastword.StateFree}, nil
		},
	}
}

// door is a server that serves, and what it needs to be called.
type door struct {
	t      *testing.T
	rpc    *rpc.Server
	http   *httpapi.Server
	addr   string
	client *http.Client
	ended  chan error
}

func open(t *testing.T, a rpc.Authority, cfg httpapi.Config) *door {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{t: t, rpc: rpc.NewServer(a, rpc.ServerConfig{Logger: quiet}), addr: lis.Addr().String(), ended: make(chan error, 1)}
	d.http = httpapi.NewServer(d.rpc.Local(), cfg)
	d.client = &http.Client{Transport: &http.Transport{}, Timeout: patience}
	go func() { d.ended <- d.http.Serve(lis) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := d.rpc.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := d.http.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-d.ended; err != nil {
			t.Error(err)
		}
		d.client.CloseIdleConnections()
	})
	return d
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	text   string
	object map[string]any
}

func (a answer) String() string { return http.StatusText(a.status) + " " + a.text }

func (d *door) do(r *http.Request) answer {
	d.t.Helper()
	res, err := d.client.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	a := answer{status: res.StatusCode, header: res.Header, text: string(b)}
	_ = json.Unmarshal(b, &a.object)
	return a
}

func (d *door) request(method, path, body string) *http.Request {
	d.t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(d.t.Context(), method, "http://"+d.addr+path, from)
	if err != nil {
		d.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

func (d *door) post(path, body string) answer {
	d.t.Helper()
	return d.do(d.request(http.MethodPost, path, body))
}

func (d *door) get(path string) answer {
	d.t.Helper()
	return d.do(d.request(http.MethodGet, path, ""))
}

// wantProblem checks what every answer owes that is no success.
func wantProblem(t *testing.T, a answer, status int, reason, outcome string) {
	t.Helper()
	if a.status != status || a.object["reason"] != reason || a.object["outcome"] != outcome {
		t.Errorf("got %d %s, want %d, %s, %s", a.status, a.text, status, reason, outcome)
	}
	if a.header.Get("Content-Type") != "application/problem+json" || a.object["status"] != float64(status) ||
		a.object["title"] == nil || a.object["type"] == nil || strings.Count(a.text, "\n") != 1 {
		t.Errorf("no problem on one line: %s: %q", a.header.Get("Content-Type"), a.text)
	}
}

const (
	acquireBody = `{"resource":"doc/a","owner":"w1","request_id":"r1","ttl":"30s"}`
	waitBody    = `{"resource":"doc/a","owner":"w1","request_id":"r1","ttl":"30s","wait":"60s"}`
	renewBody   = `{"resource":"doc/a","owner":"w1","request_id":"r1","lease_id":"l1","fence":"1"}`
)
