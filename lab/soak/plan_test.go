package soak

import (
	"encoding/json"
	"fmt"
	"testing"
)

func planText(t *testing.T, seed uint64, rounds int) string {
	t.Helper()
	b, err := json.Marshal(newPlan(seed, rounds))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestOneSeedIsOnePlan(t *testing.T) {
	t.Parallel()
	if first, again := planText(t, 5, 300), planText(t, 5, 300); first != again {
		t.Error("one seed gave two plans")
	}
	if planText(t, 5, 300) == planText(t, 6, 300) {
		t.Error("two seeds gave one plan")
	}
}

// TestAPlanLeavesNothingOut: every fault comes in every deck, whatever the seed, and the
// long sleep at every point in four decks (X1).
func TestAPlanLeavesNothingOut(t *testing.T) {
	t.Parallel()
	size := len(newDeck(0))
	for seed := range uint64(5) {
		p := newPlan(seed, 4*size)
		seen := map[string]int{}
		two, three := 0, 0
		for _, r := range p.Rounds {
			for _, n := range r.Main.names() {
				seen[n]++
			}
			if r.Main.Pause == 12 {
				seen[fmt.Sprint("12 at ", r.Main.Point)]++
			}
			for _, f := range r.Forged {
				seen[forgeryName(f)]++
			}
			switch len(r.Weather) {
			case 1:
				two++
			case 2:
				three++
			}
		}
		for _, at := range points {
			for _, n := range []string{"freeze " + string(at), "kill " + string(at), "12 at " + string(at)} {
				if seen[n] == 0 {
					t.Errorf("seed %d: no %q", seed, n)
				}
			}
		}
		for k := range cases {
			if k != freezing && k != killing && k != crashing && k != forgery && !ofAuthority(k) && seen[string(k)] == 0 {
				t.Errorf("seed %d: no %q", seed, k)
			}
		}
		for _, f := range forgeries {
			if seen[forgeryName(f.name)] == 0 {
				t.Errorf("seed %d: no %q", seed, f.name)
			}
		}
		if two == 0 || three == 0 {
			t.Errorf("seed %d: %d rounds with a second fault, %d with a third", seed, two, three)
		}
	}
	turns := map[kind]bool{}
	for _, turn := range newPlan(1, 500).Turns {
		turns[turn.Kind] = true
	}
	for k := range cases {
		if ofAuthority(k) && !turns[k] {
			t.Errorf("500 rounds have no %q", k)
		}
	}
}

func ofAuthority(k kind) bool {
	switch k {
	case killAuthority, freezeAuthority, rotateKey, revokeKey, bumpEpoch, bumpPolicy:
		return true
	}
	return false
}

func TestForgedTrafficIsMoreThanFivePercentOfTheWrites(t *testing.T) { // X35
	t.Parallel()
	p := newPlan(1, 500)
	forged := 0
	for _, r := range p.Rounds {
		forged += len(r.Forged)
	}
	const writesOfARound = 6 // at most, on average
	if share := float64(forged) / float64(writesOfARound*len(p.Rounds)); share < 0.05 {
		t.Errorf("%.1f %%", 100*share)
	}
}
