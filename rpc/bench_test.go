package rpc_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/store/memstore"
)

// newAuthority is a real one on a store in memory.
func newAuthority(t testing.TB, cfg authority.Config) *authority.Authority {
	t.Helper()
	key, err := grant.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := grant.NewSigner("test", key)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Domain = "test"
	a, err := authority.Open(context.Background(), memstore.New().Open(), signer, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// BenchmarkCycle is acquire and release of resources of one's own, over the wire.
// "memory" has the server in this process with a store in memory; "serve" is the
// real program in a process of its own with its SQLite file.
func BenchmarkCycle(b *testing.B) {
	for _, where := range []struct {
		name  string
		start func(testing.TB) string
	}{{"memory", inMemory}, {"serve", program}} {
		for _, callers := range []int{1, 64} {
			for _, how := range ways {
				b.Run(fmt.Sprintf("%s/callers=%d/%s", where.name, callers, how.name), func(b *testing.B) {
					c := dialWith(b, where.start(b), how.cfg)
					cycle(b, c, callers)
				})
			}
		}
	}
}

var ways = []struct {
	name string
	cfg  rpc.ClientConfig
}{{"unary", rpc.ClientConfig{OneByOne: true}}, {"session", rpc.ClientConfig{}}}

func inMemory(b testing.TB) string {
	addr, _ := serve(b, newAuthority(b, authority.Config{}), rpc.ServerConfig{})
	return addr
}

// program starts `lastword serve` until the end of the benchmark.
func program(b testing.TB) string {
	b.Helper()
	addr, _ := process(b)
	return addr
}

// process is program with its process id.
func process(b testing.TB) (addr string, pid int) {
	b.Helper()
	binary := os.Getenv("LASTWORD_BINARY")
	if binary == "" {
		binary = filepath.Join(b.TempDir(), "lastword")
		if out, err := exec.Command("go", "build", "-o", binary, "github.com/lastword/lastword/cmd/lastword").CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
	}
	cmd := exec.Command(binary, "serve", "--store", "sqlite:"+filepath.Join(b.TempDir(), "bench.db"), "--domain", "bench", "--grpc", "127.0.0.1:0")
	cmd.Stderr = io.Discard
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if addr, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
			return addr, cmd.Process.Pid
		}
	}
	b.Fatal("the program did not say that it is ready")
	return "", 0
}

// cycle runs b.N cycles by so many callers.
func cycle(b *testing.B, a rpc.Authority, callers int) {
	var n atomic.Int64
	var wg sync.WaitGroup
	took := make([][]time.Duration, callers)
	if _, err := a.Status(b.Context(), lastword.StatusQuery{Resource: "warm"}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for c := range callers {
		wg.Go(func() {
			resource := lastword.Resource(fmt.Sprint("cycle/", c))
			for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
				began := time.Now()
				t, err := a.Acquire(b.Context(), lastword.AcquireRequest{
					Resource: resource, Owner: "owner", RequestID: fmt.Sprint("request-", i), TTL: 30 * time.Second,
				})
				if err == nil {
					err = a.Release(b.Context(), t.TenureRef)
				}
				if err != nil {
					b.Error(err)
					return
				}
				took[c] = append(took[c], time.Since(began))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	report(b, slices.Concat(took...), "cycles/s")
}

func report(b *testing.B, took []time.Duration, unit string) {
	slices.Sort(took)
	if len(took) == 0 {
		return
	}
	b.ReportMetric(float64(len(took))/b.Elapsed().Seconds(), unit)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkHandOver is the time from a release to the next holder's running: 64
// waiters of one resource that hold it for 0.2 ms each.
func BenchmarkHandOver(b *testing.B) {
	for _, how := range ways {
		b.Run("serve/"+how.name, func(b *testing.B) {
			const waiters, work = 64, 200 * time.Microsecond
			a := dialWith(b, program(b), how.cfg)
			var n, released atomic.Int64
			var mu sync.Mutex
			var took []time.Duration
			var longest time.Duration
			began := time.Now()
			b.ResetTimer()
			var wg sync.WaitGroup
			for w := range waiters {
				wg.Go(func() {
					for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
						asked := time.Now()
						t, err := a.Acquire(b.Context(), lastword.AcquireRequest{
							Resource: "one", Owner: fmt.Sprint("owner-", w), RequestID: fmt.Sprint("request-", i), TTL: 30 * time.Second, Wait: time.Minute,
						})
						if err != nil {
							b.Error(err)
							return
						}
						now := time.Since(began)
						mu.Lock()
						if at := released.Load(); at > 0 {
							took = append(took, now-time.Duration(at))
						}
						longest = max(longest, time.Since(asked))
						mu.Unlock()
						for time.Since(began)-now < work {
						}
						released.Store(int64(time.Since(began)))
						if err := a.Release(b.Context(), t.TenureRef); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			report(b, took, "hand-overs/s")
			b.ReportMetric(float64(longest.Milliseconds()), "longest-ms")
		})
	}
}
