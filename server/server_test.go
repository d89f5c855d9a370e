package server_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/server"
)

// patience bounds what a test waits for; a machine that is busy gets it all.
const patience = time.Minute

func config(dir string) server.Config {
	return server.Config{Store: "sqlite:" + filepath.Join(dir, "s.db"), Domain: "demo", GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0"}
}

// running is a server that serves, and a client of it.
type running struct {
	*server.Server
	client *rpc.Client
	stop   context.CancelFunc
	ended  chan error
}

func start(t *testing.T, cfg server.Config) *running {
	t.Helper()
	s, err := server.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rpc.Dial(s.Addr().String(), rpc.ClientConfig{Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{s, c, stop, make(chan error, 1)}
	go func() { r.ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		_ = c.Close()
	})
	return r
}

// end stops the server and wants it to end well.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	if err := r.result(t); err != nil {
		t.Errorf("serve ended with %v", err)
	}
}

func (r *running) result(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(patience):
		t.Fatal("serve does not end")
		return nil
	}
}

func request(resource, id string) lastword.AcquireRequest {
	return lastword.AcquireRequest{Resource: lastword.Resource(resource), RequestID: id, Owner: "w1", TTL: time.Minute, Class: lastword.ClassWrite}
}

// files is what stands in a directory, with content.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		found[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func write(t *testing.T, path, content string, mode fs.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAStartThatIsRefusedSaysWhyInOneLineAndLeavesNothing(t *testing.T) {
	t.Parallel()
	readOnly := func(dir string) string {
		if os.Geteuid() == 0 {
			return "/proc" // where not even root can make a file
		}
		sub := filepath.Join(dir, "sub")
		if err := os.Mkdir(sub, 0o500); err != nil {
			t.Fatal(err)
		}
		return sub
	}
	for _, c := range []struct {
		name string
		code lastword.Code
		want string
		set  func(t *testing.T, dir string, cfg *server.Config)
	}{
		{"every address", lastword.CodeInvalid, "not a loopback address", func(_ *testing.T, _ string, cfg *server.Config) { cfg.GRPC = "0.0.0.0:0" }},
		{"another machine's address", lastword.CodeInvalid, "not a loopback address", func(_ *testing.T, _ string, cfg *server.Config) { cfg.GRPC = "192.0.2.1:7420" }},
		{"every address, HTTP", lastword.CodeInvalid, "not a loopback address", func(_ *testing.T, _ string, cfg *server.Config) { cfg.HTTP = "0.0.0.0:0" }},
		{"no port, HTTP", lastword.CodeInvalid, "want host:port", func(_ *testing.T, _ string, cfg *server.Config) { cfg.HTTP = "localhost" }},
		{"no host", lastword.CodeInvalid, "without a host", func(_ *testing.T, _ string, cfg *server.Config) { cfg.GRPC = ":0" }},
		{"no port", lastword.CodeInvalid, "want host:port", func(_ *testing.T, _ string, cfg *server.Config) { cfg.GRPC = "127.0.0.1" }},
		{"unknown store", lastword.CodeInvalid, "sqlite:PATH only", func(_ *testing.T, _ string, cfg *server.Config) { cfg.Store = "redis://localhost" }},
		{"no store", lastword.CodeInvalid, "sqlite:PATH only", func(_ *testing.T, _ string, cfg *server.Config) { cfg.Store = "" }},
		{"no path", lastword.CodeInvalid, "want the path of a file", func(_ *testing.T, _ string, cfg *server.Config) { cfg.Store = "sqlite:" }},
		{"a path with a query", lastword.CodeInvalid, "without ? and #", func(_ *testing.T, _ string, cfg *server.Config) { cfg.Store += "?mode=memory" }},
		{"in memory", lastword.CodeInvalid, "memory", func(_ *testing.T, _ string, cfg *server.Config) { cfg.Store = "sqlite::memory:" }},
		{"unknown witness", lastword.CodeInvalid, "file:PATH and sqlite:PATH only", func(_ *testing.T, _ string, cfg *server.Config) { cfg.Witness = "etcd://localhost" }},
		{"no domain", lastword.CodeInvalid, "it is empty", func(_ *testing.T, _ string, cfg *server.Config) { cfg.Domain = "" }},
		{"a domain with a control character", lastword.CodeInvalid, "control character", func(_ *testing.T, _ string, cfg *server.Config) { cfg.Domain = "a\nb" }},
		{"a negative lock-delay", lastword.CodeInvalid, "lock-delay", func(_ *testing.T, _ string, cfg *server.Config) {
			cfg.LockDelay = map[string]time.Duration{"a": -1}
		}},
		{"a lock-delay without prefix", lastword.CodeInvalid, "lock-delay prefix", func(_ *testing.T, _ string, cfg *server.Config) {
			cfg.LockDelay = map[string]time.Duration{"": time.Second}
		}},
		{"an unknown answer to a regression", lastword.CodeInvalid, "on-regression", func(_ *testing.T, _ string, cfg *server.Config) { cfg.OnRegression = "ignore" }},
		{"a negative drain time-out", lastword.CodeInvalid, "drain time-out", func(_ *testing.T, _ string, cfg *server.Config) { cfg.DrainTimeout = -1 }},
		{"one file for two things", lastword.CodeInvalid, "is the store, and cannot be the signing key", func(_ *testing.T, dir string, cfg *server.Config) { cfg.KeyFile = filepath.Join(dir, "s.db") }},
		{"the store is a directory", lastword.CodeInvalid, "is a directory", func(_ *testing.T, dir string, cfg *server.Config) { cfg.Store = "sqlite:" + dir }},
		{"the directory is missing", lastword.CodeUnavailable, "create the directory first", func(_ *testing.T, dir string, cfg *server.Config) {
			cfg.Store = "sqlite:" + filepath.Join(dir, "missing", "s.db")
		}},
		{"the directory cannot be written to", lastword.CodeUnavailable, "", func(_ *testing.T, dir string, cfg *server.Config) {
			cfg.Store = "sqlite:" + filepath.Join(readOnly(dir), "lastword-test.db")
		}},
		{"the store is no database", lastword.CodeInvalid, "s.db", func(t *testing.T, dir string, _ *server.Config) {
			write(t, filepath.Join(dir, "s.db"), strings.Repeat("no database ", 1000), 0o600)
		}},
		{"the store is another program's", lastword.CodeInvalid, "another program's database", func(t *testing.T, dir string, _ *server.Config) {
			db, err := sql.Open("sqlite", filepath.Join(dir, "s.db"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			if _, err := db.ExecContext(t.Context(), "CREATE TABLE customers (name TEXT)"); err != nil {
				t.Fatal(err)
			}
		}},
		{"others can read the key", lastword.CodeInvalid, "its mode 0644", func(t *testing.T, dir string, _ *server.Config) {
			write(t, filepath.Join(dir, "s.db.key"), "", 0o644)
		}},
		{"the key is none", lastword.CodeInvalid, "s.db.key", func(t *testing.T, dir string, _ *server.Config) {
			write(t, filepath.Join(dir, "s.db.key"), "no key", 0o600)
		}},
		{"the key is a directory", lastword.CodeInvalid, "it is a directory", func(_ *testing.T, dir string, cfg *server.Config) { cfg.KeyFile = dir }},
		{"the witness is none", lastword.CodeUnavailable, "s.db.witness cannot be used", func(t *testing.T, dir string, _ *server.Config) {
			write(t, filepath.Join(dir, "s.db.witness"), "no witness", 0o600)
		}},
		{"the witness is a directory", lastword.CodeUnavailable, "cannot be used", func(_ *testing.T, dir string, cfg *server.Config) { cfg.Witness = "file:" + dir }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cfg := config(dir)
			c.set(t, dir, &cfg)
			before := files(t, dir)
			s, err := server.Open(t.Context(), cfg)
			if s != nil {
				t.Errorf("got a server beside the error")
			}
			checkRefusal(t, err, c.code, c.want)
			if after := files(t, dir); !maps.Equal(before, after) {
				t.Errorf("files before %q, after %q", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
			}
		})
	}
}

// checkRefusal wants one clear line of this code.
func checkRefusal(t *testing.T, err error, code lastword.Code, want string) {
	t.Helper()
	e, ok := errors.AsType[*lastword.Error](err)
	if !ok {
		t.Fatalf("got %v, want a *lastword.Error", err)
	}
	text := err.Error()
	if e.Code != code || e.Op == "" || !strings.Contains(text, want) {
		t.Errorf("got %q (op %q), want code %s and %q", text, e.Op, code, want)
	}
	if strings.Contains(text, "\n") || strings.Contains(text, "goroutine") {
		t.Errorf("not one line: %q", text)
	}
}

func TestASecondServerOnTheSameAddressTouchesNoFile(t *testing.T) {
	t.Parallel()
	first := start(t, config(t.TempDir()))
	dir := t.TempDir()
	cfg := config(dir)
	cfg.GRPC = first.Addr().String()
	_, err := server.Open(t.Context(), cfg)
	checkRefusal(t, err, lastword.CodeUnavailable, "another address with --grpc")
	if found := files(t, dir); len(found) > 0 {
		t.Errorf("it made %v", slices.Collect(maps.Keys(found)))
	}
	first.end(t)
}

// KF-35, single instance: the second one on the same file is refused by another port,
// and the first one does not notice.
func TestASecondServerOnTheSameFileIsRefusedByAnotherPort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, config(dir))
	held, err := first.client.Acquire(t.Context(), request("doc/a", "r1"))
	if err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink("s.db", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "s.db"), link} {
		cfg := config(dir)
		cfg.Store = "sqlite:" + path
		cfg.KeyFile, cfg.Witness = filepath.Join(dir, "s.db.key"), "file:"+filepath.Join(dir, "s.db.witness")
		_, err = server.Open(t.Context(), cfg)
		checkRefusal(t, err, lastword.CodeUnavailable, "is in use by")
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	after := files(t, dir)
	for path, content := range before {
		// The first server's counter goes on; its key and its witness stand still.
		if !strings.Contains(filepath.Base(path), "s.db.") || strings.HasSuffix(path, "-wal") || strings.HasSuffix(path, "-shm") {
			continue
		}
		if after[path] != content {
			t.Errorf("%s was changed", path)
		}
	}
	if _, err := first.client.Renew(t.Context(), held.TenureRef); err != nil {
		t.Errorf("the first server's lease: %v", err)
	}
	first.end(t)
	again := start(t, config(dir)) // its lock went with it
	again.end(t)
}

