package soak

import (
	"slices"
	"strings"
	"sync"

	"github.com/lastword/lastword/lab/report"
)

// tally counts how often each fault was planned, fired and had an effect.
type tally struct {
	mu    sync.Mutex
	order []string
	by    map[string]*report.Fault
}

// planned makes the fault one that must come and must change something.
func (t *tally) planned(cases string, names ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[string]*report.Fault{}
	}
	for _, n := range names {
		if t.by[n] == nil {
			t.by[n] = &report.Fault{Name: n, Cases: strings.Split(cases, ", ")}
			t.order = append(t.order, n)
		}
		t.by[n].Planned++
	}
}

func (t *tally) fired(names ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range names {
		t.by[n].Fired++
	}
}

// effect counts one if it is true that there was one.
func (t *tally) effect(there bool, names ...string) {
	if !there {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range names {
		t.by[n].Effect++
	}
}

// all are the counts, by the numbers of the fault matrix.
func (t *tally) all() (all []report.Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.order {
		all = append(all, *t.by[n])
	}
	slices.SortStableFunc(all, func(a, b report.Fault) int {
		if c := report.CompareCases(a.Cases[0], b.Cases[0]); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all
}
