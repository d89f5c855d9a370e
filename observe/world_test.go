package observe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/observe"
	"github.com/lastword/lastword/store/memstore"
)

const domain = "observed"

// world is an authority, a place with its gate, and whoever watches them.
type world struct {
	*testing.T
	registry  *prometheus.Registry
	observers observe.Observers
	authority *authority.Authority
	place     *lossy
	gate      *fence.Gate
	start     time.Time
}

// inBubble runs a test in fake time, on a world that more observers watch, too.
func inBubble(t *testing.T, f func(w *world), more ...observe.Observers) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, registry: prometheus.NewRegistry(), start: time.Now()}
		metrics, err := observe.NewMetrics(w.registry)
		w.must(err)
		w.observers = observe.Join(append([]observe.Observers{metrics}, more...)...)
		key, err := grant.NewKey()
		w.must(err)
		signer, err := grant.NewSigner(domain, key)
		w.must(err)
		w.authority, err = authority.Open(t.Context(), memstore.New().Open(), signer, authority.Config{Domain: domain, Observer: w.observers.Authority})
		w.must(err)
		defer w.authority.Close()
		w.gate = w.newGate(fence.Query)
		w.place = &lossy{Place: memfence.New("app")}
		f(w)
	})
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) newGate(mode fence.StatusMode) *fence.Gate {
	w.Helper()
	raw, err := w.authority.Bundle(w.Context())
	w.must(err)
	bundle, err := grant.ParseBundle(raw)
	w.must(err)
	v, err := grant.NewVerifier(domain, grant.StaticBundle(bundle), grant.VerifierConfig{})
	w.must(err)
	g, err := fence.NewGate(fence.Config{
		Domain: domain, Verifier: v, Status: w.authority, Mode: mode, StatusReuse: -1,
		Elapsed: w.elapsed, Observer: w.observers.Fence,
	})
	w.must(err)
	return g
}

func (w *world) elapsed() time.Duration { return time.Since(w.start) }

func (w *world) client(owner string) *client.Client {
	w.Helper()
	c, err := client.New(w.authority, client.Config{
		Owner: owner, Elapsed: w.elapsed, Jitter: func() float64 { return 0 }, Observer: w.observers.Client,
	})
	w.must(err)
	return c
}

func (w *world) acquire(c *client.Client, r lastword.Resource, o client.AcquireOptions) *client.Lease {
	w.Helper()
	l, err := c.Acquire(w.Context(), r, o)
	w.must(err)
	return l
}

func (w *world) apply(h lastword.Holder, operation string) (lastword.Receipt, error) {
	return fence.Apply(w.Context(), w.gate, w.place, fence.Call{
		Holder: h, Content: []byte(operation), Mutation: lastword.Mutation{Operation: operation},
	}, func(_ context.Context, tx *memfence.Tx) ([]byte, error) {
		tx.Set("value", operation)
		return nil, nil
	})
}

// lossy is a place whose next commits get no answer, and are not done if undone.
type lossy struct {
	*memfence.Place
	lose   int
	undone bool
}

func (l *lossy) Transact(ctx context.Context, key fence.Key, fn func(context.Context, *memfence.Tx) error) error {
	err := l.Place.Transact(ctx, key, func(ctx context.Context, tx *memfence.Tx) error {
		if err := fn(ctx, tx); err != nil || l.lose == 0 || !l.undone {
			return err
		}
		return errUndone
	})
	if l.lose > 0 && (err == nil || errors.Is(err, errUndone)) {
		l.lose--
		return &lastword.Error{Code: lastword.CodeMutationUnknown, Op: "commit", Message: "the reply was lost"}
	}
	return err
}

var errUndone = errors.New("undone")
