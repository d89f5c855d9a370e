package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Act is what an operator did at a place. It is kept beside the record for ever, in
// the same transaction (T16).
type Act struct {
	Kind     ActKind
	Operator string // who; an id
	Reason   string // why; 1 to 512 bytes of UTF-8 without control characters
	// Before and After are the record's fence.
	Before, After lastword.Token
	// Mark is the window's, in milliseconds since 1970, of a restore and its end.
	Mark uint64
	At   time.Time // the place's wall clock, for people
}

// ActKind is a kind of [Act].
type ActKind string

// The kinds of acts.
const (
	ActRelease  ActKind = "release"
	ActRestored ActKind = "restored"
	ActReopened ActKind = "reopened"
	// ActDismissed: what was in quarantine was looked at and removed.
	ActDismissed ActKind = "dismissed"
	ActEnforce   ActKind = "enforce"
)

// MaxActs is how many acts an [Inspection] shows.
const MaxActs = 100

// Check refuses an act without a name, a reason or a time; op and r are for the error.
func (a Act) Check(op string, r lastword.Resource) error { return a.check(op, r) }

func (a Act) check(op string, r lastword.Resource) error {
	err := lastword.CheckID("operator", a.Operator)
	if err == nil {
		err = lastword.CheckID("reason", a.Reason)
	}
	if err == nil && a.At.IsZero() {
		err = errors.New("no time")
	}
	if err != nil {
		return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Resource: r, Message: reasonOf(err), Hint: "what an operator does is kept with a name, a reason and a time"}
	}
	return nil
}

func reasonOf(err error) string {
	if e, ok := err.(*lastword.Error); ok { //nolint:errorlint // ours, and not wrapped
		return e.Message
	}
	return err.Error()
}

// Release opens a record to the next tenure, for an operator who has found out why it
// froze, or why a fence jumped: the stored tenure is closed, so that only a larger fence
// is admitted from now on. next is 0, or the fence that was refused here with FENCE_JUMP:
// then the highest fence becomes next − 1, and the jump to it is none any more (R14a). A
// next above the one that was refused last is refused: nobody asks for it, and the numbers
// below it would be lost. Release
// never lowers a fence (T16), and it is recorded in the same transaction. It returns the
// record as it is then.
//
// A record that does not exist is released with next only: there is nothing to close.
func Release[T Tx](ctx context.Context, p Place[T], key Key, next lastword.Token, act Act) (Record, error) {
	const op = "release"
	act.Kind = ActRelease
	if err := act.check(op, key.Resource); err != nil {
		return Record{}, err
	}
	if next != 0 && !next.Valid() {
		return Record{}, &lastword.Error{Code: lastword.CodeInvalid, Op: op, Resource: key.Resource, Message: fmt.Sprintf("%d is no fence", uint64(next))}
	}
	return change(ctx, p, key, act, func(ctx context.Context, tx T, rec Record) (Record, error) {
		jumped, err := lastword.Token(0), error(nil)
		if next != 0 {
			jumped, err = tx.Jumped(ctx, key)
		}
		switch {
		case err != nil:
			return rec, err
		case rec.Unraised:
			return rec, &lastword.Error{Code: lastword.CodeFenceRegression, Op: op, Resource: key.Resource, Fence: rec.Fence,
				Message: "the place was restored and this record has not been raised since", Hint: "declare the restore again: it raises what it has not reached"}
		case rec.Lost:
			return rec, &lastword.Error{Code: lastword.CodeFenceRegression, Op: op, Resource: key.Resource,
				Message: "the record is gone, and receipts of its resource are there: what it had admitted is not known here",
				Hint:    "declare it restored: that raises it to what the authority has granted"}
		case !rec.Exists && next == 0:
			return rec, &lastword.Error{Code: lastword.CodeInvalid, Op: op, Resource: key.Resource, Message: "there is no record to release"}
		case next != 0 && jumped == 0:
			return rec, &lastword.Error{Code: lastword.CodeInvalid, Op: op, Resource: key.Resource, Fence: rec.Fence,
				Message: "no fence was refused here with FENCE_JUMP", Hint: "release the record without a jump, or let the write be refused first"}
		case next > jumped:
			return rec, &lastword.Error{Code: lastword.CodeInvalid, Op: op, Resource: key.Resource, Fence: rec.Fence,
				Message: fmt.Sprintf("fence %s is above %s, which was refused here with FENCE_JUMP", next.Text(), jumped.Text()),
				Hint:    "name the fence that was refused"}
		}
		return core.Close(rec, next), nil
	})
}

