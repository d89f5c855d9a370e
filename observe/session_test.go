package observe_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
)

// gathered are the values by name and labels, of a histogram how much it has seen.
func gathered(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all[f.GetName()+labels(m)] = value(m)
		}
	}
	return all
}

func labels(m *dto.Metric) string {
	var pairs []string
	for _, l := range m.GetLabel() {
		pairs = append(pairs, l.GetName()+"="+l.GetValue())
	}
	if len(pairs) == 0 {
		return ""
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount())
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	return m.Gauge.GetValue()
}

// wantExactly compares every metric that is not zero. Names in some are compared with
// the others left out.
func wantExactly(t *testing.T, g prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	got := gathered(t, g)
	maps.DeleteFunc(got, func(_ string, v float64) bool { return v == 0 })
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if w, ok := want[name]; !ok || w != got[name] {
			t.Errorf("%s: got %v, want %v", name, got[name], w)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if _, ok := got[name]; !ok {
			t.Errorf("%s: got nothing, want %v", name, want[name])
		}
	}
}

// script is one session with everything in it: a grant, a refusal, a repetition, a
// wake-up, a renewal, a completion, an expiry, a revocation, and the verdicts.
func script(w *world) {
	a, b := w.client("a"), w.client("b")
	lease := w.acquire(a, "doc/1", client.AcquireOptions{TTL: 6 * time.Second, RequestID: "first"})
	_, err := b.Acquire(w.Context(), "doc/1", client.AcquireOptions{})
	wantIs(w.T, err, lastword.ErrHeld)
	_, err = w.authority.Acquire(w.Context(), lastword.AcquireRequest{
		Resource: "doc/1", Owner: "a", RequestID: "first", TTL: 6 * time.Second, Class: lastword.ClassWrite,
	})
	w.must(err) // the same grant

	w.must(second(w.apply(lease, "op-1"))) // APPLIED
	w.must(second(w.apply(lease, "op-1"))) // REPLAYED
	w.place.lose = 1
	_, err = w.apply(lease, "op-2") // MUTATION_UNKNOWN, ten minutes long
	wantIs(w.T, err, lastword.ErrUnknownOutcome)

	// b waits and is woken.
	woken := make(chan *client.Lease)
	go func() {
		l, err := b.Acquire(w.Context(), "doc/1", client.AcquireOptions{TTL: time.Minute, Wait: time.Minute})
		if err != nil {
			w.Error(err)
		}
		woken <- l
	}()
	time.Sleep(2500 * time.Millisecond) // one renewal of a's
	w.must(lease.Complete(w.Context(), []byte("done")))
	w.must(lease.Close())
	next := <-woken
	w.must(second(w.apply(next, "op-3"))) // APPLIED
	_, err = fence.Apply(w.Context(), w.gate, w.place, fence.Call{
		Resource: "doc/1", Content: []byte("op-4"), Mutation: lastword.Mutation{Operation: "op-4", Grant: lease.Grant(), Seq: 3},
	}, nothing)
	wantIs(w.T, err, lastword.ErrStale)

	// An expiry that a waiter brings to light, and a revocation.
	dead, err := w.authority.Acquire(w.Context(), lastword.AcquireRequest{Resource: "doc/2", Owner: "dead", RequestID: "1", TTL: time.Second})
	w.must(err)
	heir, err := w.authority.Acquire(w.Context(), lastword.AcquireRequest{Resource: "doc/2", Owner: "heir", RequestID: "1", TTL: time.Minute, Wait: time.Minute})
	w.must(err)
	_, err = w.authority.Renew(w.Context(), dead.TenureRef)
	wantIs(w.T, err, lastword.ErrNotHolder)
	w.must(w.authority.Revoke(w.Context(), "doc/2", heir.Fence, "op", "test"))

	w.must(a.Close())
	w.must(b.Close())
	synctest.Wait()
}

