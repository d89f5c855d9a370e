package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
)

var nameCases = []kitCase{
	{"KF-28", "names that differ in case, accent, form or space are different names", distinctNames},
	{"KF-27", "names that are prefixes of others or look like internal keys are independent", prefixNames},
	{"KF-27", "a list begins with its prefix byte by byte", listPrefix},
	{"KF-27", "pages of a list meet in byte order without gap and without repetition", listPages},
}

// lookalikes are names that some engine somewhere takes for the same.
var lookalikes = []string{"Report", "report", "report ", "REPORT", "rep\u00f3rt", "repo\u0301rt", "straße", "strasse",
	"\U0001F512", "\U0001F513", "%", "_", "r%", "re_ort", "ﬁ", "fi", "İ", "i", "ı"}

var siblings = []string{"a", "a/b", "ab", "a:fence", "a.lock", "a%2Fb", "a/b/c", "a-b", "a/counter", "a/queue", "a/request",
	"lastword_record", "a'b", `a"b`, `a\b`, "a;b", "a--", "*", "a*"}

func distinctNames(w *world) {
	w.create(store.Header{})
	for i, name := range lookalikes {
		resource := lastword.Resource(name)
		step := write(0, resource, 1)
		step.Record.Counter = uint64(i + 1)
		for j, other := range lookalikes {
			step.Requests = append(step.Requests,
				store.Request{Owner: other, ID: "r", State: lastword.StateReleased, Fence: lastword.Token(1000*i + j + 1), LeaseID: other},
				store.Request{Owner: "o", ID: other, State: lastword.StateReleased, Fence: lastword.Token(1000*i + j + 501), LeaseID: "o" + other})
		}
		w.want("the first write of "+name, []bool{true}, step)
	}
	for i, name := range lookalikes {
		resource := lastword.Resource(name)
		if got := w.record(resource); got.Counter != uint64(i+1) {
			w.Errorf("%q reads what was written at %q", name, lookalikes[max(0, int(got.Counter)-1)])
		}
		for j, other := range lookalikes {
			view := w.read(store.Query{Resource: resource, Owner: other, RequestID: "r"}, store.Query{Resource: resource, Owner: "o", RequestID: other},
				store.Query{Resource: resource, LeaseID: other})
			for k, want := range []lastword.Token{lastword.Token(1000*i + j + 1), lastword.Token(1000*i + j + 501), lastword.Token(1000*i + j + 1)} {
				if got := view.Entries[k].Request; got == nil || got.Fence != want {
					w.Fatalf("request %q at %q, query %d: got %+v, want fence %d", other, name, k, got, want)
				}
			}
		}
	}
	if all := w.list("", "", 1000); len(all) != len(lookalikes) {
		w.Errorf("%d records for %d names", len(all), len(lookalikes))
	}
}

func prefixNames(w *world) {
	w.create(store.Header{})
	for i, name := range siblings {
		w.want("the first write of "+name, []bool{true}, write(0, lastword.Resource(name), 1,
			store.Request{Owner: []string{"w1", "w10", "w1_x"}[i%3], ID: name, State: lastword.StateHeld, LeaseID: "l"}))
	}
	for i, name := range siblings {
		w.want("the second write of "+name, []bool{true}, write(0, lastword.Resource(name), 2))
		for _, other := range siblings[:i] {
			if got := w.record(lastword.Resource(other)).Revision; got != 2 {
				w.Errorf("%q has revision %d", other, got)
			}
		}
		for j, owner := range []string{"w1", "w10", "w1_x"} {
			if got := w.request(lastword.Resource(name), owner, name); (got != nil) != (j == i%3) {
				w.Errorf("request %q of %q: %v", name, owner, got)
			}
		}
	}
}

func (w *world) list(prefix string, after lastword.Resource, limit int) []string {
	w.Helper()
	records, err := w.handle.List(w.Context(), prefix, after, limit)
	if err != nil {
		w.Fatalf("list: %v", err)
	}
	names := make([]string, len(records))
	for i, r := range records {
		names[i] = string(r.Resource)
	}
	return names
}

func (w *world) writeAll(names []string) []string {
	w.Helper()
	w.create(store.Header{})
	for _, name := range names {
		w.want("the write of "+name, []bool{true}, write(0, lastword.Resource(name), 1))
	}
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	return sorted
}

func listPrefix(w *world) {
	all := w.writeAll(append(slices.Clone(siblings), lookalikes...))
	for _, prefix := range append(slices.Clone(all), "", "a/", "rep", "repo", "\xf0\x9f\x94", "none", "\xff", "r%", "re_") {
		var want []string
		for _, name := range all {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		if got := w.list(prefix, "", 1000); !slices.Equal(got, want) {
			w.Errorf("list %q:\n got %q\nwant %q", prefix, got, want)
		}
	}
}

func listPages(w *world) {
	names := append(slices.Clone(siblings), lookalikes...)
	for i := range 40 {
		names = append(names, fmt.Sprintf("a/%d", i))
	}
	all := w.writeAll(names)
	for _, limit := range []int{1, 2, 7, len(all), len(all) + 1} {
		var got []string
		for after := lastword.Resource(""); ; after = lastword.Resource(got[len(got)-1]) {
			page := w.list("", after, limit)
			if len(page) > limit {
				w.Fatalf("a page of %d with limit %d", len(page), limit)
			}
			if got = append(got, page...); len(page) < limit {
				break
			}
		}
		if !slices.Equal(got, all) {
			w.Errorf("pages of %d:\n got %q\nwant %q", limit, got, all)
		}
	}
	if got := w.list("a/", "a/39", 2); !slices.Equal(got, []string{"a/4", "a/5"}) {
		w.Errorf("two after a/39: %q", got)
	}
	if got := w.list("", "", 0); len(got) != 0 {
		w.Errorf("none wanted, got %q", got)
	}
}
