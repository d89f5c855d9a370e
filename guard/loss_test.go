//go:build linux

package guard_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/guard"
)

// stubborn is a worker whose group does not end by SIGTERM.
const stubborn = `trap "" TERM; GUARD_TEST_STUBBORN=1 GUARD_TEST_ROLE=worker "$SELF" & echo $! $$ end > "$0"; while :; do sleep 1; done`

// loadedTTL is for tests in which processes race with time: on a loaded machine timers
// and answers may come seconds late, and the lease must neither be lost by that nor
// kept too long.
const loadedTTL = 12 * time.Second

func TestARenewalWithoutAnAnswerEndsTheGroupByTheLocalDeadline(t *testing.T) { // KF-10 (3)
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "pids")
	p := w.wrap(wrapping{TTL: loadedTTL, Margin: loadedTTL / 3, Command: []string{"sh", "-c", stubborn, file}}, streams{})
	pids := pidFile(t, file)
	w.desk.wait(t, "a first write", applied)
	w.authority.silence()
	before, _ := w.authority.count()
	b := w.rival()
	granted := time.Now()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d was alive when B was granted", pid)
		}
	}
	p.wantCode(guard.ExitLost)
	w.wantNothingLeft(pids...)
	if slices.ContainsFunc(w.desk.all(), func(n noted) bool { return n.at.After(granted) }) {
		t.Error("a write came after B was granted")
	}
	if after, _ := w.authority.count(); after == before {
		t.Error("no renewal was tried")
	}
	if b.Previous.State != lastword.StateExpired {
		t.Errorf("A's tenure ended as %s", b.Previous.State)
	}
	if !strings.Contains(p.stderr.String(), "NOT_HOLDER: the command was ended") {
		t.Errorf("stderr: %s", p.stderr.String())
	}
}

func TestALeaseThatIsTakenAwayEndsTheGroup(t *testing.T) { // R26, KF-12
	w := newWorld(t)
	argv, pids := treeOf(t, "sleep 300", "sleep 299")
	o := w.options(argv...)
	o.Acquire.TTL, o.Acquire.RequestID = time.Second, "r"
	go func() {
		pids()
		check(t, w.authority.Cancel(t.Context(), testResource, "here", "r"))
	}()
	exit, err := guard.Run(t.Context(), w.holder(), o)
	if exit.Code != guard.ExitLost || exit.Signal != syscall.SIGTERM || !errors.Is(err, client.ErrRefused) || !errors.Is(err, lastword.ErrNotHolder) {
		t.Errorf("got %+v, %v", exit, err)
	}
	w.wantNothingLeft(pids()...)
}

func TestTheLongestHoldEndsTheGroupAndThenReleases(t *testing.T) { // KF-11 (b), R28
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "pids")
	w.authority.atRelease(t, func() []int { return pidFile(t, file) })
	o := w.options("sh", "-c", `trap "" TERM; sleep 300 & echo $! $$ end > "$0"; while :; do sleep 1; done`, file)
	o.Acquire.MaxHold, o.Acquire.TTL, o.Grace = time.Second, 2*time.Second, 500*time.Millisecond
	start := time.Now()
	exit, err := guard.Run(t.Context(), w.holder(), o)
	if exit.Code != guard.ExitLost || exit.Signal != syscall.SIGKILL || !errors.Is(err, client.ErrMaxHold) {
		t.Errorf("got %+v, %v", exit, err)
	}
	if took := time.Since(start); took < 1500*time.Millisecond {
		t.Errorf("it took %s", took)
	}
	w.wantNothingLeft(pidFile(t, file)...)
	if st := w.status(); st.State != lastword.StateReleased {
		t.Errorf("the resource is %s", st.State)
	}
}

func TestALostReplyToTheReleaseIsToldBesideTheExitCode(t *testing.T) {
	w := newWorld(t)
	o := w.options("true")
	o.Acquire.TTL = time.Second
	exit, err := guard.Run(t.Context(), w.deafToReleases(), o)
	if exit.Code != 0 || err != nil || exit.Unreleased == nil {
		t.Errorf("got %+v, %v", exit, err)
	}
	w.wantNothingLeft()
}

