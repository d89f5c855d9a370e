package sqlstore

import (
	"fmt"
	"testing"

	"github.com/lastword/lastword/store"
)

// A new request of a busy resource costs no look at the file, and one that is in the
// file alone is never taken for new (R6).
func TestCacheKnowsWhichRequestsAreNew(t *testing.T) {
	const many = 100
	c := newCache(10, 1<<20)
	c.setHeader(store.Header{Exists: true})
	var all []store.Request
	for i := range uint64(many) {
		r := store.Request{Owner: "o", ID: fmt.Sprint(i), LeaseID: fmt.Sprint("lease-", i)}
		all = append(all, r)
		c.publish(store.Header{Exists: true}, []store.Step{{
			Record: &store.Record{Resource: "r", Revision: i + 1}, Requests: []store.Request{r},
		}}, []bool{true})
	}
	known := func(q store.Query) (found, ok bool) {
		q.Resource = "r"
		v, ok := c.view([]store.Query{q})
		return ok && v.Entries[0].Request != nil, ok
	}
	for i, r := range all {
		found, ok := known(store.Query{Owner: r.Owner, RequestID: r.ID})
		if latest := i >= many-keptRequests; found != latest || ok != latest {
			t.Fatalf("request %d: found %v, known %v", i, found, ok)
		}
	}
	if found, ok := known(store.Query{Owner: "o", RequestID: "new"}); found || !ok {
		t.Fatal("a new request is not known to be new")
	}
	if _, ok := known(store.Query{LeaseID: "lease-0"}); ok {
		t.Fatal("a lease id is said not to exist, and it is in the file")
	}
	if _, ok := known(store.Query{Owner: "other", RequestID: "1"}); !ok {
		t.Fatal("the owner is not part of the name")
	}

	var forget []store.RequestKey
	for _, r := range all[:many/2] {
		forget = append(forget, store.RequestKey{Owner: r.Owner, ID: r.ID})
	}
	c.publish(store.Header{Exists: true}, []store.Step{{Record: &store.Record{Resource: "r", Revision: many + 1}, Forget: forget}}, []bool{true})
	if got, want := len(c.entries["r"].Value.(*entry).others), many/2-keptRequests; got != want {
		t.Fatalf("%d names are kept, want %d", got, want)
	}
}

// What is known of the requests of one resource is bounded, and counts in the bound
// of bytes.
func TestCacheBoundsWhatItKnowsOfOneResource(t *testing.T) {
	c := newCache(10, 64<<20)
	c.setHeader(store.Header{Exists: true})
	step := store.Step{Record: &store.Record{Resource: "r"}, Requests: make([]store.Request, keptRequests+1)}
	for n := 0; n <= keptNames+2*len(step.Requests); n += len(step.Requests) {
		step.Record.Revision++
		for i := range step.Requests {
			step.Requests[i] = store.Request{Owner: "o", ID: fmt.Sprint(n + i)}
		}
		c.publish(store.Header{Exists: true}, []store.Step{step}, []bool{true})
		if n == keptNames/2 && c.size < 16*n {
			t.Fatalf("%d names count as %d bytes", n, c.size)
		}
	}
	if e := c.entries["r"].Value.(*entry); e.complete || len(e.others) > 0 || len(e.requests) > keptRequests {
		t.Fatalf("complete %v with %d names, %d requests", e.complete, len(e.others), len(e.requests))
	}
	if _, ok := c.view([]store.Query{{Resource: "r", Owner: "o", RequestID: "new"}}); ok {
		t.Fatal("a request is said to be new, and nobody knows")
	}
}