// change is one act at one record.
func change[T Tx](ctx context.Context, p Place[T], key Key, act Act, next func(ctx context.Context, tx T, rec Record) (Record, error)) (Record, error) {
	var out Record
	err := p.Transact(ctx, key, func(ctx context.Context, tx T) error {
		rec, _, err := tx.Load(ctx, key, "")
		if err != nil {
			return err
		}
		if out, err = next(ctx, tx, rec); err != nil {
			return err
		}
		done := act
		done.Before, done.After = rec.Fence, out.Fence
		if err := tx.Store(ctx, key, rec, out, nil); err != nil {
			return err
		}
		return tx.Keep(ctx, key, done)
	})
	return out, err
}

// Restore says what was restored, or failed over and lost commits (R20).
type Restore struct {
	Domain string
	// Resource is the only one that was; "" is the whole place.
	Resource lastword.Resource
	// NextFence asks the authority for the number that its next grant of a resource
	// would carry.
	NextFence func(ctx context.Context, r lastword.Resource) (lastword.Token, error)
	// Until is not before any operation was issued whose receipt may be lost: now, and
	// what the clocks of those who issue operation ids may be ahead.
	Until time.Time
	Act   Act
}

// DeclareRestored makes a place safe that was restored from a backup, or that failed
// over and lost commits (R20). Each record is raised to the authority's next fence − 1
// and closed: whoever held a lease then, or before, is refused. Operations that were
// issued until [Restore.Until] and have no receipt are RECEIPT_EXPIRED, until
// [Reopen] is called by a person who has reconciled them; ids without an issue time
// (no UUIDv7 and no ULID) count as issued before.
//
// Of a whole place, its domain is marked first: from then on no record admits anything
// that has not been raised, and one that the restore lost is only begun by a tenure that
// the authority confirms. A record whose resource is not canonical is closed without asking
// the authority, which cannot grant it. So it may be repeated after an error, and has to be. raised is
// how many records were raised and closed.
//
// Where a transaction may go by what was committed before it began ([Settling]; PostgreSQL),
// it returns only once those have ended that were open before.
func DeclareRestored[T Tx](ctx context.Context, p Place[T], r Restore) (raised int, err error) {
	const op = "restored"
	r.Act.Kind = ActRestored
	if err := r.check(op); err != nil {
		return 0, err
	}
	mark := uint64(max(r.Until.UnixMilli(), 1))
	r.Act.Mark = mark
	if r.Resource != "" {
		return 1, raiseOne(ctx, p, r, r.Resource, mark)
	}
	if mark, err = markPlace(ctx, p, r, mark); err != nil {
		return 0, err
	}
	err = each(ctx, p, r.Domain, func(resource lastword.Resource) error {
		err := raiseOne(ctx, p, r, resource, mark)
		if err == nil {
			raised++
		}
		return err
	})
	if s, ok := p.(Settling); ok && err == nil {
		err = s.Settle(ctx, op)
	}
	return raised, err
}

// Settling is a [Place] where a transaction may go by what was committed before it began.
// DeclareRestored calls Settle last.
type Settling interface {
	// Settle waits until every transaction has ended that is open when it is called. It
	// gives up with [lastword.CodeUnavailable] when its patience, or ctx, ends.
	Settle(ctx context.Context, op string) error
}

func (r *Restore) check(op string) error {
	if err := lastword.CheckID("domain", r.Domain); err != nil {
		return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Message: reasonOf(err)}
	}
	if r.Resource != "" {
		if _, err := lastword.ParseResource(string(r.Resource)); err != nil {
			return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Message: reasonOf(err)}
		}
	}
	if r.NextFence == nil || r.Until.IsZero() {
		return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Message: "want somebody to ask for the next fence, and a time"}
	}
	return r.Act.check(op, r.Resource)
}

// markPlace sets the place's mark, which never becomes lower while a window is open.
func markPlace[T Tx](ctx context.Context, p Place[T], r Restore, mark uint64) (uint64, error) {
	key := Key{Domain: r.Domain}
	err := p.Transact(ctx, key, func(ctx context.Context, tx T) error {
		before, err := markOfPlace(ctx, tx, r.Domain)
		if err != nil {
			return err
		}
		mark = max(mark, before+1) // what an earlier declaration raised is raised again
		if err := tx.MarkRestored(ctx, r.Domain, mark); err != nil {
			return err
		}
		act := r.Act
		act.Mark = mark
		return tx.Keep(ctx, key, act)
	})
	return mark, err
}

// markOfPlace is the mark of the whole place, held until the transaction ends. It loads
// a record that is never stored: that is the lock, and by it the engine refuses a
// connection that could lose the commit before anything was written.
func markOfPlace[T Tx](ctx context.Context, tx T, domain string) (uint64, error) {
	if _, _, err := tx.Load(ctx, Key{Domain: domain}, ""); err != nil {
		return 0, err
	}
	return tx.Restored(ctx, domain)
}

