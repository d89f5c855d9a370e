package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
	"github.com/lastword/lastword/rpc"
)

// elsewhere is a network of its own, behind a router that can begin to swallow packets:
// neither end hears of that.
type elsewhere struct {
	t             *testing.T
	router, there string // namespaces
	us, them      string // addresses
}

func newElsewhere(t *testing.T) *elsewhere {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Fatal("root without the command ip: install iproute2")
	}
	id, number := fmt.Sprintf("lc%d", os.Getpid()), os.Getpid()%128*2
	near, far := fmt.Sprintf("10.214.%d.", number), fmt.Sprintf("10.214.%d.", number+1)
	n := &elsewhere{t: t, router: id + "r", there: id + "t", us: near + "1", them: far + "2"}
	for _, namespace := range []string{n.router, n.there} {
		n.ip("netns", "add", namespace)
		t.Cleanup(func() { n.ip("netns", "del", namespace) })
	}
	// here near.1 – near.2 router far.1 – far.2 there
	n.ip("link", "add", id+"a", "type", "veth", "peer", "name", id+"b", "netns", n.router)
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", id+"a").Run() }) // goes with the router
	n.ip("-n", n.router, "link", "add", id+"c", "type", "veth", "peer", "name", id+"d", "netns", n.there)
	for _, end := range []struct{ namespace, device, address string }{
		{"", id + "a", near + "1/24"}, {n.router, id + "b", near + "2/24"}, {n.router, id + "c", far + "1/24"}, {n.there, id + "d", far + "2/24"},
	} {
		in := []string{"-n", end.namespace}
		if end.namespace == "" {
			in = nil
		}
		n.ip(append(in, "addr", "add", end.address, "dev", end.device)...)
		n.ip(append(in, "link", "set", end.device, "up")...)
	}
	n.ip("-n", n.there, "route", "add", "default", "via", far+"1")
	n.ip("route", "add", far+"0/24", "via", near+"2")
	n.ip("netns", "exec", n.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	return n
}

func (n *elsewhere) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// vanish swallows everything, both ways, from now on.
func (n *elsewhere) vanish() {
	n.t.Helper()
	n.ip("-n", n.router, "route", "add", "blackhole", n.us+"/32")
	n.ip("-n", n.router, "route", "add", "blackhole", n.them+"/32")
}

// run starts a command there, which says something with until once it has got as far as
// it is meant to; "" is at once.
func (n *elsewhere) run(dir, until string, argv ...string) {
	n.t.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", n.there}, argv...)...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	said := make(chan bool, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		found := until == ""
		for lines := bufio.NewScanner(out); !found && lines.Scan(); {
			found = strings.Contains(lines.Text(), until)
		}
		said <- found
		_, _ = io.Copy(io.Discard, out)
	})
	n.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		reading.Wait()
		_ = cmd.Wait()
	})
	select {
	case found := <-said:
		if !found {
			n.t.Fatalf("%q ended without %q: %s", argv, until, stderr.String())
		}
	case <-time.After(patience):
		n.t.Fatalf("%q does not say %q", argv, until)
	}
}

