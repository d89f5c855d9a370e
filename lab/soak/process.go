package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lastword/lastword/internal/realservers"
	"github.com/lastword/lastword/lab/history"
)

// patience bounds what only a hang would make longer.
const patience = 40 * time.Second

// errGone says that a worker ended before it answered.
var errGone = errors.New("the process has ended")

// hand is a worker process, seen from the run.
type hand struct {
	owner  string
	proc   *realservers.Process
	listen func(h *hand, s said) // of calls and changes, in order
	at     chan said             // points that were reached
	ended  chan struct{}         // closed when its output has ended

	mu      sync.Mutex
	orders  *json.Encoder
	next    int
	waiting map[int]chan said
}

func startHand(command []string, owner string, listen func(*hand, said)) (*hand, error) {
	p, err := realservers.Start(realservers.Command{Path: command[0], Args: command[1:], Env: unset(), Talk: true})
	if err != nil {
		return nil, err
	}
	h := &hand{
		owner: owner, proc: p, listen: listen, at: make(chan said, 16), ended: make(chan struct{}),
		orders: json.NewEncoder(p.In), waiting: map[int]chan said{},
	}
	go h.read()
	return h, nil
}

// unset are the variables that would change what the commands of lastword do.
func unset() (empty []string) {
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "LASTWORD_") {
			empty = append(empty, name+"=")
		}
	}
	return empty
}

func (h *hand) read() {
	defer h.end()
	lines := bufio.NewScanner(h.proc.Out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s said
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return // half a line: it was killed while it wrote
		}
		switch s.Event {
		case "answer":
			h.mu.Lock()
			c := h.waiting[s.ID]
			delete(h.waiting, s.ID)
			h.mu.Unlock()
			if c != nil {
				c <- s
			}
		case "at":
			h.listen(h, s)
			h.at <- s
		default:
			h.listen(h, s)
		}
	}
}

func (h *hand) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, c := range h.waiting {
		close(c)
		delete(h.waiting, id)
	}
	h.waiting = nil
	close(h.ended)
}

// tell gives an order. The channel has the answer, and is closed if there will be none.
func (h *hand) tell(o order) <-chan said {
	c := make(chan said, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting == nil {
		close(c)
		return c
	}
	h.next++
	o.ID = h.next
	h.waiting[o.ID] = c
	if h.orders.Encode(o) != nil {
		delete(h.waiting, o.ID)
		close(c)
	}
	return c
}

func (h *hand) ask(ctx context.Context, o order) (said, error) { return h.hear(ctx, h.tell(o)) }

func (h *hand) hear(ctx context.Context, c <-chan said) (said, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case s, ok := <-c:
		switch {
		case !ok:
			return s, fmt.Errorf("%s: %w: %s", h.owner, errGone, h.proc.Output())
		case s.Failed != "":
			return s, fmt.Errorf("%s: %s", h.owner, s.Failed)
		}
		return s, nil
	case <-late.C:
		return said{}, fmt.Errorf("%s has not answered for %v: %s", h.owner, patience, h.proc.Output())
	case <-ctx.Done():
		return said{}, context.Cause(ctx)
	}
}

// reached waits until a point was reached; false if the write was answered before.
func (h *hand) reached(ctx context.Context, c <-chan said) (at said, answered *said, err error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case at = <-h.at:
		return at, nil, nil
	case s, ok := <-c:
		select { // both may be there: the point came first
		case at = <-h.at:
			if ok {
				return at, &s, nil
			}
			return at, nil, nil
		default:
		}
		if !ok {
			return at, nil, fmt.Errorf("%s: %w: %s", h.owner, errGone, h.proc.Output())
		}
		return at, &s, nil
	case <-late.C:
		return at, nil, fmt.Errorf("%s has not come to its point for %v", h.owner, patience)
	case <-ctx.Done():
		return at, nil, context.Cause(ctx)
	}
}

// wake continues a process that is stopped.
func (h *hand) wake() error { return h.proc.Signal(syscall.SIGCONT) }

// close ends the process as a service ends: by its input.
func (h *hand) close() error {
	_ = h.proc.Signal(syscall.SIGCONT)
	err := h.proc.Stop()
	<-h.ended
	return err
}

// pause waits, for as long as something is to last.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// since is how long ago a reading of the history's clock was.
func since(at time.Duration) time.Duration { return history.Clock() - at }
