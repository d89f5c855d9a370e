package pgxfence_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lastword/lastword/fence/pgxfence"
	"github.com/lastword/lastword/internal/postgrestest"
)

// The fence adds no round trip to a transaction, and without a callback all of it is
// one. It is counted between client and server.
func TestRoundTrips(t *testing.T) {
	dsn := database(t)
	proxy := postgrestest.NewProxy(t, postgrestest.Server(t).Addr)
	for _, mode := range []string{"cache_statement", "cache_describe", "exec"} {
		pool := openPool(t, through(t, dsn, proxy.Addr, "&default_query_exec_mode="+mode+"&pool_max_conns=1"))
		s := newSeal(t)
		f := guard(t, pool, s.config())
		h := s.holder("r/"+"x", "a", 1)
		one := pgxfence.Statement{SQL: `UPDATE doc SET value = $1 WHERE resource = 'r/x'`, Args: []any{"v"}}
		mustExec(t, pool, `INSERT INTO doc VALUES ('r/x', '') ON CONFLICT DO NOTHING`)
		business := func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, one.SQL, one.Args...)
			return err
		}
		n := 0
		operation := func() string { n++; return mode + string(rune('a'+n)) }
		for _, c := range []struct {
			name string
			want int64
			do   func(ctx context.Context) error
		}{
			{"bare", 3, func(ctx context.Context) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return business(ctx, tx) })
			}},
			{"apply", 3, func(ctx context.Context) error { _, err := f.Apply(ctx, h, operation(), nil, business); return err }},
			{"send", 1, func(ctx context.Context) error { _, err := f.Send(ctx, h, operation(), nil, one); return err }},
			{"within", 5, func(ctx context.Context) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if _, err := f.Within(ctx, tx, h, operation(), nil); err != nil {
						return err
					}
					return business(ctx, tx)
				})
			}},
		} {
			for range 3 { // statements are described the first time
				proxy.Trips()
				if err := c.do(t.Context()); err != nil {
					t.Fatalf("%s, %s: %v", mode, c.name, err)
				}
			}
			got := proxy.Trips()
			t.Logf("%-15s %-6s %d round trips", mode, c.name, got)
			if got != c.want {
				t.Errorf("%s, %s: %d round trips, want %d", mode, c.name, got, c.want)
			}
		}
		pool.Close()
		mustReset(t, dsn)
	}
}

func mustReset(tb testing.TB, dsn string) {
	tb.Helper()
	pool := openPool(tb, dsn)
	if _, err := pool.Exec(tb.Context(), `ALTER TABLE lastword.fence DISABLE TRIGGER USER; DELETE FROM lastword.fence; DELETE FROM lastword.receipt;
ALTER TABLE lastword.fence ENABLE ALWAYS TRIGGER never_lowered, ENABLE ALWAYS TRIGGER never_deleted, ENABLE ALWAYS TRIGGER never_truncated`); err != nil {
		tb.Fatal(err)
	}
}