// KF-38: of several that start at once on an empty directory one serves, and the
// others say why they do not.
func TestOfManyServersAtOnceOneServes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const n = 8
	type result struct {
		server *server.Server
		err    error
	}
	results := make(chan result, n)
	for range n {
		go func() {
			s, err := server.Open(t.Context(), config(dir))
			results <- result{s, err}
		}()
	}
	var won []*server.Server
	for range n {
		r := <-results
		if r.err == nil {
			won = append(won, r.server)
			continue
		}
		checkRefusal(t, r.err, lastword.CodeUnavailable, "is in use by")
	}
	if len(won) != 1 {
		t.Errorf("%d servers on one file", len(won))
	}
	for _, s := range won {
		if epoch, err := s.Authority().Epoch(); err != nil || epoch != 0 {
			t.Errorf("epoch %d, %v; want 0", epoch, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// R10: a store that was put back behind the authority's back is refused with the way
// out, and the way out works: numbers go on above everything that was issued.
func TestAStoreThatWasPutBackIsRefusedUntilAnOperatorAdvances(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "s.db")
	first := start(t, config(dir))
	first.end(t)
	saved, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	second := start(t, config(dir))
	lost, err := second.client.Acquire(t.Context(), request("doc/a", "r1"))
	if err != nil {
		t.Fatal(err)
	}
	second.end(t)
	write(t, path, string(saved), 0o600)
	before := files(t, dir)

	_, err = server.Open(t.Context(), config(dir))
	checkRefusal(t, err, lastword.CodeFenceRegression, "--on-regression=advance")
	if !maps.Equal(before, files(t, dir)) {
		t.Error("a refused start changed a file")
	}

	cfg := config(dir)
	cfg.OnRegression = "advance"
	third := start(t, cfg)
	st, err := third.client.Status(t.Context(), lastword.StatusQuery{Resource: "doc/a"})
	if err != nil {
		t.Fatal(err)
	}
	if st.NextFence <= lost.Fence {
		t.Errorf("the next fence %s is not above the lost %s", st.NextFence.Text(), lost.Fence.Text())
	}
	third.end(t)
}

func TestAWaitingCallerGetsADefiniteAnswerAtShutdown(t *testing.T) {
	t.Parallel()
	r := start(t, config(t.TempDir()))
	if _, err := r.client.Acquire(t.Context(), request("doc/a", "r1")); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() {
		q := request("doc/a", "r2")
		q.Wait = patience
		_, err := r.client.Acquire(context.Background(), q)
		answer <- err
	}()
	for {
		st, err := r.client.Status(t.Context(), lastword.StatusQuery{Resource: "doc/a"})
		if err != nil {
			t.Fatal(err)
		}
		if st.Waiters == 1 {
			break
		}
		runtime.Gosched()
	}
	r.end(t)
	select {
	case err := <-answer:
		if !errors.Is(err, lastword.ErrUnavailable) || errors.Is(err, lastword.ErrUnknownOutcome) {
			t.Errorf("got %v, want a definite UNAVAILABLE", err)
		}
	case <-time.After(patience):
		t.Fatal("the caller waits on")
	}
}

func TestServeLeavesNoGoroutineAndFreesItsAddress(t *testing.T) {
	// Not parallel: it counts goroutines.
	dir := t.TempDir()
	warm := start(t, config(dir)) // what the libraries start once
	warm.end(t)
	_ = warm.client.Close()
	before := settled(t, runtime.NumGoroutine())
	var addr string
	for range 3 {
		r := start(t, config(dir))
		addr = r.Addr().String()
		if _, err := r.client.Status(t.Context(), lastword.StatusQuery{Resource: "doc/a"}); err != nil {
			t.Fatal(err)
		}
		_ = r.client.Close()
		r.end(t)
	}
	if after := settled(t, before); after > before {
		b := make([]byte, 1<<20)
		t.Errorf("%d goroutines before, %d after:\n%s", before, after, b[:runtime.Stack(b, true)])
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("the address is still taken: %v", err)
	}
	_ = l.Close()
}

// settled waits until there are no more goroutines than want, which end a moment
// after what they belong to, and returns how many there are in the end.
func settled(t *testing.T, want int) int {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	n := runtime.NumGoroutine()
	for n > want && time.Now().Before(deadline) {
		runtime.Gosched()
		time.Sleep(time.Millisecond) // a poll with a deadline, not a hope
		n = runtime.NumGoroutine()
	}
	return n
}

func TestCloseReleasesAServerThatNeverServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 2 {
		s, err := server.Open(t.Context(), config(dir))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

// KF-36 (2): a live holder with a lease that the restart did not touch is renewed with
// the same fence.
func TestALeaseOutlivesARestartOfItsServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, config(dir))
	held, err := first.client.Acquire(t.Context(), request("doc/a", "r1"))
	if err != nil {
		t.Fatal(err)
	}
	first.end(t)
	second := start(t, config(dir))
	renewed, err := second.client.Renew(t.Context(), held.TenureRef)
	if err != nil || renewed.Fence != held.Fence {
		t.Errorf("renew: fence %d, %v; want %d", renewed.Fence, err, held.Fence)
	}
	if info, err := os.Stat(second.Files().Key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v; want mode 0600", info, err)
	}
	second.end(t)
}

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "lastword-example-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := server.Open(context.Background(), server.Config{
		Store: "sqlite:" + filepath.Join(dir, "lastword.db"), Domain: "demo", GRPC: "127.0.0.1:0",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()

	t, err := s.Authority().Acquire(ctx, lastword.AcquireRequest{
		Resource: "doc/a", RequestID: "r1", Owner: "w1", TTL: 30 * time.Second,
	})
	fmt.Println(t.Fence.Text(), err)
	stop()
	fmt.Println(<-ended)
	// Output:
	// 1 (0.1) <nil>
	// <nil>
}

// TestALostKeyIsNotReplacedSilently: a new key beside a used store would make the
// grants of live tenures stop verifying, and their renewals fail.
func TestALostKeyIsNotReplacedSilently(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, config(dir))
	first.end(t)
	if err := os.Remove(filepath.Join(dir, "s.db.key")); err != nil {
		t.Fatal(err)
	}
	start(t, config(dir)).end(t) // the ring beside it has the key
	if err := os.RemoveAll(filepath.Join(dir, "s.db.key.ring")); err != nil {
		t.Fatal(err)
	}
	_, err := server.Open(t.Context(), config(dir))
	checkRefusal(t, err, lastword.CodeFenceRegression, "--new-key")
	if _, err := os.Lstat(filepath.Join(dir, "s.db.key")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused start made a key: %v", err)
	}
	cfg := config(dir)
	cfg.NewKey = true
	start(t, cfg).end(t)
	start(t, config(dir)).end(t) // the key is there again
}
