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
