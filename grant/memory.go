package grant

import (
	"strings"
	"sync"

	"github.com/lastword/lastword"
)

// opened is a grant whose seal was checked against one trust bundle.
type opened struct {
	claims Claims
	digest lastword.Digest
}

// memory keeps what was opened, by the whole received string, so that equal means
// equal in every byte, the signature's included. It holds two halves of the limit, of
// which the older is dropped when the younger is full. Only what verified gets in,
// so a stranger cannot fill it.
type memory[T any] struct {
	half int // 0 keeps nothing

	mu         sync.RWMutex
	young, old map[string]*T
}

func newMemory[T any](limit int) *memory[T] {
	return &memory[T]{half: (limit + 1) / 2, young: map[string]*T{}}
}

func (m *memory[T]) get(token string) *T {
	m.mu.RLock()
	o, found := m.young[token]
	if !found {
		o, found = m.old[token]
		m.mu.RUnlock()
		if found {
			m.put(token, o)
		}
		return o
	}
	m.mu.RUnlock()
	return o
}

func (m *memory[T]) put(token string, o *T) {
	if m.half == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, found := m.young[token]; found {
		return
	}
	if len(m.young) >= m.half {
		m.old, m.young = m.young, make(map[string]*T, m.half)
	}
	m.young[strings.Clone(token)] = o // not to keep a whole request alive
}
