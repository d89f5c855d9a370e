package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/sqlstore"
)

// The times of KF-36 are scaled by five: TTL 2 s for 10 s, a restart each 0.8 s for 4 s.
const (
	restartTTL   = 2 * time.Second
	restartEvery = 800 * time.Millisecond
	usualTick    = 100 * time.Millisecond
)

func TestKF36aRestartsNeverStartTheTTLAnew(t *testing.T) {
	t.Parallel()
	c := authorityConfig{Dir: t.TempDir(), Addr: steadyAddr(t)}
	up, addr := serve(t, c)
	slow := measureDrag(t)
	a := worker(t, "A")
	sent := history.Clock()
	first := tell(t, a, order{Do: "acquire", Authority: addr, Resource: "doc", Owner: "a", Operation: "1", TTL: restartTTL})
	last := history.Clock()
	killNow(t, a)

	b, err := client.New(dial(t, addr), client.Config{Owner: "b"})
	if err != nil {
		t.Fatal(err)
	}
	type granted struct {
		lease *client.Lease
		err   error
		at    time.Duration
	}
	got := make(chan granted, 1)
	go func() {
		l, err := b.Acquire(t.Context(), "doc", client.AcquireOptions{TTL: restartTTL, Wait: patience})
		got <- granted{l, err, history.Clock()}
	}()
	var g granted
	down, restarts := time.Duration(0), 0
	for g.lease == nil && g.err == nil {
		select {
		case g = <-got:
			continue
		case <-time.After(restartEvery):
		}
		if restarts == 10 {
			t.Fatal("B was not granted over ten restarts")
		}
		restarts++
		began := history.Clock()
		up.kill(t)
		up, _ = serve(t, c)
		down += history.Clock() - began
	}
	if g.err != nil {
		t.Fatal(g.err)
	}
	limit := restartTTL + down + time.Duration(2*restarts)*usualTick + slow.within(margin, 0)
	t.Logf("granted after %v, with %d restarts and %v down; limit %v", g.at-last, restarts, down, limit)
	if g.at < sent+restartTTL || g.at > last+limit || g.lease.Fence() <= first.Fence || restarts == 0 {
		t.Errorf("B has fence %d after %d, %v after A's last answer", g.lease.Fence(), first.Fence, g.at-last)
	}
	if err := b.Close(); err != nil && history.CodeOf(err) != lastword.CodeUnknown {
		t.Error(err)
	}
}

func TestKF36bLiveHolderSurvivesARestartOrIsRefused(t *testing.T) {
	t.Parallel()
	c := authorityConfig{Dir: t.TempDir(), Addr: steadyAddr(t)}
	up, addr := serve(t, c)
	seen := &book{}
	a, b := history.Recorder{Authority: dial(t, addr), Note: seen.note}, history.Recorder{Authority: dial(t, addr), Note: seen.note}
	tenure := mustAcquire(t, a, wanted("doc", "a", "1", restartTTL, 0))
	stop := make(chan struct{})
	var rival sync.WaitGroup
	rival.Go(func() { // tries all the time
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_, _ = b.Acquire(t.Context(), wanted("doc", "b", fmt.Sprint(i), restartTTL, 0))
			}
		}
	})
	time.Sleep(restartTTL - time.Second) // 1 s is left
	up.kill(t)
	time.Sleep(500 * time.Millisecond)
	up, _ = serve(t, c)
	renewed, err := a.Renew(t.Context(), tenure.TenureRef)
	switch history.CodeOf(err) {
	case "":
		if renewed.Fence != tenure.Fence {
			t.Errorf("renewed with fence %d after %d", renewed.Fence, tenure.Fence)
		}
	case lastword.CodeNotHolder:
		t.Log("refused")
	default:
		t.Errorf("the renewal after the restart: %v", err)
	}
	time.Sleep(restartTTL / 2)
	close(stop)
	rival.Wait()
	end(t, up)
	for _, w := range history.Verify(seen.all()) {
		t.Error(w)
	}
}

