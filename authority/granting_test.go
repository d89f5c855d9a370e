package authority_test

import (
	"context"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
)

// Granting knows of a write that failed, and of the next one that does not, also where
// nobody holds or asks for anything.
func TestGrantingKnowsWhetherTheStoreCanBeWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		hooks := &hooked{Store: w.memory.Open()}
		a := w.openOn(hooks, authority.Config{})
		must(t, a.Granting())
		hooks.hook(func(h *hooked) {
			h.sent = func(context.Context, []store.Step) error { return unavailable() }
		})
		_, err := a.Acquire(t.Context(), request("a", "1", time.Second))
		wantCode(t, err, lastword.ErrUnavailable)
		wantCode(t, a.Granting(), lastword.ErrUnavailable)
		hooks.hook(func(h *hooked) { h.sent = nil })
		for range 5 { // as a probe asks
			_, err := a.Status(t.Context(), lastword.StatusQuery{Resource: "readyz"})
			must(t, err)
			time.Sleep(time.Second)
		}
		must(t, a.Granting())
	})
}
