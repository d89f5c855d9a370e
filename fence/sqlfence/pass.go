package sqlfence

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/fencesql"
	"github.com/lastword/lastword/internal/protect"
	"github.com/lastword/lastword/internal/sqldb"
)

// The pass of a transaction (R16c).
const (
	// sqlPass opens one, if the schema is the one whose triggers were looked at, the
	// connection would refuse a COMMIT with an open pass, and none is open already.
	sqlPass = `INSERT INTO main.lastword_pass (domain, resource) SELECT ?1, ?2
FROM pragma_schema_version AS v CROSS JOIN pragma_foreign_keys AS k
WHERE v.schema_version = ?3 AND k.foreign_keys = 1 AND (?4 OR NOT EXISTS (SELECT 1 FROM main.lastword_pass))`

	sqlClosePass   = `DELETE FROM main.lastword_pass WHERE domain = ?1 AND resource = ?2`
	sqlClosePasses = `DELETE FROM main.lastword_pass`
)

// lite reports whether the database is SQLite, where a transaction has no number by
// which a trigger could know it.
func (p *Place) lite() bool {
	_, ok := p.engine.(fencesql.SQLite)
	return ok
}

// protection is what a place knows of the tables that are protected in it.
type protection struct {
	mu sync.Mutex
	// any: there is one, or there may be.
	any bool
	// version is of the schema whose triggers were looked at last, on SQLite.
	version int64
	// looked is when they were looked at last, on PostgreSQL.
	looked time.Time
}

// lookEvery bounds, on PostgreSQL, for how long a trigger can be missing before nothing
// is admitted any more.
const lookEvery = time.Second

// due reports whether the triggers have to be looked at, and that somebody does.
func (p *protection) due(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.looked.IsZero() && now.Sub(p.looked) < lookEvery {
		return false
	}
	p.looked = now
	return true
}

// unlooked makes the next write look.
func (p *protection) unlooked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looked = time.Time{}
}

func (p *protection) get() (any bool, version int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.any, p.version
}

func (p *protection) set(any bool, version int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.any, p.version = any, version
}

// Pass opens the protected tables to business statements on what belongs to key, until
// the transaction ends (R16c). It refuses a database one of whose tables is not closed
// as it should be, on PostgreSQL within a second, and a connection to SQLite that does
// not enforce foreign keys.
func (t *Tx) Pass(ctx context.Context, key fence.Key) error {
	t.opened = true
	if !t.place.lite() {
		if err := t.lookAtTriggers(ctx); err != nil {
			return t.place.fail("pass", key, err)
		}
		if t.guessing() { // what is stored next does it
			return nil
		}
		return t.tables.Pass(ctx, key)
	}
	ctx = t.place.engine.Calm(ctx)
	some, version := t.place.protects.get()
	if !some || t.passes[key] {
		return nil
	}
	opened, err := t.openPass(ctx, key, version)
	if err == nil && !opened {
		if some, version, err = t.lookAgain(ctx, key); err == nil && some {
			opened, err = t.openPass(ctx, key, version)
		}
		if err == nil && some && !opened {
			err = &lastword.Error{Code: lastword.CodeInternal, Message: "the protected tables could not be opened for this transaction"}
		}
	}
	if err != nil {
		return t.place.fail("pass", key, err)
	}
	if opened {
		if t.passes == nil {
			t.passes = map[fence.Key]bool{}
		}
		t.passes[key] = true
	}
	return nil
}

// lookAtTriggers refuses a PostgreSQL one of whose tables is not closed as it should be.
// Catalogues are not read for every write.
func (t *Tx) lookAtTriggers(ctx context.Context) error {
	if !t.place.protects.due(t.place.now()) {
		return nil
	}
	tables, err := protect.Inspect(ctx, protect.PostgreSQL{}, t.sql)
	if err == nil {
		err = protect.Unfit(tables)
	}
	if err != nil {
		t.place.protects.unlooked()
	}
	return err
}

func (t *Tx) openPass(ctx context.Context, key fence.Key, version int64) (bool, error) {
	n, err := t.place.conn(t.sql).Exec(ctx, sqlPass, key.Domain, string(key.Resource), version, t.theirs)
	return n == 1, err
}

