// Command etcd puts a table behind the locks of an etcd that you already run (R14b): the
// create revision of a lock's key is the fence. Two workers take the lock one after the
// other; the first one's lease lapses while it is away, and what it writes then is
// refused.
//
//	go run ./examples/etcd --etcd 127.0.0.1:2379
//
// It speaks etcd's JSON gateway with net/http. A program of yours has etcd's Go client
// and its concurrency.Mutex, which make the same keys.
//
// # Guarantees
//
// The late write changes nothing, or the program says what is wrong and ends with exit
// code 1. It leaves no file, and in etcd nothing but leases that lapse.
//
// # Not guaranteed
//
// Nothing is signed: who reaches the gate is believed (P3 rests on your callers'
// authentication). Its database lives in a temporary directory.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	_ "modernc.org/sqlite"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
)

const document = lastword.Resource("doc/a")

func main() {
	addr := flag.String("etcd", "127.0.0.1:2379", "client address of an etcd without TLS")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &etcd{addr: *addr}); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1) //nolint:gocritic // run has cleaned up
	}
}

func run(ctx context.Context, e *etcd) error {
	dir, err := os.MkdirTemp("", "etcd-example-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := sqlfence.Init(ctx, db); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE doc (id TEXT PRIMARY KEY, body TEXT)`); err != nil {
		return err
	}
	// The gate asks etcd before each write whether the lock is still this tenure's. The
	// fence does not rest on that: it also refuses where the answer was true a moment ago.
	docs, err := sqlfence.New(ctx, db, sqlfence.Config{Config: fence.Config{
		Domain: "etcd.example", Imported: true, Status: e, StatusReuse: -1, Scope: "doc/",
	}})
	if err != nil {
		return err
	}
	defer func() { _ = docs.Close() }()
	return takeover(ctx, e, docs, db)
}

func takeover(ctx context.Context, e *etcd, docs *sqlfence.Fence, db *sql.DB) error {
	first, err := e.lock(ctx, document, "worker-1", time.Second)
	if err != nil {
		return err
	}
	if err := write(ctx, docs, first, "edit-1", "one"); err != nil {
		return err
	}
	fmt.Println("worker-1 hangs; nobody keeps its etcd lease alive")
	second, err := e.lock(ctx, document, "worker-2", time.Minute) // waits until the key is gone
	if err != nil {
		return err
	}
	defer func() { _ = e.revoke(context.WithoutCancel(ctx), second) }()
	if second.Token <= first.Token {
		return fmt.Errorf("revision %d came after %d", second.Token, first.Token)
	}
	// Not registered at the table yet, and not held any more: etcd says so.
	if err := write(ctx, docs, first, "edit-2", "late"); !errors.Is(err, lastword.ErrUnverified) {
		return fmt.Errorf("a write of a lock that is gone: %w", err)
	}
	if err := write(ctx, docs, second, "edit-3", "two"); err != nil {
		return err
	}
	fmt.Println("worker-1 wakes up")
	if err := write(ctx, docs, first, "edit-4", "late"); !errors.Is(err, lastword.ErrStale) {
		return fmt.Errorf("a late write: %w", err)
	}
	var body string
	if err := db.QueryRowContext(ctx, `SELECT body FROM doc WHERE id = 'a'`).Scan(&body); err != nil || body != "two" {
		return fmt.Errorf("the document is %q, %w", body, err)
	}
	fmt.Printf("the document is %q, as worker-2 left it\n", body)
	return nil
}

func write(ctx context.Context, docs *sqlfence.Fence, t fence.Imported, operation, body string) error {
	call := fence.Call{Resource: document, Imported: &t, Content: []byte(body), Mutation: lastword.Mutation{Operation: operation}}
	r, err := fence.Apply(ctx, docs.Gate(), docs.Place(), call, func(ctx context.Context, tx *sqlfence.Tx) ([]byte, error) {
		_, err := tx.SQL().ExecContext(ctx, `INSERT INTO doc VALUES ('a', ?1) ON CONFLICT DO UPDATE SET body = ?1`, body)
		return nil, err
	})
	if err != nil {
		fmt.Printf("%s, revision %d, %s: %v\n", t.Owner, t.Token, operation, err)
		return err
	}
	fmt.Printf("%s, revision %d, %s: %s\n", t.Owner, t.Token, operation, r.Verdict)
	return nil
}
