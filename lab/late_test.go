package lab

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/lab/proxy"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/server"
)

// lateTTL stands for the 30 s of KF-02, so that its end can be waited for.
const lateTTL = 3 * time.Second

// behind puts a proxy in front of an authority, with a connection through it that
// is open already.
func behind(t testing.TB, addr string) (*proxy.Proxy, *rpc.Client) {
	t.Helper()
	p, err := proxy.New(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	through := dial(t, p.Addr())
	if _, err := through.Status(t.Context(), lastword.StatusQuery{Resource: "warm/up"}); err != nil {
		t.Fatal(err)
	}
	return p, through
}

// untilHeld waits until the authority shows that a resource is held.
func untilHeld(t testing.TB, a client.Authority, resource lastword.Resource) lastword.Status {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		st, err := a.Status(t.Context(), lastword.StatusQuery{Resource: resource})
		if err != nil {
			t.Fatal(err)
		}
		if st.State == lastword.StateHeld {
			return st
		}
	}
	t.Fatalf("%s is never held", resource)
	return lastword.Status{}
}

func TestKF02aRepeatedAcquireGivesTheGrantWhoseReplyWasLate(t *testing.T) {
	t.Parallel()
	addr := servedAt(t)
	p, late := behind(t, addr)
	direct := dial(t, addr)
	release := p.Delay()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	q := wanted("jobs/nightly", "a", "R1", 10*time.Second, 0)
	_, err := late.Acquire(ctx, q)
	wantCode(t, "acquire whose reply is late", err, lastword.CodeUnknown)
	before := untilHeld(t, direct, q.Resource)

	time.Sleep(2 * time.Second) // as the case says
	again := mustAcquire(t, dial(t, p.Addr()), q)
	if again.Fence != before.Holder.Fence || !again.Repeated || again.GrantDigest != before.Digest {
		t.Errorf("the repetition gave %+v, the authority had %+v", again, before)
	}
	release()
	after, err := direct.Status(t.Context(), lastword.StatusQuery{Resource: q.Resource})
	if err != nil || after.NextFence != before.NextFence || after.NextFence != again.Fence+1 {
		t.Errorf("next fence %d after %d (%v)", after.NextFence, before.NextFence, err)
	}
}

// split is a client whose acquires take another way than everything else.
type split struct {
	client.Authority
	acquires client.Authority
	renewals *atomic.Int32
}

func (s split) Acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	return s.acquires.Acquire(ctx, r)
}

func (s split) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	s.renewals.Add(1)
	return s.Authority.Renew(ctx, ref)
}

