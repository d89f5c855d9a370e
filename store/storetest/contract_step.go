package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
)

var stepCases = []kitCase{
	{"R10", "a store is created once", createdOnce},
	{"R10", "a step of another epoch is not applied", otherEpoch},
	{"R10", "an epoch is left once", epochMovesOnce},
	{"R8", "a step that names another tick is not applied", otherTick},
	{"R8", "a tick is counted once", tickMovesOnce},
	{"R9", "a step on an old revision is not applied", oldRevision},
	{"R9", "of many writers of one revision one is applied", racingWriters},
	{"store.Step", "a later step of a batch sees an earlier one", batchOrder},
	{"store.Step", "a refused step fails no other of its batch", refusedAlone},
	{"store.Step", "a refused step leaves nothing", refusedLeavesNothing},
	{"store.Step", "a step that breaks the contract is refused with its whole batch", brokenStep},
	{"R2", "request records are written, replaced and forgotten with their record", requestRecords},
	{"R2", "each of many request records of one resource is found by id and by lease", manyRequests},
}

func createdOnce(w *world) {
	if h := w.read().Header; h != (store.Header{}) {
		w.Fatalf("an empty store has the header %+v", h)
	}
	w.want("a step on a store without a header", []bool{false, false}, write(0, "a", 1),
		store.Step{Header: &store.Header{Exists: true, Identity: "early"}})
	first := store.Header{Exists: true, Identity: "first", TickSpan: 7, Epoch: 2, Tick: 5, Floor: 1, HoldUntil: 9, Witnessed: true}
	second := store.Header{Exists: true, Identity: "second"}
	w.want("two first headers", []bool{true, false},
		store.Step{Create: true, Header: &first}, store.Step{Create: true, Header: &second})
	w.want("a late first header", []bool{false}, store.Step{Create: true, Header: &second})
	view := w.read(store.Query{Resource: "a"})
	w.same("the header", view.Header, first)
	w.same("a record that was not written", view.Entries[0].Record, store.Record{Resource: "a"})
}

func otherEpoch(w *world) {
	w.create(store.Header{Epoch: 3})
	header := w.read().Header
	for _, epoch := range []uint32{0, 2, 4, lastword.MaxEpoch} {
		step := write(epoch, "a", 1, store.Request{Owner: "o", ID: "r", State: lastword.StateReleased})
		moved := header
		moved.Tick++
		step.Header = &moved
		w.want("a step of another epoch", []bool{false}, step)
	}
	view := w.read(store.Query{Resource: "a", Owner: "o", RequestID: "r"})
	w.same("the header after it", view.Header, header)
	w.same("the record after it", view.Entries[0].Record, store.Record{Resource: "a"})
	w.same("the request record after it", view.Entries[0].Request, (*store.Request)(nil))
	w.want("a step of the epoch in force", []bool{true}, write(3, "a", 1))
}

func epochMovesOnce(w *world) {
	w.create(store.Header{Epoch: 3})
	next := w.read().Header
	next.Epoch = 4
	start := store.Step{Epoch: 3, Header: &next}
	w.want("two starts from epoch 3", []bool{true, false}, start, start)
	w.want("a third", []bool{false}, start)
	w.want("a step of the epoch left, one of the new", []bool{false, true}, write(3, "a", 1), write(4, "a", 1))
}

func otherTick(w *world) {
	w.create(store.Header{Tick: 10})
	for _, tick := range []store.Tick{0, 9, 11} {
		step := write(0, "a", 1)
		step.OnTick, step.Tick = true, tick
		w.want("a step of another tick", []bool{false}, step)
	}
	w.same("the record after it", w.record("a"), store.Record{Resource: "a"})
	step := write(0, "a", 1)
	step.OnTick, step.Tick = true, 10
	w.want("a step of the present tick", []bool{true}, step)
	free := write(0, "a", 2)
	free.Tick = 9
	w.want("a step without the condition", []bool{true}, free)
}

func tickMovesOnce(w *world) {
	w.create(store.Header{Tick: 10})
	next := w.read().Header
	next.Tick = 11
	step := store.Step{OnTick: true, Tick: 10, Header: &next}
	w.want("two processes count the same tick", []bool{true, false}, step, step)
	w.want("a third", []bool{false}, step)
	if got := w.read().Header.Tick; got != 11 {
		w.Errorf("the counter is %d, want 11", got)
	}
}

