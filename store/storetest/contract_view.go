package storetest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
)

var viewCases = []kitCase{
	{"store.View", "every field comes back exactly, at its limits", roundTrip},
	{"store.View", "what goes in and what comes out is a copy", noAliases},
	{"R9", "header and record of a view belong to one moment, and nothing acknowledged is missing", oneMoment},
	{"R9", "a second handle sees at once what the first acknowledged, or is refused", secondHandle},
	{"store.Store", "ended requests come oldest first, up to the tick, and none that is open", endedOrder},
	{"P5", "a call whose context ends leaves no doubt, or says that it does", canceledContext},
	{"P5", "a closed handle refuses and changes nothing", closedHandle},
}

// extreme is a record whose every field is at a limit.
func extreme(resource lastword.Resource, result []byte) store.Record {
	const most = 1<<53 - 1
	return store.Record{
		Resource: resource, Revision: 1, Epoch: lastword.MaxEpoch, Counter: lastword.MaxCounter,
		Lease: store.Lease{
			ID: "lease '\"; --", Owner: "spiffe://domain/ö", RequestID: "request % _", Fence: lastword.MaxToken,
			Root: lastword.DigestOf([]byte("root")), Class: "some class", PolicyGeneration: most,
			TTL: math.MaxInt64, Ticks: most, Deadline: store.Tick(store.MaxNumber), GrantedRevision: most,
			IssuedAt: math.MaxInt64, KeyID: "key", State: lastword.StatePending, EndedTick: most,
			Completed: true, Result: result,
		},
		Previous: lastword.Ending{State: lastword.StateRevoked, Fence: lastword.MaxToken - 1, LeaseID: "before",
			Owner: "Owner", Completed: true, Result: result},
		Reported: lastword.MaxToken,
	}
}

func roundTrip(w *world) {
	header := store.Header{Identity: "ídentity", Domain: "dömain", TickSpan: math.MaxInt64, Epoch: lastword.MaxEpoch, Tick: 1<<53 - 1,
		Floor: lastword.MaxEpoch, HoldUntil: store.Tick(store.MaxNumber), Witnessed: true}
	w.create(header)
	header.Exists = true
	w.same("the header", w.read().Header, header)

	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for name, result := range map[lastword.Resource][]byte{
		"empty": {}, "zero": {0}, "bytes": every, "large": bytes.Repeat([]byte("0123456789abcdef"), lastword.MaxResultBytes/16),
	} {
		record := extreme(name, result)
		request := store.Request{Owner: "ö", ID: "i d", Params: lastword.DigestOf(result), LeaseID: "l", Fence: lastword.MaxToken,
			State: lastword.StateExpired, Completed: true, Result: result, EndedTick: 1<<53 - 1}
		w.want("a record at its limits", []bool{true}, store.Step{Epoch: lastword.MaxEpoch, Record: &record, Requests: []store.Request{request}})
		w.same("record "+string(name), w.record(name), record)
		w.same("request of "+string(name), w.request(name, "ö", "i d"), request)
		w.listed(string(name), record)

		emptied := store.Record{Resource: name, Revision: 2}
		w.want("an empty record", []bool{true}, store.Step{Epoch: lastword.MaxEpoch, Record: &emptied, Requests: []store.Request{{Owner: "ö", ID: "i d"}}})
		w.same("emptied record", w.record(name), emptied)
		w.same("emptied request", w.request(name, "ö", "i d"), store.Request{Owner: "ö", ID: "i d"})
		w.listed(string(name), emptied)
	}
}

func (w *world) listed(prefix string, want store.Record) {
	w.Helper()
	records, err := w.handle.List(w.Context(), prefix, "", 2)
	if err != nil || len(records) != 1 {
		w.Fatalf("list %s: %d records, %v", prefix, len(records), err)
	}
	w.same("listed record "+prefix, records[0], want)
}

