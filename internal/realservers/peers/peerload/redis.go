package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/lastword/lastword/bench/load"
)

// poll is how often a waiter of redislock asks. Its documentation shows 100 ms; this
// is what came out best for hand-overs of 64 waiters on two cores.
const poll = 4 * time.Millisecond

// redisLocks is redislock over one client, whose pool has a connection for each
// caller.
type redisLocks struct{ client *redis.Client }

func openRedis(ctx context.Context, where string) (load.Target, error) {
	client := redis.NewClient(&redis.Options{Addr: where, PoolSize: 256, MinIdleConns: 64})
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &redisLocks{client}, nil
}

func (r *redisLocks) Close() error { return r.client.Close() }

func (r *redisLocks) Locks(_ context.Context, keys []string) ([]load.Lock, func() error, error) {
	locker := redislock.New(r.client)
	var locks []load.Lock
	for _, key := range keys {
		locks = append(locks, &redisLock{locker: locker, key: key})
	}
	return locks, func() error { return nil }, nil
}

func (r *redisLocks) Keep(context.Context, int, time.Duration) (load.Kept, error) {
	return nil, errors.New("redislock renews nothing by itself")
}

type redisLock struct {
	locker *redislock.Client
	key    string
	held   *redislock.Lock
}

func (l *redisLock) Lock(ctx context.Context) (err error) {
	// Without a deadline of its own, redislock waits for one ttl.
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	l.held, err = l.locker.Obtain(ctx, l.key, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(poll)})
	return err
}

func (l *redisLock) Unlock(ctx context.Context) error { return l.held.Release(ctx) }
