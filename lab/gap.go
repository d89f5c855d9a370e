package lab

import (
	"context"
	"fmt"
)

// gaps shows what a fence does not promise: between the newer holder's acquire and
// its first write the older one's write may still be accepted.
func (b *bench) gaps(ctx context.Context, r *Result) error {
	b.part = "gap"
	unasked, err := b.gapUnasked(ctx)
	if err != nil {
		return err
	}
	asked, err := b.gapAsked(ctx)
	if err != nil {
		return err
	}
	r.Gap = []Gap{unasked, asked}
	return nil
}

// gapUnasked: nobody asks the authority, so the resource has not heard of B.
func (b *bench) gapUnasked(ctx context.Context) (Gap, error) {
	old, young, err := b.pair()
	if err != nil {
		return Gap{}, err
	}
	g := Gap{Mode: fenceOnly, Stopped: "before its write"}
	if err := b.acquire(ctx, old, docGapFence, takeoverTTL, 0); err != nil {
		return g, err
	}
	if err := b.pause(old); err != nil {
		return g, err
	}
	if err := b.acquire(ctx, young, docGapFence, workTTL, takeoverWait); err != nil {
		return g, err
	}
	if err := b.resume(old); err != nil {
		return g, err
	}
	early, err := b.write(ctx, old, docGapFence, oldValue, fenceOnly)
	if err != nil {
		return g, err
	}
	g.Early = early.Verdict
	return b.afterGap(ctx, g, old, young, docGapFence, fenceOnly)
}

// gapAsked: A has the authority's HELD and falls asleep before its transaction
// begins. It is stopped by itself, at exactly that point.
func (b *bench) gapAsked(ctx context.Context) (Gap, error) {
	old, young, err := b.pair()
	if err != nil {
		return Gap{}, err
	}
	g := Gap{Mode: checkedMode, Stopped: "between its status answer and its transaction"}
	if err := b.acquire(ctx, old, docGapQuery, takeoverTTL, 0); err != nil {
		return g, err
	}
	if _, err := b.write(ctx, old, docGapQuery, "draft", checkedMode); err != nil {
		return g, err
	}
	writing := b.writing(old, docGapQuery, oldValue, checkedMode)
	writing.Stop = true
	if err := old.tell(writing); err != nil {
		return g, err
	}
	said, err := old.hear(ctx)
	if err != nil {
		return g, err
	}
	if said.Event != "answered" {
		return g, fmt.Errorf("%s did not get as far as its status answer: %+v", old.name, said)
	}
	if err := old.stopped(); err != nil {
		return g, err
	}
	b.note(old.name, fmt.Sprintf("begins to write %q, hears HELD and is stopped", oldValue), "asleep")
	if err := b.acquire(ctx, young, docGapQuery, workTTL, takeoverWait); err != nil {
		return g, err
	}
	if err := b.resume(old); err != nil {
		return g, err
	}
	early, err := old.hear(ctx)
	if err != nil {
		return g, err
	}
	b.note(old.name, fmt.Sprintf("goes on to write %q with fence %d", oldValue, early.Fence), early.Verdict)
	g.Early = early.Verdict
	return b.afterGap(ctx, g, old, young, docGapQuery, checkedMode)
}

// afterGap: once the newer fence has reached the resource, the older one is shut out.
func (b *bench) afterGap(ctx context.Context, g Gap, old, young *process, doc, mode string) (Gap, error) {
	newer, err := b.write(ctx, young, doc, newValue, mode)
	if err != nil {
		return g, err
	}
	late, err := b.write(ctx, old, doc, oldValue, mode)
	if err != nil {
		return g, err
	}
	g.Newer, g.Late = newer.Verdict, late.Verdict
	g.Value, err = b.business.value(ctx, doc)
	return g, err
}