// lookAgain finds out why no pass could be opened: the schema has changed, the connection
// is not fit, or a pass was left open. In a caller's transaction the schema may be one
// that is never committed, so it is remembered for this transaction alone.
func (t *Tx) lookAgain(ctx context.Context, key fence.Key) (some bool, version int64, err error) {
	tables, err := protect.Inspect(ctx, protect.SQLite{}, t.sql)
	if err == nil {
		err = protect.Unfit(tables)
	}
	if err != nil {
		return false, 0, err
	}
	var enforced bool
	row := t.sql.QueryRowContext(ctx, `SELECT v.schema_version, k.foreign_keys FROM pragma_schema_version AS v CROSS JOIN pragma_foreign_keys AS k`)
	if err := row.Scan(&version, &enforced); err != nil {
		return false, 0, err
	}
	if len(tables) > 0 && !enforced {
		return false, 0, &lastword.Error{Code: lastword.CodeInvalid, Op: "apply",
			Message: "the connection has PRAGMA foreign_keys = OFF: a pass that is left open would not be noticed",
			Hint:    "open the connections with PRAGMA foreign_keys = ON"}
	}
	if t.theirs {
		return len(tables) > 0, version, nil
	}
	t.place.protects.set(len(tables) > 0, version)
	return len(tables) > 0, version, t.closeLeft(ctx, key)
}

// ActPassLeftOpen is what is kept of passes that somebody has committed, which takes a
// connection that does not enforce foreign keys. It is an alarm: while they were there,
// the tables were open to everybody.
const ActPassLeftOpen fence.ActKind = "PASS_LEFT_OPEN"

// closeLeft closes what another transaction has left open.
func (t *Tx) closeLeft(ctx context.Context, key fence.Key) error {
	n, err := fencesql.Counted(t.sql.ExecContext(ctx, sqlClosePasses))
	if err != nil || n == 0 {
		return err
	}
	return t.Keep(ctx, fence.Key{Domain: key.Domain}, fence.Act{
		Kind: ActPassLeftOpen, Operator: "lastword", Reason: "a pass was committed and left the protected tables open", At: t.place.now(),
	})
}

// closePasses closes what this transaction has opened, before COMMIT.
func (t *Tx) closePasses(ctx context.Context) error {
	for key := range t.passes {
		if _, err := t.place.conn(t.sql).Exec(t.place.engine.Calm(ctx), sqlClosePass, key.Domain, string(key.Resource)); err != nil {
			return t.place.fail("commit", key, err)
		}
	}
	t.passes = nil
	return nil
}

// becameProtected reports whether err is the refusal of a trigger that this process did
// not know of, and looks at the database once more if so.
func (p *Place) becameProtected(ctx context.Context, err error) bool {
	if some, _ := p.protects.get(); some || !p.lite() || err == nil || !strings.Contains(err.Error(), "lastword: FENCE_REQUIRED") {
		return false
	}
	some, err := p.lookForProtection(ctx)
	return err == nil && some
}

func (p *Place) lookForProtection(ctx context.Context) (some bool, err error) {
	var tables []protect.Table
	err = sqldb.Backoff{}.Retry(ctx, p.engine, func(ctx context.Context) (err error) {
		tables, err = protect.Inspect(ctx, p.engine.Closing(), p.db)
		return err
	})
	if err == nil && len(tables) > 0 && p.lite() {
		p.protects.set(true, -1) // the first pass looks at the triggers
	}
	return len(tables) > 0, err
}

// checkProtected refuses a database one of whose protected tables is not closed.
func (p *Place) checkProtected(ctx context.Context) error {
	return p.fail("open fence", fence.Key{}, sqldb.Backoff{}.Retry(ctx, p.engine, func(ctx context.Context) error {
		tables, err := protect.Inspect(ctx, p.engine.Closing(), p.db)
		if err != nil {
			return err
		}
		return protect.Unfit(tables)
	}))
}

// ClosePass is the last thing before COMMIT in a transaction of the caller's own, after
// [Fence.Within], in a database with protected tables: without it COMMIT fails, because
// an open pass must not outlive its transaction (R16c). Nothing can be written to a
// protected table after it. Where nothing is protected it does nothing.
func (f *Fence) ClosePass(ctx context.Context, tx *sql.Tx) error {
	const op = "within"
	if some, _ := f.place.protects.get(); !some {
		return nil
	}
	_, err := tx.ExecContext(ctx, sqlClosePasses)
	return f.place.fail(op, fence.Key{}, err)
}

