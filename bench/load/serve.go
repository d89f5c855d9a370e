package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Line is what a driver says: that it is ready for orders, that the window of an
// order has begun, and last what the order came to.
type Line struct {
	Ready   bool     `json:"ready,omitempty"`
	Began   bool     `json:"began,omitempty"`
	Figures *Figures `json:"figures,omitempty"`
	Failed  string   `json:"failed,omitempty"` // in place of figures
}

// Serve opens a target and measures what the lines of in order, until in ends or ctx
// does. A failed order is answered and ends nothing; a target that cannot be opened is
// the error.
func Serve(ctx context.Context, in io.Reader, out io.Writer, open func(ctx context.Context) (Target, error)) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	orders := make(chan Order)
	go func() {
		defer close(orders)
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			var o Order
			if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
				cancel(fmt.Errorf("an order: %w", err))
				return
			}
			select {
			case orders <- o:
			case <-ctx.Done():
				return
			}
		}
		cancel(errOver) // also in the middle of an order: nobody is left to hear
	}()
	t, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	say := json.NewEncoder(out)
	if err := say.Encode(Line{Ready: true}); err != nil {
		return err
	}
	for {
		select {
		case o, ok := <-orders:
			if !ok {
				return over(ctx)
			}
			if err := say.Encode(answer(ctx, t, o, say)); err != nil {
				return err
			}
		case <-ctx.Done():
			return over(ctx)
		}
	}
}

var errOver = errors.New("the orders are over")

func over(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, errOver) {
		return err
	}
	return nil
}

func answer(ctx context.Context, t Target, o Order, say *json.Encoder) Line {
	f, err := Run(ctx, t, o, func() { _ = say.Encode(Line{Began: true}) })
	if err != nil {
		return Line{Failed: err.Error()}
	}
	return Line{Figures: &f}
}