// open is how many descriptors a process has.
func open(t *testing.T, pid int) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// T22, T23: a host that is gone without a sign costs nothing a minute later, whatever it
// had open: a session that holds, one that waits, watches on which something comes and
// watches on which nothing does, through either door. Meanwhile others are served.
func TestT22WhoVanishesWithoutASignIsLetGoWithinAMinute(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: a network of its own, and half a minute")
	}
	t.Parallel()
	n, dir := newElsewhere(t), t.TempDir()
	ca, issuer, err := identity.InitCA(filepath.Join(dir, "pki"), "")
	if err != nil {
		t.Fatal(err)
	}
	ann, err := identity.Issue(filepath.Join(dir, "pki"), "spiffe://lastword.test/ann", identity.IssueConfig{})
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command("lastword", "serve", "-o", "json", "--store", "sqlite:s.db", "--domain", "demo",
		"--grpc", n.us+":0", "--listen", n.us+":0", "--tls-cert", issuer.CertFile, "--tls-key", issuer.KeyFile, "--tls-client-ca", ca.CertFile)
	var stderr bytes.Buffer
	server.Dir, server.Stderr = dir, &stderr
	stdout, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if server.ProcessState == nil {
			_ = server.Process.Kill()
			_ = server.Wait()
		}
	})
	var ready readiness
	if err := json.NewDecoder(stdout).Decode(&ready); err != nil || !ready.Ready {
		t.Fatalf("serve: %v: %s", err, stderr.String())
	}
	source, err := identity.Open(identity.Config{CertFile: ann.CertFile, KeyFile: ann.KeyFile, CAFiles: map[string]string{"": ca.CertFile}})
	if err != nil {
		t.Fatal(err)
	}
	near, err := rpc.Dial(ready.GRPC, rpc.ClientConfig{Identity: source, Authority: "spiffe://lastword.test/authority", Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = near.Close() }()
	wants := func(resource string, wait time.Duration) lastword.Tenure {
		t.Helper()
		held, err := near.Acquire(t.Context(), lastword.AcquireRequest{
			Resource: lastword.Resource(resource), RequestID: fmt.Sprint(resource, time.Now().UnixNano()), TTL: time.Hour, Wait: wait,
		})
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	wants("doc/wanted", 0)
	before := open(t, server.Process.Pid)

	flags := []string{"--authority", ready.GRPC, "--authority-id", "spiffe://lastword.test/authority", "--tls-ca", ca.CertFile, "--tls-cert", ann.CertFile, "--tls-key", ann.KeyFile}
	command := func(args ...string) []string { return append(append([]string{"lastword"}, args...), flags...) }
	curl := func(path string, more ...string) []string {
		return append([]string{"curl", "-sSNk", "--cert", ann.CertFile, "--key", ann.KeyFile, "https://" + ready.HTTP + path}, more...)
	}
	for _, prefix := range []string{"doc/", "idle/"} {
		n.run(dir, `"complete":true`, command("watch", prefix, "-o", "json")...)
		n.run(dir, `"complete":true`, curl("/v1/watch?prefix="+prefix)...)
	}
	n.run(dir, "holding", append([]string{"lastword", "exec", "doc/held", "--ttl", "10s"}, append(flags, "--", "sh", "-c", "echo holding; sleep 600")...)...)
	n.run(dir, "", command("acquire", "doc/wanted", "--wait", "10m")...)
	n.run(dir, "", curl("/v1/acquire", "-H", "Content-Type: application/json", "-d", `{"resource":"doc/wanted","request_id":"curl","ttl":"60s","wait":"600s"}`)...)
	waiters := func() int {
		t.Helper()
		st, err := near.Status(t.Context(), lastword.StatusQuery{Resource: "doc/wanted"})
		if err != nil {
			t.Fatal(err)
		}
		return st.Waiters
	}
	for deadline := time.Now().Add(patience); waiters() != 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait, want 2: %s", waiters(), stderr.String())
		}
	}
	during := open(t, server.Process.Pid)

	n.vanish()
	began := time.Now()
	var next sync.WaitGroup
	next.Go(func() {
		held := wants("doc/held", time.Minute) // whoever held it is not asked
		t.Logf("the lease that it held was granted to the next one after %v", time.Since(began).Round(time.Millisecond))
		_ = near.Release(t.Context(), held.TenureRef)
	})
	defer next.Wait()
	var longest, quiet time.Duration
	calls := 0
	for waited := true; waited || open(t, server.Process.Pid) > before; {
		if time.Since(began) > time.Minute {
			t.Fatalf("a minute later %d calls wait, and the server has %d descriptors: %d without those who are gone", waiters(), open(t, server.Process.Pid), before)
		}
		one := time.Now()
		held := wants("doc/busy", 0) // which the watches are shown
		if err := near.Release(t.Context(), held.TenureRef); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(one)/2)
		calls += 2
		if now := waiters() > 0; waited && !now {
			quiet, waited = time.Since(began), false
		}
		sleepFor(t.Context(), 5*time.Millisecond)
	}
	t.Logf("nobody of them waits after %v; of %d descriptors %d are left after %v; %d calls of another host meanwhile, %v at most",
		quiet.Round(time.Millisecond), during, open(t, server.Process.Pid), time.Since(began).Round(time.Millisecond), calls, longest.Round(time.Millisecond))
	next.Wait()
	_ = server.Process.Signal(syscall.SIGTERM)
	if err := server.Wait(); err != nil {
		t.Errorf("serve: %v: %s", err, stderr.String())
	}
}

func sleepFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
