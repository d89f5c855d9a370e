package soak

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/rpc"
)

// Hand is the inside of a worker process: it reads orders, one JSON object a line, and
// writes what it heard and what befalls it. It ends with its input. For the command that
// [Options.Hand] starts.
func Hand(ctx context.Context, in io.Reader, out io.Writer) error {
	h := &worker{out: json.NewEncoder(out), proceed: make(chan struct{}, 1)}
	h.diary = &diary{note: func(c Call) { h.say(said{Event: "call", Call: &c}) }}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var working sync.WaitGroup
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return fmt.Errorf("a hand of the soak: %w", err)
		}
		if o.Do == "open" { // before anything else
			h.answer(o, said{}, h.open(ctx, o))
			continue
		}
		working.Go(func() {
			a, err := h.do(ctx, o)
			h.answer(o, a, err)
		})
	}
	cancel()
	h.mayProceed()
	working.Wait()
	return errors.Join(lines.Err(), h.close())
}

// worker is one holder, with one lease at a time, and one gate.
type worker struct {
	saying  sync.Mutex
	out     *json.Encoder
	diary   *diary
	proceed chan struct{} // lets a write go on that is held

	holdConn, askConn *rpc.Client
	authority         client.Authority // holdConn, witnessed
	client            *client.Client
	db                *sql.DB
	tap               *tap
	gate              *sqlfence.Fence
	asked             *asking
	variant           string

	mu    sync.Mutex
	lease *client.Lease
	asks  lastword.AcquireRequest // of the lease
}

func (w *worker) say(s said) {
	w.saying.Lock()
	defer w.saying.Unlock()
	if err := w.out.Encode(s); err != nil {
		os.Exit(1) // the run has gone
	}
}

// answer says how an order ended. A refusal is an answer.
func (w *worker) answer(o order, a said, err error) {
	a.ID, a.Event = o.ID, "answer"
	var e *lastword.Error
	switch {
	case err == nil:
		a.Code = "OK"
	case errors.As(err, &e):
		a.Code = string(e.Code)
	case errors.Is(err, client.ErrExpired), errors.Is(err, client.ErrRefused), errors.Is(err, client.ErrReleased):
		a.Code = string(lastword.CodeNotHolder)
	default:
		a.Failed = err.Error()
	}
	w.say(a)
}

func (w *worker) open(ctx context.Context, o order) (err error) {
	w.diary.who, w.variant = o.Owner, o.Variant
	if w.holdConn, err = dial(o.Hold, o.Token); err != nil {
		return err
	}
	if w.askConn, err = dial(o.Ask, o.Token); err != nil {
		return err
	}
	w.authority = witnessed{w.holdConn, w.diary}
	w.client, err = client.New(w.authority, client.Config{Owner: o.Owner, CleanupTimeout: callTimeout, OnEvent: w.changed})
	if err != nil {
		return err
	}
	if w.db, w.tap, err = openTapped(o.Database); err != nil {
		return err
	}
	w.asked = &asking{source: w.askConn}
	w.gate, err = openGate(ctx, w.db, w.askConn, w.asked)
	return err
}

// callTimeout bounds one call at the authority, askTimeout one question of the gate.
const (
	callTimeout = 2 * time.Second
	askTimeout  = 300 * time.Millisecond
)

// openGate is the gate of every writer of a run.
func openGate(ctx context.Context, db *sql.DB, authority *rpc.Client, status fence.StatusSource) (*sqlfence.Fence, error) {
	v, err := grant.NewVerifier(Domain, grant.FetchBundle(authority.Bundle), grant.VerifierConfig{})
	if err != nil {
		return nil, err
	}
	return sqlfence.New(ctx, db, sqlfence.Config{Config: fence.Config{
		Domain: Domain, Verifier: v, Status: status, Mode: fence.Query, Policy: fence.Ordered,
		StatusReuse: -1, AskTimeout: askTimeout,
	}})
}

