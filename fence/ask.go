package fence

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// ask puts the status question (R12) and fills the attempt with the answer. Unless
// fresh, a HELD answer may be one that was asked for a short while ago. No answer
// is STATUS_UNAVAILABLE.
func (w *passage) ask(ctx context.Context, fresh bool) error {
	st, err := w.status(ctx, fresh)
	if err != nil {
		return err
	}
	w.attempt.Heard = core.Heard{Mode: Query, State: w.stateIn(st), NextFence: st.NextFence}
	return nil
}

func (w *passage) status(ctx context.Context, fresh bool) (lastword.Status, error) {
	g := w.g
	if g.cfg.Status == nil {
		return lastword.Status{}, w.refusal(lastword.StatusUnavailable, "NO_SOURCE", 0, nil)
	}
	digest := w.attempt.GrantDigest
	if !fresh {
		if st, ok := g.answers.get(digest, g.cfg.Elapsed(), g.cfg.StatusReuse); ok {
			return st, nil
		}
	}
	sent := g.cfg.Elapsed()
	asking, cancel := context.WithTimeout(ctx, g.cfg.AskTimeout)
	defer cancel()
	st, err := g.cfg.Status.Status(asking, lastword.StatusQuery{Resource: w.key.Resource, LeaseID: w.attempt.LeaseID})
	if err == nil {
		err = asking.Err() // an answer that came too late is none (R9)
	}
	if err == nil && st.Resource != w.key.Resource {
		err = errors.New("the answer is about another resource")
	}
	if err != nil {
		return lastword.Status{}, w.refusal(lastword.StatusUnavailable, "", 0, definite(err))
	}
	if w.stateIn(st) == lastword.StateHeld && g.cfg.StatusReuse > 0 {
		g.answers.put(digest, answer{sent: sent, status: st}, g.cfg.StatusReuse)
	}
	return st, nil
}

// stateIn is what the answer says of this very grant: HELD and PENDING count only
// if the current tenure has its fence, lease and digest.
func (w *passage) stateIn(st lastword.Status) lastword.State {
	a := &w.attempt
	live := st.State == lastword.StateHeld || st.State == lastword.StatePending
	if live && st.Holder.Fence == a.Fence && st.Holder.LeaseID == a.LeaseID && st.Digest == a.GrantDigest {
		return st.State
	}
	switch st.Asked {
	case lastword.StateExpired, lastword.StateReleased, lastword.StateRevoked, lastword.StateCanceled:
		return st.Asked
	case lastword.StateFree, lastword.StatePending, lastword.StateHeld: // of another grant
	}
	return lastword.StateFree
}

// confirmsJump asks whether the authority's next number is above the fence (R14a),
// where the record wants to hear nothing else of it. false: it could not be asked.
func (w *passage) confirmsJump(ctx context.Context) bool {
	st, err := w.status(ctx, true)
	if err != nil {
		return false
	}
	w.attempt.Heard.NextFence = st.NextFence
	return true
}

// regressed asks, after the record was read, whether the authority went back below
// what the record has stored.
func (w *passage) regressed(ctx context.Context, rec Record) bool {
	if w.attempt.Heard.Mode != Query {
		return false
	}
	st, err := w.status(ctx, true)
	return err == nil && core.Behind(rec, st.NextFence)
}

// maxAnswers bounds how many HELD answers are kept.
const maxAnswers = 4096

// answer is a HELD answer and when its question was sent.
type answer struct {
	sent   time.Duration
	status lastword.Status
}

// fresh reports whether a may be used at now. Elapsed time that ran backwards is
// no time that can be trusted.
func (a answer) fresh(now, reuse time.Duration) bool {
	return now >= a.sent && now-a.sent <= reuse
}

// answers keeps HELD answers by grant digest, for a short while.
type answers struct {
	mu   sync.Mutex
	held map[lastword.Digest]answer
}

func newAnswers() *answers { return &answers{held: make(map[lastword.Digest]answer)} }

func (s *answers) get(d lastword.Digest, now, reuse time.Duration) (lastword.Status, bool) {
	if reuse <= 0 {
		return lastword.Status{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.held[d]
	if !ok || !a.fresh(now, reuse) {
		return lastword.Status{}, false
	}
	return a.status, true
}

func (s *answers) put(d lastword.Digest, a answer, reuse time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) >= maxAnswers {
		s.makeRoom(a.sent, reuse)
	}
	s.held[d] = a
}

// makeRoom drops what is too old, and anything at all until an eighth is free: a
// dropped answer is only asked for again, and not every put should look at all.
func (s *answers) makeRoom(now, reuse time.Duration) {
	for d, a := range s.held {
		if !a.fresh(now, reuse) {
			delete(s.held, d)
		}
	}
	for d := range s.held {
		if len(s.held) <= maxAnswers/8*7 {
			return
		}
		delete(s.held, d)
	}
}
