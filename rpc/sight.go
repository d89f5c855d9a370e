package rpc

import (
	"strings"

	"github.com/lastword/lastword"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// SightMessage is s, as a list or a watch has it, in the schema's words: the result
// of the last ending is left out, and it says so.
func SightMessage(s lastword.Status) *wire.Status {
	m := statusMessage(s)
	if last := m.GetLast(); last.GetCompleted() {
		last.Result, last.ResultOmitted = nil, true
	}
	return m
}

// readSight reads what a list or a watch of this prefix shows of a resource.
func readSight(m *wire.Status, prefix string) (lastword.Status, error) {
	s, err := readStatus(m)
	if err == nil && !strings.HasPrefix(string(s.Resource), prefix) {
		err = invalid("%q does not begin with %q", s.Resource, prefix)
	}
	return s, err
}
