package core_test

import (
	"testing"

	"github.com/lastword/lastword/internal/core"
)

// R19, R20: whose id carries its issue time, and what that is. The examples are those
// of RFC 9562 and of the specification of ULID.
func TestAnOperationIDTellsItsIssueTimeOrNone(t *testing.T) {
	for _, c := range []struct {
		id string
		ms uint64
		ok bool
	}{
		{"017F22E2-79B0-7CC3-98C4-DC0C0C07398F", 1645557742000, true},
		{"017f22e2-79b0-7cc3-98c4-dc0c0c07398f", 1645557742000, true},
		{"017f22e2-79b0-4cc3-98c4-dc0c0c07398f", 0, false}, // version 4
		{"017f22e2-79b0-7cc3-d8c4-dc0c0c07398f", 0, false}, // another variant
		{"017f22e2-79b0-7cc3-98c4-dc0c0c07398g", 0, false},
		{"017f22e2x79b0-7cc3-98c4-dc0c0c07398f", 0, false},
		{"017f22e279b07cc398c4dc0c0c07398f", 0, false},
		{"01ARYZ6S41TSV4RRFFQ69G5FAV", 1469918176385, true},
		{"01ARYZ6S41TSV4RRFFQ69G5FAU", 0, false}, // U is no letter of it
		{"01aryz6s41tsv4rrffq69g5fav", 0, false},
		{"81ARYZ6S41TSV4RRFFQ69G5FAV", 0, false}, // above 128 bits
		{"settle-4711", 0, false},
		{"", 0, false},
	} {
		ms, ok := core.IssueTime(c.id)
		if ok != c.ok || ok && ms != c.ms {
			t.Errorf("IssueTime(%q) = %d, %v, want %d, %v", c.id, ms, ok, c.ms, c.ok)
		}
	}
}