func oldRevision(w *world) {
	w.create(store.Header{})
	w.want("a second version of nothing", []bool{false}, write(0, "a", 2))
	w.want("the first version", []bool{true}, write(0, "a", 1))
	w.want("the second version", []bool{true}, write(0, "a", 2))
	kept := w.record("a")
	for _, revision := range []uint64{1, 2, 4} {
		w.want("a write on another view", []bool{false}, write(0, "a", revision,
			store.Request{Owner: "o", ID: "r", State: lastword.StateReleased}))
	}
	w.same("the record", w.record("a"), kept)
	w.same("the request record of a refused step", w.request("a", "o", "r"), (*store.Request)(nil))
}

func racingWriters(w *world) {
	const writers, rounds = 4, 25
	w.create(store.Header{})
	var applied atomic.Uint64
	var all sync.WaitGroup
	for range writers {
		handle := w.another()
		all.Go(func() {
			for range rounds {
				view, err := handle.Read(w.Context(), store.Query{Resource: "a"})
				if err != nil {
					w.Errorf("read: %v", err)
					return
				}
				ok, err := handle.Commit(w.Context(), write(0, "a", view.Entries[0].Record.Revision+1))
				if err != nil {
					w.Errorf("commit: %v", err)
					return
				}
				if ok[0] {
					applied.Add(1)
				}
			}
		})
	}
	all.Wait()
	if got := w.record("a").Revision; got != applied.Load() || got < rounds {
		w.Errorf("revision %d after %d applied writes", got, applied.Load())
	}
}

func batchOrder(w *world) {
	w.create(store.Header{})
	ticked, left := w.read().Header, w.read().Header
	ticked.Tick = 1
	left.Tick, left.Epoch = 1, 1
	onTick := write(0, "b", 1)
	onTick.OnTick, onTick.Tick = true, 1
	w.want("a batch", []bool{true, true, false, true, true, false, true},
		write(0, "a", 1), write(0, "a", 2), write(0, "a", 2),
		store.Step{Header: &ticked}, onTick,
		write(1, "a", 3),
		store.Step{Epoch: 0, Header: &left})
	w.want("the next batch", []bool{false, true}, write(0, "a", 3), write(1, "a", 3))
	if a, b := w.record("a").Revision, w.record("b").Revision; a != 3 || b != 1 {
		w.Errorf("revisions %d and %d, want 3 and 1", a, b)
	}
}

func refusedAlone(w *world) {
	w.create(store.Header{})
	w.want("refused steps among others", []bool{false, true, false, true},
		write(1, "a", 1), write(0, "b", 1), write(0, "c", 5), write(0, "d", 1))
	for resource, want := range map[lastword.Resource]uint64{"a": 0, "b": 1, "c": 0, "d": 1} {
		if got := w.record(resource).Revision; got != want {
			w.Errorf("%s has revision %d, want %d", resource, got, want)
		}
	}
}

func refusedLeavesNothing(w *world) {
	w.create(store.Header{})
	old := store.Request{Owner: "o", ID: "old", State: lastword.StateReleased, LeaseID: "x"}
	w.want("a record with a request", []bool{true}, write(0, "a", 1, old))
	before := w.read(store.Query{Resource: "a", Owner: "o", RequestID: "old"})
	moved := before.Header
	moved.Tick = 9
	changed := old
	changed.State = lastword.StateRevoked
	step := write(0, "a", 1, changed, store.Request{Owner: "o", ID: "new", State: lastword.StateHeld})
	step.Header, step.Forget = &moved, []store.RequestKey{{Owner: "o", ID: "old"}}
	w.want("the same revision again", []bool{false}, step)
	after := w.read(store.Query{Resource: "a", Owner: "o", RequestID: "old"})
	w.same("the header", after.Header, before.Header)
	w.same("the record", after.Entries[0].Record, before.Entries[0].Record)
	w.same("the request record", after.Entries[0].Request, before.Entries[0].Request)
	w.same("a request record of the refused step", w.request("a", "o", "new"), (*store.Request)(nil))
}

