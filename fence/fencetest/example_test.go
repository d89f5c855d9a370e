package fencetest_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/fencetest"
	"github.com/lastword/lastword/fence/memfence"
)

// docHarness is what an adapter's author writes: how to open a fresh place, and the
// business effect that the kit makes in its transactions. Here the place is
// memfence's; the effects of a resource are lines of one value.
func docHarness() fencetest.Harness {
	return fencetest.Harness{Open: func(tb fencetest.TB) fencetest.Subject {
		place := memfence.New(tb.TempDir()) // a name that no other place has
		return fencetest.Of(fencetest.Parts[*memfence.Tx]{
			Place: place,
			Write: func(_ context.Context, tx *memfence.Tx, r lastword.Resource, operation, value string) error {
				log, _ := tx.Get(string(r))
				tx.Set(string(r), log+fmt.Sprintf("%q=%q\n", operation, value))
				return nil
			},
			Read: func(_ context.Context, r lastword.Resource) (value string, effects []fencetest.Effect, err error) {
				log, _ := place.Get(string(r))
				for line := range strings.Lines(log) {
					var e fencetest.Effect
					if _, err := fmt.Sscanf(line, "%q=%q\n", &e.Operation, &e.Value); err != nil {
						return "", nil, err
					}
					value, effects = e.Value, append(effects, e)
				}
				return value, effects, nil
			},
		})
	}}
}

// The adapter's own test is one line:
//
//	func TestPlace(t *testing.T) { fencetest.Run(t, docHarness()) }
//
// Outside a test, Failures runs the same cases.
func ExampleRun() {
	failures := fencetest.Failures(context.Background(), docHarness())
	for _, f := range failures {
		fmt.Println(f.Case, f.Message)
	}
	fmt.Println(len(failures), "failures")
	// Output: 0 failures
}

// The kit also shows that it rejects: each broken adapter names the case that must
// catch it.
func ExampleBroken() {
	for _, b := range fencetest.Broken()[:3] {
		fmt.Printf("%s: %s\n", b.Name, b.Case)
	}
	// Output:
	// check outside the transaction: P1, R15, R16: a write that a newer fence overtook is refused
	// row count not checked: P1, R15, R16: a write that a newer fence overtook is refused
	// equality instead of order: P1: 41, 42, 41
}
