package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the embedded engine

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/bench/load"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/store/sqlstore"
)

// domain of everything that is measured inside a process.
const domain = "bench"

// embedded is an authority inside the process, on a SQLite file, durable.
type embedded struct {
	*authority.Authority
	store *sqlstore.Store
}

func openEmbedded(ctx context.Context, dir string) (_ *embedded, err error) {
	path := filepath.Join(dir, "authority.db")
	s, err := sqlstore.Open(ctx, path, sqlstore.Config{})
	if err != nil {
		return nil, err
	}
	a, err := openAuthority(ctx, s, path)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &embedded{a, s}, nil
}

func openAuthority(ctx context.Context, s *sqlstore.Store, path string) (*authority.Authority, error) {
	key, _, err := grant.LoadOrCreateKey(path + ".key")
	if err != nil {
		return nil, err
	}
	signer, err := grant.NewSigner(domain, key)
	if err != nil {
		return nil, err
	}
	return authority.Open(ctx, s, signer, authority.Config{Domain: domain, Witness: authority.NewFileWitness(path + ".witness")})
}

func (e *embedded) Close() error { return errors.Join(e.Authority.Close(), e.store.Close()) }

// holders is the embedded authority with the holder's library in front of it.
func (e *embedded) holders() load.Target { return &holders{e.Authority, e.Close} }

// calls is the authority's own methods, without the holder's library: what a lock is
// to a caller that keeps no lease alive.
type calls struct {
	authority client.Authority
	close     func() error
}

func (c *calls) Close() error { return c.close() }

func (c *calls) Locks(_ context.Context, keys []string) ([]load.Lock, func() error, error) {
	var locks []load.Lock
	for i, key := range keys {
		locks = append(locks, &calledLock{authority: c.authority, request: lastword.AcquireRequest{
			Resource: lastword.Resource(key), Owner: fmt.Sprint("client-", i), TTL: lockTTL, Wait: longWait,
		}})
	}
	return locks, func() error { return nil }, nil
}

func (c *calls) Keep(context.Context, int, time.Duration) (load.Kept, error) {
	return nil, errors.New("the calls alone keep nothing alive")
}

type calledLock struct {
	authority client.Authority
	request   lastword.AcquireRequest
	count     int
	tenure    lastword.Tenure
}

func (l *calledLock) Lock(ctx context.Context) (err error) {
	l.count++
	l.request.RequestID = requestID(l.request.Owner, l.count)
	l.tenure, err = l.authority.Acquire(ctx, l.request)
	return err
}

func (l *calledLock) Unlock(ctx context.Context) error {
	return l.authority.Release(ctx, l.tenure.TenureRef)
}

// requestID is as long as those that the holder's library draws.
func requestID(owner string, n int) string { return fmt.Sprintf("%s-%0*d", owner, 25-len(owner), n) }
