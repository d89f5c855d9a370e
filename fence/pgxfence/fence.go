package pgxfence

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
	// IsoLevel is the isolation level of the transactions of [Fence.Apply] and
	// [Fence.Send]; "" is the default of the connection. The fence is right at every level.
	IsoLevel pgx.TxIsoLevel
}

// Fence admits writes to one database. It is safe for concurrent use.
type Fence struct {
	place *Place
	gate  *fence.Gate
}

// New looks at the database behind pool and returns its fence. The caller keeps the pool
// and closes it, after the last use of the fence. New writes nothing; it refuses, with one
// line that names the way out, what [OpenPlace] refuses, a database that cannot be written
// to, a role that lacks a right that writes need, and settings that could lose an
// acknowledged write. The settings are looked at again in every transaction.
func New(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Fence, error) {
	gate, err := fence.NewGate(cfg.Config)
	if err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, noPool("open fence")
	}
	if err := fencesql.CheckRights(ctx, "open fence", conn{pool}); err != nil {
		return nil, err
	}
	place, err := OpenPlace(ctx, pool, cfg.Name)
	if err != nil {
		return nil, err
	}
	place.level = cfg.IsoLevel
	if cfg.Now != nil {
		place.now = cfg.Now
	}
	if err := place.checkWritable(ctx); err != nil {
		return nil, fencesql.Opening(err)
	}
	if err := fence.ReadFloor(ctx, gate, place); err != nil {
		return nil, err
	}
	return &Fence{place: place, gate: gate}, nil
}

// errLooked ends a transaction that only wanted to look.
var errLooked = errors.New("looked")

// checkWritable locks a record that is nobody's and gives it back.
func (p *Place) checkWritable(ctx context.Context) error {
	_, err := p.attempt(ctx, fence.Key{}, nil, func(ctx context.Context, tx *Tx) error {
		if _, _, err := tx.Load(ctx, fence.Key{}, ""); err != nil {
			return err
		}
		return errLooked
	})
	if errors.Is(err, errLooked) || engine.Class(err) == sqldb.Busy {
		return nil
	}
	return err
}

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
	effect func(ctx context.Context, tx pgx.Tx) error,
) (lastword.Receipt, error) {
	return fence.Apply(ctx, f.gate, f.place, held(h, operation, payload), inSQL(effect))
}

// ApplyMutation is [Fence.Apply] for a process that has a grant and no lease. An
// empty resource takes the grant's word for it, within the gate's Scope.
func (f *Fence) ApplyMutation(ctx context.Context, resource lastword.Resource, m lastword.Mutation,
	effect func(ctx context.Context, tx pgx.Tx) error,
) (lastword.Receipt, error) {
	return fence.Apply(ctx, f.gate, f.place, fence.Call{Resource: resource, Mutation: m}, inSQL(effect))
}

// Within admits a write inside a transaction that the caller began, and whose COMMIT is
// the caller's: until then the receipt is provisional, and a rollback leaves nothing of
// it. Call it before the business statements: a protected table is open from here to the
// end of the transaction. A refusal means that the caller must roll back. After a roll-back
// to a savepoint from before the call nothing of it is left, and the table is closed
// again. A deadlock or a serialization failure is [ErrRetryTransaction], which is never a
// verdict.
//
// Evidence of a refusal cannot be written while the transaction is open; it is kept
// and written with a later call or by the gate's Flush.
func (f *Fence) Within(ctx context.Context, tx pgx.Tx, h lastword.Holder, operation string, payload []byte) (lastword.Receipt, error) {
	return f.within(ctx, tx, held(h, operation, payload))
}

// WithinMutation is [Fence.Within] for a process that has a grant and no lease.
func (f *Fence) WithinMutation(ctx context.Context, tx pgx.Tx, resource lastword.Resource, m lastword.Mutation) (lastword.Receipt, error) {
	return f.within(ctx, tx, fence.Call{Resource: resource, Mutation: m})
}

func (f *Fence) within(ctx context.Context, tx pgx.Tx, c fence.Call) (lastword.Receipt, error) {
	if tx == nil {
		return lastword.Receipt{}, &lastword.Error{Code: lastword.CodeInvalid, Op: "within", Resource: c.Resource, Message: "the transaction is nil"}
	}
	joined := f.place.Join(tx)
	joined.unfit = f.place.look(ctx)
	return fence.Within(ctx, f.gate, f.place, joined, c)
}

// Send is [Fence.Apply] without a callback: the conditional write of the record, the
// statements in their order and COMMIT go to the server in one round trip. If the record
// is refused there, or a statement fails, the server skips the rest and nothing of it
// stays. A statement cannot see whether one before it has changed a row: what must
// depend on that belongs into the statement, or into [Fence.Apply].
//
// What it returns is what Apply returns. A place that has not seen the record yet, or has
// seen it overtaken, needs one more round trip to look.
func (f *Fence) Send(ctx context.Context, h lastword.Holder, operation string, payload []byte, statements ...Statement) (lastword.Receipt, error) {
	return f.send(ctx, held(h, operation, payload), statements)
}

// SendMutation is [Fence.Send] for a process that has a grant and no lease.
func (f *Fence) SendMutation(ctx context.Context, resource lastword.Resource, m lastword.Mutation, statements ...Statement) (lastword.Receipt, error) {
	return f.send(ctx, fence.Call{Resource: resource, Mutation: m}, statements)
}

func (f *Fence) send(ctx context.Context, c fence.Call, statements []Statement) (lastword.Receipt, error) {
	return Send(ctx, f.gate, f.place, c, statements...)
}

// Send is [Fence.Send] for any call at any gate.
func Send(ctx context.Context, g *fence.Gate, p *Place, c fence.Call, statements ...Statement) (lastword.Receipt, error) {
	for i, s := range statements {
		if strings.TrimSpace(s.SQL) == "" {
			return lastword.Receipt{}, &lastword.Error{Code: lastword.CodeInvalid, Op: "apply", Resource: c.Resource, Message: fmt.Sprintf("statement %d is empty", i+1)}
		}
	}
	return fence.Apply(ctx, g, &sent{p, statements}, c, func(context.Context, *looked) ([]byte, error) { return nil, nil })
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

func inSQL(effect func(ctx context.Context, tx pgx.Tx) error) func(context.Context, *Tx) ([]byte, error) {
	if effect == nil { // which package fence refuses
		return nil
	}
	return func(ctx context.Context, tx *Tx) ([]byte, error) { return nil, effect(ctx, tx.sql) }
}
