package fence

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/lastword/lastword"
)

// Watcher shows what changes at the authority. The embedded authority and the remote
// client satisfy it.
type Watcher interface {
	Watch(ctx context.Context, prefix string) iter.Seq2[lastword.Sight, error]
}

// FollowObserver is an [Observer] that is told, too, when a gate begins to follow the
// authority, and when it has lost it and falls back to [Config.StatusReuse].
type FollowObserver interface {
	Followed(ctx context.Context, following bool, why error)
}

// The pauses between two attempts to follow.
const (
	followPause     = 100 * time.Millisecond
	followPauseMost = 5 * time.Second
)

// Follow watches the authority, so that a revocation, or any other end of a lease,
// reaches this gate at once: the remembered HELD answer is dropped and the next write is
// asked for, and older status proofs are refused. Run it in a goroutine; it returns when
// ctx ends, and at once with [lastword.CodeInvalid] if this gate's Scope cannot be
// watched. When the watch breaks it says so, to Config.Logger and a [FollowObserver], and
// begins anew.
//
// Nothing depends on it for safety. Without it, and while it is lost, an answer is
// reused for [Config.StatusReuse] and a proof believed as long as it lives.
func (g *Gate) Follow(ctx context.Context, w Watcher) error {
	pause := followPause
	for {
		began, err := g.follow(ctx, w)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		g.followed(ctx, false, err)
		if e := (*lastword.Error)(nil); errors.As(err, &e) && e.Code == lastword.CodeInvalid {
			return err
		}
		if began {
			pause = followPause
		}
		if !rested(ctx, pause) {
			return context.Cause(ctx)
		}
		pause = min(2*pause, followPauseMost)
	}
}

// follow is one watch. began says that it has shown all there was.
func (g *Gate) follow(ctx context.Context, w Watcher) (began bool, err error) {
	for sight, err := range w.Watch(ctx, g.cfg.Scope) {
		switch {
		case err != nil:
			return began, err
		case sight.Complete:
			began = true
			g.followed(ctx, true, nil)
		default:
			g.saw(sight.Status)
		}
	}
	return began, errors.New("the watch ended")
}

// saw takes in how a resource is at the authority.
func (g *Gate) saw(st lastword.Status) {
	if !g.cfg.admits(st.Resource) {
		return
	}
	g.answers.saw(st.Resource, markOf(st))
	var held lastword.Digest
	if st.State == lastword.StateHeld {
		held = st.Digest
	}
	g.answers.changed(st.Resource, held)
}

func (g *Gate) followed(ctx context.Context, following bool, why error) {
	if following {
		g.cfg.Logger.Info("following the authority: an end of a lease is known at once")
	} else {
		g.cfg.Logger.Warn("lost the watch of the authority: a HELD answer is reused until it is too old", "reuse", g.cfg.StatusReuse, "error", why)
	}
	o, ok := g.cfg.Observer.(FollowObserver)
	if !ok {
		return
	}
	defer func() { _ = recover() }() // as with every observer
	o.Followed(ctx, following, why)
}

func rested(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause) //nolint:forbidigo // paces the attempts; decides nothing
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
