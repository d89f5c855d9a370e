package lastword_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/lastword/lastword"
)

func ExampleParseResource() {
	resource, err := lastword.ParseResource("invoice-batch/2026-07-19")
	fmt.Println(resource, err)

	_, err = lastword.ParseResource("invoice-batch/../payroll")
	fmt.Println(err)
	// Output:
	// invoice-batch/2026-07-19 <nil>
	// INVALID: resource "invoice-batch/../payroll": it has a segment ".."
}

func ExampleCheckID() {
	fmt.Println(lastword.CheckID("owner", "worker-1"))
	fmt.Println(lastword.CheckID("owner", ""))
	// Output:
	// <nil>
	// INVALID: owner "": it is empty
}

func ExampleParseToken() {
	fence, err := lastword.ParseToken("8589934634")
	fmt.Println(fence.Text(), err)

	_, err = lastword.ParseToken("007")
	fmt.Println(err)
	// Output:
	// 8589934634 (1.42) <nil>
	// INVALID: fence "007": want a decimal number from 1 to 9007199254740991
}

func ExampleMakeToken() {
	last, _ := lastword.MakeToken(0, lastword.MaxCounter)
	next, _ := lastword.MakeToken(1, 1)
	fmt.Println(next > last)

	_, err := lastword.MakeToken(0, lastword.MaxCounter+1)
	fmt.Println(err)
	// Output:
	// true
	// INVALID: epoch 0 with counter 8589934592 is no fence
}

func ExampleParseDigest() {
	root := lastword.DigestOf([]byte("invoice batch of 19 July"))
	again, err := lastword.ParseDigest(root.String())
	fmt.Println(again == root, err)

	_, err = lastword.ParseDigest("19 July")
	fmt.Println(err)
	// Output:
	// true <nil>
	// INVALID: digest "19 July": want sha256: and 64 lower-case hexadecimal digits
}

func ExampleDigestOf() {
	fmt.Println(lastword.DigestOf([]byte("new")))
	// Output:
	// sha256:11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437
}

func ExampleParseDuration() {
	ttl, err := lastword.ParseDuration("1m30s")
	fmt.Println(ttl == 90*time.Second, err)

	_, err = lastword.ParseDuration("1e30s")
	fmt.Println(err)
	// Output:
	// true <nil>
	// INVALID: duration "1e30s": want a number with a unit, such as 500ms, 30s or 2m
}

// A refusal and a missing answer call for different actions, so they are
// different errors.
func ExampleError() {
	act := func(err error) string {
		switch {
		case errors.Is(err, lastword.ErrUnknownOutcome):
			return "settle it by its operation id"
		case errors.Is(err, lastword.ErrStale):
			return "stop: a newer holder has written"
		default:
			return "report it"
		}
	}
	for _, code := range []lastword.Code{lastword.CodeStaleOwner, lastword.CodeMutationUnknown} {
		err := &lastword.Error{Code: code, Op: "apply", Resource: "doc/a"}
		fmt.Printf("%v: %s\n", err, act(err))
	}
	// Output:
	// apply doc/a: STALE_OWNER: stop: a newer holder has written
	// apply doc/a: MUTATION_UNKNOWN: settle it by its operation id
}
