package observe

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
)

// NewTraces returns observers that make a span of every acquire, renew, release and
// complete (at the authority of cancel and revoke, too) and of every call at a gate.
// A span is the child of the one in the call's context. A client's renewals go on long
// after that span: each has a trace of its own, linked to the acquire's.
//
// A span is in error where the outcome is unknown or the other side was not there;
// refusals are answers.
func NewTraces(provider trace.TracerProvider) Observers {
	t := tracer{provider.Tracer("github.com/lastword/lastword/observe")}
	return Observers{Authority: authorityTraces{t}, Fence: fenceTraces{t}, Client: clientTraces{t}}
}

type tracer struct{ tracer trace.Tracer }

// Names of attributes.
const (
	keyResource = attribute.Key("lastword.resource")
	keyFence    = attribute.Key("lastword.fence")
	keyCode     = attribute.Key("lastword.code")
	keyVerdict  = attribute.Key("lastword.verdict")
	keyPlace    = attribute.Key("lastword.place")
	keyMode     = attribute.Key("lastword.mode")
	keyQueued   = attribute.Key("lastword.queued")
	keyRepeated = attribute.Key("lastword.repeated")
)

// done is a call that is over.
type done struct {
	name     string
	kind     trace.SpanKind
	end      time.Time
	took     time.Duration
	resource lastword.Resource
	fence    lastword.Token
	outcome  string // "" for success
	failed   bool
	options  []trace.SpanStartOption
}

func (t tracer) span(ctx context.Context, d done, more ...attribute.KeyValue) {
	options := append(d.options, trace.WithTimestamp(d.end.Add(-d.took)), trace.WithSpanKind(d.kind))
	_, span := t.tracer.Start(ctx, d.name, options...)
	if span.IsRecording() {
		if r, err := lastword.ParseResource(string(d.resource)); err == nil { // a refused call may have named anything
			span.SetAttributes(keyResource.String(string(r)))
		}
		if d.fence.Valid() {
			span.SetAttributes(keyFence.Int64(int64(d.fence)))
		}
		span.SetAttributes(more...)
		if d.failed {
			span.SetStatus(codes.Error, d.outcome)
		}
	}
	span.End(trace.WithTimestamp(d.end))
}

// failed reports whether a code says that something is wrong, and not only that the
// answer is no.
func failed(c lastword.Code) bool {
	switch c {
	case lastword.CodeUnavailable, lastword.CodeUnknown, lastword.CodeInternal, lastword.CodeExhausted,
		lastword.CodeFenceRegression, lastword.CodeMutationUnknown, lastword.CodeStatusUnavailable:
		return true
	}
	return false
}

type authorityTraces struct{ tracer }

// Answered implements [authority.Observer].
func (t authorityTraces) Answered(ctx context.Context, a authority.Answer) {
	if a.Op == authority.OpStatus {
		return // every write asks; the span of the write says enough
	}
	t.span(ctx, done{
		name: "lastword.authority." + string(a.Op), kind: trace.SpanKindInternal, end: now(), took: a.Took,
		resource: a.Resource, fence: a.Fence, outcome: byCode(a.Code), failed: failed(a.Code),
	}, keyCode.String(byCode(a.Code)), keyQueued.Bool(a.Queued), keyRepeated.Bool(a.Repeated))
}

// Report implements [authority.Observer].
func (authorityTraces) Report(authority.Report) {}

type fenceTraces struct{ tracer }

// Answered implements [fence.Observer].
func (t fenceTraces) Answered(ctx context.Context, a fence.Answer) {
	outcome := outcomeOf(a)
	t.span(ctx, done{
		name: "lastword.fence." + string(a.Op), kind: trace.SpanKindInternal, end: now(), took: a.Took,
		resource: a.Resource, fence: a.Fence, outcome: outcome,
		failed: failed(a.Verdict.Code()) || failed(a.Code) || outcome == effectFailed || outcome == panicked,
	}, keyVerdict.String(outcome), keyPlace.String(a.Place), keyMode.String(string(a.Mode)))
}

type clientTraces struct{ tracer }

// Answered implements [client.Observer].
func (t clientTraces) Answered(ctx context.Context, a client.Answer) {
	d := done{
		name: "lastword.client." + string(a.Op), kind: trace.SpanKindClient, end: a.End, took: a.Took,
		resource: a.Resource, fence: a.Fence, outcome: byCode(a.Code), failed: failed(a.Code),
	}
	if a.Op == client.OpRenew {
		d.options = []trace.SpanStartOption{trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(ctx))}
	}
	t.span(ctx, d, keyCode.String(byCode(a.Code)), keyQueued.Bool(a.Waited))
}

// Changed implements [client.Observer].
func (clientTraces) Changed(client.Change) {}