// Protection says what of a table is protected, and for whom (R17).
type Protection struct {
	// Domain of the authority whose fences count.
	Domain string
	// Table is its name, as it is.
	Table string
	// Template maps a row to the resource whose lease lets it change: doc/{id}, where
	// id is a column.
	Template string
	// Columns, if not empty, are the only ones that are protected: a row in which all
	// of them are NULL can be made and removed, and all other columns can change,
	// without a fence.
	Columns []string
	// Shadow begins with a roll-out (R18): what would be refused passes and is counted,
	// until [Place.Enforce].
	Shadow bool
}

// Protected is a protected table as [Place.Protected] finds it.
type Protected struct {
	Protection
	// Open says that it was opened for a migration: nothing is admitted until it is
	// protected again.
	Open  bool
	Since time.Time // for people
	// Faults are what is missing of its triggers, or not as it was made.
	Faults []string
}

// ProtectedAct kinds, kept beside the records like every act of an operator.
const (
	ActProtect   fence.ActKind = "protect"
	ActUnprotect fence.ActKind = "unprotect"
	ActShadow    fence.ActKind = "shadow"
	ActEnforce   fence.ActKind = "enforce"
)

// Protect closes a table to writers that bypass the fence (R16c, R17), or repairs what is
// missing of that, in one transaction. unreachable is how many rows belong to no resource
// (a column of the template is NULL, or, where there are several, has a slash): nobody can
// change them from then on. A table that is protected otherwise is refused; protection,
// once on, stays on.
func (p *Place) Protect(ctx context.Context, s Protection, act fence.Act) (unreachable int64, err error) {
	const op = "protect"
	spec, err := s.spec()
	if err != nil {
		return 0, p.fail(op, fence.Key{}, err)
	}
	err = p.act(ctx, op, ActProtect, s.Domain, act, func(ctx context.Context, tx *Tx) (string, error) {
		done, lost, err := protect.Protect(ctx, p.engine.Closing(), tx.sql, spec, act.At)
		unreachable = lost
		return "table " + done.Table + " as " + done.Template.String(), err
	})
	return unreachable, err
}

func (s Protection) spec() (protect.Spec, error) {
	if err := lastword.CheckID("domain", s.Domain); err != nil {
		return protect.Spec{}, err
	}
	t, err := protect.ParseTemplate(s.Template)
	return protect.Spec{Domain: s.Domain, Table: s.Table, Template: t, Columns: s.Columns, Shadow: s.Shadow}, err
}

// Unprotect opens a table for a migration: its triggers are removed, and nothing is
// admitted through the fence at this database until it is protected again. A table that
// does not exist any more is forgotten; gone says so.
func (p *Place) Unprotect(ctx context.Context, table string, act fence.Act) (opened Protected, gone bool, err error) {
	const op = "unprotect"
	err = p.act(ctx, op, ActUnprotect, "", act, func(ctx context.Context, tx *Tx) (string, error) {
		t, left, err := protect.Open(ctx, p.engine.Closing(), tx.sql, table, act.At)
		opened, gone = protected(t), left
		return "table " + t.Table, err
	})
	return opened, gone, err
}

// Shadow begins a roll-out of the resources that begin with prefix, which ends with a
// slash, or of one resource (R18). One that has ended does not begin again.
func (p *Place) Shadow(ctx context.Context, domain, prefix string, act fence.Act) error {
	return p.act(ctx, "shadow", ActShadow, domain, act, func(ctx context.Context, tx *Tx) (string, error) {
		return "prefix " + prefix, protect.Shadow(ctx, p.engine.Closing(), tx.sql, domain, prefix, act.At)
	})
}

// Enforce ends the roll-out of the resources that begin with prefix, which ends with a
// slash, or of one resource, for good (R18). ended is how many roll-outs went on there.
func (p *Place) Enforce(ctx context.Context, domain, prefix string, act fence.Act) (ended int, err error) {
	err = p.act(ctx, "enforce", ActEnforce, domain, act, func(ctx context.Context, tx *Tx) (string, error) {
		n, err := protect.Enforce(ctx, p.engine.Closing(), tx.sql, domain, prefix, act.At)
		ended = n
		return "prefix " + prefix, err
	})
	if err == nil {
		err = p.Settle(ctx, "enforce")
	}
	return ended, err
}

