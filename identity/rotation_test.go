package identity_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
	"github.com/lastword/lastword/rpc"
)

// traffic makes calls until stop, and counts them.
type traffic struct {
	made   atomic.Int64
	failed chan error
	stop   chan struct{}
	going  sync.WaitGroup
}

func (tr *traffic) halt() { close(tr.stop); tr.going.Wait() }

// begin acquires, renews and releases, over and over.
func begin(t *testing.T, c *rpc.Client, name string) *traffic {
	tr := &traffic{failed: make(chan error, 1), stop: make(chan struct{})}
	for i := range 4 {
		tr.going.Go(func() {
			resource := lastword.Resource(fmt.Sprintf("%s/%d", name, i))
			for n := 0; ; n++ {
				select {
				case <-tr.stop:
					return
				default:
				}
				tenure, err := c.Acquire(t.Context(), ask(resource, fmt.Sprint("r", n)))
				if err == nil {
					tenure, err = c.Renew(t.Context(), tenure.TenureRef)
				}
				if err == nil {
					err = c.Release(t.Context(), tenure.TenureRef)
				}
				if err != nil {
					select {
					case tr.failed <- err:
					default:
					}
					return
				}
				tr.made.Add(1)
			}
		})
	}
	return tr
}

// goesOn wants n more rounds of calls without a failure.
func (tr *traffic) goesOn(t *testing.T, n int64) {
	t.Helper()
	want := tr.made.Load() + n
	until(t, "calls", func() bool {
		select {
		case err := <-tr.failed:
			t.Fatalf("a call failed: %v", err)
		default:
		}
		return tr.made.Load() >= want
	})
}

// Certificates and their authority are changed under way, on both sides, and no call is
// lost; once the old authority is out, what it has issued is refused, on open
// connections too. A wait that began before goes on.
func TestRotationInMidTrafficLosesNoCall(t *testing.T) {
	t.Parallel()
	const age = 100 * time.Millisecond
	w := newWorld(t, settings{maxAge: age})
	ann, annFiles, annSource := w.asWithFiles(annID)
	late, lateFiles, lateSource := w.asWithFiles(benID) // whose certificate nobody changes
	held := acquire(t, late, "held", "1")
	tr := begin(t, ann, "busy")
	defer tr.halt()
	tr.goesOn(t, 20)

	waited := make(chan error, 1)
	go func() {
		r := ask("held", "2")
		r.Wait = patience
		_, err := ann.Acquire(t.Context(), r)
		waited <- err
	}()
	until(t, "the waiter", func() bool {
		st, err := late.Status(t.Context(), lastword.StatusQuery{Resource: "held"})
		check(t, err)
		return st.Waiters == 1
	})

	next := newPKI(t, "example.org")
	annFiles.trust(t, w.ca, next)
	w.server.trust(t, w.ca, next)
	reload(t, w.source)
	_, err := annSource.Reload() // which the client does by itself, too
	check(t, err)
	lateFiles.trust(t, w.ca, next)
	reload(t, lateSource)
	tr.goesOn(t, 20)
	w.server.put(t, next.leaf(authorityID))
	reload(t, w.source)
	annFiles.put(t, next.leaf(annID))
	// The client follows its files by itself. It shows the new certificate when its
	// connection, or the one after, has reached its age.
	for began := time.Now(); time.Since(began) < 12*age+2*time.Second; {
		tr.goesOn(t, 5)
	}
	check(t, late.Release(t.Context(), held.TenureRef))
	check(t, <-waited)

	held = acquire(t, late, "held-again", "1")
	w.server.trust(t, next)
	reload(t, w.source)
	tr.goesOn(t, 20)
	if _, err := late.Renew(t.Context(), held.TenureRef); err == nil {
		t.Error("a certificate of the authority that was taken out is still accepted")
	}
	tr.goesOn(t, 20)
}

func reload(t *testing.T, s *identity.Source) {
	t.Helper()
	changed, err := s.Reload()
	check(t, err)
	if !changed {
		t.Fatal("the change was not seen")
	}
}

