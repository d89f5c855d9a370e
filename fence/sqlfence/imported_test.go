package sqlfence_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
)

// etcdLocks stands for an etcd in which a lock is a key that is created under a lease,
// as concurrency.Mutex of its Go client does: the revision at which the key was created
// is larger for every tenure of the lock, and etcd never counts it back. With the real
// client:
//
//	answer, err := etcd.Get(ctx, "lock/"+string(resource), clientv3.WithFirstCreate()...)
//	kv := answer.Kvs[0] // kv.CreateRevision is the token, kv.Lease names the tenure
type etcdLocks struct {
	mu       sync.Mutex
	revision int64
	holders  map[lastword.Resource]fence.Imported
}

func (e *etcdLocks) lock(r lastword.Resource, owner string) fence.Imported {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.revision += 7 // others write to this etcd, too
	t := fence.Imported{Token: lastword.Token(e.revision), Tenure: fmt.Sprintf("etcd-lease-%x", e.revision), Owner: owner}
	e.holders[r] = t
	return t
}

// Status makes etcd the one that is asked whether a tenure is still held: one
// linearizable read of the lock's key.
func (e *etcdLocks) Status(_ context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	st := lastword.Status{Resource: q.Resource, State: lastword.StateFree}
	if t, ok := e.holders[q.Resource]; ok {
		st.State = lastword.StateHeld
		st.Holder = lastword.TenureRef{Resource: q.Resource, Owner: t.Owner, LeaseID: t.Tenure, Fence: t.Token}
	}
	return st, nil
}

// The locks of an etcd that is there already guard a table (R14b): its create revision
// is the fence. Nothing is signed, so whoever reaches this gate has to be authenticated
// before, and is believed.
func ExampleConfig_imported() {
	dir, err := os.MkdirTemp("", "imported-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", dsn(filepath.Join(dir, "app.db"), durable))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	ctx := context.Background()
	if err := sqlfence.Init(ctx, db); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE doc (id TEXT PRIMARY KEY, body TEXT)`); err != nil {
		log.Fatal(err)
	}
	etcd := &etcdLocks{revision: 880_000_000_000, holders: map[lastword.Resource]fence.Imported{}}
	docs, err := sqlfence.New(ctx, db, sqlfence.Config{Config: fence.Config{
		Domain: "etcd.prod", Imported: true, Status: etcd, StatusReuse: -1, Scope: "doc/",
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer docs.Close()
	write := func(t fence.Imported, operation, body string) {
		c := fence.Call{Resource: "doc/a", Imported: &t, Content: []byte(body), Mutation: lastword.Mutation{Operation: operation}}
		r, err := fence.Apply(ctx, docs.Gate(), docs.Place(), c, func(ctx context.Context, tx *sqlfence.Tx) ([]byte, error) {
			_, err := tx.SQL().ExecContext(ctx, `INSERT INTO doc VALUES ('a', ?1) ON CONFLICT DO UPDATE SET body = ?1`, body)
			return nil, err
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(r.Verdict, "with revision", uint64(r.Fence))
	}
	first := etcd.lock("doc/a", "worker-1")
	write(first, "edit-1", "one")
	second := etcd.lock("doc/a", "worker-2") // the first one's lease has lapsed
	write(second, "edit-2", "two")
	write(first, "edit-3", "late")
	// Output:
	// APPLIED with revision 880000000007
	// APPLIED with revision 880000000014
	// apply doc/a: STALE_OWNER: a newer owner has written or registered here (stop; acquire again and look at what was done since)
}
