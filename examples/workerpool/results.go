package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/rpc"
)

// results is the business database, and the fence in front of it.
type results struct {
	db    *sql.DB
	fence *sqlfence.Fence
}

func openResults(ctx context.Context, dir string, remote *rpc.Client) (*results, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "results.db")+
		"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		return nil, err
	}
	r := &results{db: db}
	if r.fence, err = r.prepare(ctx, remote); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return r, nil
}

func (r *results) prepare(ctx context.Context, remote *rpc.Client) (*sqlfence.Fence, error) {
	if _, err := r.db.ExecContext(ctx, `CREATE TABLE result (task INTEGER PRIMARY KEY, answer TEXT NOT NULL, agent TEXT NOT NULL, writes INTEGER NOT NULL)`); err != nil {
		return nil, err
	}
	if err := sqlfence.Init(ctx, r.db); err != nil {
		return nil, err
	}
	verifier, err := grant.NewVerifier("agents", grant.FetchBundle(remote.Bundle), grant.VerifierConfig{})
	if err != nil {
		return nil, err
	}
	return sqlfence.New(ctx, r.db, sqlfence.Config{Config: fence.Config{Domain: "agents", Verifier: verifier, Status: remote}})
}

func (r *results) close() {
	_ = r.fence.Close()
	_ = r.db.Close()
}

// insert is the business write. A second result would show in writes.
func insert(ctx context.Context, tx *sql.Tx, task int, answer, agent string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO result VALUES (?1, ?2, ?3, 1) ON CONFLICT DO UPDATE SET answer = ?2, agent = ?3, writes = writes + 1`, task, answer, agent)
	return err
}

// operation names the intent, not the attempt: whoever has the task makes this write,
// and it has one effect.
func operation(task int) string { return fmt.Sprintf("result-%d", task) }

// done says whether a task has its result.
func (r *results) done(ctx context.Context, task int) (bool, error) {
	_, found, err := r.fence.Lookup(ctx, resource(task), operation(task))
	return found, err
}

func resource(task int) lastword.Resource {
	return lastword.Resource(fmt.Sprintf("task/%d", task))
}

func (r *results) check(ctx context.Context) error {
	var rows, writes int
	if err := r.db.QueryRowContext(ctx, `SELECT count(*), sum(writes) FROM result WHERE answer = task * task`).Scan(&rows, &writes); err != nil {
		return err
	}
	if rows != tasks || writes != tasks {
		return fmt.Errorf("%d right results of %d writes, want %d", rows, writes, tasks)
	}
	fmt.Printf("%d tasks, %d results, each of them once\n", tasks, rows)
	return nil
}
