package sqlfence

import (
	"context"
	"database/sql"
	"errors"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/fencesql"
	"github.com/lastword/lastword/internal/sqldb"
)

// Config says whom a fence believes. What is required is said at fence.Config.
type Config struct {
	fence.Config
	// Name tells this database apart from every other place that the process
	// uses; "" is what [OpenPlace] says.
	Name string
	// Isolation is the level of the transactions of [Fence.Apply] on PostgreSQL; 0 is
	// the default of the connection. The fence is right at every level.
	Isolation sql.IsolationLevel
}

// Fence admits writes to one database. It is safe for concurrent use.
type Fence struct {
	place *Place
	gate  *fence.Gate
}

// New looks at the database behind db and returns its fence. The caller keeps db and
// closes it. New writes nothing; it refuses, with one line that names the way out,
// what [OpenPlace] refuses, a database that this process cannot write to, one of whose
// protected tables is not closed as it should be (R16c), and a connection whose settings could lose an acknowledged write. The settings are
// looked at again in every transaction, because a pool opens connections when it
// likes.
func New(ctx context.Context, db *sql.DB, cfg Config) (*Fence, error) {
	gate, err := fence.NewGate(cfg.Config)
	if err != nil {
		return nil, err
	}
	if err := checkRights(ctx, db); err != nil {
		return nil, err
	}
	place, err := OpenPlace(ctx, db, cfg.Name)
	if err != nil {
		return nil, err
	}
	place.isolation = cfg.Isolation
	err = place.checkWritable(ctx)
	if err == nil {
		err = place.checkProtected(ctx)
	}
	if err == nil {
		err = fence.ReadFloor(ctx, gate, place)
	}
	if err != nil {
		return nil, errors.Join(fencesql.Opening(err), place.Close())
	}
	return &Fence{place: place, gate: gate}, nil
}

// checkRights names the right that a role of PostgreSQL lacks.
func checkRights(ctx context.Context, db *sql.DB) error {
	const op = "open fence"
	engine, err := engineOf(ctx, op, db)
	if _, ok := engine.(fencesql.PostgreSQL); err != nil || !ok {
		return err
	}
	return fencesql.CheckRights(ctx, op, fencesql.Plain{Querier: db})
}

// errLooked ends a transaction that only wanted to look.
var errLooked = errors.New("looked")

// checkWritable takes the write lock and gives it back. A database that is busy can
// be written to by somebody.
func (p *Place) checkWritable(ctx context.Context) error {
	_, err := p.attempt(ctx, fence.Key{}, nil, func(ctx context.Context, tx *Tx) error {
		if _, _, err := tx.Load(ctx, fence.Key{}, ""); err != nil {
			return err
		}
		return errLooked
	})
	if errors.Is(err, errLooked) || p.engine.Class(err) == sqldb.Busy {
		return nil
	}
	return err
}

// Close gives up what the fence holds of the pool. It does not close the database,
// and it must not run beside other calls.
func (f *Fence) Close() error { return f.place.Close() }

// Place is the database as package fence sees it, for its functions: with
// fence.Apply an effect can return a result, which the receipt keeps.
func (f *Fence) Place() *Place { return f.place }

// Gate is what decides, for the functions of package fence.
func (f *Fence) Gate() *fence.Gate { return f.gate }

// Apply runs effect and makes it, the record and the receipt durable in one step, if
// the tenure of h may write. operation is the id of the business intent, stable over
// retries and tenures; payload is exactly what is executed, and its digest goes into
// the receipt. An operation that had its effect before answers with its first receipt,
// verdict REPLAYED, and runs nothing (P4).
//
// effect may run several times, because busy transactions are repeated as a whole;
// only the last run counts. It must use tx alone, return the errors of its statements
// and not end the transaction. Its own error comes back (errors.Is) and leaves nothing
// behind.
//
// A refusal is a *lastword.Error with the verdict as its code; nothing ran.
// [lastword.ErrUnknownOutcome] means that the fate of the COMMIT could not be learnt:
// settle it with Lookup, or by calling Apply again with the same operation and
// payload. It also tells of an effect that has ended the transaction by itself; what that
// has executed may be there without a receipt, so Lookup comes first then. Every other
// error means that certainly nothing was written.
func (f *Fence) Apply(ctx context.Context, h lastword.Holder, operation string, payload []byte,
	effect func(ctx context.Context, tx *sql.Tx) error,
) (lastword.Receipt, error) {
	return fence.Apply(ctx, f.gate, f.place, held(h, operation, payload), inSQL(effect))
}

