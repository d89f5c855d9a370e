package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// besieged is the real program under load of others.
type besieged struct {
	t    *testing.T
	pid  int
	grpc string
	http string
	near *rpc.Client
	wire wire.AuthorityServiceClient
}

func besiege(t *testing.T) *besieged {
	t.Helper()
	if testing.Short() {
		t.Skip("heavy: runs without the race detector")
	}
	cmd := exec.Command("lastword", "serve", "-o", "json", "--store", "sqlite:s.db", "--domain", "demo", "--grpc", "127.0.0.1:0", "--listen", "127.0.0.1:0")
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = t.TempDir(), &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve: %v: %s", err, stderr.String())
		}
		if strings.Contains(stderr.String(), "panic") {
			t.Error(stderr.String())
		}
	})
	var ready readiness
	if err := json.NewDecoder(stdout).Decode(&ready); err != nil {
		t.Fatalf("serve: %v: %s", err, stderr.String())
	}
	near, err := rpc.Dial(ready.GRPC, rpc.ClientConfig{Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close() })
	b := &besieged{t: t, pid: cmd.Process.Pid, grpc: ready.GRPC, http: ready.HTTP, near: near}
	b.wire = b.conn()
	b.served(200) // what is made once
	return b
}

func (b *besieged) conn() wire.AuthorityServiceClient {
	b.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+b.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close() })
	return wire.NewAuthorityServiceClient(conn)
}

// served makes cycles of another client; it returns what a call took at most.
func (b *besieged) served(cycles int) (longest time.Duration) {
	b.t.Helper()
	for i := range cycles {
		began := time.Now()
		held, err := b.near.Acquire(b.t.Context(), lastword.AcquireRequest{Resource: "other", RequestID: fmt.Sprint(began.UnixNano(), i), Owner: "near", TTL: time.Minute})
		if err == nil {
			err = b.near.Release(b.t.Context(), held.TenureRef)
		}
		if err != nil {
			b.t.Fatalf("another client is not served: %v", err)
		}
		longest = max(longest, time.Since(began)/2)
	}
	return longest
}

// resident is the program's memory, in MiB.
func (b *besieged) resident() int {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprint("/proc/", b.pid, "/status"))
	if err != nil {
		if runtime.GOOS == "linux" {
			b.t.Fatal("the server is gone: ", err)
		}
		b.t.Skip("needs /proc: ", err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				b.t.Fatal(err)
			}
			return kb >> 10
		}
	}
	b.t.Fatal("no VmRSS")
	return 0
}

