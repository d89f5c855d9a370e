package storetest

import (
	"bytes"
	"context"
	"fmt"
	"reflect"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

// world is one store under one case.
type world struct {
	TB
	harness Harness
	handle  store.Store   // the first process's
	others  []store.Store // further processes'
	leases  int           // ids given out
}

const tickSpan = core.Span(100e6)

func newWorld(t TB, h Harness) *world {
	w := &world{TB: t, harness: h, handle: h.Open(t)}
	t.Cleanup(func() { w.closeAll() })
	return w
}

func (w *world) closeAll() {
	for _, s := range append(w.others, w.handle) {
		if err := s.Close(); err != nil {
			w.Errorf("close: %v", err)
		}
	}
	w.others = nil
}

// another returns the handle of another process, or the only one if the store
// refuses a second process.
func (w *world) another() store.Store {
	w.Helper()
	if !w.harness.Shared {
		return w.handle
	}
	s, err := w.harness.Second(w)
	if err != nil {
		w.Fatalf("a second handle on a shared store: %v", err)
	}
	w.others = append(w.others, s)
	return s
}

// reopen stops or crashes every process and starts one.
func (w *world) reopen(graceful bool) {
	w.Helper()
	if graceful {
		w.closeAll()
	}
	w.others = nil
	w.handle = w.harness.Reopen(w, graceful)
}

// create makes the first header.
func (w *world) create(h store.Header) {
	w.Helper()
	h.Exists = true
	if h.Identity == "" {
		h.Identity = "kit"
	}
	if h.TickSpan == 0 {
		h.TickSpan = tickSpan
	}
	w.want("the first header of an empty store", []bool{true}, store.Step{Create: true, Header: &h})
}

// want commits steps and compares what was applied.
func (w *world) want(what string, want []bool, steps ...store.Step) {
	w.Helper()
	applied, err := w.handle.Commit(w.Context(), steps...)
	if err != nil {
		w.Fatalf("%s: %v", what, err)
	}
	if !reflect.DeepEqual(applied, want) {
		w.Fatalf("%s: applied %v, want %v", what, applied, want)
	}
}

func (w *world) read(queries ...store.Query) store.View {
	w.Helper()
	return read(w, w.Context(), w.handle, queries...)
}

func read(t TB, ctx context.Context, s store.Store, queries ...store.Query) store.View {
	t.Helper()
	view, err := s.Read(ctx, queries...)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	if len(view.Entries) != len(queries) {
		t.Fatalf("read: %d entries for %d queries", len(view.Entries), len(queries))
	}
	for i, q := range queries {
		if view.Entries[i].Record.Resource != q.Resource {
			t.Fatalf("read: entry %d is of %q, the query of %q", i, view.Entries[i].Record.Resource, q.Resource)
		}
	}
	return view
}

func (w *world) record(resource lastword.Resource) store.Record {
	w.Helper()
	return w.read(store.Query{Resource: resource}).Entries[0].Record
}

func (w *world) request(resource lastword.Resource, owner, id string) *store.Request {
	w.Helper()
	return w.read(store.Query{Resource: resource, Owner: owner, RequestID: id}).Entries[0].Request
}

// same compares what was read with what was written. An empty result and none are
// told apart by Completed, so they count as equal.
func (w *world) same(what string, got, want any) {
	w.Helper()
	if g, s := plain(got), plain(want); !reflect.DeepEqual(g, s) {
		w.Errorf("%s:\n got %+v\nwant %+v", what, g, s)
	}
}

func plain(v any) any {
	switch v := v.(type) {
	case store.Record:
		v.Lease.Result, v.Previous.Result = trim(v.Lease.Result), trim(v.Previous.Result)
		return v
	case store.Request:
		v.Result = trim(v.Result)
		return v
	case *store.Request:
		if v == nil {
			return nil
		}
		return plain(*v)
	}
	return v
}

func trim(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return bytes.Clone(b)
}

// write is a step that writes version revision of a record that holds nothing but
// its revision and a mark.
func write(epoch uint32, resource lastword.Resource, revision uint64, requests ...store.Request) store.Step {
	return store.Step{Epoch: epoch, Record: &store.Record{
		Resource: resource, Revision: revision, Counter: revision,
		Lease: store.Lease{ID: fmt.Sprintf("lease-%d", revision), State: lastword.StateReleased},
	}, Requests: requests}
}
