package lastword_test

import (
	"testing"

	"github.com/lastword/lastword"
)

func TestOnlyACertainHolderStartsEffects(t *testing.T) { // R26
	t.Parallel()
	for state, want := range map[lastword.HolderState]bool{
		lastword.HolderRequested: false,
		lastword.HolderHeld:      true,
		lastword.HolderRenewing:  true,
		lastword.HolderUnknown:   false,
		lastword.HolderExpired:   false,
		lastword.HolderReleased:  false,
		"":                       false,
		"held":                   false,
	} {
		if got := state.Admits(); got != want {
			t.Errorf("%q admits effects: %t, want %t", state, got, want)
		}
	}
}
