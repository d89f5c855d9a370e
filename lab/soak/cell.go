package soak

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/lab/proxy"
	"github.com/lastword/lastword/rpc"
)

// side is one of the two workers of a cell, with its ways to the authority.
type side struct {
	owner     string
	hand      *hand
	hold, ask *proxy.Proxy
	gone      bool // it was killed, and has no lease since
}

func (s *side) heal() {
	for _, p := range []*proxy.Proxy{s.hold, s.ask} {
		p.Slow(nil)
		p.Heal()
	}
}

// cell is two workers that want the same resource, and the database that is guarded.
type cell struct {
	run   *run
	name  string
	sides [2]*side
	path  string

	db       *sql.DB
	attacker *rpc.Client
	forger   *forger

	era      int // the how-manieth resource
	settled  map[lastword.Resource]bool
	resource lastword.Resource
	inEra    int

	mu     sync.Mutex
	calls  []Call          // each once; the ones without an answer are open
	open   map[callKey]int // where those are
	events []lived
	diary  *diary // of the run itself, at this cell
	grants []string
}

// lived is what a worker told beside its calls, and what was done to it.
type lived struct {
	who string
	at  time.Duration
	said
	done string // "continued", "cut off", …
}

// roundsPerEra is how many rounds a resource lives.
const roundsPerEra = 25

func newCell(ctx context.Context, r *run, n int) (c *cell, err error) {
	c = &cell{run: r, open: map[callKey]int{}, settled: map[lastword.Resource]bool{}, name: fmt.Sprintf("c%02d", n)}
	c.path = filepath.Join(r.dir, c.name+".db")
	c.diary = &diary{who: keeperName, note: c.note}
	opened := c
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.close())
		}
	}()
	if c.db, err = openBusiness(c.path); err != nil {
		return nil, err
	}
	for _, s := range []string{
		`CREATE TABLE document (id TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT`,
		// The order of its rows is the order of the commits: there is one writer at a time.
		`CREATE TABLE effect (n INTEGER PRIMARY KEY AUTOINCREMENT, resource TEXT NOT NULL, operation TEXT NOT NULL,
	fence INTEGER NOT NULL, owner TEXT NOT NULL, value TEXT NOT NULL) STRICT`,
	} {
		if _, err = c.db.ExecContext(ctx, s); err != nil {
			return nil, err
		}
	}
	if err = sqlfence.Init(ctx, c.db); err != nil {
		return nil, err
	}
	if c.attacker, err = r.keeper.dial(attackerName, r.keeper.way); err != nil {
		return nil, err
	}
	if c.forger, err = newForger(ctx, c); err != nil {
		return nil, err
	}
	for i := range c.sides {
		if c.sides[i], err = c.newSide(ctx, i); err != nil {
			return nil, err
		}
	}
	return c, c.nextEra(ctx)
}

// sideOwner names the workers of a run.
func sideOwner(cell, n int) string { return fmt.Sprintf("c%02d%c", cell, 'a'+n) }

func (c *cell) newSide(ctx context.Context, n int) (s *side, err error) {
	s = &side{owner: c.name + string(rune('a'+n))}
	keeper := c.run.keeperOf(n)
	addr := keeper.way.Addr() // through it to wherever the authority is
	if s.hold, err = proxy.New(addr); err != nil {
		return nil, err
	}
	if s.ask, err = proxy.New(addr); err != nil {
		return nil, errors.Join(err, s.hold.Close())
	}
	c.sides[n] = s
	return s, c.startHand(ctx, s, n)
}

// startHand starts a worker, or starts it again under its name.
func (c *cell) startHand(ctx context.Context, s *side, n int) error {
	h, err := startHand(c.run.opts.Hand, s.owner, c.listen)
	if err != nil {
		return err
	}
	s.hand = h
	a, err := h.ask(ctx, order{
		Do: "open", Hold: s.hold.Addr(), Ask: s.ask.Addr(), Token: c.run.keeperOf(n).token(s.owner), Database: c.path,
		Owner: s.owner, Variant: c.run.opts.Variant,
	})
	if err == nil && a.Code != "OK" {
		err = fmt.Errorf("%s does not open: %s", s.owner, a.Code)
	}
	return err
}

