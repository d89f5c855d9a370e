package server_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
)

var names = flag.Int("names", 2000, "how many resources KF-17 (g) leases once")

// KF-17 (e, g): many resources, each leased once and then left to lapse. Their counters stay,
// in so many bytes each; after the leases have lapsed and the authority was restarted,
// the next fence of each is above the one before.
func TestKF17CountersStayWhenTheLeasesAreGone(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: thousands of leases")
	}
	t.Parallel()
	cfg := config(t.TempDir())
	ttl := 2 * time.Second
	fences := make([]lastword.Token, *names)
	var path string
	// each takes every resource once.
	each := func(s *running, attempt int) {
		t.Helper()
		var next atomic.Int64
		var workers sync.WaitGroup
		for range 64 * runtime.GOMAXPROCS(0) {
			workers.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= *names {
						return
					}
					held, err := s.Authority().Acquire(t.Context(), lastword.AcquireRequest{
						Resource: lastword.Resource(fmt.Sprintf("once/%07d", i)), Owner: "worker", RequestID: fmt.Sprint(attempt), TTL: ttl,
						Class: lastword.ClassWrite, Wait: patience,
					})
					if err != nil {
						t.Error(err)
						return
					}
					if held.Fence <= fences[i] {
						t.Errorf("%s: fence %s after %s", held.Resource, held.Fence.Text(), fences[i].Text())
					}
					fences[i] = held.Fence
				}
			})
		}
		workers.Wait()
	}
	for run := range 2 {
		s := start(t, cfg)
		path = s.Files().Store
		began := time.Now()
		each(s, 2*run)
		took := time.Since(began)
		each(s, 2*run+1) // each has to lapse before
		s.end(t)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("run %d: %d resources in %v, and again as they lapsed; the store has %d bytes, %d a resource",
			run+1, *names, took.Round(time.Millisecond), info.Size(), info.Size()/int64(*names))
		if perName := info.Size() / int64(*names); perName > 4096 {
			t.Errorf("%d bytes a resource", perName)
		}
	}
}
