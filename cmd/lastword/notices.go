package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

// notices are what exec says on stderr while it goes on: warnings, one line each. A
// stderr that blocks, because nobody reads what the command writes there either, must
// not hold up what ends the command: what does not fit is dropped.
type notices struct {
	json  slog.Handler // nil for text
	what  string
	lines chan []byte
	over  chan struct{}
	done  chan struct{}
}

const (
	maxNotices = 32
	// lastNotices is how long the end waits for a stderr that takes nothing.
	lastNotices = 200 * time.Millisecond
)

func newNotices(w io.Writer, json bool, what string) *notices {
	n := &notices{what: what, lines: make(chan []byte, maxNotices), over: make(chan struct{}), done: make(chan struct{})}
	if json {
		n.json = slog.NewJSONHandler(n, nil)
	}
	go n.write(w)
	return n
}

func (n *notices) write(w io.Writer) {
	defer close(n.done)
	for over := n.over; ; {
		select {
		case line := <-n.lines:
			_, _ = w.Write(line)
			continue
		default:
		}
		if over == nil {
			return
		}
		select {
		case line := <-n.lines:
			_, _ = w.Write(line)
		case <-over:
			over = nil
		}
	}
}

// close waits a moment for what is still to be written.
func (n *notices) close() {
	close(n.over)
	select {
	case <-n.done:
	case <-time.After(lastNotices):
	}
}

// Write takes one line.
func (n *notices) Write(line []byte) (int, error) {
	select {
	case n.lines <- append([]byte(nil), line...):
	default:
	}
	return len(line), nil
}

// Enabled implements slog.Handler.
func (n *notices) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler. The end of a lease is left out: exec's own last line
// says it, with the exit code that belongs to it.
func (n *notices) Handle(ctx context.Context, r slog.Record) error {
	var attrs strings.Builder
	change := false
	r.Attrs(func(a slog.Attr) bool {
		change = change || a.Key == "to"
		if a.Key != "resource" { // it is in front
			fmt.Fprintf(&attrs, ", %s %v", a.Key, a.Value)
		}
		return true
	})
	switch {
	case change:
		return nil
	case n.json != nil:
		return n.json.Handle(ctx, r)
	}
	_, err := n.Write([]byte("lastword: " + n.what + ": " + oneLine(r.Message+attrs.String()) + "\n"))
	return err
}

// WithAttrs implements slog.Handler; nobody here uses it.
func (n *notices) WithAttrs([]slog.Attr) slog.Handler { return n }

// WithGroup implements slog.Handler; nobody here uses it.
func (n *notices) WithGroup(string) slog.Handler { return n }
