package fencetest

import (
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

func nameCases() []testCase {
	return []testCase{
		{name: caseNames, run: alikeResources},
		{name: "KF-28: operations and owners that look alike are different", run: alikeOperations},
		{name: "§1: ids of 512 bytes are whole", run: longNames},
		{name: "domain: a record belongs to one domain", run: namesThatJoin},
		{name: casePlaceNames, run: placeNames, needs: func(s Subject) string { return lacks(s.Name == "", "name of the place (Name)") }},
	}
}

const casePlaceNames = "R13, R16b: two places have two names, and one place has one"

const caseNames = "KF-28: resources that look alike are different"

// alike are names that some engine folds, trims or compares as equal.
var alike = []string{
	"Report", "report", "report ", " report", "REPORT", "rep\u00f3rt", "repo\u0301rt",
	"stra\u00dfe", "strasse", "\u212a", "k", "K", "\U0001f4c4", "\U0001f4c3", "1", "01", "1.0", "1e0",
	"a%b", "a_b", "axb", `a\b`, `a\\b`, "a'b", `a"b`, "a;b", "a:b", "a|b", "a b", "a\u00a0b", "a\u200bb", "null", "NULL",
	"\u017f", "s", "\u0131", "i", "\ufb01", "fi",
}

// placeNames: by its name a gate knows again what it has to bring to a place: evidence, and
// the newest bundle.
func placeNames(w *world) {
	if other := w.open(w.TB); other.Name == w.subject.Name {
		w.Fatalf("two places are both called %q", other.Name)
	}
	if second := w.subject.Second; second != nil && second.Name != w.subject.Name {
		w.Fatalf("one place is called %q and %q", w.subject.Name, second.Name)
	}
}

func alikeResources(w *world) {
	tenures := map[string]*tenure{}
	for i, name := range alike {
		t := w.tenureOf(lastword.Resource(name), name)
		tenures[name] = t
		w.applied(w.apply(t, 1, "op", name))(1)
		if i%2 == 0 { // records must not move together
			w.applied(w.apply(t, 2, "op-2", name+"2"))(2)
		}
	}
	for i, name := range alike {
		t, r := tenures[name], lastword.Resource(name)
		if i%2 == 0 {
			w.wantEffects(r, "op="+name, "op-2="+name+"2")
		} else {
			w.wantEffects(r, "op="+name)
		}
		got, err := w.apply(t, 1, "op", name)
		if err != nil || got.Verdict != lastword.Replayed || got.Resource != r || got.Owner != name {
			w.Fatalf("the retry at %q got %v, %+v", name, err, got)
		}
	}
}

func alikeOperations(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	receipts := map[string]lastword.Receipt{}
	for i, name := range alike {
		receipts[name] = w.applied(w.apply(a, uint64(i+1), name, name))(uint64(i + 1))
	}
	for _, name := range alike {
		w.replayed(w.apply(a, 0, name, name))(receipts[name])
	}
	if _, effects := w.read(doc); len(effects) != len(alike) {
		w.Fatalf("%d effects of %d operations", len(effects), len(alike))
	}
	for i, owner := range alike {
		t := w.tenureOf("doc/owners", owner)
		got := w.applied(w.apply(t, 1, "by "+owner, owner))(1)
		if got.Owner != owner {
			w.Fatalf("owner %d is %q in the receipt, want %q", i, got.Owner, owner)
		}
	}
}

func longNames(w *world) {
	base := strings.Repeat("x", lastword.MaxIDBytes-1)
	var receipts []lastword.Receipt
	for _, last := range []string{"a", "b"} {
		t := w.tenureOf(lastword.Resource(base+last), base+last)
		for i, o := range []string{base + "a", base + "b", strings.Repeat("é", lastword.MaxIDBytes/2)} {
			receipts = append(receipts, w.applied(w.apply(t, uint64(i+1), o, o))(uint64(i+1)))
		}
	}
	for _, r := range receipts {
		got, found, err := w.subject.Lookup(w.ctx, w.gate, r.Resource, r.Operation)
		r.Verdict = lastword.Replayed
		if err != nil || !found || !sameReceipt(got, r) {
			w.Fatalf("found %v, %v: %+v, want %+v", found, err, got, r)
		}
	}
}

// namesThatJoin: (resource, operation) pairs that are equal when they are joined.
func namesThatJoin(w *world) {
	pairs := []struct {
		resource  lastword.Resource
		operation string
	}{{"a", "b/c"}, {"a/b", "c"}, {"a/b/c", "d"}, {"a", "b/c/d"}, {"a b", "c"}, {"a", "b c"}, {"a:b", "c"}, {"a", "b:c"}}
	for _, p := range pairs {
		t := w.tenure(p.resource)
		got := w.applied(w.apply(t, 1, p.operation, string(p.resource)+p.operation))(1)
		if got.Resource != p.resource || got.Operation != p.operation {
			w.Fatalf("the receipt of %+v is %+v", p, got)
		}
	}
	// The same resource in another domain is another record.
	if i, err := w.subject.Inspect(w.ctx, w.newOtherDomain(), "a"); err != nil || i.Record.Exists {
		w.Fatalf("the record of another domain is there: %v, %+v", err, i.Record)
	}
}

func (w *world) newOtherDomain() *fence.Gate {
	w.Helper()
	return w.newGate(func(c *fence.Config) { c.Domain = domain + ".other" })
}
