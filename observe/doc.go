// Package observe shows what authority, fence and client do: as Prometheus metrics
// and as OpenTelemetry spans, behind the small Observer interfaces that these packages
// declare. docs/observe.md lists every metric; docs/alerts.yml has rules for them.
//
//	registry := prometheus.NewRegistry()
//	metrics, err := observe.NewMetrics(registry)
//	…
//	authority.Config{Observer: metrics.Authority}
//	mux.Handle("/metrics", observe.Handler(registry))
//
// # Guarantees
//
// The labels of a metric are bounded: no resource, owner, lease or request id and no
// fence is ever one, and of places at most 64 have a name of their own. A span says
// resource and fence, never a grant, a key, an owner or a result. Counting an answer
// takes less than a microsecond and allocates nothing. An unsettled outcome that
// nobody asks about grows older with every look at its metric (R24).
//
// # Not guaranteed
//
// That everything is counted: an authority and a client drop what an observer is too
// slow for, and say how much in a metric of their own. That a process knows of what
// others have settled: an unknown outcome is open here until it is settled, or looked
// up, here. Spans are made when their call is over, so that a call in the same process
// or behind the wire is a sibling of the one that made it, under the caller's span, and
// not its child.
package observe

import (
	"context"
	"time"

	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
)

// Observers are what the Observer fields of the three configurations take. Those of
// fence and client may be shared by any number of gates and clients, that of the
// authority is for one. They are safe for concurrent use.
type Observers struct {
	Authority authority.Observer
	Fence     fence.Observer
	Client    client.Observer
}

// Join tells all of several what happens, one after the other; nil fields are left
// out.
func Join(several ...Observers) Observers {
	var a authorities
	var f fences
	var c clients
	for _, o := range several {
		if o.Authority != nil {
			a = append(a, o.Authority)
		}
		if o.Fence != nil {
			f = append(f, o.Fence)
		}
		if o.Client != nil {
			c = append(c, o.Client)
		}
	}
	return Observers{Authority: a, Fence: f, Client: c}
}

type (
	authorities []authority.Observer
	fences      []fence.Observer
	clients     []client.Observer
)

// Answered implements [authority.Observer].
func (all authorities) Answered(ctx context.Context, a authority.Answer) {
	for _, o := range all {
		guarded(func() { o.Answered(ctx, a) })
	}
}

// Report implements [authority.Observer].
func (all authorities) Report(r authority.Report) {
	for _, o := range all {
		guarded(func() { o.Report(r) })
	}
}

// Answered implements [fence.Observer].
func (all fences) Answered(ctx context.Context, a fence.Answer) {
	for _, o := range all {
		guarded(func() { o.Answered(ctx, a) })
	}
}

// Followed implements [fence.FollowObserver] for those that do.
func (all fences) Followed(ctx context.Context, following bool, why error) {
	for _, o := range all {
		if f, ok := o.(fence.FollowObserver); ok {
			guarded(func() { f.Followed(ctx, following, why) })
		}
	}
}

// Answered implements [client.Observer].
func (all clients) Answered(ctx context.Context, a client.Answer) {
	for _, o := range all {
		guarded(func() { o.Answered(ctx, a) })
	}
}

// Changed implements [client.Observer].
func (all clients) Changed(c client.Change) {
	for _, o := range all {
		guarded(func() { o.Changed(c) })
	}
}

// guarded contains a panic of one observer, so that the others are told.
func guarded(tell func()) {
	defer func() { _ = recover() }()
	tell()
}

// now is the one place where this package looks at the clock: nothing is decided by
// it.
func now() time.Time { return time.Now() } //nolint:forbidigo // as above
