package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lastword/lastword/bench/load"
)

// zooKeeper is the lock recipe of the client library, one session for each client.
type zooKeeper struct{ servers []string }

type silent struct{}

func (silent) Printf(string, ...any) {}

func openZooKeeper(_ context.Context, where string) (load.Target, error) {
	z := &zooKeeper{strings.Split(where, ",")}
	conn, err := z.connect()
	if err != nil {
		return nil, err
	}
	conn.Close()
	return z, nil
}

// connect returns when there is a session.
func (z *zooKeeper) connect() (*zk.Conn, error) {
	conn, events, err := zk.Connect(z.servers, ttl, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	late := time.NewTimer(10 * time.Second)
	defer late.Stop()
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return conn, nil
			}
		case <-late.C:
			conn.Close()
			return nil, errors.New("no session after 10 s")
		}
	}
}

func (z *zooKeeper) Close() error { return nil }

func (z *zooKeeper) Locks(_ context.Context, keys []string) ([]load.Lock, func() error, error) {
	var conns []*zk.Conn
	done := func() error {
		for _, c := range conns {
			c.Close()
		}
		return nil
	}
	var locks []load.Lock
	for _, key := range keys {
		conn, err := z.connect()
		if err != nil {
			_ = done()
			return nil, nil, err
		}
		conns = append(conns, conn)
		locks = append(locks, &zooKeeperLock{zk.NewLock(conn, "/"+key, zk.WorldACL(zk.PermAll))})
	}
	return locks, done, nil
}

func (z *zooKeeper) Keep(context.Context, int, time.Duration) (load.Kept, error) {
	return nil, errors.New("a lease of ZooKeeper is a connection")
}

type zooKeeperLock struct{ lock *zk.Lock }

func (l *zooKeeperLock) Lock(context.Context) error   { return l.lock.Lock() }
func (l *zooKeeperLock) Unlock(context.Context) error { return l.lock.Unlock() }
