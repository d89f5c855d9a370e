package storetest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/lastword/lastword/store"
)

// TB is what a case needs of a test; *testing.T and *testing.B have it.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	TempDir() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Harness is how the kit reaches an implementation. Cases run one after another.
type Harness struct {
	// Open returns a handle on a new, empty store. What it needs ends with t.
	Open func(t TB) store.Store
	// Reopen returns a handle on the durable state of the store opened last: after
	// a stop (graceful, the kit has closed all handles) or after a crash, in which
	// everything is lost that the implementation had not made durable; handles of
	// before are not used any more.
	Reopen func(t TB, graceful bool) store.Store
	// Second tries to open one more handle on the store opened last, as another
	// process would.
	Second func(t TB) (store.Store, error)
	// Shared says that several handles may be open at once. If not, Second must
	// fail.
	Shared bool
}

type kitCase struct {
	rule, name string
	run        func(*world)
}

func (c kitCase) String() string { return c.rule + " " + c.name }

func cases() []kitCase {
	var all []kitCase
	for _, part := range [][]kitCase{stepCases, viewCases, nameCases, crashCases, protocolCases, epochCases, historyCases} {
		all = append(all, part...)
	}
	return all
}

// Run drives a store through every case of the kit, as subtests named after the rule
// and the sentence that they prove.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.String(), func(t *testing.T) { c.run(newWorld(t, h)) })
	}
}

// Failure is a case that a store did not pass.
type Failure struct {
	Rule    string
	Case    string
	Message string // the first thing that was wrong
}

// Failures drives a store through every case and returns those that failed, without
// failing a test: for stores that must fail. t serves clean-up, directories and logs.
func Failures(t TB, h Harness) []Failure {
	var failures []Failure
	for _, c := range cases() {
		r := &recorder{TB: t}
		r.run(func() { c.run(newWorld(r, h)) })
		if r.failed {
			failures = append(failures, Failure{Rule: c.rule, Case: c.name, Message: r.first})
		}
	}
	return failures
}

// recorder is a TB that keeps failures to itself.
type recorder struct {
	TB
	mu      sync.Mutex
	failed  bool
	first   string
	cleanup []func()
}

func (r *recorder) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed {
		r.first = fmt.Sprintf(format, args...)
	}
	r.failed = true
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Logf(string, ...any) {}

// run has a goroutine of its own, because Fatalf ends it.
func (r *recorder) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := len(r.cleanup) - 1; i >= 0; i-- {
				r.cleanup[i]()
			}
		}()
		f()
	}()
	<-done
}