func TestMetricsOfASessionAreExact(t *testing.T) {
	inBubble(t, func(w *world) {
		script(w)
		want := map[string]float64{
			// 4 grants, of which 2 woke a waiter; the other two OK of an acquire are
			// repetitions, of which one confirms the grant that was waited for.
			"lastword_authority_grants_total{queued=no}":                         2,
			"lastword_authority_grants_total{queued=yes}":                        2,
			"lastword_authority_call_duration_seconds{code=OK,op=acquire}":       6,
			"lastword_authority_call_duration_seconds{code=HELD,op=acquire}":     1,
			"lastword_authority_call_duration_seconds{code=OK,op=renew}":         1,
			"lastword_authority_call_duration_seconds{code=NOT_HOLDER,op=renew}": 1,
			"lastword_authority_call_duration_seconds{code=OK,op=complete}":      1,
			"lastword_authority_call_duration_seconds{code=OK,op=release}":       2,
			"lastword_authority_call_duration_seconds{code=OK,op=revoke}":        1,
			// Each of the five writes, the new record once more (R19), and the stale one.
			"lastword_authority_call_duration_seconds{code=OK,op=status}": 7,
			"lastword_authority_wait_duration_seconds{code=OK}":           2,
			"lastword_authority_tenures_ended_total{how=RELEASED}":        2,
			"lastword_authority_tenures_ended_total{how=EXPIRED}":         1,
			"lastword_authority_tenures_ended_total{how=REVOKED}":         1,
			"lastword_authority_hold_duration_seconds{how=RELEASED}":      2,
			"lastword_authority_hold_duration_seconds{how=EXPIRED}":       1,
			"lastword_authority_hold_duration_seconds{how=REVOKED}":       1,
			"lastword_authority_handover_duration_seconds":                2,
			// Grants 1 and 3, the renewal, complete, release with grant 2, expiry with
			// grant 4, revoke, release.
			"lastword_authority_commit_duration_seconds{code=OK}": 8,
			"lastword_authority_commit_records":                   8,
			"lastword_authority_commit_calls":                     8,
			"lastword_authority_highest_counter":                  2,

			"lastword_fence_calls_total{mode=query,op=apply,outcome=APPLIED,place=mem:app}":          2,
			"lastword_fence_calls_total{mode=query,op=apply,outcome=REPLAYED,place=mem:app}":         1,
			"lastword_fence_calls_total{mode=query,op=apply,outcome=MUTATION_UNKNOWN,place=mem:app}": 1,
			"lastword_fence_calls_total{mode=query,op=apply,outcome=STALE_OWNER,place=mem:app}":      1,
			"lastword_fence_call_duration_seconds{mode=query,op=apply,place=mem:app}":                5,
			"lastword_fence_unsettled_operations":                                                    1,
			"lastword_fence_oldest_unsettled_age_seconds":                                            3.5,

			"lastword_client_call_duration_seconds{code=OK,op=acquire}":   2,
			"lastword_client_call_duration_seconds{code=HELD,op=acquire}": 1,
			"lastword_client_call_duration_seconds{code=OK,op=renew}":     1,
			"lastword_client_call_duration_seconds{code=OK,op=complete}":  1,
			"lastword_client_call_duration_seconds{code=OK,op=release}":   2,
			"lastword_client_transitions_total{from=REQUESTED,to=HELD}":   2,
			"lastword_client_transitions_total{from=HELD,to=RENEWING}":    1,
			"lastword_client_transitions_total{from=RENEWING,to=HELD}":    1,
			"lastword_client_transitions_total{from=HELD,to=RELEASED}":    2,
			"lastword_client_leases_ended_total{cause=released}":          2,
		}
		wantExactly(t, w.registry, want)
	})
}

func TestMetricsAreClean(t *testing.T) {
	inBubble(t, func(w *world) {
		script(w)
		problems, err := testutil.GatherAndLint(w.registry)
		w.must(err)
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	})
}

// TestLabelsAreBounded: nothing that a caller chooses becomes a label.
func TestLabelsAreBounded(t *testing.T) {
	inBubble(t, func(w *world) {
		script(w)
		for name := range gathered(t, w.registry) {
			for _, word := range []string{"doc/", "first", "op-", "lease-", "heir"} {
				if strings.Contains(name, word) {
					t.Errorf("%s says %q", name, word)
				}
			}
		}
		for i := range 1000 {
			w.observers.Fence.Answered(w.Context(), fence.Answer{
				Op: fence.OpApply, Mode: fence.Query, Place: fmt.Sprint("place-", i), Verdict: lastword.Applied,
			})
		}
		n := 0
		for name, v := range gathered(t, w.registry) {
			if !strings.HasPrefix(name, "lastword_fence_calls_total") {
				continue
			}
			n++
			if strings.Contains(name, "place=other") && v != 1000-63 {
				t.Errorf("%s: got %v, want %v", name, v, 1000-63)
			}
		}
		if n > 4+63+1 {
			t.Errorf("%d series of places", n)
		}
	})
}
