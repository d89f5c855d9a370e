package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/bench/load"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
)

var (
	writesPerSecond = Column{"writes_per_second", "writes/s"}
	statements      = Column{"statements", "statements"}
	added50         = Column{"added_p50_us", "added p50"}
	added99         = Column{"added_p99_us", "added p99"}
)

const (
	bareWrites   = "bare UPDATE, SQLite"
	fencedWrites = "fenced UPDATE, SQLite"
)

// w5 is one business UPDATE with the fence and without, each durable.
func w5(ctx context.Context, o Options) (_ Report, err error) {
	r := newReport("W5", "one business UPDATE in a transaction of its own, with the fence and without, durable",
		p50, p99, added50, added99, writesPerSecond, statements)
	w, err := openWrites(ctx, o)
	if err != nil {
		return r.Report, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	many := min(16, o.Clients)
	sides := []writes{{bareWrites, w.bare}, {fencedWrites, w.fenced}}
	for _, clients := range []int{1, many} {
		in := cases(clients)
		for round := range o.Rounds {
			var medians [2]load.Summary
			for i := range sides {
				side := (i + round) % len(sides)
				o.Progress(fmt.Sprintf("W5 round %d of %d: %s, %s", round+1, o.Rounds, sides[side].name, in))
				count, counted := int64(0), w.counter.reset()
				medians[side], count, err = w.measure(ctx, o.Duration, clients, sides[side].write)
				if err != nil {
					return r.Report, err
				}
				r.add(sides[side].name, "", in, map[string]float64{
					p50.Name: micros(medians[side].P50), p99.Name: micros(medians[side].P99),
					writesPerSecond.Name: float64(count) / o.Duration.Seconds(), statements.Name: float64(counted()) / float64(count),
				})
			}
			r.add(fencedWrites, "", in, map[string]float64{
				added50.Name: micros(medians[1].P50 - medians[0].P50), added99.Name: micros(medians[1].P99 - medians[0].P99),
			})
		}
		r.ratio(in, p50.Name, fencedWrites, bareWrites, goal{atMost: 1.15})
		r.ratio(in, p99.Name, fencedWrites, bareWrites, goal{atMost: 1.25})
	}
	if err := r.postgres(ctx, o, w, many); err != nil {
		return r.Report, err
	}
	r.note("a statement is a call to the engine, BEGIN and COMMIT included; SQLite has no round trips")
	return r.Report, nil
}

type writes struct {
	name  string
	write func(ctx context.Context, client, n int) error
}

// writeBench is two databases alike, one with a fence, and an authority that granted a
// lease for each client.
type writeBench struct {
	dir          string
	counter      *statementCounter
	plain, guard *sql.DB
	fence        *sqlfence.Fence
	authority    *embedded
	verifier     *grant.Verifier
	holder       *client.Client
	leases       []*client.Lease
	run          int
}

const business = `CREATE TABLE account (id INTEGER PRIMARY KEY, owner TEXT NOT NULL, balance INTEGER NOT NULL, note TEXT NOT NULL)`

const writers = 16

func openWrites(ctx context.Context, o Options) (w *writeBench, err error) {
	w = &writeBench{counter: &statementCounter{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.dir, err = os.MkdirTemp(o.Dir, "lastword-bench-"); err != nil {
		return w, err
	}
	for _, db := range []struct {
		to   **sql.DB
		name string
	}{{&w.plain, "plain.db"}, {&w.guard, "guarded.db"}} {
		if *db.to, err = w.database(ctx, db.name); err != nil {
			return w, err
		}
	}
	if err := sqlfence.Init(ctx, w.guard); err != nil {
		return w, err
	}
	if w.authority, err = openEmbedded(ctx, w.dir); err != nil {
		return w, err
	}
	if w.holder, err = client.New(w.authority, client.Config{}); err != nil {
		return w, err
	}
	for i := range writers {
		lease, err := w.holder.Acquire(ctx, lastword.Resource(fmt.Sprint("account/", i)), client.AcquireOptions{})
		if err != nil {
			return w, err
		}
		w.leases = append(w.leases, lease)
	}
	w.verifier, err = grant.NewVerifier(domain, grant.FetchBundle(w.authority.Bundle), grant.VerifierConfig{})
	if err != nil {
		return w, err
	}
	w.fence, err = sqlfence.New(ctx, w.guard, sqlfence.Config{Config: fence.Config{Domain: domain, Verifier: w.verifier, Status: w.authority}})
	return w, err
}

// database is opened as the documentation of sqlfence shows it.
func (w *writeBench) database(ctx context.Context, name string) (*sql.DB, error) {
	connector, err := w.counter.connector("file:" + filepath.Join(w.dir, name) +
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	if _, err := db.ExecContext(ctx, business); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	for i := range writers {
		if _, err := db.ExecContext(ctx, `INSERT INTO account VALUES (?, ?, 0, '')`, i, fmt.Sprint("owner ", i)); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return db, nil
}

func (w *writeBench) close() (err error) {
	if w.fence != nil {
		err = w.fence.Close()
	}
	if w.holder != nil {
		err = errors.Join(err, w.holder.Close())
	}
	if w.authority != nil {
		err = errors.Join(err, w.authority.Close())
	}
	for _, db := range []*sql.DB{w.plain, w.guard} {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	if w.dir != "" {
		err = errors.Join(err, os.RemoveAll(w.dir))
	}
	return err
}

func update(ctx context.Context, tx *sql.Tx, client, n int) error {
	// SQLite writes nothing for a row that stays as it is.
	_, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance + 1, note = ? WHERE id = ?`, fmt.Sprint("transfer number ", n), client)
	return err
}

func (w *writeBench) bare(ctx context.Context, client, n int) error {
	tx, err := w.plain.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := update(ctx, tx, client, n); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (w *writeBench) fenced(ctx context.Context, client, n int) error {
	operation := fmt.Sprintf("transfer-%d-%d-%d", w.run, client, n)
	_, err := w.fence.Apply(ctx, w.leases[client], operation, []byte(operation), func(ctx context.Context, tx *sql.Tx) error {
		return update(ctx, tx, client, n)
	})
	return err
}

// measure lets so many clients write for a while.
func (w *writeBench) measure(ctx context.Context, d time.Duration, clients int, write func(ctx context.Context, client, n int) error) (load.Summary, int64, error) {
	w.run++
	samples := make([][]time.Duration, clients)
	start := time.Now()
	err := load.Parallel(clients, clients, func(client int) error {
		for n := 0; time.Since(start) < d; n++ {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			began := time.Now()
			if err := write(ctx, client, n); err != nil {
				return err
			}
			samples[client] = append(samples[client], time.Since(began))
		}
		return nil
	})
	var all []time.Duration
	for _, s := range samples {
		all = append(all, s...)
	}
	if err == nil && len(all) == 0 {
		err = errors.New("no write came to its end in the window")
	}
	return load.Summarize(all), int64(len(all)), err
}