func (w *worker) changed(e client.Event) {
	w.say(said{Event: "change", Fence: uint64(e.Fence), From: string(e.From), To: string(e.To), At: history.Clock()})
}

func (w *worker) close() error {
	var errs []error
	if w.client != nil {
		_ = w.client.Close() // what it could not release lapses
	}
	if w.gate != nil {
		errs = append(errs, w.gate.Close())
	}
	if w.db != nil {
		errs = append(errs, w.db.Close())
	}
	for _, c := range []*rpc.Client{w.holdConn, w.askConn} {
		if c != nil {
			_ = c.Close()
		}
	}
	return errors.Join(errs...)
}

func (w *worker) held() (*client.Lease, lastword.AcquireRequest, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lease == nil {
		return nil, w.asks, &lastword.Error{Code: lastword.CodeNotHolder, Op: "soak", Message: "there was no lease yet"}
	}
	return w.lease, w.asks, nil
}

func (w *worker) do(ctx context.Context, o order) (said, error) {
	if o.Do == "acquire" {
		return w.acquire(ctx, o)
	}
	if o.Do == "go" {
		w.mayProceed()
		return said{}, nil
	}
	l, q, err := w.held()
	if err != nil {
		return said{}, err
	}
	a := said{Fence: uint64(l.Fence())}
	switch o.Do {
	case "again": // the same attempt, once more
		t, err := w.authority.Acquire(ctx, q)
		a.Fence = uint64(t.Fence)
		return a, err
	case "renew":
		_, err = w.authority.Renew(ctx, l.Ref())
		return a, err
	case "release":
		a.At = history.Clock()
		return a, l.Release(ctx)
	case "release again": // past the lease, as a duplicate of the message
		return a, w.authority.Release(ctx, l.Ref())
	case "complete":
		return a, l.Complete(ctx, []byte(o.Value))
	case "state":
		a.State = string(l.State())
		return a, nil
	case "write":
		a.Verdict, a.Seq, err = w.write(ctx, l, o)
		return a, err
	}
	return said{}, fmt.Errorf("unknown order %q", o.Do)
}

func (w *worker) acquire(ctx context.Context, o order) (said, error) {
	l, err := w.client.Acquire(ctx, lastword.Resource(o.Resource), client.AcquireOptions{TTL: o.TTL, Wait: o.Wait, RequestID: o.Request})
	if err != nil {
		return said{}, err
	}
	w.mu.Lock()
	w.lease = l
	w.asks = lastword.AcquireRequest{
		Resource: lastword.Resource(o.Resource), RequestID: o.Request, Owner: w.client.Owner(), TTL: o.TTL, Class: lastword.ClassWrite,
	}
	w.mu.Unlock()
	return said{Fence: uint64(l.Fence()), Grant: l.Grant(), State: string(l.State()), At: history.Clock()}, nil
}

func (w *worker) mayProceed() {
	select {
	case w.proceed <- struct{}{}:
	default:
	}
}

// at does what was ordered for a point, if this is it.
func (w *worker) at(o order, here point) error {
	if o.Point != here || o.Act == "" {
		return nil
	}
	w.say(said{ID: o.ID, Event: "at", Point: here, At: history.Clock()})
	switch o.Act {
	case freeze:
		return stopSelf()
	case die:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // nothing happens between the signal and the end
	case lose:
		return errLost
	case hold:
		<-w.proceed
	}
	return nil
}

// asking is the gate's way to the authority, with a point on both sides.
type asking struct {
	source fence.StatusSource
	mu     sync.Mutex
	at     func(point) error
}

func (s *asking) set(at func(point) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = at
}

func (s *asking) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	s.mu.Lock()
	at := s.at
	s.mu.Unlock()
	if at != nil {
		if err := at(beforeAsk); err != nil {
			return lastword.Status{}, err
		}
	}
	st, err := s.source.Status(ctx, q)
	if err == nil && at != nil {
		err = at(afterAsk)
	}
	return st, err
}