// A certificate that runs out is refused on the connection that it opened.
func TestAnOpenConnectionEndsWithItsCertificate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settings{})
	short := newFiles(t, w.ca.leaf(annID, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(3 * time.Second) }), w.ca)
	c := w.dial(rpc.ClientConfig{Identity: open(t, short.config(identity.ForClient)), Authority: authorityID})
	tenure, err := c.Acquire(t.Context(), ask("doc/a", "1"))
	check(t, err)
	until(t, "the end of the certificate", func() bool {
		_, err := c.Renew(t.Context(), tenure.TenureRef)
		if err != nil && !errors.Is(err, lastword.ErrUnverified) {
			t.Fatalf("renew: %v, want UNVERIFIED", err)
		}
		return err != nil
	})
	// With a new certificate the same client goes on.
	short.put(t, w.ca.leaf(annID))
	until(t, "the new certificate", func() bool {
		_, err := c.Renew(t.Context(), tenure.TenureRef)
		return err == nil
	})
}

// What cannot be used changes nothing, and what can be used of the rest counts.
func TestBadFilesLeaveWhatWasBefore(t *testing.T) {
	t.Parallel()
	ca, next := newPKI(t, "example.org"), newPKI(t, "example.org")
	good := ca.leaf(annID)
	f := newFiles(t, good, ca)
	s := open(t, f.config(identity.ForClient))
	peer, err := s.Peer([]*x509.Certificate{ca.leaf(authorityID).Leaf}, identity.ForServer)
	check(t, err)

	for name, spoil := range map[string]func(){
		"an empty certificate": func() { replace(t, f.cert, nil) },
		"another key":          func() { replace(t, f.key, keyOf(t, ca)) },
		"another identity":     func() { f.put(t, ca.leaf(benID)) },
		"an expired one": func() {
			f.put(t, ca.leaf(annID, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }))
		},
		"no file":               func() { _ = os.Remove(f.cert) },
		"no authorities":        func() { replace(t, f.ca, nil) },
		"text among them":       func() { replace(t, f.ca, []byte("hello\n")) },
		"a leaf among them":     func() { f.trust(t, &pki{cert: good.Leaf}) },
		"a key that others see": func() { check(t, os.Chmod(f.key, 0o640)); f.touch(t) },
	} {
		spoil()
		changed, err := s.Reload()
		if err == nil || changed {
			t.Errorf("%s: changed %v, error %v; want an error and no change", name, changed, err)
		}
		if err != nil && strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%s: the error tells too much: %v", name, err)
		}
		if id, err := peer.ID(); id != authorityID || err != nil {
			t.Errorf("%s: the peer is %q, %v", name, id, err)
		}
		_ = os.Remove(f.key)
		f.put(t, good)
		f.trust(t, ca)
		if _, err := s.Reload(); err != nil {
			t.Fatalf("%s: put back: %v", name, err)
		}
	}
	// The authority goes although the own certificate, which it issued, stays.
	f.trust(t, next)
	replace(t, f.cert, nil)
	if changed, err := s.Reload(); !changed || err == nil {
		t.Errorf("changed %v, error %v; want the authorities changed, and an error of the certificate", changed, err)
	}
	if _, err := peer.ID(); identity.ReasonOf(err) != identity.Untrusted {
		t.Errorf("a peer of the authority that was taken out: %v, want UNTRUSTED", err)
	}
}

func keyOf(t *testing.T, ca *pki) []byte {
	t.Helper()
	f := newFiles(t, ca.leaf(annID), ca)
	b, err := os.ReadFile(f.key)
	check(t, err)
	return b
}

// touch changes the text of the certificate, and leaves the key and its mode.
func (f files) touch(t *testing.T) {
	t.Helper()
	b, err := os.ReadFile(f.cert)
	check(t, err)
	replace(t, f.cert, append(b, '\n'))
}

// A file that is not usable is an alarm, once, and so is a change.
func TestFollowingLogsOnce(t *testing.T) {
	t.Parallel()
	ca := newPKI(t, "example.org")
	f := newFiles(t, ca.leaf(annID), ca)
	var seen log
	cfg := f.config(identity.ForClient)
	cfg.Logger = seen.logger()
	s := open(t, cfg)
	done := make(chan struct{})
	ctx, stop := contextOf(t)
	go func() { defer close(done); s.Follow(ctx, time.Millisecond) }()
	replace(t, f.ca, []byte("hello\n"))
	until(t, "the alarm", func() bool { return strings.Contains(seen.String(), "level=ERROR") })
	f.trust(t, ca, newPKI(t, "example.org"))
	until(t, "the change", func() bool { return strings.Contains(seen.String(), "have changed") })
	stop()
	<-done
	if n := strings.Count(seen.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d alarms, want 1:\n%s", n, seen.String())
	}
}