func raiseOne[T Tx](ctx context.Context, p Place[T], r Restore, resource lastword.Resource, mark uint64) error {
	if _, err := lastword.ParseResource(string(resource)); err != nil {
		// No lease can be on it, so that no grant of before is to be kept out: it is closed as
		// it is, and does not keep every other record of the domain closed.
		_, err := change(ctx, p, Key{Domain: r.Domain, Resource: resource}, r.Act, func(_ context.Context, _ T, rec Record) (Record, error) {
			return core.Restore(rec, 0, mark), nil
		})
		return err
	}
	next, err := r.NextFence(ctx, resource)
	if err != nil {
		return err
	}
	if next == 0 {
		return &lastword.Error{Code: lastword.CodeFenceRegression, Op: "restored", Resource: resource,
			Message: "the authority has no next fence for this resource", Hint: "begin a new issuer epoch at the authority, and declare the restore again"}
	}
	_, err = change(ctx, p, Key{Domain: r.Domain, Resource: resource}, r.Act, func(_ context.Context, _ T, rec Record) (Record, error) {
		if rec.Exists && next <= rec.Fence {
			return rec, &lastword.Error{Code: lastword.CodeFenceRegression, Op: "restored", Resource: resource, Fence: rec.Fence,
				Message: "the authority's next fence " + next.Text() + " is not above what is stored here",
				Hint:    "the authority is behind, too: begin a new issuer epoch there, and declare the restore again"}
		}
		return core.Restore(rec, next, mark), nil
	})
	return err
}

// Reopen ends the window of a restore, for a person who has reconciled the operations
// that may have had their effect: from then on an operation without a receipt is new.
// resource "" is the window of the whole place, which stays open, with
// [lastword.CodeFenceRegression], while any record has not been raised: [DeclareRestored]
// has to run to its end first. It is recorded like every act.
func Reopen[T Tx](ctx context.Context, p Place[T], domain string, resource lastword.Resource, act Act) (reopened int, err error) {
	const op = "reopen"
	act.Kind = ActReopened
	if err := act.check(op, resource); err != nil {
		return 0, err
	}
	if resource != "" {
		return reopenOne(ctx, p, domain, resource, act)
	}
	err = p.Transact(ctx, Key{Domain: domain}, func(ctx context.Context, tx T) error {
		mark, err := markOfPlace(ctx, tx, domain)
		if err != nil || mark == 0 {
			return err
		}
		left, found, err := tx.Unraised(ctx, domain, mark)
		if err != nil {
			return err
		}
		if found {
			return &lastword.Error{Code: lastword.CodeFenceRegression, Op: op, Resource: left,
				Message: "the place was restored and this record has not been raised since: whoever held a lease before would be admitted again",
				Hint:    "declare the restore again, so that it runs to its end; then close the window"}
		}
		act := act
		act.Mark = mark
		if err := tx.MarkRestored(ctx, domain, 0); err != nil {
			return err
		}
		return tx.Keep(ctx, Key{Domain: domain}, act)
	})
	if err != nil {
		return 0, err
	}
	err = each(ctx, p, domain, func(r lastword.Resource) error {
		n, err := reopenOne(ctx, p, domain, r, act)
		reopened += n
		return err
	})
	return reopened, err
}

func reopenOne[T Tx](ctx context.Context, p Place[T], domain string, resource lastword.Resource, act Act) (n int, err error) {
	key := Key{Domain: domain, Resource: resource}
	err = p.Transact(ctx, key, func(ctx context.Context, tx T) error {
		n = 0
		rec, _, err := tx.Load(ctx, key, "")
		if err != nil || !rec.Exists || rec.Restored == 0 {
			return err
		}
		whole, err := tx.Restored(ctx, domain)
		if err != nil {
			return err
		}
		if whole != 0 {
			return &lastword.Error{Code: lastword.CodeInvalid, Op: "reopen", Resource: resource,
				Message: "the whole place was restored: its window is closed as a whole", Hint: "name no resource"}
		}
		act := act
		act.Before, act.After, act.Mark = rec.Fence, rec.Fence, rec.Restored
		if err := tx.Store(ctx, key, rec, core.CloseWindow(rec), nil); err != nil {
			return err
		}
		n = 1
		return tx.Keep(ctx, key, act)
	})
	return n, err
}

// each runs fn for every record of a domain, also for those whose name is not canonical,
// which somebody else than this package has written. Of them "" comes before the first page.
func each[T Tx](ctx context.Context, p Place[T], domain string, fn func(lastword.Resource) error) error {
	const page = 500
	var after lastword.Resource
	unnamed, err := p.Inspect(ctx, Key{Domain: domain})
	if err == nil && unnamed.Record.Exists {
		err = fn("")
	}
	if err != nil {
		return err
	}
	for {
		found, err := p.Records(ctx, domain, after, page)
		if err != nil {
			return err
		}
		for _, r := range found {
			if err := fn(r); err != nil {
				return err
			}
			after = r
		}
		if len(found) < page {
			return nil
		}
	}
}