func noAliases(w *world) {
	w.create(store.Header{})
	result := []byte("kept")
	record := extreme("a", result)
	step := store.Step{Record: &record, Requests: []store.Request{{Owner: "o", ID: "r", Completed: true, Result: result}}}
	w.want("a record with results", []bool{true}, step)
	copy(result, "XXXX")
	record.Lease.Owner, step.Requests[0].LeaseID = "changed", "changed"

	for range 2 { // what the first look was given is scribbled over
		view := w.read(store.Query{Resource: "a", Owner: "o", RequestID: "r"})
		listed, err := w.handle.List(w.Context(), "", "", 1)
		if err != nil || len(listed) != 1 || view.Entries[0].Request == nil {
			w.Fatalf("list: %d records, %v", len(listed), err)
		}
		got := [][]byte{view.Entries[0].Record.Lease.Result, view.Entries[0].Record.Previous.Result,
			view.Entries[0].Request.Result, listed[0].Lease.Result, listed[0].Previous.Result}
		for i, b := range got {
			if string(b) != "kept" {
				w.Fatalf("result %d is %q after the caller wrote into its own copy", i, b)
			}
			copy(b, "YYYY")
		}
		if view.Entries[0].Record.Lease.Owner == "changed" || view.Entries[0].Request.LeaseID == "changed" {
			w.Fatalf("the store kept the caller's own struct")
		}
		view.Entries[0].Request.LeaseID = "changed"
	}
}

// oneMoment: every write sets header and record to one number, in one step, until
// every reader has seen enough of them go by.
func oneMoment(w *world) {
	const readers, enough, most = 2, 50, 20000
	w.create(store.Header{})
	header := w.read().Header
	var acked, satisfied atomic.Uint64
	var over atomic.Bool
	var all sync.WaitGroup
	for range readers {
		handle := w.another()
		all.Go(func() {
			distinct := 0
			for last := uint64(0); !over.Load(); {
				atLeast := acked.Load()
				view, err := handle.Read(w.Context(), store.Query{Resource: "a"})
				if err != nil {
					w.Errorf("read: %v", err)
					over.Store(true)
					return
				}
				h, r := uint64(view.Header.Tick), view.Entries[0].Record.Revision
				if h != r {
					w.Errorf("a view shows the header of write %d and the record of write %d", h, r)
					over.Store(true)
				}
				if r < atLeast || r < last {
					w.Errorf("a view shows write %d, after %d was acknowledged and %d was shown", r, atLeast, last)
					over.Store(true)
				}
				if r > last {
					if distinct++; distinct == enough {
						satisfied.Add(1)
					}
				}
				last = r
			}
		})
	}
	for n := uint64(1); !over.Load() && satisfied.Load() < readers && n < most; n++ {
		next := header
		next.Tick = store.Tick(n)
		step := write(0, "a", n)
		step.Header = &next
		applied, err := w.handle.Commit(w.Context(), step)
		if err != nil || !applied[0] {
			w.Errorf("write %d: %v, %v", n, applied, err)
			break
		}
		acked.Store(n)
		runtime.Gosched()
	}
	over.Store(true)
	all.Wait()
}

func secondHandle(w *world) {
	w.create(store.Header{})
	second, err := w.harness.Second(w)
	if !w.harness.Shared {
		if err == nil {
			_ = second.Close()
			w.Fatalf("a second handle was opened on a store that is not shared")
		}
		var ours *lastword.Error
		if !errors.As(err, &ours) || ours.Code != lastword.CodeUnavailable || ours.Message == "" || ours.Hint == "" {
			w.Errorf("the refusal of a second handle names no reason and no way out: %v", err)
		}
		w.want("a write of the first handle after that", []bool{true}, write(0, "a", 1))
		return
	}
	if err != nil {
		w.Fatalf("a second handle: %v", err)
	}
	w.others = append(w.others, second)
	for n := uint64(1); n <= 20; n++ {
		w.want("a write of the first handle", []bool{true}, write(0, "a", n))
		if got := read(w, w.Context(), second, store.Query{Resource: "a"}).Entries[0].Record.Revision; got != n {
			w.Fatalf("the second handle reads revision %d after %d was acknowledged", got, n)
		}
	}
	if applied, err := second.Commit(w.Context(), write(0, "a", 20), write(0, "a", 21)); err != nil || !slices.Equal(applied, []bool{false, true}) {
		w.Errorf("writes of the second handle: %v, %v", applied, err)
	}
}

