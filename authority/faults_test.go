package authority_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
)

// hooked is a store whose calls a test can watch, hold up or lose.
type hooked struct {
	store.Store
	mu sync.Mutex
	// read runs before a reading, sent before a commit is sent (an error: it is
	// not), answered after it was applied (an error: its answer is lost).
	read     func(queries []store.Query) error
	sent     func(ctx context.Context, steps []store.Step) error
	answered func(steps []store.Step, applied []bool) error
}

// hook changes the hooks while the store is in use.
func (h *hooked) hook(change func(h *hooked)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h)
}

func (h *hooked) Read(ctx context.Context, queries ...store.Query) (store.View, error) {
	h.mu.Lock()
	read := h.read
	h.mu.Unlock()
	if read != nil {
		if err := read(queries); err != nil {
			return store.View{}, err
		}
	}
	return h.Store.Read(ctx, queries...)
}

func (h *hooked) Commit(ctx context.Context, steps ...store.Step) ([]bool, error) {
	h.mu.Lock()
	sent, answered := h.sent, h.answered
	h.mu.Unlock()
	if sent != nil {
		if err := sent(ctx, steps); err != nil {
			return nil, err
		}
	}
	applied, err := h.Store.Commit(ctx, steps...)
	if err == nil && answered != nil {
		if err := answered(steps, applied); err != nil {
			return nil, err
		}
	}
	return applied, err
}

// writes reports whether a step of the batch writes a record that fits.
func writes(steps []store.Step, fits func(store.Record) bool) bool {
	for _, s := range steps {
		if s.Record != nil && fits(*s.Record) {
			return true
		}
	}
	return false
}

func unavailable() error {
	return &lastword.Error{Code: lastword.CodeUnavailable, Message: "injected: not sent"}
}

func lostReply() error {
	return &lastword.Error{Code: lastword.CodeUnknown, Message: "injected: no answer"}
}

// unreliable is a store that, by a seed, loses requests and answers, is late and
// refuses single steps.
type unreliable struct {
	store.Store
	mu   sync.Mutex
	rand *rand.Rand
	rate float64
	slow time.Duration
}

// newUnreliable is reliable until it is told to fail.
func newUnreliable(s store.Store, seed uint64, slow time.Duration) *unreliable {
	return &unreliable{Store: s, rand: rand.New(rand.NewPCG(seed, 1)), slow: slow}
}

// fail sets the rate of faults; at 0 nothing is late either.
func (u *unreliable) fail(rate float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.rate = rate
}

func (u *unreliable) chance() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.rand.Float64() < u.rate
}

func (u *unreliable) delay() {
	u.mu.Lock()
	var d time.Duration
	if u.rate > 0 && u.slow > 0 {
		d = time.Duration(u.rand.Int64N(int64(u.slow)))
	}
	u.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
}

func (u *unreliable) Read(ctx context.Context, queries ...store.Query) (store.View, error) {
	u.delay()
	if u.chance() {
		return store.View{}, unavailable()
	}
	return u.Store.Read(ctx, queries...)
}

func (u *unreliable) Commit(ctx context.Context, steps ...store.Step) ([]bool, error) {
	u.delay()
	if u.chance() {
		return nil, unavailable()
	}
	if u.chance() {
		return nil, lostReply() // the request was lost
	}
	kept, at := steps, make([]int, 0, len(steps))
	if u.chance() { // some of them meet a conflict
		kept = nil
		for i, s := range steps {
			if u.chance() {
				continue
			}
			kept, at = append(kept, s), append(at, i)
		}
		some, err := u.Store.Commit(ctx, kept...)
		if err != nil {
			return nil, err
		}
		applied := make([]bool, len(steps))
		for i, ok := range some {
			applied[at[i]] = ok
		}
		return applied, nil
	}
	applied, err := u.Store.Commit(ctx, kept...)
	if err == nil && u.chance() {
		return nil, lostReply() // the answer was lost
	}
	return applied, err
}

// brittle is a witness that fails when it is told to.
type brittle struct {
	authority.Witness
	mu     sync.Mutex
	broken bool
	loads  int
	// step runs before and after each swap; an error ends the call.
	step func(after bool) error
}

var errWitness = errors.New("injected: the witness is away")

func (b *brittle) setBroken(broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = broken
}

func (b *brittle) asked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.loads
}

func (b *brittle) Load(ctx context.Context) (*authority.Mark, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.loads++
	if b.broken {
		return nil, errWitness
	}
	return b.Witness.Load(ctx)
}

func (b *brittle) Swap(ctx context.Context, old *authority.Mark, next authority.Mark) (bool, error) {
	b.mu.Lock()
	step, broken := b.step, b.broken
	b.mu.Unlock()
	if broken {
		return false, errWitness
	}
	if step != nil {
		if err := step(false); err != nil {
			return false, err
		}
	}
	ok, err := b.Witness.Swap(ctx, old, next)
	if step != nil && err == nil {
		err = step(true)
	}
	return ok, err
}
