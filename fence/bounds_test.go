package fence

import (
	"fmt"
	"testing"
	"time"

	"github.com/lastword/lastword"
)

// R12: HELD answers are kept in a bounded place, no longer than they may be reused,
// and not when elapsed time runs backwards.
func TestKeptAnswersAreBoundedAndAge(t *testing.T) {
	s := newAnswers()
	id := func(i int) lastword.Resource { return lastword.Resource(fmt.Sprint("r", i)) }
	var d lastword.Digest
	const reuse = time.Second
	s.put(id(0), answer{sent: 10 * time.Second}, reuse)
	for now, want := range map[time.Duration]bool{
		9 * time.Second: false, 10 * time.Second: true, 11 * time.Second: true, 11*time.Second + 1: false,
	} {
		if _, ok := s.get(id(0), d, now, reuse); ok != want {
			t.Errorf("at %v: reused %v, want %v", now, ok, want)
		}
	}
	if _, ok := s.get(id(0), d, 10*time.Second, -1); ok {
		t.Error("reused though that is turned off")
	}
	for i := range maxAnswers * 2 {
		s.put(id(i), answer{sent: time.Duration(i)}, reuse)
	}
	if len(s.held) > maxAnswers {
		t.Fatalf("%d answers are kept", len(s.held))
	}
	s.put(id(-1), answer{sent: time.Hour}, reuse)
	if len(s.held) != 1 {
		t.Fatalf("%d answers are kept though all but one are too old", len(s.held))
	}
}

func TestRememberedNumbersAreBounded(t *testing.T) {
	p := newProvisionals()
	for i := range maxProvisional * 2 {
		p.put(provisionalID{record: fmt.Sprint(i)}, lastword.Sequence{Last: uint64(i)})
	}
	if len(p.base) > maxProvisional {
		t.Fatalf("%d numbers are remembered", len(p.base))
	}
}

// The process's elapsed time never runs slower than the monotonic clock.
func TestElapsedTimeGoesOn(t *testing.T) {
	elapsed := processElapsed()
	before := elapsed()
	start := time.Now()
	for time.Since(start) < time.Millisecond {
	}
	if after := elapsed(); after-before < time.Millisecond {
		t.Fatalf("%v went by, the clock says %v", time.Since(start), after-before)
	}
}