func TestKF02bCancelOfALateAcquireLetsTheNextOneIn(t *testing.T) {
	t.Parallel()
	addr := servedAt(t)
	p, late := behind(t, addr)
	direct := dial(t, addr)
	a, err := client.New(split{direct, late, new(atomic.Int32)}, client.Config{Owner: "a"})
	if err != nil {
		t.Fatal(err)
	}
	release := p.Delay()
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	l, err := a.Acquire(ctx, "jobs/nightly", client.AcquireOptions{RequestID: "R1"})
	if l != nil {
		t.Fatal("A was told that it may run")
	}
	wantCode(t, "acquire that was given up", err, lastword.CodeCanceled)
	b := mustAcquire(t, direct, wanted("jobs/nightly", "b", "1", time.Second, 0)) // at once
	if b.Fence.Counter() != 2 {
		t.Errorf("B has fence %s, want the second", b.Fence.Text())
	}
	_, err = direct.Acquire(t.Context(), wanted("jobs/nightly", "a", "R1", 30*time.Second, 0))
	if c := history.CodeOf(err); c != lastword.CodeCanceled && c != lastword.CodeTenureEnded {
		t.Errorf("the cancelled request id gives %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestKF02cKilledAcquirerLapsesAtTheEndOfTheTTL(t *testing.T) {
	t.Parallel()
	addr := servedAt(t)
	p, err := proxy.New(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	direct := dial(t, addr)
	a := worker(t, "A")
	// An acquire of something else opens the connection.
	tell(t, a, order{Do: "acquire", Authority: p.Addr(), Resource: "warm/up", Owner: "a", Operation: "0", TTL: time.Second})
	defer p.Delay()()
	slow := measureDrag(t)
	sent := history.Clock()
	if err := a.tell(order{Do: "acquire", Resource: "jobs/nightly", Owner: "a", Operation: "R1", TTL: lateTTL}); err != nil {
		t.Fatal(err)
	}
	st := untilHeld(t, direct, "jobs/nightly")
	applied := history.Clock()
	killNow(t, a)
	b := mustAcquire(t, direct, wanted("jobs/nightly", "b", "1", time.Second, 2*lateTTL))
	heard := history.Clock()
	if b.Fence != st.Holder.Fence+1 {
		t.Errorf("B has fence %d after %d", b.Fence, st.Holder.Fence)
	}
	if heard < sent+lateTTL || heard > applied+lateTTL+slow.within(margin, 0) {
		t.Errorf("B was granted %v after A asked, ttl %v, drag %v", heard-sent, lateTTL, slow.mark())
	}
}

func TestKF02dLateGrantIsDropped(t *testing.T) {
	t.Parallel()
	addr := servedAt(t)
	pprof.Do(t.Context(), pprof.Labels("case", t.Name()), func(ctx context.Context) {
		p, late := behind(t, addr)
		renewals := new(atomic.Int32)
		a, err := client.New(split{late, late, renewals}, client.Config{Owner: "a", CleanupTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		release := p.Delay()
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		ran := false
		err = a.Run(ctx, "jobs/nightly", client.AcquireOptions{TTL: lateTTL, RequestID: "R1"}, func(context.Context, *client.Lease) error {
			ran = true
			return nil
		})
		var open *client.OpenAttempt
		if !errors.Is(err, lastword.ErrUnknownOutcome) || !errors.As(err, &open) {
			t.Errorf("run gave %v, want an open attempt", err)
		}
		st, err := dial(t, addr).Status(t.Context(), lastword.StatusQuery{Resource: "jobs/nightly", Owner: "a", RequestID: "R1"})
		if err != nil || st.NextFence.Counter() != 2 || st.Asked != lastword.StateCanceled {
			t.Errorf("there was no grant that nobody heard of, or no cancel: %+v (%v)", st, err)
		}
		time.Sleep(2 * time.Second)
		release() // everything that was late arrives
		time.Sleep(lateTTL / 2)
		if ran || renewals.Load() != 0 {
			t.Errorf("the late grant had an effect: ran %v, renewals %d", ran, renewals.Load())
		}
		if err := errors.Join(a.Close(), late.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
	noGoroutines(t)
}

// noGoroutines waits until no goroutine has this test's label but the test itself,
// whose label is gone, and the connections that end with the test.
func noGoroutines(t testing.TB) {
	t.Helper()
	var left []string
	for range 200 {
		left = nil
		var b bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
			t.Fatal(err)
		}
		for g := range strings.SplitSeq(b.String(), "\n\n") {
			if strings.Contains(g, t.Name()) && (strings.Contains(g, "lastword/client") || strings.Contains(g, "lastword/lab/proxy.(*Proxy)")) {
				left = append(left, g)
			}
		}
		if len(left) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
}

func TestKF04LateReleaseOfAFormerHolderChangesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, ownerB, do string }{
		{"another owner", "b", "acquire"},
		{"the same owner name", "a", "acquire"},
		{"a lease that knows it is over", "b", "hold"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			addr := servedAt(t)
			direct := dial(t, addr)
			a := worker(t, "A")
			first := tell(t, a, order{Do: c.do, Authority: addr, Resource: "billing/42", Owner: "a", Operation: "1", TTL: 2 * time.Second})
			if err := a.pause(); err != nil {
				t.Fatal(err)
			}
			b := mustAcquire(t, direct, wanted("billing/42", c.ownerB, "2", 20*time.Second, 10*time.Second))
			before, err := direct.Status(t.Context(), lastword.StatusQuery{Resource: "billing/42"})
			if err != nil || b.Fence != first.Fence+1 {
				t.Fatalf("B has fence %d after %d (%v)", b.Fence, first.Fence, err)
			}
			if err := a.resume(); err != nil {
				t.Fatal(err)
			}
			late := tell(t, a, order{Do: "release"})
			if late.Code != string(lastword.CodeNotHolder) {
				t.Errorf("A's late release: %s", late.Code)
			}
			_, err = direct.Acquire(t.Context(), wanted("billing/42", "c", "3", time.Second, 0))
			wantCode(t, "C at once", err, lastword.CodeHeld)
			after, err := direct.Status(t.Context(), lastword.StatusQuery{Resource: "billing/42"})
			if err != nil || after.Holder.Fence != b.Fence || after.Revision != before.Revision || after.State != lastword.StateHeld {
				t.Errorf("B's lease was %+v and is %+v (%v)", before, after, err)
			}
		})
	}
}

func TestKF05RenewalAfterTheEndIsRefusedAndCreatesNothing(t *testing.T) {
	t.Parallel()
	addr := servedAt(t)
	direct := dial(t, addr)
	refused := func(t *testing.T, resource string, a *process, fence, next lastword.Token) {
		t.Helper()
		before, err := direct.Status(t.Context(), lastword.StatusQuery{Resource: lastword.Resource(resource)})
		if err != nil {
			t.Fatal(err)
		}
		if got := tell(t, a, order{Do: "renew"}); got.Code != string(lastword.CodeNotHolder) {
			t.Errorf("renewal after the end: %s", got.Code)
		}
		after, err := direct.Status(t.Context(), lastword.StatusQuery{Resource: lastword.Resource(resource)})
		if err != nil || after.State != lastword.StateExpired || after.NextFence != before.NextFence {
			t.Errorf("the renewal made %+v of %+v (%v)", after, before, err)
		}
		if got := mustAcquire(t, direct, wanted(resource, "a", "next", time.Second, 0)); got.Fence != next {
			t.Errorf("the next fence is %d after %d, want %d", got.Fence, fence, next)
		}
	}
	t.Run("a: paused, and nobody took over", func(t *testing.T) {
		t.Parallel()
		a, h := worker(t, "A"), worker(t, "H")
		first := tell(t, a, order{Do: "acquire", Authority: addr, Resource: "kf05/a", Owner: "a", Operation: "1", TTL: 2 * time.Second})
		tell(t, h, order{Do: "hold", Authority: addr, Resource: "kf05/held", Owner: "h", Operation: "1", TTL: 2 * time.Second})
		for _, p := range []*process{a, h} {
			if err := p.pause(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
		for _, p := range []*process{a, h} {
			if err := p.resume(); err != nil {
				t.Fatal(err)
			}
		}
		if got := tell(t, h, order{Do: "state"}); got.State != lastword.HolderExpired {
			t.Errorf("a holder that slept over its deadline is %s", got.State)
		}
		refused(t, "kf05/a", a, first.Fence, first.Fence+1)
	})
	t.Run("b: another tenure came and went", func(t *testing.T) {
		t.Parallel()
		a, b := worker(t, "A"), worker(t, "B")
		first := tell(t, a, order{Do: "acquire", Authority: addr, Resource: "kf05/b", Owner: "a", Operation: "1", TTL: 2 * time.Second})
		second := tell(t, b, order{Do: "acquire", Authority: addr, Resource: "kf05/b", Owner: "b", Operation: "1", TTL: 500 * time.Millisecond, Wait: 10 * time.Second})
		killNow(t, b)
		time.Sleep(500*time.Millisecond + 100*time.Millisecond)
		if second.Fence != first.Fence+1 {
			t.Errorf("B has fence %d after %d", second.Fence, first.Fence)
		}
		refused(t, "kf05/b", a, first.Fence, first.Fence+2)
	})
}

// manual is an elapsed-time clock that the test moves.
type manual struct{ now atomic.Int64 }

func (m *manual) elapsed() time.Duration { return time.Duration(m.now.Load()) }

// inProcess is an authority on SQLite in this process, behind its own listener.
func inProcess(t testing.TB, cfg authority.Config) (*server.Server, *rpc.Client) {
	t.Helper()
	s, err := server.Open(t.Context(), server.Config{
		Store: "sqlite:" + filepath.Join(t.TempDir(), "authority.db"), Domain: Domain, GRPC: "127.0.0.1:0", Authority: cfg,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, dial(t, s.Addr().String())
}

func TestKF05cRenewalAfterAnOperatorEndedTheTenure(t *testing.T) {
	t.Parallel()
	s, c := inProcess(t, authority.Config{})
	a := mustAcquire(t, c, wanted("kf05/c", "a", "1", time.Minute, 0))
	if err := s.Authority().Revoke(t.Context(), "kf05/c", a.Fence, "operator", "test"); err != nil {
		t.Fatal(err)
	}
	_, err := c.Renew(t.Context(), a.TenureRef)
	wantCode(t, "renewal of a revoked tenure", err, lastword.CodeNotHolder)
	if next := mustAcquire(t, c, wanted("kf05/c", "a", "2", time.Minute, 0)); next.Fence != a.Fence+1 {
		t.Errorf("fence %d after %d", next.Fence, a.Fence)
	}
}

func TestKF05dTheDeadlineItselfIsExpired(t *testing.T) { // R4
	t.Parallel()
	clock := &manual{}
	_, c := inProcess(t, authority.Config{Elapsed: clock.elapsed})
	const ttl = time.Second
	early := mustAcquire(t, c, wanted("kf05/early", "a", "1", ttl, 0))
	late := mustAcquire(t, c, wanted("kf05/late", "a", "1", ttl, 0))
	for clock.elapsed() < ttl-50*time.Millisecond {
		clock.now.Add(int64(50 * time.Millisecond))
		for _, r := range []lastword.Resource{early.Resource, late.Resource} {
			if _, err := c.Status(t.Context(), lastword.StatusQuery{Resource: r}); err != nil {
				t.Fatal(err)
			}
		}
	}
	clock.now.Store(int64(ttl - 1))
	if _, err := c.Renew(t.Context(), early.TenureRef); err != nil {
		t.Errorf("a renewal 1 ns before the deadline: %v", err)
	}
	clock.now.Store(int64(ttl))
	_, err := c.Renew(t.Context(), late.TenureRef)
	wantCode(t, "a renewal at the deadline", err, lastword.CodeNotHolder)
}

func TestKF02AcquireWhoseReplyIsCutOffGivesTheSameGrantAgain(t *testing.T) { // R2
	t.Parallel()
	addr := servedAt(t)
	p, through := behind(t, addr)
	defer p.Delay()()
	q := wanted("jobs/nightly", "a", "R1", 10*time.Second, 0)
	first := make(chan error, 1)
	go func() {
		_, err := through.Acquire(t.Context(), q)
		first <- err
	}()
	applied := untilHeld(t, dial(t, addr), q.Resource)
	p.Cut()
	wantCode(t, "acquire whose reply was cut off", <-first, lastword.CodeUnknown)
	if again := mustAcquire(t, dial(t, p.Addr()), q); again.Fence != applied.Holder.Fence || again.GrantDigest != applied.Digest || !again.Repeated {
		t.Errorf("the repetition gave %+v, the authority had %+v", again.TenureRef, applied.Holder)
	}
}

func TestKF10SilentLossEndsTrustByItselfAndForGood(t *testing.T) { // R25, R26; first part: TTL 2 s for 6 s
	t.Parallel()
	addr := servedAt(t)
	p, through := behind(t, addr)
	const ttl = 2 * time.Second
	seen := &book{}
	a, err := client.New(history.Recorder{Authority: through, Note: seen.note}, client.Config{Owner: "a", CleanupTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	slow := measureDrag(t)
	l, err := a.Acquire(t.Context(), "doc", client.AcquireOptions{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	heal := p.Lose()
	lost := history.Clock()
	unknown := time.Duration(0)
	for l.State() != lastword.HolderExpired {
		if l.State() == lastword.HolderUnknown && unknown == 0 {
			unknown = history.Clock()
		}
		if history.Clock()-lost > 2*ttl {
			t.Fatalf("it is still %s", l.State())
		}
		time.Sleep(time.Millisecond)
	}
	ended := history.Clock()
	<-l.Context().Done()
	var confirmed time.Duration // when the last call was sent that was answered
	for _, f := range seen.all() {
		if f.Held() {
			confirmed = max(confirmed, f.Sent)
		}
	}
	if unknown == 0 || unknown > lost+ttl/3+ttl/6+slow.within(100*time.Millisecond, 0) {
		t.Errorf("unknown %v after the loss", unknown-lost)
	}
	if ended > confirmed+ttl+slow.within(0, 0) {
		t.Errorf("trusted until %v after the last confirmed call, ttl %v", ended-confirmed, ttl)
	}
	b := mustAcquire(t, dial(t, addr), wanted("doc", "b", "1", ttl, 2*ttl))
	heal()
	time.Sleep(ttl / 4)
	if l.State() != lastword.HolderExpired || b.Fence != l.Fence()+1 {
		t.Errorf("after healing A is %s with fence %d, B has fence %d", l.State(), l.Fence(), b.Fence)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
