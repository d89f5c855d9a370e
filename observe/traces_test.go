package observe_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/observe"
)

// recorded runs a test with a recorder of spans.
func recorded(t *testing.T, f func(w *world, provider *sdk.TracerProvider, spans func() []sdk.ReadOnlySpan)) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
	inBubble(t, func(w *world) { f(w, provider, recorder.Ended) }, observe.NewTraces(provider))
}

func said(s sdk.ReadOnlySpan) string {
	text := s.Name()
	for _, a := range s.Attributes() {
		text += fmt.Sprintf(" %s=%s", a.Key, a.Value.String())
	}
	return text
}

func TestSpansOfASessionSayResourceFenceAndVerdict(t *testing.T) {
	recorded(t, func(w *world, _ *sdk.TracerProvider, spans func() []sdk.ReadOnlySpan) {
		script(w)
		var all []string
		for _, s := range spans() {
			all = append(all, said(s))
		}
		for _, want := range []string{
			"lastword.authority.acquire lastword.resource=doc/1 lastword.fence=1 lastword.code=OK lastword.queued=false lastword.repeated=false",
			"lastword.authority.acquire lastword.resource=doc/1 lastword.fence=2 lastword.code=OK lastword.queued=true lastword.repeated=false",
			"lastword.authority.acquire lastword.resource=doc/1 lastword.code=HELD lastword.queued=false lastword.repeated=false",
			"lastword.authority.release lastword.resource=doc/1 lastword.fence=1 lastword.code=OK lastword.queued=false lastword.repeated=false",
			"lastword.fence.apply lastword.resource=doc/1 lastword.fence=1 lastword.verdict=APPLIED lastword.place=mem:app lastword.mode=query",
			"lastword.fence.apply lastword.resource=doc/1 lastword.fence=1 lastword.verdict=STALE_OWNER lastword.place=mem:app lastword.mode=query",
			"lastword.client.acquire lastword.resource=doc/1 lastword.fence=2 lastword.code=OK lastword.queued=true",
			"lastword.client.renew lastword.resource=doc/1 lastword.fence=1 lastword.code=OK lastword.queued=false",
			"lastword.client.complete lastword.resource=doc/1 lastword.fence=1 lastword.code=OK lastword.queued=false",
			"lastword.client.release lastword.resource=doc/1 lastword.fence=1 lastword.code=OK lastword.queued=false",
		} {
			if !slices.Contains(all, want) {
				t.Errorf("no span %q among %q", want, all)
			}
		}
		for _, s := range spans() {
			if s.Name() == "lastword.authority.status" {
				t.Error("a span of every status question")
			}
			wantError := slices.Contains([]string{"MUTATION_UNKNOWN"}, verdictOf(s))
			if got := s.Status().Code == codes.Error; got != wantError {
				t.Errorf("%s: in error: %v, want %v", said(s), got, wantError)
			}
		}
	})
}

func verdictOf(s sdk.ReadOnlySpan) string {
	for _, a := range s.Attributes() {
		if a.Key == "lastword.verdict" {
			return a.Value.AsString()
		}
	}
	return ""
}

// TestSpansBelongToTheCallersSpan and have its times; a renewal has a trace of its own
// that names the one it came from.
func TestSpansBelongToTheCallersSpan(t *testing.T) {
	recorded(t, func(w *world, provider *sdk.TracerProvider, spans func() []sdk.ReadOnlySpan) {
		c := w.client("a")
		ctx, job := provider.Tracer("test").Start(w.Context(), "job")
		l, err := c.Acquire(ctx, "doc/1", client.AcquireOptions{TTL: 6 * time.Second})
		w.must(err)
		time.Sleep(2500 * time.Millisecond)
		began := time.Now()
		r := lastword.AcquireRequest{Resource: "doc/1", Owner: "b", RequestID: "1", TTL: time.Second, Wait: 3 * time.Second}
		_, err = w.authority.Acquire(ctx, r)
		wantIs(t, err, lastword.ErrHeld)
		w.must(l.Close())
		w.must(c.Close())
		job.End()
		parent := job.SpanContext()
		seen := map[string]int{}
		for _, s := range spans() {
			seen[s.Name()]++
			switch s.Name() {
			case "lastword.client.acquire":
				if s.Parent().SpanID() != parent.SpanID() {
					t.Errorf("%s: its parent is %v, want the job's span", s.Name(), s.Parent())
				}
			case "lastword.client.renew":
				if s.SpanContext().TraceID() == parent.TraceID() || len(s.Links()) != 1 || s.Links()[0].SpanContext.SpanID() != parent.SpanID() {
					t.Errorf("a renewal is of trace %v with links %v", s.SpanContext().TraceID(), s.Links())
				}
			case "lastword.authority.acquire":
				if s.Parent().SpanID() != parent.SpanID() {
					t.Errorf("%s: its parent is %v, want the job's span", s.Name(), s.Parent())
				}
				if took := s.EndTime().Sub(s.StartTime()); took == 3*time.Second && !s.StartTime().Equal(began) {
					t.Errorf("the wait began at %v, the span at %v", began, s.StartTime())
				}
			}
		}
		for _, name := range []string{"lastword.client.acquire", "lastword.client.renew", "lastword.authority.acquire", "job"} {
			if seen[name] == 0 {
				t.Errorf("no span %s: %v", name, seen)
			}
		}
	})
}

// TestASpanDoesNotRepeatWhatIsNoResource: a refused call may have named anything.
func TestASpanDoesNotRepeatWhatIsNoResource(t *testing.T) {
	recorded(t, func(w *world, _ *sdk.TracerProvider, spans func() []sdk.ReadOnlySpan) {
		_, err := w.authority.Acquire(w.Context(), lastword.AcquireRequest{Resource: "a\nb", Owner: "o", RequestID: "1", TTL: time.Second})
		wantIs(t, err, lastword.ErrInvalid)
		if got, want := said(spans()[0]), "lastword.authority.acquire lastword.code=INVALID lastword.queued=false lastword.repeated=false"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