// Silence: packets of both directions vanish on their way, without a sign to anybody.
func TestSilentLossOfTheNetworkEndsTheGroupBeforeTheNextIsGranted(t *testing.T) { // KF-10
	w := newWorld(t)
	n := newNetwork(t, w.addr)
	file := filepath.Join(t.TempDir(), "pids")
	p := w.wrap(wrapping{Authority: n.addr, TTL: loadedTTL, Margin: loadedTTL / 3, Command: []string{"sh", "-c", stubborn, file}}, streams{via: n.inside})
	pids := pidFile(t, file)
	w.desk.wait(t, "a first write", applied)
	before, _ := w.authority.count()
	eventually(t, "a renewal", func() bool { after, _ := w.authority.count(); return after > before })
	n.lose()
	at := time.Now()
	b := w.rival()
	granted := time.Now()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d was alive when B was granted", pid)
		}
	}
	if took := granted.Sub(at); took < time.Second {
		t.Errorf("B was granted after %s: nothing was lost", took)
	}
	n.heal() // nothing revives
	p.wantCode(guard.ExitLost)
	w.wantNothingLeft(pids...)
	if verdict, _ := w.desk.write(b.Grant, "b"); verdict != lastword.Code(lastword.Applied) {
		t.Errorf("B's write: %s", verdict)
	}
	if slices.ContainsFunc(w.desk.all(), func(n noted) bool { return n.at.After(granted) }) {
		t.Error("a write came after B was granted")
	}
}

// network is a holder's own network, a router between it and us, and a way to the
// authority through both.
type network struct {
	t      *testing.T
	addr   string   // of the authority, as seen from there
	inside []string // starts a command there
	router string   // namespaces
	there  string

	us, holder string // addresses
}

var networks sync.Mutex // a process has addresses for one

func newNetwork(t *testing.T, target string) *network {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Fatal("root without the command ip: install iproute2")
	}
	networks.Lock()
	t.Cleanup(networks.Unlock)
	id := fmt.Sprintf("lw%d", os.Getpid())
	n := &network{t: t, router: id + "r", there: id + "h"}
	number := os.Getpid() % 128 * 2
	near, far := fmt.Sprintf("10.213.%d.", number), fmt.Sprintf("10.213.%d.", number+1)
	n.us, n.holder = near+"1", far+"2"
	if out, err := exec.Command("ip", "netns", "add", n.router).CombinedOutput(); err != nil {
		t.Fatalf("root cannot make network namespaces here: %v: %s", err, out)
	}
	t.Cleanup(func() { n.ip("netns", "del", n.router) })
	n.ip("netns", "add", n.there)
	t.Cleanup(func() { n.ip("netns", "del", n.there) })
	// here near.1 – near.2 router far.1 – far.2 holder
	n.ip("link", "add", id+"a", "type", "veth", "peer", "name", id+"b", "netns", n.router)
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", id+"a").Run() }) // goes with the router
	n.ip("-n", n.router, "link", "add", id+"c", "type", "veth", "peer", "name", id+"d", "netns", n.there)
	n.ip("addr", "add", near+"1/24", "dev", id+"a")
	n.ip("link", "set", id+"a", "up")
	n.ip("-n", n.router, "addr", "add", near+"2/24", "dev", id+"b")
	n.ip("-n", n.router, "link", "set", id+"b", "up")
	n.ip("-n", n.router, "addr", "add", far+"1/24", "dev", id+"c")
	n.ip("-n", n.router, "link", "set", id+"c", "up")
	n.ip("-n", n.there, "addr", "add", far+"2/24", "dev", id+"d")
	n.ip("-n", n.there, "link", "set", id+"d", "up")
	n.ip("-n", n.there, "route", "add", "default", "via", far+"1")
	n.ip("route", "add", far+"0/24", "via", near+"2")
	n.ip("netns", "exec", n.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	n.inside = []string{"ip", "netns", "exec", n.there}
	n.addr = relay(t, n.us+":0", target)
	return n
}

func (n *network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (n *network) lose() {
	n.t.Helper()
	n.ip("-n", n.router, "route", "add", "blackhole", n.us+"/32")
	n.ip("-n", n.router, "route", "add", "blackhole", n.holder+"/32")
}

func (n *network) heal() {
	n.t.Helper()
	n.ip("-n", n.router, "route", "del", "blackhole", n.us+"/32")
	n.ip("-n", n.router, "route", "del", "blackhole", n.holder+"/32")
}

// relay carries connections to target, which listens on loopback alone.
func relay(t *testing.T, listen, target string) string {
	t.Helper()
	lis, err := net.Listen("tcp", listen)
	check(t, err)
	var running sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	running.Go(func() {
		for {
			near, err := lis.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				_ = near.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, near, far)
			mu.Unlock()
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				running.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = lis.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return lis.Addr().String()
}
