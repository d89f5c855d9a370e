package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/lastword/lastword/bench/load"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/pgxfence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/internal/realservers"
)

const (
	barePgx      = "bare UPDATE, PostgreSQL, pgx"
	fencedPgx    = "fenced UPDATE, PostgreSQL, pgx callback"
	fencedSend   = "fenced UPDATE, PostgreSQL, pgx statement form"
	barePlain    = "bare UPDATE, PostgreSQL, *sql.Tx"
	fencedPlain  = "fenced UPDATE, PostgreSQL, *sql.Tx"
	plainAccount = "account_plain"
)

// postgresWrites is a PostgreSQL with two tables alike, one of them protected.
type postgresWrites struct {
	*writeBench
	server *realservers.Server
	pool   *pgxpool.Pool
	db     *sql.DB
	pgx    *pgxfence.Fence
	plain  *sqlfence.Fence
}

// postgres measures W5 on PostgreSQL, every form on a protected table.
func (r *report) postgres(ctx context.Context, o Options, w *writeBench, many int) (err error) {
	p := &postgresWrites{writeBench: w}
	defer func() { err = errors.Join(err, p.stop()) }()
	err = p.open(ctx, o)
	if missing, ok := errors.AsType[*realservers.MissingError](err); ok {
		r.note("without PostgreSQL: " + missing.Error())
		return nil
	}
	if err != nil {
		return err
	}
	sides := []writes{{barePgx, p.barePgx}, {fencedPgx, p.fencedPgx}, {fencedSend, p.send}, {barePlain, p.barePlain}, {fencedPlain, p.fencedPlain}}
	for _, clients := range []int{1, many} {
		in := cases(clients)
		for i := range sides { // what is planned and prepared is there
			if _, _, err := w.measure(ctx, o.Duration/10+time.Millisecond, clients, sides[i].write); err != nil {
				return err
			}
		}
		for round := range o.Rounds {
			medians := make([]load.Summary, len(sides))
			for i := range sides {
				side := (i + round) % len(sides)
				o.Progress(fmt.Sprintf("W5 round %d of %d: %s, %s", round+1, o.Rounds, sides[side].name, in))
				var count int64
				if medians[side], count, err = w.measure(ctx, o.Duration, clients, sides[side].write); err != nil {
					return err
				}
				r.add(sides[side].name, p.server.Version, in, map[string]float64{
					p50.Name: micros(medians[side].P50), p99.Name: micros(medians[side].P99), writesPerSecond.Name: float64(count) / o.Duration.Seconds(),
				})
			}
			for side, bare := range map[int]int{1: 0, 2: 0, 4: 3} {
				r.add(sides[side].name, "", in, map[string]float64{
					added50.Name: micros(medians[side].P50 - medians[bare].P50), added99.Name: micros(medians[side].P99 - medians[bare].P99),
				})
			}
		}
		for _, claim := range []struct {
			fenced, bare string
			atMost       float64
		}{{fencedPgx, barePgx, 1.25}, {fencedSend, barePgx, 0.85}, {fencedPlain, barePlain, 1.5}} {
			g := goal{atMost: claim.atMost}
			if clients > 1 {
				g = goal{}
			}
			r.ratio(in, p50.Name, claim.fenced, claim.bare, g)
			r.ratio(in, p99.Name, claim.fenced, claim.bare, goal{atMost: 1.25})
		}
	}
	r.note("on PostgreSQL the fenced table is protected: its triggers ask for the fence at every row; round trips: bare 3, pgx callback 3, statement form 1, *sql.Tx 5")
	return nil
}

func (p *postgresWrites) open(ctx context.Context, o Options) (err error) {
	if p.server, err = realservers.PostgreSQL(ctx, realservers.Config{Dir: o.Dir}); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(p.server.DSN)
	if err != nil {
		return err
	}
	config.MaxConns = writers + 2 // one looks at the triggers
	if p.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	if p.db, err = sql.Open("pgx", p.server.DSN); err != nil {
		return err
	}
	p.db.SetMaxOpenConns(writers + 2)
	p.db.SetMaxIdleConns(writers + 2)
	if err := pgxfence.Init(ctx, p.pool); err != nil {
		return err
	}
	for _, table := range []string{"account", plainAccount} {
		if _, err := p.pool.Exec(ctx, "CREATE TABLE "+table+" (id bigint PRIMARY KEY, owner text NOT NULL, balance bigint NOT NULL, note text NOT NULL)"); err != nil {
			return err
		}
		for i := range writers {
			if _, err := p.pool.Exec(ctx, "INSERT INTO "+table+" VALUES ($1, $2, 0, '')", i, fmt.Sprint("owner ", i)); err != nil {
				return err
			}
		}
	}
	cfg := fence.Config{Domain: domain, Verifier: p.verifier, Status: p.authority}
	if p.pgx, err = pgxfence.New(ctx, p.pool, pgxfence.Config{Config: cfg}); err != nil {
		return err
	}
	plain, err := sqlfence.New(ctx, p.db, sqlfence.Config{Config: cfg})
	if err != nil {
		return err
	}
	_, err = plain.Place().Protect(ctx, sqlfence.Protection{Domain: domain, Table: "account", Template: "account/{id}"},
		fence.Act{Operator: "bench", Reason: "W5", At: time.Now()})
	if err != nil {
		return errors.Join(err, plain.Close())
	}
	p.plain = plain
	return nil
}

func (p *postgresWrites) stop() (err error) {
	if p.plain != nil {
		err = p.plain.Close()
	}
	if p.pool != nil {
		p.pool.Close()
	}
	if p.db != nil {
		err = errors.Join(err, p.db.Close())
	}
	if p.server != nil {
		err = errors.Join(err, p.server.Stop())
	}
	return err
}

func transfer(table string) string {
	return "UPDATE " + table + " SET balance = balance + 1, note = $1 WHERE id = $2"
}

func note(n int) string { return fmt.Sprint("transfer number ", n) }

func (p *postgresWrites) barePgx(ctx context.Context, client, n int) error {
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, transfer(plainAccount), note(n), client)
		return err
	})
}

func (p *postgresWrites) operation(form string, client, n int) string {
	return fmt.Sprintf("%s-%d-%d-%d", form, p.run, client, n)
}

func (p *postgresWrites) fencedPgx(ctx context.Context, client, n int) error {
	operation := p.operation("pgx", client, n)
	_, err := p.pgx.Apply(ctx, p.leases[client], operation, []byte(operation), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, transfer("account"), note(n), client)
		return err
	})
	return err
}

func (p *postgresWrites) send(ctx context.Context, client, n int) error {
	operation := p.operation("send", client, n)
	_, err := p.pgx.Send(ctx, p.leases[client], operation, []byte(operation), pgxfence.Statement{SQL: transfer("account"), Args: []any{note(n), client}})
	return err
}

func (p *postgresWrites) barePlain(ctx context.Context, client, n int) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, transfer(plainAccount), note(n), client); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (p *postgresWrites) fencedPlain(ctx context.Context, client, n int) error {
	operation := p.operation("sql", client, n)
	_, err := p.plain.Apply(ctx, p.leases[client], operation, []byte(operation), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, transfer("account"), note(n), client)
		return err
	})
	return err
}
