package pgxfence

import (
	"context"
	"sync"
	"time"

	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/fencesql"
	"github.com/lastword/lastword/internal/protect"
)

// lookEvery bounds for how long a trigger of a protected table can be missing before
// nothing is admitted any more (R16c).
const lookEvery = time.Second

// triggers is when the triggers of the protected tables were looked at last, and what was
// found.
type triggers struct {
	mu     sync.Mutex
	looked time.Time
	unfit  error
}

// look reads the catalogues at most once in a while, before a connection is taken for the
// write, and says what is wrong with a protected table.
func (p *Place) look(ctx context.Context) error {
	t := &p.triggers
	t.mu.Lock()
	now := p.now()
	if !t.looked.IsZero() && now.Sub(t.looked) < lookEvery {
		defer t.mu.Unlock()
		return t.unfit
	}
	t.looked = now // whoever comes meanwhile takes what was found before
	t.mu.Unlock()
	tables, err := protect.Inspect(ctx, protect.PostgreSQL{}, p.db)
	if err == nil {
		err = protect.Unfit(tables)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unfit = err; err != nil {
		t.looked = time.Time{}
	}
	return err
}

// Pass opens protected tables to business statements on what belongs to key, until the
// transaction ends (R16c); most transactions have done that with their first statement. It
// refuses a database one of whose tables is not closed as it should be.
func (t *Tx) Pass(ctx context.Context, key fence.Key) error {
	t.opened = true
	if t.unfit != nil {
		return t.place.fail("pass", key, t.unfit)
	}
	if t.guess != nil && t.sql == nil { // what is stored next does it
		return nil
	}
	return t.tables.Pass(ctx, key)
}

// Pass is a statement that is sent where the record is not stored: in a roll-out (R18).
func (l *looked) Pass(_ context.Context, key fence.Key) error {
	if l.unfit != nil {
		return l.place.fail("pass", key, l.unfit)
	}
	step := fencesql.PassStep(key)
	l.pass = &step
	return nil
}
