package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/lastword/lastword/bench/load"
)

// ttl of locks, everywhere.
const ttl = 30 * time.Second

// takers is how many calls take and give up live leases at a time.
const takers = 64

// etcd is concurrency.Mutex: one client, which is one connection, and for each lock a
// session, which is one lease that the client keeps alive.
type etcd struct{ client *clientv3.Client }

func openEtcd(ctx context.Context, where string) (load.Target, error) {
	client, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: strings.Split(where, ","), DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	return &etcd{client}, nil
}

func (e *etcd) Close() error { return closed(e.client.Close()) }

func closed(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (e *etcd) Locks(ctx context.Context, keys []string) ([]load.Lock, func() error, error) {
	var sessions []*concurrency.Session
	done := func() (err error) {
		for _, s := range sessions {
			err = errors.Join(err, s.Close())
		}
		return err
	}
	var locks []load.Lock
	for _, key := range keys {
		s, err := concurrency.NewSession(e.client, concurrency.WithContext(ctx), concurrency.WithTTL(int(ttl/time.Second)))
		if err != nil {
			return nil, nil, errors.Join(err, done())
		}
		sessions, locks = append(sessions, s), append(locks, concurrency.NewMutex(s, key))
	}
	return locks, done, nil
}

// Keep holds leases, nothing more: no key and no lock hangs on them.
func (e *etcd) Keep(ctx context.Context, n int, ttl time.Duration) (load.Kept, error) {
	// What bounds the taking does not bound the keeping.
	alive, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k := &etcdLeases{client: e.client, cancel: cancel, ids: make([]clientv3.LeaseID, n)}
	err := load.Parallel(n, takers, func(i int) error {
		granted, err := e.client.Grant(ctx, int64(ttl/time.Second))
		if err != nil {
			return err
		}
		k.ids[i] = granted.ID
		answers, err := e.client.KeepAlive(alive, granted.ID)
		if err != nil {
			return err
		}
		k.watchers.Go(func() { k.watch(alive, answers) })
		return nil
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return k, nil
}

type etcdLeases struct {
	client        *clientv3.Client
	ids           []clientv3.LeaseID
	renewed, lost atomic.Int64
	cancel        context.CancelFunc
	watchers      sync.WaitGroup
}

func (k *etcdLeases) watch(alive context.Context, answers <-chan *clientv3.LeaseKeepAliveResponse) {
	for range answers {
		k.renewed.Add(1)
	}
	if alive.Err() == nil {
		k.lost.Add(1)
	}
}

func (k *etcdLeases) Count() (renewed, lost int64) { return k.renewed.Load(), k.lost.Load() }

// Done revokes them, so that what comes next does not share the machine with their
// expiry.
func (k *etcdLeases) Done() error {
	k.cancel()
	k.watchers.Wait()
	return load.Parallel(len(k.ids), takers, func(i int) error {
		limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := k.client.Revoke(limit, k.ids[i])
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil // it was counted as lost
		}
		return err
	})
}
