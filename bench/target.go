package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/bench/load"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/rpc"
)

const (
	// lockTTL is that of the peers' locks, too.
	lockTTL = 30 * time.Second
	// longWait is for a waiter that is sure to get its turn.
	longWait = 30 * time.Minute
	// takers is how many calls take and give up live leases at a time.
	takers = 64
)

// holders is lastword as a program uses it: for each client a holder of its own
// (package client), all over one connection.
type holders struct {
	authority client.Authority
	close     func() error
}

// dial is the target that runs in the load generator's process.
func dial(addr string) (load.Target, error) {
	c, err := rpc.Dial(addr, rpc.ClientConfig{})
	if err != nil {
		return nil, err
	}
	return &holders{c, c.Close}, nil
}

func (h *holders) Close() error { return h.close() }

func (h *holders) Locks(_ context.Context, keys []string) ([]load.Lock, func() error, error) {
	var clients []*client.Client
	done := func() (err error) {
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
		return err
	}
	var locks []load.Lock
	for i, key := range keys {
		c, err := client.New(h.authority, client.Config{Owner: fmt.Sprint("client-", i)})
		if err != nil {
			return nil, nil, errors.Join(err, done())
		}
		clients = append(clients, c)
		locks = append(locks, &heldLock{client: c, key: lastword.Resource(key)})
	}
	return locks, done, nil
}

// heldLock is one key of one holder.
type heldLock struct {
	client *client.Client
	key    lastword.Resource
	lease  *client.Lease
}

func (l *heldLock) Lock(ctx context.Context) (err error) {
	l.lease, err = l.client.Acquire(ctx, l.key, client.AcquireOptions{TTL: lockTTL, Wait: longWait})
	return err
}

func (l *heldLock) Unlock(ctx context.Context) error { return l.lease.Release(ctx) }

// Keep holds leases of one holder; the client renews each every third of its ttl.
func (h *holders) Keep(ctx context.Context, n int, ttl time.Duration) (load.Kept, error) {
	counted := &counting{Authority: h.authority}
	k := &keptLeases{counting: counted}
	c, err := client.New(counted, client.Config{Owner: "keeper", OnEvent: k.event})
	if err != nil {
		return nil, err
	}
	k.client = c
	run := fmt.Sprintf("live-%d", time.Now().UnixNano())
	leases := make([]*client.Lease, n)
	err = load.Parallel(n, takers, func(i int) (err error) {
		leases[i], err = c.Acquire(ctx, lastword.Resource(fmt.Sprintf("%s/%d", run, i)), client.AcquireOptions{TTL: ttl, Wait: longWait})
		return err
	})
	if err != nil {
		return nil, err
	}
	k.leases = leases
	return k, nil
}

// counting counts the renewals that were answered.
type counting struct {
	client.Authority
	renewed atomic.Int64
}

func (c *counting) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	t, err := c.Authority.Renew(ctx, ref)
	if err == nil {
		c.renewed.Add(1)
	}
	return t, err
}

type keptLeases struct {
	*counting
	client *client.Client
	leases []*client.Lease
	ended  atomic.Bool // whether they are being given up
	lost   atomic.Int64
}

func (k *keptLeases) event(e client.Event) {
	if e.Final() && !k.ended.Load() {
		k.lost.Add(1)
	}
}

func (k *keptLeases) Count() (renewed, lost int64) { return k.renewed.Load(), k.lost.Load() }

// Done releases them, so that what comes next does not share the machine with their
// expiry.
func (k *keptLeases) Done() error {
	k.ended.Store(true)
	return errors.Join(load.Parallel(len(k.leases), takers, func(i int) error {
		err := k.leases[i].Close()
		if errors.Is(err, lastword.ErrNotHolder) {
			return nil // it was counted as lost
		}
		return err
	}), k.client.Close())
}
