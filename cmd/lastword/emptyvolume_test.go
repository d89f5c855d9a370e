package main

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// KF-36 (3): the authority comes back with an empty volume while A holds and B waits. Both
// end with a clear error, none of them hangs, and A's command is ended before its trust
// is over; then the next fence is above the database's.
func TestKF36AnAuthorityWithAnEmptyVolumeLeavesNoClientHanging(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: real processes; runs without the race detector")
	}
	t.Parallel()
	s := newSite(t)
	p := s.start("s.db")
	s.burn(p, 44)
	type ended struct {
		code   int
		stderr string
		at     time.Time
	}
	// begin runs a command in the background.
	begin := func(args ...string) <-chan ended {
		cmd := exec.CommandContext(t.Context(), "lastword", args...)
		var stderr bytes.Buffer
		cmd.Dir, cmd.Stderr = s.dir, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan ended, 1)
		go func() {
			err := cmd.Wait()
			code := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				code = exit.ExitCode()
			}
			done <- ended{code, stderr.String(), time.Now()}
		}()
		return done
	}
	const write = `lastword fence apply sqlite:app.db doc/a --grant "$LASTWORD_GRANT_FILE" --op op-45 --sql "UPDATE doc SET body = '45'" && exec sleep 600`
	a := begin("exec", "doc/a", "--authority", p.addr, "--ttl", restoredTTL.String(), "--grace", "100ms", "--", "sh", "-c", write)
	for end := time.Now().Add(patience); s.stored().Counter() < 45; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("A has not written")
		}
	}
	s.granted(s.stored())
	s.seen = s.stored()
	b := begin("acquire", "doc/a", "--authority", p.addr, "--owner", "b", "--ttl", restoredTTL.String(), "--wait", "5m", "--timeout", "2s")
	for end := time.Now().Add(patience); ; {
		out := s.must("status", "doc/a", "--authority", p.addr)
		if strings.Contains(out, "waiters") {
			break
		}
		if time.Now().After(end) {
			t.Fatal("B does not wait")
		}
	}
	p.kill()
	lost := time.Now()
	s.remove("s.db", "s.db-wal", "s.db-shm")
	code, _, bad := s.run("serve", "--store", "sqlite:s.db", "--domain", "demo", "--grpc", p.addr, "--listen", "none", "--witness", "sqlite:away/witness.db")
	if code != exitRefused {
		t.Fatalf("on an empty volume it starts with %d: %s", code, bad)
	}
	s.must("epoch", "advance", "--store", "sqlite:s.db", "--key", "s.db.key", "--witness", "sqlite:away/witness.db", "--reason", "empty volume", "--yes", "--domain", "demo")
	p = s.start("s.db", "--grpc", p.addr) // where they look for it
	for who, done := range map[string]<-chan ended{"A": a, "B": b} {
		select {
		case e := <-done:
			t.Logf("%s ended with %d %v after the loss: %s", who, e.code, e.at.Sub(lost).Round(time.Millisecond), e.stderr)
			switch {
			case who == "A" && (e.code != exitLost || e.at.Sub(lost) > restoredTTL+time.Second):
				t.Errorf("A ended with %d, %v after the loss", e.code, e.at.Sub(lost))
			case who == "B" && e.code == exitDone:
				t.Error("B was granted something by an authority that has lost it all")
			}
			if strings.TrimSpace(e.stderr) == "" {
				t.Errorf("%s ended without a word", who)
			}
		case <-time.After(patience):
			t.Fatalf("%s hangs", who)
		}
	}
	next := s.grant(p, "b")
	if code, bad := s.apply(p, next, "op-next"); code != 0 {
		t.Fatalf("the next holder cannot write: %s", bad)
	}
}
