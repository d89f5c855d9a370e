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
type memory struct {
	half int // 0 keeps nothing

	mu         sync.RWMutex
	young, old map[string]*opened
}

func newMemory(limit int) *memory {
	return &memory{half: (limit + 1) / 2, young: map[string]*opened{}}
}

func (m *memory) get(grant string) *opened {
	m.mu.RLock()
	o, found := m.young[grant]
	if !found {
		o, found = m.old[grant]
		m.mu.RUnlock()
		if found {
			m.put(grant, o)
		}
		return o
	}
	m.mu.RUnlock()
	return o
}

func (m *memory) put(grant string, o *opened) {
	if m.half == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, found := m.young[grant]; found {
		return
	}
	if len(m.young) >= m.half {
		m.old, m.young = m.young, make(map[string]*opened, m.half)
	}
	m.young[strings.Clone(grant)] = o // not to keep a whole request alive
}
