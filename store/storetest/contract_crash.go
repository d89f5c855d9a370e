package storetest

import (
	"fmt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
)

var crashCases = []kitCase{
	{"R1", "what was acknowledged survives a crash at any moment", func(w *world) { survives(w, false) }},
	{"R1", "what was acknowledged survives a stop", func(w *world) { survives(w, true) }},
}

// survives stops after every kind of write, so that each is the last one once.
func survives(w *world, graceful bool) {
	w.create(store.Header{Epoch: 1})
	w.reopen(graceful)
	header := w.read().Header
	if !header.Exists || header.Epoch != 1 {
		w.Fatalf("the header after the first stop: %+v", header)
	}
	for n := uint64(1); n <= 8; n++ {
		id := fmt.Sprint("r", n)
		step := write(1, "a", n, store.Request{Owner: "o", ID: id, State: lastword.StateHeld, Completed: true, Result: []byte(id)})
		if n > 1 {
			step.Forget = []store.RequestKey{{Owner: "o", ID: fmt.Sprint("r", n-1)}}
		}
		w.want("a write", []bool{true, true}, step, write(1, "b", n))
		if n%2 == 0 {
			header.Tick++
			moved := header
			w.want("a tick", []bool{true}, store.Step{Epoch: 1, Header: &moved})
		}
		w.reopen(graceful)
		view := w.read(store.Query{Resource: "a", Owner: "o", RequestID: id}, store.Query{Resource: "b"})
		w.same("the header", view.Header, header)
		w.same("the record", view.Entries[0].Record, *step.Record)
		w.same("its request", view.Entries[0].Request, step.Requests[0])
		if got := view.Entries[1].Record.Revision; got != n {
			w.Errorf("the second record of the batch has revision %d, want %d", got, n)
		}
		if n > 1 {
			w.same("the forgotten request", w.request("a", "o", fmt.Sprint("r", n-1)), (*store.Request)(nil))
		}
	}
}
