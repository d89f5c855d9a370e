package lastword_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/server"
)

// The program of the README, against an authority and a database of its own.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	authority, err := server.Open(ctx, server.Config{
		Store: "sqlite:" + filepath.Join(dir, "lastword.db"), Domain: "demo", GRPC: "127.0.0.1:0",
	})
	if err != nil {
		panic(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- authority.Serve(ctx) }()

	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE invoice (id INTEGER PRIMARY KEY, state TEXT); INSERT INTO invoice VALUES (4711, 'open')`); err != nil {
		panic(err)
	}
	if err := sqlfence.Init(ctx, db); err != nil {
		panic(err)
	}

	fmt.Println("error:", settle(ctx, authority.Addr().String(), db))
	fmt.Println("error:", settle(ctx, authority.Addr().String(), db)) // another worker, later
	var state string
	if err := db.QueryRowContext(ctx, `SELECT state FROM invoice WHERE id = 4711`).Scan(&state); err != nil {
		panic(err)
	}
	fmt.Println("invoice 4711 is", state)
	stop()
	fmt.Println("authority:", <-ended)
	// Output:
	// APPLIED with fence 1
	// error: <nil>
	// REPLAYED with fence 1
	// error: <nil>
	// invoice 4711 is settled
	// authority: <nil>
}

// What follows is what the README shows, word by word.

func settle(ctx context.Context, addr string, db *sql.DB) error {
	authority, err := rpc.Dial(addr, rpc.ClientConfig{}) // or the embedded one
	if err != nil {
		return err
	}
	defer authority.Close()

	// The resource: whom it believes, and its own database.
	verifier, err := grant.NewVerifier("demo", grant.FetchBundle(authority.Bundle), grant.VerifierConfig{})
	if err != nil {
		return err
	}
	invoices, err := sqlfence.New(ctx, db, sqlfence.Config{ // after sqlfence.Init, once
		Config: fence.Config{Domain: "demo", Verifier: verifier, Status: authority},
	})
	if err != nil {
		return err
	}
	defer invoices.Close()

	// The worker: a lease for as long as the function runs.
	c, err := client.New(authority, client.Config{})
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Run(ctx, "invoice-batch/2026-07-19", client.AcquireOptions{Wait: time.Minute},
		func(ctx context.Context, lease *client.Lease) error {
			receipt, err := invoices.Apply(ctx, lease, "settle-4711", []byte("settled"),
				func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, `UPDATE invoice SET state = 'settled' WHERE id = 4711`)
					return err
				})
			switch {
			case errors.Is(err, lastword.ErrStale):
				return err // a newer holder has written: stop
			case errors.Is(err, lastword.ErrUnknownOutcome):
				return err // neither done nor not done: apply it again, unchanged
			case err != nil:
				return err
			}
			// APPLIED, or REPLAYED if this operation had its effect before
			fmt.Println(receipt.Verdict, "with fence", receipt.Fence)
			return nil
		})
}