// ApplyMutation is [Fence.Apply] for a process that has a grant and no lease. An
// empty resource takes the grant's word for it, within the gate's Scope.
func (f *Fence) ApplyMutation(ctx context.Context, resource lastword.Resource, m lastword.Mutation,
	effect func(ctx context.Context, tx *sql.Tx) error,
) (lastword.Receipt, error) {
	return fence.Apply(ctx, f.gate, f.place, fence.Call{Resource: resource, Mutation: m}, inSQL(effect))
}

// Within admits a write inside a transaction that the caller began on the same pool,
// and whose COMMIT is the caller's: until then the receipt is provisional, and a
// rollback leaves nothing of it. Call it before the business statements. A refusal
// means that the caller must roll back.
//
// The transaction should hold the write lock from its beginning (BEGIN IMMEDIATE;
// _txlock=immediate in the DSN). If it does not, Within takes the lock before it
// reads. A transaction that has read something before and lost the race answers
// [ErrRetryTransaction], which is never a verdict.
//
// Evidence of a refusal cannot be written while the transaction is open; it is kept
// and written with a later call or by the gate's Flush.
func (f *Fence) Within(ctx context.Context, tx *sql.Tx, h lastword.Holder, operation string, payload []byte) (lastword.Receipt, error) {
	return f.within(ctx, tx, held(h, operation, payload))
}

// WithinMutation is [Fence.Within] for a process that has a grant and no lease.
func (f *Fence) WithinMutation(ctx context.Context, tx *sql.Tx, resource lastword.Resource, m lastword.Mutation) (lastword.Receipt, error) {
	return f.within(ctx, tx, fence.Call{Resource: resource, Mutation: m})
}

func (f *Fence) within(ctx context.Context, tx *sql.Tx, c fence.Call) (lastword.Receipt, error) {
	if tx == nil {
		return lastword.Receipt{}, &lastword.Error{Code: lastword.CodeInvalid, Op: "within", Resource: c.Resource, Message: "the transaction is nil"}
	}
	return fence.Within(ctx, f.gate, f.place, f.place.Join(tx), c)
}

// Advance registers the fence of the tenure of h at resource without a write, so that
// from then on every older one is refused (R16a). It returns the record as it is then.
func (f *Fence) Advance(ctx context.Context, resource lastword.Resource, h lastword.Holder) (fence.Record, error) {
	return fence.Advance(ctx, f.gate, f.place, fence.Call{Resource: resource, Holder: h})
}

// AdvanceMutation is [Fence.Advance] for a process that has a grant and no lease;
// of m only the grant is used.
func (f *Fence) AdvanceMutation(ctx context.Context, resource lastword.Resource, m lastword.Mutation) (fence.Record, error) {
	return fence.Advance(ctx, f.gate, f.place, fence.Call{Resource: resource, Mutation: m})
}

// Lookup is the receipt of an operation, if there is one. It moves nothing (R21).
// "Not found" is no proof while an attempt may still be under way (R22).
func (f *Fence) Lookup(ctx context.Context, resource lastword.Resource, operation string) (r lastword.Receipt, found bool, err error) {
	return fence.Lookup(ctx, f.gate, f.place, resource, operation)
}

// Resolve settles an operation whose outcome was left open, by registering the fence of
// the tenure of h and looking after that (R22). Not found and no error is proof that the
// operation had no effect and never will have: it may be done again under this fence. See
// fence.Resolve.
func (f *Fence) Resolve(ctx context.Context, resource lastword.Resource, h lastword.Holder, operation string) (r lastword.Receipt, found bool, err error) {
	return fence.Resolve(ctx, f.gate, f.place, fence.Call{Resource: resource, Holder: h}, operation)
}

// Inspect is the record of a resource, its refusals and what is in quarantine. It
// moves nothing.
func (f *Fence) Inspect(ctx context.Context, resource lastword.Resource) (fence.Inspection, error) {
	return fence.Inspect(ctx, f.gate, f.place, resource)
}

func held(h lastword.Holder, operation string, payload []byte) fence.Call {
	return fence.Call{Holder: h, Content: payload, Mutation: lastword.Mutation{
		Operation: operation, Payload: lastword.DigestOf(payload),
	}}
}

func inSQL(effect func(ctx context.Context, tx *sql.Tx) error) func(context.Context, *Tx) ([]byte, error) {
	if effect == nil { // which package fence refuses
		return nil
	}
	return func(ctx context.Context, tx *Tx) ([]byte, error) { return nil, effect(ctx, tx.sql) }
}
