package fencesql_test

import (
	"context"
	"errors"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/fencesql"
)

// fates answers one question after the other; "" is no answer.
type fates struct {
	fencesql.Conn
	all []string
}

func (f *fates) Row(context.Context, string, ...any) fencesql.Row {
	now := f.all[0]
	if len(f.all) > 1 {
		f.all = f.all[1:]
	}
	return fateRow(now)
}

type fateRow string

func (r fateRow) Scan(targets ...any) error {
	if r == "" {
		return errors.New("no answer")
	}
	*targets[0].(*string) = string(r)
	return nil
}

func TestOnlyATransactionThatWasAbortedHasChangedNothing(t *testing.T) { // P5, R15
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		fates    []string
		standing fencesql.Standing
		unknown  bool
	}{
		"aborted":                           {[]string{"aborted"}, fencesql.Ours, false},
		"aborted, by another connection":    {[]string{"aborted"}, fencesql.Unheard, false},
		"aborted, and gone":                 {[]string{"aborted"}, fencesql.Gone, true},
		"committed":                         {[]string{"committed"}, fencesql.Ours, true},
		"aborted after a while":             {[]string{"in progress", "", "in progress", "aborted"}, fencesql.Unheard, false},
		"committed after a while":           {[]string{"", "in progress", "committed"}, fencesql.Unheard, true},
		"in progress":                       {[]string{"in progress"}, fencesql.Ours, true},
		"in progress, then no answer":       {[]string{"in progress", ""}, fencesql.Ours, true},
		"no answer of a lost connection":    {[]string{""}, fencesql.Unheard, true},
		"no answer, but it was rolled back": {[]string{""}, fencesql.Ours, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := fencesql.Ended(t.Context(), &fates{all: c.fates}, fencesql.Attempt{Xact: "7", Standing: c.standing}, fence.Key{Resource: "r"}, failed)
			if errors.Is(err, lastword.ErrUnknownOutcome) != c.unknown || !errors.Is(err, failed) {
				t.Error(err)
			}
		})
	}
}
