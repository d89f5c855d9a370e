package fence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/lastword/lastword"
)

const (
	defaultStatusReuse = time.Second
	defaultAskTimeout  = 2 * time.Second
	defaultProofSkew   = 2 * time.Second

	// maxRounds bounds how often one call begins again because the record has seen
	// more than the call had asked for.
	maxRounds = 4
	// noteTimeout bounds how long a refusal waits for its evidence to be written, and
	// noteGrace how far it may outlast the caller's deadline with that, and how long a
	// later call may be held up by evidence that still waits.
	noteTimeout = 5 * time.Second
	noteGrace   = 250 * time.Millisecond
)

// Gate admits guarded writes at places. It verifies, asks, numbers and keeps
// evidence; the rules are internal/core's and the transaction is the place's. One
// Gate serves any number of places and is safe for concurrent use. It owns no
// goroutine.
type Gate struct {
	cfg         Config
	answers     *answers
	grants      *grants
	provisional *provisionals
	pending     *pending
	floors      *floors
}

// NewGate checks cfg once and returns a gate. It fails with [lastword.CodeInvalid]
// and asks nobody for anything.
func NewGate(cfg Config) (*Gate, error) {
	if err := cfg.validate(); err != nil {
		return nil, &lastword.Error{Code: lastword.CodeInvalid, Op: "make gate", Message: err.Error()}
	}
	cfg.fill()
	return &Gate{cfg: cfg, answers: newAnswers(), grants: newGrants(), provisional: newProvisionals(), pending: &pending{}, floors: &floors{by: map[string]floorSeen{}}}, nil
}

func (c *Config) validate() error {
	if err := lastword.CheckID("domain", c.Domain); err != nil {
		return err
	}
	if c.Caller != "" {
		if err := lastword.CheckID("caller", c.Caller); err != nil {
			return err
		}
	}
	if c.Scope != "" {
		if _, err := lastword.ParseResource(strings.TrimSuffix(c.Scope, "/")); err != nil {
			return fmt.Errorf("scope: %w", err)
		}
	}
	switch c.Mode {
	case "", FenceOnly, Proof, Query:
	default:
		return fmt.Errorf("mode %q: want %s, %s or %s", c.Mode, Query, Proof, FenceOnly)
	}
	switch c.Policy {
	case "", Ordered, Latest, Once:
	default:
		return fmt.Errorf("policy %q: want %s, %s or %s", c.Policy, Ordered, Latest, Once)
	}
	switch {
	case c.Verifier == nil && !c.Imported:
		return errors.New("no verifier: without one no grant can be believed")
	case c.Imported && c.Mode == Proof:
		return fmt.Errorf("mode %s: there are no status proofs of imported tokens", Proof)
	case c.Status == nil && (c.Mode == "" || c.Mode == Query):
		return fmt.Errorf("no status source: give one, or choose the mode %s or %s", Proof, FenceOnly)
	case c.Step > uint64(lastword.MaxToken):
		return fmt.Errorf("step %d is above %d", c.Step, uint64(lastword.MaxToken))
	case c.ProofSkew < 0:
		return errors.New("a negative bound of the clock skew")
	case c.AskTimeout < 0:
		return errors.New("a negative ask timeout")
	}
	return nil
}

func (c *Config) fill() {
	if c.Mode == "" {
		c.Mode = Query
	}
	if c.StatusReuse == 0 {
		c.StatusReuse = defaultStatusReuse
	}
	if c.AskTimeout == 0 {
		c.AskTimeout = defaultAskTimeout
	}
	if c.ProofSkew == 0 {
		c.ProofSkew = defaultProofSkew
	}
	if c.Elapsed == nil {
		c.Elapsed = processElapsed()
	}
	if c.Now == nil {
		c.Now = time.Now //nolint:forbidigo // the one place where the default is taken
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// processElapsed is the larger of what the monotonic and the wall clock have
// counted: the first stands still in a suspend, the second may be set back. Too
// much only means that an answer is asked for again.
func processElapsed() func() time.Duration {
	start := time.Now() //nolint:forbidigo // as above
	return func() time.Duration {
		now := time.Now() //nolint:forbidigo // as above
		return max(now.Sub(start), now.Round(0).Sub(start.Round(0)))
	}
}

// noteTime is how long evidence may take to be written: the caller's own time, and
// a short one if that is over, since the refusal was decided all the same.
func (g *Gate) noteTime(ctx context.Context) time.Duration {
	end, bounded := ctx.Deadline()
	switch {
	case ctx.Err() != nil:
		return noteGrace
	case !bounded:
		return noteTimeout
	}
	return min(noteTimeout, max(noteGrace, time.Until(end))) //nolint:forbidigo // a context's deadline is on the system's clock
}

// admits reports whether r is inside the gate's scope.
func (c *Config) admits(r lastword.Resource) bool {
	if c.Scope == "" || string(r) == c.Scope {
		return true
	}
	return strings.HasSuffix(c.Scope, "/") && strings.HasPrefix(string(r), c.Scope)
}

// key checks a resource that a caller named and returns its record's key.
func (g *Gate) key(op string, r lastword.Resource) (Key, error) {
	if _, err := lastword.ParseResource(string(r)); err != nil {
		return Key{}, &lastword.Error{Code: lastword.CodeInvalid, Op: op, Message: err.Error()}
	}
	if !g.cfg.admits(r) {
		return Key{}, &lastword.Error{
			Code: lastword.CodeInvalid, Op: op, Resource: r,
			Message: fmt.Sprintf("outside the scope %q of this gate", g.cfg.Scope),
		}
	}
	return Key{Domain: g.cfg.Domain, Resource: r}, nil
}

// stamp is the wall clock for people, as fine as every engine can keep it.
func (g *Gate) stamp() time.Time { return g.cfg.Now().UTC().Truncate(time.Microsecond) }

// Flush writes the evidence that calls of [Within] had to keep back, at whatever
// place it belongs to. What could not be written stays, and the error says why.
// Call it when the transaction that was refused has been rolled back; the next
// [Apply] or [Advance] at the same place does it too.
func (g *Gate) Flush(ctx context.Context) error {
	g.pending.flushing.Lock()
	defer g.pending.flushing.Unlock()
	return g.pending.flush(ctx, "")
}