func TestKF35SecondAuthorityOnOneStoreIsRefusedAndTheFirstGoesOn(t *testing.T) {
	t.Parallel()
	path := "sqlite:" + filepath.Join(t.TempDir(), "authority.db")
	first, second := worker(t, "first"), worker(t, "second")
	addr := tell(t, first, order{Do: "serve", Store: path}).Address
	direct := dial(t, addr)
	a := mustAcquire(t, direct, wanted("doc", "a", "1", 10*time.Second, 0))
	_, err := second.call(t.Context(), order{Do: "serve", Store: path})
	wantLine(t, err, fmt.Sprintf("is in use by process %d", first.cmd.Process.Pid))
	if got, err := direct.Renew(t.Context(), a.TenureRef); err != nil || got.Fence != a.Fence {
		t.Errorf("the first one's renewal: %v, %v", got.Fence, err)
	}
	if b := mustAcquire(t, direct, wanted("other", "b", "1", time.Second, 0)); b.Fence.Epoch() != a.Fence.Epoch() {
		t.Errorf("the second start moved the epoch from %d to %d", a.Fence.Epoch(), b.Fence.Epoch())
	}
}

// wantLine wants a refusal in one line that says what was wrong.
func wantLine(t testing.TB, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line with %q", err, want)
	}
}

