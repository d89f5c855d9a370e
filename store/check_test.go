package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
)

func TestAStepThatBreaksTheContractIsNamed(t *testing.T) {
	record := func(change func(*store.Record)) *store.Record {
		r := &store.Record{Resource: "a", Revision: 1}
		change(r)
		return r
	}
	const tooLarge = 1 << 63
	for want, step := range map[string]store.Step{
		"without a header":           {Create: true},
		"says that there is none":    {Header: &store.Header{}},
		"tick of the header":         {Header: &store.Header{Exists: true, HoldUntil: tooLarge}},
		"without their record":       {Forget: []store.RequestKey{{Owner: "o", ID: "r"}}},
		"has no resource":            {Record: &store.Record{Revision: 1}},
		"has no revision":            {Record: &store.Record{Resource: "a"}},
		"number of the record":       {Record: record(func(r *store.Record) { r.Lease.Deadline = tooLarge })},
		"number of a request record": {Record: record(func(*store.Record) {}), Requests: []store.Request{{EndedTick: tooLarge}}},
	} {
		err := store.Check(store.Step{}, step)
		if !errors.Is(err, lastword.ErrInternal) || !strings.Contains(err.Error(), "step 2: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", step, err, want)
		}
	}
	good := store.Step{Header: &store.Header{Exists: true, Tick: store.Tick(store.MaxNumber)},
		Record: record(func(r *store.Record) { r.Previous.Fence = lastword.MaxToken }), Requests: []store.Request{{Owner: "o", ID: "r"}}}
	if err := store.Check(good); err != nil {
		t.Error(err)
	}
}
