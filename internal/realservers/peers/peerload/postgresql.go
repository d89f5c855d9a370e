package main

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lastword/lastword/bench/load"
)

// postgreSQL is a session's advisory lock, one connection for each client. Nothing of
// it is durable.
type postgreSQL struct{ dsn string }

func openPostgreSQL(ctx context.Context, where string) (load.Target, error) {
	conn, err := pgx.Connect(ctx, where)
	if err != nil {
		return nil, err
	}
	return &postgreSQL{where}, conn.Close(ctx)
}

func (p *postgreSQL) Close() error { return nil }

func (p *postgreSQL) Locks(ctx context.Context, keys []string) ([]load.Lock, func() error, error) {
	var conns []*pgx.Conn
	done := func() (err error) {
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		for _, c := range conns {
			err = errors.Join(err, c.Close(limit))
		}
		return err
	}
	var locks []load.Lock
	for _, key := range keys {
		conn, err := pgx.Connect(ctx, p.dsn)
		if err != nil {
			return nil, nil, errors.Join(err, done())
		}
		h := fnv.New64a()
		_, _ = h.Write([]byte(key))
		conns = append(conns, conn)
		locks = append(locks, &advisoryLock{conn, int64(h.Sum64())})
	}
	return locks, done, nil
}

func (p *postgreSQL) Keep(context.Context, int, time.Duration) (load.Kept, error) {
	return nil, errors.New("a lease of PostgreSQL is a connection")
}

type advisoryLock struct {
	conn *pgx.Conn
	key  int64
}

func (l *advisoryLock) Lock(ctx context.Context) error {
	_, err := l.conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, l.key)
	return err
}

func (l *advisoryLock) Unlock(ctx context.Context) error {
	var was bool
	if err := l.conn.QueryRow(ctx, `SELECT pg_advisory_unlock($1)`, l.key).Scan(&was); err != nil {
		return err
	}
	if !was {
		return errors.New("it was not held")
	}
	return nil
}
