package authority_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
)

// A history is checked against a model of one resource that knows no time: an open
// tenure may lapse at any moment, so the model takes an expiry where an answer needs
// one, and nowhere else. That none comes too early is checked beside it: no tenure
// is taken over within what its holder was told (R8, R25).

type act struct {
	kind  string // acquire, renew, release, complete, cancel, status
	owner string
	id    string
	fence lastword.Token // of the tenure that is named
}

type reply struct {
	code  lastword.Code // "" is yes; UNKNOWN may have happened or not
	asked lastword.State
}

// ledger is the model's state: comparable by its text.
type ledger struct {
	next     int               // index of the next fence
	holder   string            // request of the open tenure, "" if there is none
	fence    int               // its index
	requests map[string]string // how the tenure of each known request is: fence and state
}

func (l ledger) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %d", l.next, l.holder, l.fence)
	for _, k := range slices.Sorted(maps.Keys(l.requests)) {
		fmt.Fprintf(&b, " %s=%s", k, l.requests[k])
	}
	return b.String()
}

func (l ledger) with(id, state string) ledger {
	l.requests = maps.Clone(l.requests)
	l.requests[id] = state
	return l
}

func (l ledger) ended(how string) ledger {
	if l.holder == "" {
		return l
	}
	l = l.with(l.holder, fmt.Sprint(l.fence, " ", how))
	l.holder = ""
	return l
}

// model is one resource. granted is the fence that each request got in the end,
// numbered in their order.
func model(granted map[string]int) porcupine.NondeterministicModel {
	return porcupine.NondeterministicModel{
		Init: func() []any { return []any{ledger{next: 1, requests: map[string]string{}}} },
		Step: func(state, input, output any) []any {
			l, in, out := state.(ledger), input.(act), output.(reply)
			var next []any
			for _, to := range l.after(in, out, granted[in.owner+"/"+in.id]) {
				next = append(next, to)
			}
			return next
		},
		Equal: func(a, b any) bool { return a.(ledger).String() == b.(ledger).String() },
	}
}

// after is what the ledger can be once in was answered with out.
func (l ledger) after(in act, out reply, fence int) []ledger {
	switch {
	case out.code == lastword.CodeUnknown:
		return append(l.did(in, fence), l)
	case out.code == lastword.CodeTenureEnded:
		return append(l.refused(in, out.code), l.lapsed(in, fence)...)
	case out.code != "":
		return l.refused(in, out.code)
	case in.kind == "status":
		return l.asked(in, out)
	}
	return l.did(in, fence)
}

// did is the ledger after in was done.
func (l ledger) did(in act, fence int) []ledger {
	key := in.owner + "/" + in.id
	known, seen := l.requests[key]
	open := l.holder == key
	switch in.kind {
	case "acquire":
		switch {
		case open && fence == l.fence:
			return []ledger{l} // the same grant again
		case !seen && fence == l.next:
			l = l.ended("EXPIRED")
			l.holder, l.fence, l.next = key, fence, fence+1
			return []ledger{l.with(key, fmt.Sprint(fence, " HELD"))}
		}
	case "renew":
		if open {
			return []ledger{l}
		}
	case "complete":
		if seen { // also the same result again, after the end
			return []ledger{l}
		}
	case "release":
		if open {
			return []ledger{l.ended("RELEASED")}
		}
		if strings.HasSuffix(known, " RELEASED") {
			return []ledger{l}
		}
	case "cancel":
		switch {
		case open:
			return []ledger{l.ended("CANCELED"), l.ended("EXPIRED")}
		case !seen:
			return []ledger{l.with(key, "never")}
		}
		return []ledger{l}
	}
	return nil
}

// lapsed: it was granted by this very call and lapsed before it could be delivered.
func (l ledger) lapsed(in act, fence int) []ledger {
	if _, seen := l.requests[in.owner+"/"+in.id]; seen {
		return nil
	}
	var ended []ledger
	for _, granted := range l.did(in, fence) {
		ended = append(ended, granted.ended("EXPIRED"))
	}
	return ended
}

// refused: nothing changes, and the reason must be true.
func (l ledger) refused(in act, code lastword.Code) []ledger {
	key := in.owner + "/" + in.id
	known, seen := l.requests[key]
	open := l.holder == key
	fits := false
	switch code {
	case lastword.CodeHeld:
		fits = l.holder != "" && !open
	case lastword.CodeNotHolder:
		fits = in.kind != "release" || !strings.HasSuffix(known, " RELEASED")
	case lastword.CodeTenureEnded:
		fits = seen && known != "never"
	case lastword.CodeCanceled:
		fits = known == "never"
	}
	switch {
	case fits && open:
		return []ledger{l.ended("EXPIRED")}
	case fits:
		return []ledger{l}
	}
	return nil
}

