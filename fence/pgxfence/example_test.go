package pgxfence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/pgxfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/realservers"
)

// A newer owner writes in one round trip; the old one, late, is refused.
func ExampleFence_Send() {
	ctx := context.Background()
	server, err := realservers.PostgreSQL(ctx, realservers.Config{}) // in a program: the server there is
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Stop()
	pool, err := pgxpool.New(ctx, server.DSN)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, `CREATE TABLE invoice (id int PRIMARY KEY, state text); INSERT INTO invoice VALUES (4711, 'open')`); err != nil {
		fmt.Println(err)
		return
	}
	if err := pgxfence.Init(ctx, pool); err != nil { // once, as `lastword fence init` does
		fmt.Println(err)
		return
	}
	authority := exampleSeal() // in a program: lease := client.Acquire(…)
	invoices, err := pgxfence.New(ctx, pool, authority.config())
	if err != nil {
		fmt.Println(err)
		return
	}
	old, newer := authority.holder("invoice/4711", "old", 41), authority.holder("invoice/4711", "new", 42)

	settle := pgxfence.Statement{SQL: `UPDATE invoice SET state = $1 WHERE id = $2`, Args: []any{"settled", 4711}}
	receipt, err := invoices.Send(ctx, newer, "settle-4711", []byte("settled"), settle)
	fmt.Println(receipt.Verdict, receipt.Fence, err)

	_, err = invoices.Apply(ctx, old, "reopen-4711", []byte("open"), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE invoice SET state = 'open' WHERE id = 4711`)
		return err
	})
	fmt.Println(errors.Is(err, lastword.ErrStale))
	// Output:
	// APPLIED 42 <nil>
	// true
}

func exampleSeal() *seal {
	key, err := grant.NewKey()
	if err != nil {
		panic(err)
	}
	s, err := sealOf(key)
	if err != nil {
		panic(err)
	}
	return s
}