// T22, T23: who opens watches and sessions through either door and reads nothing has
// what the program keeps for it bounded, and everybody else is served.
func TestT23ThreeHundredThatDoNotRead(t *testing.T) {
	t.Parallel()
	b := besiege(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const each, most = 100, 768 // MiB
	// The result that every status of the sessions brings: 16 KiB.
	done, err := b.near.Acquire(ctx, lastword.AcquireRequest{Resource: "doc/result", RequestID: "1", Owner: "near", TTL: time.Hour})
	if err == nil {
		err = b.near.Complete(ctx, done.TenureRef, make([]byte, lastword.MaxResultBytes))
	}
	if err == nil {
		err = b.near.Release(ctx, done.TenureRef)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := b.resident()
	var senders sync.WaitGroup
	for range each {
		c := b.conn()
		if _, err := c.Watch(ctx, &wire.WatchRequest{}); err != nil {
			t.Fatal(err)
		}
		session, err := c.Session(ctx)
		if err != nil {
			t.Fatal(err)
		}
		senders.Go(func() {
			for id := uint64(1); id < 16_000; id++ {
				call := &wire.SessionCall{Id: id, Request: &wire.SessionCall_Status{Status: &wire.StatusRequest{Resource: "doc/result", LeaseId: done.LeaseID}}}
				if session.Send(&wire.SessionRequest{Calls: []*wire.SessionCall{call}}) != nil {
					return
				}
			}
		})
		raw, err := net.Dial("tcp", b.http)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = raw.Close() }()
		_ = raw.(*net.TCPConn).SetReadBuffer(4 << 10)
		if _, err := fmt.Fprintf(raw, "GET /v1/watch HTTP/1.1\r\nHost: %s\r\n\r\n", b.http); err != nil {
			t.Fatal(err)
		}
	}
	// What the watches would be shown: names of a kilobyte, again and again.
	var changes atomic.Int64
	var writers sync.WaitGroup
	end := time.Now().Add(10 * time.Second)
	for w := range 16 {
		writers.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				name := lastword.Resource(fmt.Sprintf("doc/%d/%d/%s", w, i%200, strings.Repeat("x", 480)))
				held, err := b.near.Acquire(ctx, lastword.AcquireRequest{Resource: name, RequestID: fmt.Sprint(i), Owner: strings.Repeat("o", 200), TTL: time.Minute})
				if err == nil {
					err = b.near.Release(ctx, held.TenureRef)
				}
				if err != nil {
					t.Errorf("a writer: %v", err)
					return
				}
				changes.Add(2)
			}
		})
	}
	var longest time.Duration
	peak := 0
	for time.Now().Before(end) {
		longest = max(longest, b.served(5))
		peak = max(peak, b.resident())
	}
	writers.Wait()
	t.Logf("%d watches over gRPC, %d sessions and %d watches over HTTP that nobody reads, %d changes: %d MiB more, at most; a call of another client took %v at most",
		each, each, each, changes.Load(), peak-before, longest.Round(time.Millisecond))
	if peak-before > most {
		t.Errorf("%d MiB more, want at most %d", peak-before, most)
	}
	cancel()
	senders.Wait()
}

// T22: ids of a mebibyte, through every door and from many at a time, are refused before
// they take room.
func TestT22IdsOfAMebibyte(t *testing.T) {
	t.Parallel()
	b := besiege(t)
	const callers, rounds, most = 32, 20, 128 // MiB
	giant := strings.Repeat("i", 1<<20)
	ask := &wire.AcquireRequest{Resource: "doc/a", RequestId: giant, Owner: "o", Ttl: durationpb.New(time.Minute)}
	body, err := json.Marshal(map[string]string{"resource": "doc/a", "owner": "o", "request_id": giant, "ttl": "60s"})
	if err != nil {
		t.Fatal(err)
	}
	before := b.resident()
	doors := map[string]func() error{
		"unary": func() error {
			_, err := b.wire.Acquire(t.Context(), ask)
			return wantRefused(status.Code(err), codes.ResourceExhausted)
		},
		"session": func() error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			session, err := b.wire.Session(ctx)
			if err == nil {
				_, err = session.Recv()
			}
			if err != nil {
				return err
			}
			_ = session.Send(&wire.SessionRequest{Calls: []*wire.SessionCall{{Id: 1, Request: &wire.SessionCall_Acquire{Acquire: ask}}}})
			for err == nil {
				_, err = session.Recv()
			}
			return wantRefused(status.Code(err), codes.ResourceExhausted)
		},
		"body": func() error {
			res, err := http.Post("http://"+b.http+"/v1/acquire", "application/json", bytes.NewReader(body))
			if err != nil {
				return nil // the connection is closed while the rest is sent
			}
			defer res.Body.Close()
			return wantRefused(res.StatusCode, http.StatusRequestEntityTooLarge)
		},
		"query": func() error {
			res, err := http.Get("http://" + b.http + "/v1/status?resource=" + giant)
			if err != nil {
				return nil // as above
			}
			defer res.Body.Close()
			return wantRefused(res.StatusCode, http.StatusRequestHeaderFieldsTooLarge)
		},
		"path of a prefix": func() error {
			stream, err := b.wire.Watch(t.Context(), &wire.WatchRequest{Prefix: giant})
			if err == nil {
				_, err = stream.Recv()
			}
			return wantRefused(status.Code(err), codes.ResourceExhausted)
		},
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range rounds {
				for door, do := range doors {
					if err := do(); err != nil {
						t.Errorf("%s: %v", door, err)
						return
					}
				}
			}
		})
	}
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	var longest time.Duration
	peak := 0
	for waiting := true; waiting; {
		select {
		case <-over:
			waiting = false
		default:
			longest, peak = max(longest, b.served(5)), max(peak, b.resident())
		}
	}
	t.Logf("%d ids of 1 MiB by %d callers: %d MiB more, at most; a call of another client took %v at most",
		callers*rounds*len(doors), callers, peak-before, longest.Round(time.Millisecond))
	if peak-before > most {
		t.Errorf("%d MiB more, want at most %d", peak-before, most)
	}
}