func (l ledger) asked(in act, out reply) []ledger {
	key := in.owner + "/" + in.id
	if l.holder == key && out.asked == lastword.StateExpired {
		return []ledger{l.ended("EXPIRED")}
	}
	known, seen := l.requests[key]
	want := lastword.StateFree
	if seen {
		want = lastword.StateCanceled
		if _, state, found := strings.Cut(known, " "); found {
			want = lastword.State(state)
		}
	}
	if out.asked != want {
		return nil
	}
	return []ledger{l}
}

// recorder keeps a history and what holders were promised.
type recorder struct {
	mu       sync.Mutex
	start    time.Time
	events   []porcupine.Operation
	fences   map[lastword.Token]bool
	granted  map[string]lastword.Token    // by request
	promises map[lastword.Token]time.Time // no grant of a larger fence may be answered before
	given    map[lastword.Token]bool      // by their holders
	early    []string
}

func (r *recorder) do(client int, in act, call func() (lastword.Tenure, lastword.State, error)) (lastword.Tenure, error) {
	sent := time.Now()
	if in.kind == "release" || in.kind == "cancel" {
		r.giveUp(in.fence)
	}
	tenure, asked, err := call()
	back := time.Now()
	out := reply{asked: asked}
	var e *lastword.Error
	if errors.As(err, &e) {
		out.code = e.Code
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case in.kind != "acquire":
	case err == nil:
		r.granted[in.owner+"/"+in.id] = tenure.Fence
	case out.code == lastword.CodeTenureEnded:
		r.granted[in.owner+"/"+in.id] = e.Ended.Fence
	}
	op := porcupine.Operation{ClientId: client, Input: in, Output: out, Call: int64(sent.Sub(r.start)), Return: int64(back.Sub(r.start))}
	// The injected faults lose a request or an answer; none is late. Where nothing
	// can have changed, nothing is to be explained.
	idle := out.code == lastword.CodeUnavailable || out.code == lastword.CodeUnknown && (in.kind == "renew" || in.kind == "status")
	if !idle {
		r.events = append(r.events, op)
	}
	if err == nil && tenure.Fence > 0 {
		if !r.fences[tenure.Fence] {
			r.taken(tenure.Fence, back)
		}
		r.fences[tenure.Fence] = true
		if end := sent.Add(tenure.Remaining); !r.given[tenure.Fence] && end.After(r.promises[tenure.Fence]) {
			r.promises[tenure.Fence] = end
		}
	}
	return tenure, err
}

// giveUp: its holder ends the tenure, so that nothing is promised any more.
func (r *recorder) giveUp(fence lastword.Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.given[fence] = true
	delete(r.promises, fence)
}

// taken: a tenure was granted while nobody may have been promised the resource.
func (r *recorder) taken(fence lastword.Token, at time.Time) {
	for other, end := range r.promises {
		if other < fence && at.Before(end) {
			r.early = append(r.early, fmt.Sprintf("fence %s was granted %v before the end that was told to %s", fence.Text(), end.Sub(at), other.Text()))
		}
	}
}

// check: porcupine for what happened, and the promises for when.
func (r *recorder) check(t *testing.T) {
	t.Helper()
	for _, why := range r.early {
		t.Error(why)
	}
	// Every grant was told at last, since callers ask until they know.
	all := slices.Sorted(maps.Values(r.granted))
	granted := map[string]int{}
	for request, fence := range r.granted {
		at, _ := slices.BinarySearch(all, fence)
		granted[request] = at + 1
	}
	for i := range all[1:] {
		if all[i] == all[i+1] {
			t.Fatalf("fence %s was given to two requests", all[i].Text())
		}
	}
	m := model(granted)
	switch porcupine.CheckOperationsTimeout(m.ToModel(), r.events, 20*time.Second) {
	case porcupine.Illegal:
		for _, e := range r.events {
			t.Logf("%2d %10d %10d %+v -> %+v", e.ClientId, e.Call, e.Return, e.Input, e.Output)
		}
		t.Fatal("no order of these calls explains their answers")
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Fatal("the check ran out of time")
	}
}