func endedOrder(w *world) {
	w.create(store.Header{})
	states := []lastword.State{lastword.StateReleased, lastword.StateHeld, lastword.StateExpired, lastword.StatePending,
		lastword.StateRevoked, lastword.StateCanceled}
	ticks := []store.Tick{50, 10, 30, 5, 20, 40}
	for i, state := range states {
		resource := lastword.Resource([]string{"a", "b"}[i%2])
		w.want("a request", []bool{true}, write(0, resource, uint64(i/2+1),
			store.Request{Owner: "o", ID: string(state), State: state, EndedTick: ticks[i], Completed: true, Result: []byte(state)}))
	}
	for _, c := range []struct {
		until store.Tick
		limit int
		want  []lastword.State
	}{
		{19, 9, nil}, {20, 9, []lastword.State{"REVOKED"}}, {49, 9, []lastword.State{"REVOKED", "EXPIRED", "CANCELED"}},
		{1 << 60, 9, []lastword.State{"REVOKED", "EXPIRED", "CANCELED", "RELEASED"}},
		{1 << 60, 2, []lastword.State{"REVOKED", "EXPIRED"}},
	} {
		ended, err := w.handle.Ended(w.Context(), c.until, c.limit)
		if err != nil {
			w.Fatalf("ended: %v", err)
		}
		var got []lastword.State
		for _, e := range ended {
			got = append(got, e.Request.State)
			w.same("an ended request", e.Request, w.request(e.Resource, e.Request.Owner, e.Request.ID))
		}
		if !slices.Equal(got, c.want) {
			w.Errorf("ended until %d, %d at most: got %v, want %v", c.until, c.limit, got, c.want)
		}
	}
	step := write(0, "a", 4)
	step.Forget = []store.RequestKey{{Owner: "o", ID: "EXPIRED"}}
	w.want("one is forgotten", []bool{true}, step)
	if ended, err := w.handle.Ended(w.Context(), 1<<60, 9); err != nil || len(ended) != 3 {
		w.Errorf("after one was forgotten: %d, %v", len(ended), err)
	}
}

// canceledContext ends contexts before, and at any moment of, a commit.
func canceledContext(w *world) {
	w.create(store.Header{})
	revision := uint64(0)
	for i := range 60 {
		ctx, cancel := context.WithCancel(w.Context())
		if i%3 == 0 {
			cancel()
		} else {
			go func() {
				for range i * 50 {
					_ = ctx.Err()
				}
				cancel()
			}()
		}
		applied, err := w.handle.Commit(ctx, write(0, "a", revision+1))
		cancel()
		got := w.record("a").Revision
		switch {
		case err == nil && (!applied[0] || got != revision+1):
			w.Fatalf("acknowledged %v, revision %d after %d", applied, got, revision)
		case errors.Is(err, lastword.ErrUnavailable) && got != revision:
			w.Fatalf("certainly not written, says the error (%v); revision %d after %d", err, got, revision)
		case err != nil && !errors.Is(err, lastword.ErrUnavailable) && !errors.Is(err, lastword.ErrUnknownOutcome):
			w.Fatalf("an error that says neither: %v", err)
		}
		revision = got
	}
	ctx, cancel := context.WithCancel(w.Context())
	cancel()
	if _, err := w.handle.Read(ctx, store.Query{Resource: "a"}); err != nil && !errors.Is(err, lastword.ErrUnavailable) {
		w.Errorf("read: %v", err)
	}
	w.want("a write after it", []bool{true}, write(0, "a", revision+1))
}

func closedHandle(w *world) {
	w.create(store.Header{})
	w.want("a write", []bool{true}, write(0, "a", 1))
	closed := w.handle
	w.reopen(true)
	_, readErr := closed.Read(w.Context(), store.Query{Resource: "a"})
	_, commitErr := closed.Commit(w.Context(), write(0, "a", 2))
	_, listErr := closed.List(w.Context(), "", "", 1)
	_, endedErr := closed.Ended(w.Context(), 1, 1)
	for i, err := range []error{readErr, commitErr, listErr, endedErr} {
		if !errors.Is(err, lastword.ErrUnavailable) {
			w.Errorf("call %d on a closed handle: %v", i, err)
		}
	}
	if err := closed.Close(); err != nil {
		w.Errorf("a second close: %v", err)
	}
	if got := w.record("a").Revision; got != 1 {
		w.Errorf("revision %d, want 1", got)
	}
}
