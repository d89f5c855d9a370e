package fencetest

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/memfence"
)

// Memory is the harness of package memfence, the reference place. It is also a
// model of a harness to write.
func Memory() Harness {
	return Harness{Open: func(tb TB) Subject { return Of(memoryParts(newMemory(tb))) }}
}

var memories atomic.Int64

func newMemory(tb TB) *memfence.Place {
	return memfence.New(tb.Name() + " " + strconv.FormatInt(memories.Add(1), 10))
}

func memoryParts(p *memfence.Place) Parts[*memfence.Tx] {
	return Parts[*memfence.Tx]{
		Place: p,
		Write: func(_ context.Context, tx *memfence.Tx, r lastword.Resource, operation, value string) error {
			memoryWrite(tx, r, operation, value)
			return nil
		},
		Read: func(_ context.Context, r lastword.Resource) (string, []Effect, error) {
			return memoryRead(p, r)
		},
		Begin: func(ctx context.Context) (*memfence.Tx, func(bool) error, error) {
			tx, err := p.Begin(ctx)
			if err != nil {
				return nil, nil, err
			}
			return tx, func(commit bool) error {
				if commit {
					return tx.Commit()
				}
				tx.Rollback()
				return nil
			}, nil
		},
		Prune: p.Prune, Close: p.CloseRecord, Lose: p.Lose, Shadow: p.Shadow, Enforce: p.Enforce,
		Image: func(context.Context) (string, error) { return p.Snapshot(), nil },
	}
}

// The business data in a memfence place: "value R", "count R", "effect N R". Numbers
// and words come first, since a resource may hold anything but a line break.
func memoryWrite(tx *memfence.Tx, r lastword.Resource, operation, value string) {
	count, _ := tx.Get("count " + string(r))
	n, _ := strconv.Atoi(count)
	tx.Set("value "+string(r), value)
	tx.Set("count "+string(r), strconv.Itoa(n+1))
	tx.Set("operation "+strconv.Itoa(n)+" "+string(r), operation)
	tx.Set("effect "+strconv.Itoa(n)+" "+string(r), value)
}

func memoryRead(p *memfence.Place, r lastword.Resource) (string, []Effect, error) {
	value, _ := p.Get("value " + string(r))
	count, _ := p.Get("count " + string(r))
	n, _ := strconv.Atoi(count)
	var effects []Effect
	for i := range n {
		o, _ := p.Get("operation " + strconv.Itoa(i) + " " + string(r))
		v, _ := p.Get("effect " + strconv.Itoa(i) + " " + string(r))
		effects = append(effects, Effect{Operation: o, Value: v})
	}
	return value, effects, nil
}