func TestR35HistoriesAreLinearizable(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i := range uint64(30) {
		var r *recorder
		inBubble(t, func(t *testing.T, w *world) {
			r = history(t, w, seed+i, 60*time.Millisecond, authority.Config{})
		})
		r.check(t) // outside, where its time limit is real
	}
}

func TestR35HistoriesOnTheRealClockAreLinearizable(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i := range uint64(6) {
		w := newWorld(t)
		history(t, w, seed+i, 2*time.Millisecond, authority.Config{Tick: 5 * time.Millisecond, MinTTL: 10 * time.Millisecond}).check(t)
		w.close()
	}
}

// history lets 8 clients at one resource, through two processes on unreliable
// stores; unit is the length of their pauses.
func history(t *testing.T, w *world, seed uint64, unit time.Duration, cfg authority.Config) *recorder {
	var processes []*authority.Authority
	var stores []*unreliable
	for i := range uint64(2) {
		s := newUnreliable(w.memory.Open(), seed*10+i, unit/4)
		processes = append(processes, w.openOn(s, cfg))
		stores = append(stores, s)
	}
	for _, s := range stores {
		s.fail(0.04)
	}
	r := &recorder{start: time.Now(), fences: map[lastword.Token]bool{}, granted: map[string]lastword.Token{}, promises: map[lastword.Token]time.Time{}, given: map[lastword.Token]bool{}}
	var wg sync.WaitGroup
	for i := range 8 {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() { client(t, r, i, processes, rnd, unit) })
	}
	wg.Wait()
	return r
}

// client makes a few attempts at the resource, each a request id of its own.
func client(t *testing.T, r *recorder, i int, processes []*authority.Authority, rnd *rand.Rand, unit time.Duration) {
	ctx := t.Context()
	any := func() *authority.Authority { return processes[rnd.IntN(len(processes))] }
	for n := range 4 {
		in := act{kind: "acquire", owner: fmt.Sprint("c", i), id: fmt.Sprint(n)}
		q := request(in.owner, in.id, 6*unit)
		if rnd.IntN(2) == 0 {
			q.Wait = time.Duration(1+rnd.IntN(12)) * unit
		}
		var held lastword.Tenure
		err := lastword.ErrUnknownOutcome
		for errors.Is(err, lastword.ErrUnknownOutcome) || errors.Is(err, lastword.ErrUnavailable) {
			held, err = r.do(i, in, func() (lastword.Tenure, lastword.State, error) {
				got, err := any().Acquire(ctx, q)
				return got, "", err
			})
		}
		if err == nil {
			follow(t, r, i, in, held, any, rnd, unit)
		}
		time.Sleep(time.Duration(rnd.Int64N(int64(2 * unit))))
	}
}

// follow does a few things with a tenure, also after it may have lapsed.
func follow(t *testing.T, r *recorder, i int, in act, held lastword.Tenure, any func() *authority.Authority, rnd *rand.Rand, unit time.Duration) {
	ctx := t.Context()
	in.fence = held.Fence
	for range 1 + rnd.IntN(4) {
		time.Sleep(time.Duration(rnd.Int64N(int64(3 * unit))))
		kinds := []string{"renew", "renew", "renew", "complete", "release", "cancel", "status", "acquire"}
		in.kind = kinds[rnd.IntN(len(kinds))]
		sent := time.Now()
		_, err := r.do(i, in, func() (lastword.Tenure, lastword.State, error) {
			switch in.kind {
			case "renew":
				got, err := any().Renew(ctx, held.TenureRef)
				return got, "", err
			case "acquire":
				got, err := any().Acquire(ctx, request(in.owner, in.id, 6*unit))
				return got, "", err
			case "complete":
				return lastword.Tenure{}, "", any().Complete(ctx, held.TenureRef, []byte("r"))
			case "release":
				return lastword.Tenure{}, "", any().Release(ctx, held.TenureRef)
			case "cancel":
				return lastword.Tenure{}, "", any().Cancel(ctx, held.Resource, in.owner, in.id)
			}
			st, err := any().Status(ctx, lastword.StatusQuery{Resource: held.Resource, Owner: in.owner, RequestID: in.id})
			return lastword.Tenure{}, st.Asked, err
		})
		r.mu.Lock()
		promised := r.promises[held.Fence]
		r.mu.Unlock()
		if errors.Is(err, lastword.ErrNotHolder) && in.kind == "renew" && !promised.IsZero() && time.Now().Before(promised) {
			t.Errorf("fence %s was lost %v before the end that was promised (asked at %v)", held.Fence.Text(), time.Until(promised), sent)
		}
	}
}