func TestKF20StatusWhileTheAuthorityRestartsIsInRangeOrAnError(t *testing.T) {
	t.Parallel()
	c := authorityConfig{Dir: t.TempDir(), Addr: steadyAddr(t)}
	up, addr := serve(t, c)
	const ttl = 5 * time.Second
	holder, err := client.New(dial(t, addr), client.Config{Owner: "a"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := holder.Acquire(t.Context(), "doc", client.AcquireOptions{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var polled sync.WaitGroup
	var good, bad, held atomic.Int32
	for range 2 {
		asker := dial(t, addr)
		polled.Go(func() {
			for ctx.Err() == nil {
				st, err := asker.Status(ctx, lastword.StatusQuery{Resource: "doc"})
				switch {
				case err != nil:
					bad.Add(1)
					if c := history.CodeOf(err); c != lastword.CodeUnavailable {
						t.Errorf("status: %v", err)
					}
				case st.Remaining < 0 || st.Remaining > ttl || st.TTL != ttl || st.State != lastword.StateHeld || st.Holder.Fence != l.Fence():
					t.Errorf("status %+v of a live lease of fence %d", st, l.Fence())
				default:
					good.Add(1)
					if st.Remaining > 0 {
						held.Add(1)
					}
				}
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	restarts := 6
	if testing.Short() {
		restarts = 3
	}
	for range restarts {
		time.Sleep(300 * time.Millisecond)
		up.kill(t)
		time.Sleep(100 * time.Millisecond)
		up, _ = serve(t, c)
	}
	time.Sleep(300 * time.Millisecond)
	stop()
	polled.Wait()
	t.Logf("%d answers, %d of them with time left, %d errors", good.Load(), held.Load(), bad.Load())
	if good.Load() == 0 || held.Load() == 0 || bad.Load() == 0 {
		t.Error("the polling proves nothing")
	}
	if err := holder.Close(); err != nil {
		t.Error(err)
	}
}

func TestKF40aATryAfterACrashSucceedsInTime(t *testing.T) {
	t.Parallel()
	addr := servedAt(t)
	const ttl, every = 2 * time.Second, 500 * time.Millisecond
	a := worker(t, "A")
	sent := history.Clock()
	first := tell(t, a, order{Do: "hold", Authority: addr, Resource: "doc", Owner: "a", Operation: "1", TTL: ttl})
	slow := measureDrag(t)
	last := history.Clock()
	killNow(t, a)
	for i := range 20 {
		time.Sleep(max(0, last+time.Duration(i)*every+every/5-history.Clock()))
		asked := history.Clock()
		p := worker(t, fmt.Sprint("try-", i))
		got := tell(t, p, order{Do: "acquire", Authority: addr, Resource: "doc", Owner: p.name, Operation: "1", TTL: ttl})
		heard := history.Clock()
		if got.Code == string(lastword.CodeHeld) {
			continue
		}
		if got.Code != "OK" || heard < sent+ttl || asked > last+ttl+slow.within(every, 0) || got.Fence != first.Fence+1 {
			t.Errorf("try %d: %s with fence %d, asked %v after the crash, ttl %v", i, got.Code, got.Fence, asked-last, ttl)
		}
		t.Logf("try %d, asked %v after the crash", i, asked-last)
		return
	}
	t.Error("no try succeeded")
}

func TestKF38EightAuthoritiesStartAtOnceAndOneServes(t *testing.T) {
	t.Parallel()
	path := "sqlite:" + filepath.Join(t.TempDir(), "authority.db")
	var all []*process
	for i := range 8 {
		all = append(all, worker(t, fmt.Sprint("authority-", i)))
	}
	for _, p := range all {
		if err := p.tell(order{Do: "serve", Store: path}); err != nil {
			t.Fatal(err)
		}
	}
	var addr string
	for _, p := range all {
		a, err := p.hear(t.Context())
		if err != nil {
			wantLine(t, err, "is in use by ")
			continue
		}
		if addr != "" {
			t.Errorf("%s and %s both serve", addr, a.Address)
		}
		addr = a.Address
	}
	if addr == "" {
		t.Fatal("nobody serves")
	}
	if got := mustAcquire(t, dial(t, addr), wanted("doc", "a", "1", time.Second, 0)); got.Fence.Counter() != 1 {
		t.Errorf("the first fence is %s", got.Fence.Text())
	}
}

// smallDisk mounts a file system of a few pages; the test is skipped for a user who
// has no right to it.
func smallDisk(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", dir).CombinedOutput(); err != nil {
		if os.Getuid() == 0 {
			t.Fatalf("root cannot mount a file system here: %v: %s", err, out)
		}
		t.Skipf("no right to mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// fill leaves no room on the disk of dir, until the file it returns is removed.
func fill(t *testing.T, dir string) (filler string) {
	t.Helper()
	filler = filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return filler
}

func TestKF38FullDiskGrantsNothingByHalves(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("first grant %v", first), func(t *testing.T) {
			t.Parallel()
			dir := smallDisk(t)
			a := worker(t, "authority")
			path := filepath.Join(dir, "authority.db")
			direct := dial(t, tell(t, a, order{Do: "serve", Store: "sqlite:" + path}).Address)
			if !first { // the witness need not be written any more, so the store meets the end of the disk
				mustAcquire(t, direct, wanted("before", "a", "1", time.Minute, 0))
			}
			filler := fill(t, dir)
			q := wanted("doc", "a", "1", time.Minute, 0)
			var codes []lastword.Code
			for range 3 {
				_, err := direct.Acquire(t.Context(), q)
				codes = append(codes, history.CodeOf(err))
			}
			t.Logf("on a full disk: %v", codes)
			if slices.ContainsFunc(codes, func(c lastword.Code) bool { return c != lastword.CodeUnavailable && c != lastword.CodeUnknown }) {
				t.Errorf("on a full disk: %v, want no grant and no refusal", codes)
			}
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			// Whole or not at all: a crash now, and what is there is looked at.
			killNow(t, a)
			lookWhole(t, path, q)
			b := worker(t, "authority again")
			direct = dial(t, tell(t, b, order{Do: "serve", Store: "sqlite:" + path}).Address)
			got := mustAcquire(t, direct, q)
			if got.Fence.Counter() != 1 {
				t.Errorf("the first fence is %s", got.Fence.Text())
			}
			_, err := direct.Acquire(t.Context(), wanted("doc", "b", "1", time.Minute, 0))
			wantCode(t, "another owner", err, lastword.CodeHeld)
		})
	}
}

func lookWhole(t *testing.T, path string, q lastword.AcquireRequest) {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), path, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	v, err := s.Read(t.Context(), store.Query{Resource: q.Resource, Owner: q.Owner, RequestID: q.RequestID})
	if err != nil {
		t.Fatal(err)
	}
	rec, req := v.Entries[0].Record, v.Entries[0].Request
	if (rec.Revision == 0) != (req == nil) || req != nil && (rec.Lease.ID != req.LeaseID || rec.Counter != 1) {
		t.Errorf("half a grant: %+v and %+v", rec, req)
	}
}

func TestKF38ReadOnlyDirectoryIsReportedAtTheStart(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	for _, made := range []bool{false, true} {
		path := filepath.Join(dir, fmt.Sprintf("made-%v.db", made))
		if made {
			p := worker(t, "before")
			tell(t, p, order{Do: "serve", Store: "sqlite:" + path})
			if err := p.close(); err != nil {
				t.Fatal(err)
			}
		}
		remount(t, dir, "ro")
		_, err := worker(t, "authority").call(t.Context(), order{Do: "serve", Store: "sqlite:" + path})
		wantLine(t, err, path)
		if err != nil && !strings.Contains(err.Error(), "let this process write") {
			t.Errorf("no way out is named: %v", err)
		}
		remount(t, dir, "rw")
		if _, err := os.Stat(path); !made && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("something is there: %v", err)
		}
	}
}

func remount(t *testing.T, dir, mode string) {
	t.Helper()
	if out, err := exec.Command("mount", "-o", "remount,"+mode, dir).CombinedOutput(); err != nil {
		t.Fatalf("remount %s: %v: %s", mode, err, out)
	}
}
