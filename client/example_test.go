package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

func ExampleClient_Acquire() {
	authority := newFake() // the embedded authority, or a remote one
	c, err := client.New(authority, client.Config{Owner: "worker-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	lease, err := c.Acquire(context.Background(), "invoice-batch/2026-07-19", client.AcquireOptions{TTL: 30 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Close()
	fmt.Println("fence", lease.Fence(), lease.State())

	_, err = c.Acquire(context.Background(), "invoice-batch/2026-07-19", client.AcquireOptions{})
	fmt.Println("held:", errors.Is(err, lastword.ErrHeld))

	if err := lease.Complete(context.Background(), []byte("4711 settled")); err != nil {
		fmt.Println(err)
	}
	fmt.Println(lease.Release(context.Background()), lease.State())
	fmt.Println(context.Cause(lease.Context()))
	// Output:
	// fence 1 HELD
	// held: true
	// <nil> RELEASED
	// hold invoice-batch/2026-07-19: NOT_HOLDER: the lease was released
}

func ExampleClient_Run() {
	authority := newFake() // the embedded authority, or a remote one
	c, err := client.New(authority, client.Config{Owner: "worker-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	err = c.Run(context.Background(), "nightly", client.AcquireOptions{}, func(ctx context.Context, l *client.Lease) error {
		fmt.Println("working with fence", l.Fence())
		return nil
	})
	fmt.Println("error:", err)

	err = c.Run(context.Background(), "nightly", client.AcquireOptions{}, func(ctx context.Context, l *client.Lease) error {
		fmt.Println("working with fence", l.Fence())
		authority.revoke("nightly")
		// The next write finds out; so does the next renewal.
		return l.Complete(ctx, nil)
	})
	fmt.Println("lost:", errors.Is(err, lastword.ErrNotHolder))
	// Output:
	// working with fence 1
	// error: <nil>
	// working with fence 2
	// lost: true
}

func ExampleConfig_onEvent() {
	c, err := client.New(newFake(), client.Config{OnEvent: func(e client.Event) {
		fmt.Printf("%s %s: %s, before %s\n", e.Resource, e.Fence, e.To, e.From)
		if e.Final() {
			fmt.Println("given up by ourselves:", errors.Is(e.Cause, client.ErrReleased))
		}
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := c.Acquire(context.Background(), "nightly", client.AcquireOptions{}); err != nil {
		fmt.Println(err)
	}
	if err := c.Close(); err != nil { // releases, and waits until all is told
		fmt.Println(err)
	}
	// Output:
	// nightly 1: HELD, before REQUESTED
	// nightly 1: RELEASED, before HELD
	// given up by ourselves: true
}

func ExampleChaos() {
	// Two thirds of the replies are lost; one seed gives one story.
	chaos, err := client.NewChaos(newFake(), client.ChaosConfig{Seed: 77, LoseReply: 0.66, Ops: []string{"acquire"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer chaos.Close()
	c, err := client.New(chaos, client.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	lease, err := c.Acquire(context.Background(), "nightly", client.AcquireOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("fence", lease.Fence(), "after", chaos.Counts().LostReplies, "lost replies")
	// Output:
	// fence 1 after 2 lost replies
}
