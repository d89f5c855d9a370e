package fencesql_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/postgrestest"
	"github.com/lastword/lastword/internal/realservers"
)

// A pooler in transaction mode hands a connection to somebody else after each
// transaction: what was prepared on it is not there any more. It has fewer connections
// than there are clients, so that they do change.
func TestPgBouncerInTransactionMode(t *testing.T) { // KF-39
	pooler, err := realservers.PgBouncer(t.Context(), postgrestest.Server(t), realservers.Config{
		Settings: []string{"default_pool_size = 3", "ignore_startup_parameters = extra_float_digits"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pooler.Stop() })
	t.Logf("pgbouncer %s at %s", pooler.Version, pooler.Addr)
	for _, c := range clients {
		for _, mode := range []string{"exec", "cache_describe"} {
			t.Run(c.name+", "+mode, func(t *testing.T) {
				dsn := database(t)
				db, s := openDB(t, dsn), newSeal(t)
				dsn = through(t, dsn, pooler.Addr)
				var all sync.WaitGroup
				for i := range 8 {
					resource := lastword.Resource(fmt.Sprint("r/", i%4))
					g, done, err := c.open(t.Context(), withQueryMode(dsn, mode), s.config(), 2)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(done)
					all.Go(func() {
						for turn := range 10 {
							h := s.holder(resource, fmt.Sprint("owner-", i), lastword.Token(turn*8+i+1))
							for n := range 3 {
								op := fmt.Sprintf("%d-%d-%d", i, turn, n)
								_, err := g.write(t.Context(), h, resource, op, "v "+op)
								if err != nil && !errors.Is(err, lastword.ErrStale) {
									t.Errorf("%s: %v", op, err)
								}
							}
						}
					})
				}
				all.Wait()
				if n := count(t, db, `SELECT count(*) FROM effect`); n < 40 {
					t.Errorf("%d effects", n)
				}
				verify(t, db)
			})
		}
	}
}

// withQueryMode is how the pool executes statements.
func withQueryMode(dsn, mode string) string {
	return dsn + queryMode + mode
}