func wantRefused[C comparable](got, want C) error {
	if got != want {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}

// T23: ten thousand that want one thing, of the real program, through sessions and HTTP.
func TestT23TenThousandWaitersOfOneResourceOfTheProgram(t *testing.T) {
	t.Parallel()
	b := besiege(t)
	const overSessions, overHTTP, most = 9000, 1000, 400 // MiB
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	held, err := b.near.Acquire(ctx, lastword.AcquireRequest{Resource: "one", RequestID: "1", Owner: "near", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	before := b.resident()
	var woken atomic.Int64
	var all sync.WaitGroup
	const sessions = 9
	for s := range sessions {
		session, err := b.conn().Session(ctx)
		if err == nil {
			_, err = session.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for {
				m, err := session.Recv()
				if err != nil {
					return
				}
				for _, a := range m.GetAnswers() {
					if a.GetAcquire() != nil {
						woken.Add(1)
					}
				}
			}
		})
		for i := range overSessions / sessions {
			err := session.Send(&wire.SessionRequest{Calls: []*wire.SessionCall{{Id: uint64(i) + 1, Request: &wire.SessionCall_Acquire{Acquire: &wire.AcquireRequest{
				Resource: "one", RequestId: fmt.Sprint(s, "-", i), Owner: fmt.Sprint("session-", s), Ttl: durationpb.New(time.Hour), Wait: durationpb.New(time.Hour),
			}}}}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	plain := &http.Client{Transport: &http.Transport{}}
	for i := range overHTTP {
		all.Go(func() {
			r, err := http.NewRequestWithContext(ctx, "POST", "http://"+b.http+"/v1/acquire",
				strings.NewReader(fmt.Sprintf(`{"resource":"one","owner":"http","request_id":"%d","ttl":"3600s","wait":"3600s"}`, i)))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			if res, err := plain.Do(r); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if res.StatusCode == http.StatusOK {
					woken.Add(1)
				} else {
					t.Errorf("a waiter over HTTP: status %d", res.StatusCode)
				}
			}
		})
	}
	waiting := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			st, err := b.near.Status(t.Context(), lastword.StatusQuery{Resource: "one"})
			if err != nil {
				t.Fatal(err)
			}
			if st.Waiters == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d wait, want %d", st.Waiters, want)
			}
		}
	}
	waiting(overSessions + overHTTP)
	longest, used := b.served(100), b.resident()-before
	t.Logf("%d waiters, %d of them over HTTP: %d MiB more; a call of another client took %v at most", overSessions+overHTTP, overHTTP, used, longest.Round(time.Millisecond))
	if used > most {
		t.Errorf("%d MiB more, want at most %d", used, most)
	}
	if err := b.near.Release(t.Context(), held.TenureRef); err != nil {
		t.Fatal(err)
	}
	waiting(overSessions + overHTTP - 1)
	for deadline := time.Now().Add(patience); woken.Load() != 1; time.Sleep(time.Millisecond) {
		if woken.Load() > 1 || time.Now().After(deadline) {
			t.Fatalf("%d were woken by one release", woken.Load())
		}
	}
	cancel()
	waiting(0)
	all.Wait()
}
