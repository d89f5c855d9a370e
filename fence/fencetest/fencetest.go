// Package fencetest proves that an adapter of package fence keeps the rules. An
// adapter's own test calls [Run] once, with a [Harness] that opens a fresh place;
// [Of] makes most of the harness out of the place itself. [RunBenchmarks] measures
// all adapters alike.
//
// Every case names the rule that it proves (P…, R… of the protocol, KF-… of the
// known faults). After each case an invariant checker looks at the final state:
// every effect has its receipt and every receipt its effect, none twice, in the
// order of fences and numbers.
//
// # Guarantees
//
// The kit knows no adapter by name: what a place cannot do is not in its harness,
// and the cases that need it are skipped with a line that says so. It rejects every
// adapter of [Broken], each with the case of the rule that it breaks. Random cases
// print their seed, and [Harness.Seed] repeats them.
//
// # Not guaranteed
//
// A place that passes keeps the rules as far as one process can see. Crashes of
// the engine, lost replies of its network and its isolation levels are the
// adapter's own tests to bring.
package fencetest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TB is what the kit needs of a test. *testing.T and *testing.B have it.
type TB interface {
	Helper()
	Name() string
	Context() context.Context
	TempDir() string
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Harness is an adapter as the kit sees it.
type Harness struct {
	// Open makes a fresh, empty place, with a name of its own. What it opened is closed
	// by tb.Cleanup. It is called once or twice for each case.
	Open func(tb TB) Subject
	// Seed repeats the random cases of an earlier run; 0 draws one.
	Seed uint64
	// CaseTimeout is how long one case may take, so that a place that hangs is a failure
	// with a name; 0 is two minutes.
	CaseTimeout time.Duration
}

const caseTimeout = 2 * time.Minute

// testCase is one rule and how it is proved.
type testCase struct {
	name string // begins with the rules that it proves
	run  func(*world)
	// needs says what the subject lacks for this case; "" if nothing.
	needs func(Subject) string
}

// Run proves an adapter: one subtest for each case. It fails t for every rule that
// the adapter breaks.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Open == nil {
		t.Fatal("fencetest: Harness.Open is missing")
	}
	if h.Seed == 0 {
		h.Seed = rand.Uint64()
	}
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			if why := c.attempt(t, h); why != "" {
				t.Skip(why)
			}
		})
	}
}

// Failure is one case that an adapter did not pass.
type Failure struct {
	Case    string
	Message string
}

// Failures runs all cases without a test and returns what failed, in the order of
// the cases. It shows that the kit rejects an adapter.
func Failures(ctx context.Context, h Harness) []Failure {
	if h.Seed == 0 {
		h.Seed = rand.Uint64()
	}
	var all []Failure
	for _, c := range cases() {
		r := &recorder{ctx: ctx, name: c.name}
		r.attempt(func() { c.attempt(r, h) })
		all = append(all, r.failures...)
	}
	return all
}

// FirstFailure runs the cases until one fails and returns that failure; ok is false if
// none did. It is for whoever breaks an adapter many times to see that the kit notices.
// Cases in whose name one of first appears come first.
func FirstFailure(ctx context.Context, h Harness, first ...string) (f Failure, ok bool) {
	if h.Seed == 0 {
		h.Seed = rand.Uint64()
	}
	all := cases()
	slices.SortStableFunc(all, func(a, b testCase) int { return cmp.Compare(a.rank(first), b.rank(first)) })
	for _, c := range all {
		r := &recorder{ctx: ctx, name: c.name}
		r.attempt(func() { c.attempt(r, h) })
		if len(r.failures) > 0 {
			return r.failures[0], true
		}
	}
	return Failure{}, false
}

func (c testCase) rank(first []string) int {
	for i, part := range first {
		if strings.Contains(c.name, part) {
			return i
		}
	}
	return len(first)
}

// attempt runs the case on a fresh place, or says why it is skipped.
func (c testCase) attempt(tb TB, h Harness) (skipped string) {
	ctx, cancel := context.WithTimeout(tb.Context(), cmp.Or(h.CaseTimeout, caseTimeout))
	defer cancel()
	w := newWorld(ctx, tb, h)
	if c.needs != nil {
		if lack := c.needs(w.subject); lack != "" {
			return "the harness offers no " + lack
		}
	}
	c.run(w)
	w.checkInvariants()
	return ""
}

// recorder is a [TB] that keeps failures instead of failing a test.
type recorder struct {
	ctx  context.Context
	name string

	mu       sync.Mutex
	failures []Failure
	cleanups []func()
}

// attempt runs fn in a goroutine of its own, which Fatalf ends, and cleans up.
func (r *recorder) attempt(fn func()) {
	for _, part := range []func(){fn, r.cleanUp} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if p := recover(); p != nil {
					r.Errorf("panic: %v\n%s", p, debug.Stack())
				}
			}()
			part()
		}()
		<-done
	}
}

func (r *recorder) cleanUp() {
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		fn := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		fn()
	}
}

func (r *recorder) Helper()                  {}
func (r *recorder) Name() string             { return r.name }
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Logf(string, ...any)      {}

func (r *recorder) Cleanup(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, fn)
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, Failure{Case: r.name, Message: fmt.Sprintf(format, args...)})
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) TempDir() string {
	dir, err := os.MkdirTemp("", "fencetest-")
	if err != nil {
		r.Fatalf("temporary directory: %v", err)
	}
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