func brokenStep(w *world) {
	w.create(store.Header{})
	tooLarge := write(0, "b", 1)
	tooLarge.Record.Lease.PolicyGeneration = store.MaxNumber + 1
	noRevision := write(0, "b", 0)
	alone := store.Step{Requests: []store.Request{{Owner: "o", ID: "r"}}}
	for _, step := range []store.Step{tooLarge, noRevision, alone, {Create: true}} {
		applied, err := w.handle.Commit(w.Context(), write(0, "a", 1), step)
		if !errors.Is(err, lastword.ErrInternal) || applied != nil {
			w.Errorf("step %+v: got %v, %v", step, applied, err)
		}
	}
	if got := w.record("a").Revision; got != 0 {
		w.Errorf("a step of a refused batch was applied: revision %d", got)
	}
}

func requestRecords(w *world) {
	w.create(store.Header{})
	first := store.Request{Owner: "o", ID: "r", Params: lastword.DigestOf([]byte("p")), LeaseID: "l1", Fence: 1, State: lastword.StateHeld}
	foreign := store.Request{Owner: "p", ID: "r", LeaseID: "l2", State: lastword.StateReleased, EndedTick: 3}
	tomb := store.Request{Owner: "o", ID: "never", State: lastword.StateCanceled, EndedTick: 4}
	w.want("three requests", []bool{true}, write(0, "a", 1, first, foreign, tomb))
	w.want("one of the same name elsewhere", []bool{true}, write(0, "b", 1, store.Request{Owner: "o", ID: "r", LeaseID: "l3", State: lastword.StateHeld}))

	view := w.read(store.Query{Resource: "a", Owner: "o", RequestID: "r"}, store.Query{Resource: "a", Owner: "p", RequestID: "r"},
		store.Query{Resource: "a", LeaseID: "l2"}, store.Query{Resource: "a", Owner: "o", RequestID: "never"},
		store.Query{Resource: "a"}, store.Query{Resource: "a", LeaseID: "l3"}, store.Query{Resource: "a", Owner: "o", RequestID: "x"},
		store.Query{Resource: "c", Owner: "o", RequestID: "r"})
	for i, want := range []any{first, foreign, foreign, tomb, nil, nil, nil, nil} {
		if want == nil {
			want = (*store.Request)(nil)
		}
		w.same("query "+string(rune('1'+i)), view.Entries[i].Request, want)
	}

	ended := first
	ended.State, ended.Completed, ended.Result, ended.EndedTick = lastword.StateReleased, true, []byte("42"), 8
	step := write(0, "a", 2, ended)
	step.Forget = []store.RequestKey{{Owner: "o", ID: "never"}, {Owner: "o", ID: "not there"}}
	w.want("a replacement", []bool{true}, step)
	w.same("the replaced request", w.request("a", "o", "r"), ended)
	w.same("the forgotten request", w.request("a", "o", "never"), (*store.Request)(nil))
	w.same("the request beside it", w.request("a", "p", "r"), foreign)
}

func manyRequests(w *world) {
	const many = 40
	w.create(store.Header{})
	step := func(n uint64) store.Step {
		return write(0, "a", n, store.Request{Owner: fmt.Sprint("o", n%3), ID: fmt.Sprint("r", n), LeaseID: fmt.Sprint("l", n),
			Fence: lastword.Token(n), State: lastword.StateReleased, EndedTick: store.Tick(n)})
	}
	find := func(n uint64) {
		w.Helper()
		want := step(n).Requests[0]
		view := w.read(store.Query{Resource: "a", Owner: want.Owner, RequestID: want.ID}, store.Query{Resource: "a", LeaseID: want.LeaseID},
			store.Query{Resource: "a", Owner: want.Owner + "x", RequestID: want.ID}, store.Query{Resource: "a", LeaseID: want.LeaseID + "x"})
		w.same("a request by its id", view.Entries[0].Request, want)
		w.same("a request by its lease", view.Entries[1].Request, want)
		w.same("another owner's request", view.Entries[2].Request, (*store.Request)(nil))
		w.same("another lease's request", view.Entries[3].Request, (*store.Request)(nil))
	}
	for n := uint64(1); n <= many; n++ {
		w.want("a request", []bool{true}, step(n))
		find(max(1, n/2))
	}
	w.reopen(true)
	for n := uint64(1); n <= many; n++ {
		find(n)
	}
}
