package fence

import (
	"sync"
	"time"

	"github.com/lastword/lastword"
)

// maxAnswers bounds how many HELD answers, and how many marks, are kept.
const maxAnswers = 4096

// answer is a HELD answer and when its question was sent.
type answer struct {
	sent   time.Duration
	digest lastword.Digest // of the grant that is held
	mark   Mark
	status lastword.Status
}

// fresh reports whether a may be used at now. Elapsed time that ran backwards is
// no time that can be trusted.
func (a answer) fresh(now, reuse time.Duration) bool {
	return now >= a.sent && now-a.sent <= reuse
}

// answers keeps the latest HELD answer of each resource for a short while, and how far
// the authority was in the newest thing that was heard of it.
type answers struct {
	mu    sync.Mutex
	held  map[lastword.Resource]answer
	marks map[lastword.Resource]Mark
}

func newAnswers() *answers {
	return &answers{held: make(map[lastword.Resource]answer), marks: make(map[lastword.Resource]Mark)}
}

func (s *answers) get(r lastword.Resource, d lastword.Digest, now, reuse time.Duration) (lastword.Status, bool) {
	if reuse <= 0 {
		return lastword.Status{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.held[r]
	if !ok || a.digest != d || !a.fresh(now, reuse) {
		return lastword.Status{}, false
	}
	return a.status, true
}

// put keeps an answer, unless a newer thing was heard while it was under way.
func (s *answers) put(r lastword.Resource, a answer, reuse time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.mark.Before(s.marks[r]) {
		return
	}
	if len(s.held) >= maxAnswers {
		s.makeRoom(a.sent, reuse)
	}
	s.held[r] = a
}

// saw notes how far the authority was. What is forgotten to make room only lets an
// answer be reused, or a proof be believed, as long as without it.
func (s *answers) saw(r lastword.Resource, m Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.marks[r].Before(m) {
		return
	}
	for other := range s.marks {
		if len(s.marks) < maxAnswers {
			break
		}
		delete(s.marks, other)
	}
	s.marks[r] = m
}

// mark is how far the authority was in the newest thing that was heard of r.
func (s *answers) mark(r lastword.Resource) Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks[r]
}

// changed drops what is remembered of r unless its tenure is still that of the digest.
func (s *answers) changed(r lastword.Resource, d lastword.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.held[r]; ok && a.digest != d {
		delete(s.held, r)
	}
}

// makeRoom drops what is too old, and anything at all until an eighth is free: a
// dropped answer is only asked for again, and not every put should look at all.
func (s *answers) makeRoom(now, reuse time.Duration) {
	for r, a := range s.held {
		if !a.fresh(now, reuse) {
			delete(s.held, r)
		}
	}
	for r := range s.held {
		if len(s.held) <= maxAnswers/8*7 {
			return
		}
		delete(s.held, r)
	}
}