// Settle waits until every transaction has ended that is open in the database when it is
// called, for 10 s at most: on PostgreSQL one from before may not see what an operator has
// changed since. It then fails with [lastword.CodeUnavailable] and names some of them.
func (p *Place) Settle(ctx context.Context, op string) error {
	return p.fail(op, fence.Key{}, fencesql.Settle(ctx, p.engine, fencesql.Plain{Querier: p.db}, op))
}

// act is one act of an operator at the whole place, in one transaction.
func (p *Place) act(ctx context.Context, op string, kind fence.ActKind, domain string, act fence.Act, do func(context.Context, *Tx) (about string, err error)) error {
	act.Kind = kind
	if err := act.Check(op, ""); err != nil {
		return err
	}
	key := fence.Key{Domain: domain}
	err := p.locked(ctx, key, func(ctx context.Context, tx *Tx) error {
		about, err := do(ctx, tx)
		if err != nil {
			return err
		}
		done := act
		done.Reason = about + ": " + act.Reason
		return tx.Keep(ctx, key, done)
	})
	if err == nil {
		p.protects.unlooked()
		_, err = p.lookForProtection(ctx)
	}
	return p.fail(op, key, err)
}

// Protected lists the protected tables and what is wrong with each.
func (p *Place) Protected(ctx context.Context) (all []Protected, err error) {
	err = sqldb.Backoff{}.Retry(ctx, p.engine, func(ctx context.Context) error {
		tables, err := protect.Inspect(ctx, p.engine.Closing(), p.db)
		all = nil
		for _, t := range tables {
			all = append(all, protected(t))
		}
		return err
	})
	return all, p.fail("status", fence.Key{}, err)
}

// Rollout is the mode of the resources with a prefix, or of one resource (R18). Of
// several that fit the longest counts; without one a resource is in enforce.
type Rollout = protect.Rollout

// Rollouts lists what was begun and what has ended.
func (p *Place) Rollouts(ctx context.Context) (all []Rollout, err error) {
	err = sqldb.Backoff{}.Retry(ctx, p.engine, func(ctx context.Context) (err error) {
		all, err = protect.Rollouts(ctx, p.engine.Closing(), p.db)
		return err
	})
	return all, p.fail("status", fence.Key{}, err)
}

func protected(t protect.Table) Protected {
	return Protected{
		Protection: Protection{Domain: t.Domain, Table: t.Table, Template: t.Template.String(), Columns: t.Columns, Shadow: t.Shadow},
		Open:       t.Open, Since: t.Since, Faults: t.Faults,
	}
}

// Refused is how often a verdict was counted in a domain, at how many resources.
type Refused struct {
	Domain           string
	Verdict          lastword.Verdict
	Times, Resources uint64
	// Estimated says that some, drawn by chance, stand for others: of what bypasses the
	// fence PostgreSQL keeps the first 10,000 and then one of a hundred. Few writes of one
	// resource may be missing then.
	Estimated bool
}

// Refusals adds up what was counted, for a decision about a roll-out (R18): a verdict in
// SHADOW(…) passed, and will not any more.
func (p *Place) Refusals(ctx context.Context) (all []Refused, err error) {
	query := `SELECT domain, verdict, sum(times), count(*), FALSE FROM lastword_refusal GROUP BY 1, 2 ORDER BY 1, 2`
	if !p.lite() {
		query = `SELECT domain, verdict, sum(times)::bigint, count(DISTINCT resource), bool_or(estimated) FROM (
	SELECT domain, verdict, resource, times, FALSE AS estimated FROM lastword.refusal
	UNION ALL SELECT domain, 'SHADOW(' || verdict || ')', resource, weight, weight > 1 FROM lastword.bypass) AS r GROUP BY 1, 2 ORDER BY 1, 2`
	}
	err = p.reading(ctx, "status", fence.Key{}, func(ctx context.Context, c fencesql.Conn) error {
		all = nil
		rows, err := c.Query(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var r Refused
			var times, resources int64
			if err := rows.Scan(&r.Domain, &r.Verdict, &times, &resources, &r.Estimated); err != nil {
				return err
			}
			r.Times, r.Resources = uint64(times), uint64(resources)
			all = append(all, r)
		}
		return rows.Err()
	})
	return all, err
}
