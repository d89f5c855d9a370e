package sqlfence_test

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
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
)

// Two workers believe that they hold the invoice batch. The one with the older fence
// wakes up late: its write is refused in the database itself.
func ExampleFence_Apply() {
	ctx := context.Background()
	db, invoices, authority, done := exampleFence()
	defer done()

	settle := func(lease lastword.Holder, operation, state string) {
		receipt, err := invoices.Apply(ctx, lease, operation, []byte(state), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO invoice VALUES (4711, ?1) ON CONFLICT DO UPDATE SET state = ?1`, state)
			return err
		})
		switch {
		case errors.Is(err, lastword.ErrStale):
			fmt.Println(operation, "refused: a newer owner has written")
		case errors.Is(err, lastword.ErrUnknownOutcome):
			fmt.Println(operation, "unknown: apply it again with the same operation id")
		case err != nil:
			fmt.Println(operation, "failed, nothing was written:", err)
		default:
			fmt.Println(operation, receipt.Verdict, "fence", receipt.Fence, "seq", receipt.Seq)
		}
	}
	a, b := authority.lease("worker-a", 41), authority.lease("worker-b", 42)
	settle(a, "open-4711", "open")
	settle(b, "settle-4711", "settled")
	settle(b, "settle-4711", "settled") // its reply was lost
	settle(a, "reopen-4711", "open")    // a was paused, and wakes up

	var state string
	if err := db.QueryRowContext(ctx, `SELECT state FROM invoice`).Scan(&state); err != nil {
		panic(err)
	}
	fmt.Println("the invoice is", state)
	// Output:
	// open-4711 APPLIED fence 41 seq 1
	// settle-4711 APPLIED fence 42 seq 1
	// settle-4711 REPLAYED fence 42 seq 1
	// reopen-4711 refused: a newer owner has written
	// the invoice is settled
}

// The caller has a transaction already. Within checks first; the caller's COMMIT makes
// the receipt true.
func ExampleFence_Within() {
	ctx := context.Background()
	db, invoices, authority, done := exampleFence()
	defer done()
	lease := authority.lease("worker-a", 41)

	tx, err := db.BeginTx(ctx, nil) // BEGIN IMMEDIATE, by _txlock=immediate
	if err != nil {
		panic(err)
	}
	defer tx.Rollback()
	receipt, err := invoices.Within(ctx, tx, lease, "open-4711", []byte("open"))
	if err != nil {
		panic(err) // roll back; with sqlfence.ErrRetryTransaction, run it all again
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO invoice VALUES (4711, 'open')`); err != nil {
		panic(err)
	}
	_, found, err := invoices.Lookup(ctx, "invoice-batch/2026-07-19", "open-4711")
	fmt.Println(receipt.Verdict, "provisionally; found:", found, err)
	if err := tx.Commit(); err != nil {
		panic(err) // unknown: run it again with the same operation id
	}
	_, found, err = invoices.Lookup(ctx, "invoice-batch/2026-07-19", "open-4711")
	fmt.Println("committed; found:", found, err)
	// Output:
	// APPLIED provisionally; found: false <nil>
	// committed; found: true <nil>
}

// A successor registers its fence before it looks for what was left unfinished: from
// then on the old owner can only be refused, so that "not found" is proof (R22).
func ExampleFence_Advance() {
	ctx := context.Background()
	_, invoices, authority, done := exampleFence()
	defer done()
	const batch = "invoice-batch/2026-07-19"

	record, err := invoices.Advance(ctx, batch, authority.lease("worker-b", 42))
	fmt.Println("fence", record.Fence, err)
	_, found, err := invoices.Lookup(ctx, batch, "open-4711")
	fmt.Println("found:", found, err)
	_, err = invoices.Apply(ctx, authority.lease("worker-a", 41), "open-4711", []byte("open"),
		func(context.Context, *sql.Tx) error { panic("it does not run") })
	fmt.Println("stale:", errors.Is(err, lastword.ErrStale))
	status, err := invoices.Inspect(ctx, batch)
	fmt.Println("refused:", status.Refusals[lastword.StaleOwner], err)
	// Output:
	// fence 42 <nil>
	// found: false <nil>
	// stale: true
	// refused: 1 <nil>
}

// exampleFence opens a database with an invoice table and its fence, as a program
// does when it starts.
func exampleFence() (db *sql.DB, invoices *sqlfence.Fence, authority issuer, done func()) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+
		"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		panic(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE invoice (id INTEGER PRIMARY KEY, state TEXT NOT NULL)`); err != nil {
		panic(err)
	}
	if err := sqlfence.Init(ctx, db); err != nil {
		panic(err)
	}
	authority = exampleAuthority("billing")
	invoices, err = sqlfence.New(ctx, db, sqlfence.Config{Config: fence.Config{
		Domain: "billing", Verifier: authority.verifier, Mode: fence.FenceOnly,
	}})
	if err != nil {
		panic(err)
	}
	return db, invoices, authority, func() { _, _, _ = invoices.Close(), db.Close(), os.RemoveAll(dir) }
}

// issuer stands in for an authority, so that the example needs no network.
type issuer struct {
	domain   string
	signer   *grant.Signer
	verifier *grant.Verifier
}

func exampleAuthority(domain string) issuer {
	key, err := grant.NewKey()
	if err != nil {
		panic(err)
	}
	signer, err := grant.NewSigner(domain, key)
	if err != nil {
		panic(err)
	}
	bundle, err := signer.Bundle(grant.BundleInfo{Sequence: 1})
	if err != nil {
		panic(err)
	}
	verifier, err := grant.NewVerifier(domain, grant.StaticBundle(bundle), grant.VerifierConfig{})
	if err != nil {
		panic(err)
	}
	return issuer{domain, signer, verifier}
}

// lease is what client.Acquire returns in a real program.
func (i issuer) lease(owner string, token lastword.Token) lastword.Holder {
	g, _, err := i.signer.Sign("", grant.Claims{
		Domain: i.domain, Resource: "invoice-batch/2026-07-19", Owner: owner, RequestID: "request", LeaseID: "lease-" + owner,
		Fence: token, Class: lastword.ClassWrite, TTL: 30 * time.Second, IssuedAt: time.Unix(1_784_419_200, 0),
	})
	if err != nil {
		panic(err)
	}
	return &holder{grant: g, seq: map[string]*lastword.Sequence{}}
}
