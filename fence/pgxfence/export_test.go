package pgxfence

import (
	"context"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

// SendAfter is Send for the kit, which wants to know when a write was decided.
func SendAfter(ctx context.Context, g *fence.Gate, p *Place, c fence.Call, effect func(context.Context) ([]byte, error), s ...Statement) (lastword.Receipt, error) {
	return fence.Apply(ctx, g, &sent{p, s}, c, func(ctx context.Context, _ *looked) ([]byte, error) { return effect(ctx) })
}