func (c *cell) listen(h *hand, s said) {
	switch s.Event {
	case "call":
		c.note(*s.Call)
	case "at", "change":
		c.mark(lived{who: h.owner, at: s.At, said: s})
	}
}

// note keeps a call: first as open, and then its answer in the same place.
func (c *cell) note(call Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := keyOf(call)
	if at, ok := c.open[k]; ok {
		c.calls[at] = call
		delete(c.open, k)
		return
	}
	if call.Open {
		c.open[k] = len(c.calls)
	}
	c.calls = append(c.calls, call)
}

func (c *cell) mark(l lived) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, l)
}

// did marks what the run did to somebody.
func (c *cell) did(who, what string) {
	c.mark(lived{who: who, at: history.Clock(), done: what})
}

// nextEra begins with a new resource, once everything about the one before is settled.
func (c *cell) nextEra(ctx context.Context) error {
	if c.era > 0 {
		if err := c.settle(ctx); err != nil {
			return err
		}
	}
	c.era++
	c.inEra = 0
	c.mu.Lock()
	c.events, c.grants = nil, nil
	c.mu.Unlock()
	c.resource = lastword.Resource(fmt.Sprintf("doc/%s/%d", c.name, c.era))
	_, err := c.db.ExecContext(ctx, `INSERT INTO document VALUES (?, '')`, string(c.resource))
	return err
}

// settle registers a newer fence at the resource, so that whatever was under way there
// is over: from then on a receipt is there or will never be (R22).
func (c *cell) settle(ctx context.Context) error {
	if c.run.opts.Variant != "" && c.run.opts.Variant != "none" {
		return nil // a system with a defect need not be able to
	}
	w := witnessed{c.run.keeper.client, c.diary}
	for began, try := history.Clock(), 0; ; try++ {
		id := fmt.Sprintf("settle-%d", try) // a tenure that an operator ended is not given again
		t, err := w.Acquire(ctx, lastword.AcquireRequest{Resource: c.resource, RequestID: id, Owner: keeperName, TTL: 10 * time.Second, Wait: 10 * time.Second})
		if err == nil {
			call := c.diary.begin(refCall(opAdvance, t.TenureRef))
			_, err = c.forger.gate.AdvanceMutation(ctx, c.resource, lastword.Mutation{Grant: t.Grant})
			c.diary.end(call, err)
			if err == nil {
				c.settled[c.resource] = true
				return giveBack(ctx, w, t.TenureRef)
			}
		}
		if since(began) > patience || ctx.Err() != nil {
			return fmt.Errorf("%s cannot be settled: %w", c.resource, err)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// read looks at the document and the fence beside it, of one moment, and writes it down.
func (c *cell) read(ctx context.Context) error {
	call := c.diary.begin(Call{Fact: history.Fact{Op: opRead, Resource: c.resource}})
	var fenceNow int64
	err := c.db.QueryRowContext(ctx, `SELECT d.value, coalesce(f.fence, 0) FROM document AS d
LEFT JOIN lastword_fence AS f ON f.domain = ? AND f.resource = d.id WHERE d.id = ?`, Domain, string(c.resource)).Scan(&call.Value, &fenceNow)
	if err != nil {
		return err
	}
	call.Fence = lastword.Token(fenceNow)
	c.diary.end(call, nil)
	return nil
}

func (c *cell) record(ctx context.Context) (fence.Record, error) {
	i, err := c.forger.gate.Inspect(ctx, c.resource)
	return i.Record, err
}

func (c *cell) close() error {
	var errs []error
	var closing sync.WaitGroup
	var mu sync.Mutex
	for _, s := range c.sides {
		if s == nil {
			continue
		}
		closing.Go(func() {
			s.heal()
			var err error
			if s.hand != nil {
				err = s.hand.close()
			}
			err = errors.Join(err, s.hold.Close(), s.ask.Close())
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	closing.Wait()
	if c.forger != nil {
		errs = append(errs, c.forger.close())
	}
	if c.attacker != nil {
		_ = c.attacker.Close()
	}
	if c.db != nil {
		errs = append(errs, c.db.Close())
	}
	return errors.Join(errs...)
}

// settledEra reports whether a newer fence was registered at a resource in the end.
func (c *cell) settledEra(r lastword.Resource) bool { return c.settled[r] }
