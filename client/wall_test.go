package client_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// wallClock are the places that may look at the wall clock, and what for.
var wallClock = map[string]int{
	"elapsed_other.go": 2, // Go's monotonic reading, where there is no other clock
	"observer.go":      1, // Answer.End, which is shown and never compared
}

// A step of the wall clock at the client cannot change anything, because nothing that
// decides looks at it: trust, renewals, the drain and the longest hold are decided by
// Config.Elapsed, and timers run by Go's monotonic clock.
func TestKF07NothingAtTheClientLooksAtTheWallClock(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				of, _ := s.X.(*ast.Ident)
				if of == nil {
					return true
				}
				switch of.Name + "." + s.Sel.Name {
				// A deadline of a context, too, is compared with time.Now, by its
				// monotonic part if it was made here.
				case "time.Now", "time.Since", "time.Until", "unix.CLOCK_REALTIME":
					found++
				}
			}
			return true
		})
		if found != wallClock[name] {
			t.Errorf("%s looks at the wall clock %d times, want %d", name, found, wallClock[name])
		}
	}
}

// An hour passes by Go's clock and none by the configured one, and the other way round:
// the configured one decides, even while the authority is out of reach.
func TestKF07TheConfiguredClockAloneDecides(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var elapsed atomic.Int64 // stands still unless it is told
		c := w.client(client.Config{Elapsed: func() time.Duration { return time.Duration(elapsed.Load()) }})
		l := w.lease(c, client.AcquireOptions{})
		w.suffer(outage)
		time.Sleep(time.Hour)
		wantState(t, l, lastword.HolderHeld)
		if err := l.Context().Err(); err != nil {
			t.Errorf("its context has ended: %v", err)
		}
		elapsed.Store(int64(ttl))
		wantState(t, l, lastword.HolderExpired)
		wantEnd(t, l, client.ErrExpired)
	})
}
