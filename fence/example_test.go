package fence_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
	"github.com/lastword/lastword/grant"
)

// authority stands for the real one: it signs grants of growing fences.
type authority struct {
	signer *grant.Signer
	fence  lastword.Token
}

func newAuthority() (*authority, *fence.Gate) {
	key, err := grant.NewKey()
	if err != nil {
		log.Fatal(err)
	}
	signer, err := grant.NewSigner("docs.example", key)
	if err != nil {
		log.Fatal(err)
	}
	bundle, err := signer.Bundle(grant.BundleInfo{Sequence: 1})
	if err != nil {
		log.Fatal(err)
	}
	verifier, err := grant.NewVerifier("docs.example", grant.StaticBundle(bundle), grant.VerifierConfig{})
	if err != nil {
		log.Fatal(err)
	}
	// A gate in production asks the authority: it leaves Mode out and gives Status.
	gate, err := fence.NewGate(fence.Config{Domain: "docs.example", Verifier: verifier, Mode: fence.FenceOnly})
	if err != nil {
		log.Fatal(err)
	}
	return &authority{signer: signer, fence: 40}, gate
}

func (a *authority) acquire(owner string) (signed string) {
	a.fence++
	signed, _, err := a.signer.Sign("", grant.Claims{
		Domain: "docs.example", Resource: "doc/a", Owner: owner, Fence: a.fence,
		RequestID: "request of " + owner, LeaseID: "lease of " + owner,
		Class: lastword.ClassWrite, TTL: 30 * time.Second, IssuedAt: time.Unix(1_800_000_000, 0),
	})
	if err != nil {
		log.Fatal(err)
	}
	return signed
}

// A paused worker comes back after its successor has written: 41, 42, 41.
func ExampleApply() {
	authority, gate := newAuthority()
	place := memfence.New("docs")
	write := func(signed, operation, text string) {
		call := fence.Call{
			Content:  []byte(text),
			Mutation: lastword.Mutation{Grant: signed, Operation: operation},
		}
		receipt, err := fence.Apply(context.Background(), gate, place, call,
			func(_ context.Context, tx *memfence.Tx) ([]byte, error) {
				tx.Set("doc/a", text)
				return nil, nil
			})
		var refusal *lastword.Error
		switch {
		case errors.Is(err, lastword.ErrUnknownOutcome):
			fmt.Println("unknown: apply the same call again to settle it")
		case errors.As(err, &refusal):
			fmt.Printf("%s: the stored fence is %s\n", refusal.Code, refusal.Fence)
		case err != nil:
			fmt.Println("the effect failed:", err)
		default:
			fmt.Printf("%s: fence %s, seq %d\n", receipt.Verdict, receipt.Fence, receipt.Seq)
		}
	}
	a := authority.acquire("worker-a")
	write(a, "a-1", "by a")
	b := authority.acquire("worker-b")
	write(b, "b-1", "by b")
	write(a, "a-2", "late")
	write(b, "b-1", "by b")
	text, _ := place.Get("doc/a")
	fmt.Println(text)
	// Output:
	// APPLIED: fence 41, seq 1
	// APPLIED: fence 42, seq 1
	// STALE_OWNER: the stored fence is 42
	// REPLAYED: fence 42, seq 1
	// by b
}

func ExampleWithin() {
	authority, gate := newAuthority()
	place := memfence.New("docs")
	ctx := context.Background()
	tx, err := place.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	call := fence.Call{
		Content:  []byte("text"),
		Mutation: lastword.Mutation{Grant: authority.acquire("worker-a"), Operation: "a-1"},
	}
	if _, err := fence.Within(ctx, gate, place, tx, call); err != nil {
		log.Fatal(err) // roll back; nothing else keeps the write out
	}
	tx.Set("doc/a", "text")
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
	receipt, found, err := fence.Lookup(ctx, gate, place, "doc/a", "a-1")
	fmt.Println(receipt.Fence, found, err)
	// Output: 41 true <nil>
}

// A newer owner shuts the older one out before it writes anything itself.
func ExampleAdvance() {
	authority, gate := newAuthority()
	place := memfence.New("docs")
	authority.acquire("worker-a")
	call := fence.Call{Mutation: lastword.Mutation{Grant: authority.acquire("worker-b")}}
	record, err := fence.Advance(context.Background(), gate, place, call)
	fmt.Println(record.Fence, record.LastSeq, err)
	// Output: 42 0 <nil>
}

func ExampleLookup() {
	_, gate := newAuthority()
	place := memfence.New("docs")
	_, found, err := fence.Lookup(context.Background(), gate, place, "doc/a", "a-1")
	fmt.Println(found, err) // and no proof that it will not be there later
	// Output: false <nil>
}

func ExampleInspect() {
	authority, gate := newAuthority()
	place := memfence.New("docs")
	call := fence.Call{
		Content:  []byte("text"),
		Mutation: lastword.Mutation{Grant: authority.acquire("worker-a"), Operation: "a-1", Seq: 2},
	}
	_, err := fence.Apply(context.Background(), gate, place, call,
		func(context.Context, *memfence.Tx) ([]byte, error) { return nil, nil })
	fmt.Println(err)
	seen, err := fence.Inspect(context.Background(), gate, place, "doc/a")
	fmt.Println(seen.Record.Exists, seen.Refusals, err)
	// Output:
	// apply doc/a: OUT_OF_ORDER: the order rule of the record does not admit this number (submit the missing operations first; a new fence starts at 1)
	// false map[OUT_OF_ORDER:1] <nil>
}

func ExampleNewGate() {
	_, err := fence.NewGate(fence.Config{Domain: "docs.example"})
	fmt.Println(err)
	// Output: make gate: INVALID: no verifier: without one no grant can be believed
}

func ExampleGate_Flush() {
	_, gate := newAuthority()
	// After a transaction with a refused Within was rolled back:
	fmt.Println(gate.Flush(context.Background()))
	// Output: <nil>
}
