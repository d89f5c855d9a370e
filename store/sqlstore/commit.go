package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/sqldb"
	"github.com/lastword/lastword/store"
)

// Commit applies the steps in one transaction and returns after it was synced. A
// context that ends before the transaction has begun leaves nothing; one that ends
// later does not stop it.
func (s *Store) Commit(ctx context.Context, steps ...store.Step) ([]bool, error) {
	if err := store.Check(steps...); err != nil {
		return nil, err
	}
	if err := s.writing.lock(ctx); err != nil {
		return nil, explain("commit", s.path, err)
	}
	defer s.writing.unlock()
	if err := s.usable("commit"); err != nil {
		return nil, err
	}
	if err := s.sameFile("commit"); err != nil {
		return nil, err
	}
	b := &batch{store: s, steps: steps}
	outcome := sqldb.RolledBack
	err := s.turns.Retry(ctx, dialect, func(ctx context.Context) (err error) {
		outcome, err = sqldb.Transact(context.WithoutCancel(ctx), dialect, &s.write, b.apply)
		return err
	})
	if err != nil {
		return nil, s.failed(outcome, err)
	}
	s.cache.publish(b.header, b.steps, b.applied)
	return b.applied, nil
}

// named reports whether the path names the file that is open.
func (s *Store) named() (bool, error) {
	info, err := os.Stat(s.path)
	return err == nil && os.SameFile(info, s.file), err
}

// sameFile notices that the path names another file by now (R10): writing on into the
// old one would be lost, and what it says is not so any more. It is called with the
// writing semaphore held.
func (s *Store) sameFile(op string) error {
	same, err := s.named()
	if same {
		return nil
	}
	if err == nil {
		err = errors.New("the path names another file")
	}
	s.broken = fmt.Errorf("the file was moved, replaced or deleted while it was in use: %w", err)
	s.cache.drop()
	return s.usable(op)
}

// failed says what an error means for the steps, and forgets everything that was
// known from before.
func (s *Store) failed(outcome sqldb.Outcome, err error) error {
	s.cache.drop()
	e := explain("commit", s.path, err)
	if outcome != sqldb.Unknown {
		return e
	}
	e.Code = lastword.CodeUnknown
	if dialect.Class(err) == sqldb.IO {
		s.broken = err
	}
	return e
}

// batch is one attempt at the steps of a Commit.
type batch struct {
	store   *Store
	steps   []store.Step
	header  store.Header
	applied []bool
}

func (b *batch) apply(ctx context.Context) (err error) {
	b.applied = make([]bool, len(b.steps))
	if err := b.store.noticeOthers(ctx); err != nil {
		return err
	}
	if b.header, err = b.store.lockedHeader(ctx); err != nil {
		return err
	}
	return b.store.writer.Raw(func(any) error {
		for i := range b.steps {
			if b.applied[i], err = b.step(ctx, &b.steps[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// step applies one step. The write lock is held, so the header that was read holds
// until this batch changes it.
func (b *batch) step(ctx context.Context, s *store.Step) (applied bool, err error) {
	if s.Create {
		if b.header.Exists {
			return false, nil
		}
	} else if !b.header.Exists || b.header.Epoch != s.Epoch || s.OnTick && b.header.Tick != s.Tick {
		return false, nil
	}
	if s.Record != nil {
		if applied, err := b.record(ctx, s); err != nil || !applied {
			return false, err
		}
	}
	if s.Header != nil {
		if err := b.replaceHeader(ctx, s.Header); err != nil {
			return false, err
		}
	}
	return true, nil
}

// record writes the record and, if its row count says that it was there to be
// written, what belongs to it (R15).
func (b *batch) record(ctx context.Context, s *store.Step) (bool, error) {
	w, r := &b.store.write, s.Record
	stmt, args := &w.createRecord, recordArgs(append(w.scratch[:0], string(r.Resource)), r)
	if r.Revision > 1 {
		stmt, args = &w.updateRecord, append(recordArgs(w.scratch[:0], r), string(r.Resource), int64(r.Revision-1))
	}
	w.scratch = args
	if n, err := stmt.run(ctx, args); err != nil || n == 0 {
		return false, err
	}
	for i := range s.Requests {
		w.scratch = requestArgs(w.scratch[:0], r.Resource, &s.Requests[i])
		if _, err := w.putRequest.run(ctx, w.scratch); err != nil {
			return false, err
		}
	}
	for _, key := range s.Forget {
		w.scratch = append(w.scratch[:0], string(r.Resource), key.Owner, key.ID)
		if _, err := w.forget.run(ctx, w.scratch); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (b *batch) replaceHeader(ctx context.Context, next *store.Header) error {
	stmt, args := &b.store.write.createHeader, headerArgs(next)
	if b.header.Exists {
		stmt, args = &b.store.write.updateHeader, append(args, int64(b.header.Epoch), int64(b.header.Tick))
	}
	n, err := stmt.run(ctx, args)
	if err != nil {
		return err
	}
	if n != 1 { // it was read in this very transaction
		return &lastword.Error{Code: lastword.CodeInternal, Message: fmt.Sprintf("the header was written to %d rows", n)}
	}
	b.header = *next
	return nil
}

// lockedHeader is called inside a writing transaction, after [Store.noticeOthers]: what
// is known of the header is then what the file holds.
func (s *Store) lockedHeader(ctx context.Context) (store.Header, error) {
	if header, known := s.cache.headerIfValid(); known {
		return header, nil
	}
	return scanHeader(s.write.header.QueryRowContext(ctx))
}

// noticeOthers forgets what is cached if somebody else has written to the file.
func (s *Store) noticeOthers(ctx context.Context) error {
	var version int64
	if err := s.write.dataVersion.QueryRowContext(ctx).Scan(&version); err != nil {
		return err
	}
	if version != s.version {
		s.cache.drop()
		s.version = version
	}
	return nil
}
