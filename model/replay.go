package model

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/lastword/lastword"
)

// Schedule is one order of events that can be run again: what a counter-example's
// file holds.
type Schedule struct {
	Variant string   `json:"variant"`
	World   string   `json:"world"`
	Kind    string   `json:"kind,omitempty"` // that it is expected to end in; "" for none
	Events  []Event  `json:"events"`
	Values  []string `json:"values"`
}

// Schedule is violation v of a run of a variant, to be kept in a file.
func (v Violation) Schedule(variant string) Schedule {
	return Schedule{Variant: variant, World: v.World, Kind: v.Kind, Events: v.Events, Values: v.Values}
}

// ReadSchedule reads the JSON of one [Schedule], and nothing beside it. The error is
// INVALID.
func ReadSchedule(r io.Reader) (Schedule, error) {
	var s Schedule
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, noSchedule("it is no schedule", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return s, noSchedule("something stands behind the schedule", nil)
	}
	switch {
	case len(s.Events) == 0 || len(s.Values) != len(s.Events):
		return s, noSchedule(fmt.Sprintf("it has %d events and %d values; want as many values as events, and one at least", len(s.Events), len(s.Values)), nil)
	case slices.Contains(s.Values, ""):
		return s, noSchedule(fmt.Sprintf("value %d is empty; of a resource without one it is \"-\"", slices.Index(s.Values, "")+1), nil)
	}
	return s, s.check()
}

// check refuses names that do not exist.
func (s Schedule) check() error {
	if _, ok := variant(s.Variant); !ok && s.Variant != None {
		return noSchedule(fmt.Sprintf("no variant %q", s.Variant), nil)
	}
	if _, ok := worlds()[s.World]; !ok {
		return noSchedule(fmt.Sprintf("no world %q", s.World), nil)
	}
	if s.Kind != "" && !slices.Contains(Properties(), s.Kind) {
		return noSchedule(fmt.Sprintf("no kind of violation %q", s.Kind), nil)
	}
	return nil
}

func noSchedule(message string, err error) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: "replay", Message: message, Err: err}
}

// Replay runs one schedule and returns it as it went: with the values that were
// really seen and the violation that it really ended in, "" for none. An event that
// is not possible where it stands is an error that says what would be (INVALID).
func Replay(s Schedule) (Schedule, error) {
	s.Variant = cmp.Or(s.Variant, None)
	if err := s.check(); err != nil {
		return s, err
	}
	v, _ := variant(s.Variant)
	m := newMachine(v.tuned(worlds()[s.World]), v.Wiring())
	out := Schedule{Variant: s.Variant, World: s.World}
	// Two steps may read alike; all that are possible are followed.
	now := []state{m.initial()}
	for i, want := range s.Events {
		next, bad, possible := m.goOn(now, want, valueAt(s.Values, i))
		if len(next) == 0 {
			return out, &lastword.Error{
				Code: lastword.CodeInvalid, Op: "replay",
				Message: fmt.Sprintf("event %d, %q, is not possible there, or leaves another value", i+1, want),
				Hint:    fmt.Sprintf("possible are %q", possible),
			}
		}
		now, out.Kind = next, bad
		out.Events, out.Values = append(out.Events, want), append(out.Values, m.value(&next[0]))
	}
	return out, nil
}

func valueAt(values []string, i int) string {
	if i < len(values) {
		return values[i]
	}
	return ""
}

// goOn takes every step from the states that reads as wanted.
func (m *machine) goOn(from []state, want Event, value string) (next []state, bad kind, possible []string) {
	for i := range from {
		for _, step := range slices.Clone(m.successors(&from[i])) {
			ev := m.describe(&from[i], &step.s, step.ev)
			text := ev.String()
			if ev != want || value != "" && m.value(&step.s) != value {
				if !slices.Contains(possible, text) {
					possible = append(possible, text)
				}
				continue
			}
			if step.bad != "" {
				bad = step.bad
			}
			if !slices.Contains(next, step.s) {
				next = append(next, step.s)
			}
		}
	}
	return next, bad, possible
}
