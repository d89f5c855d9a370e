package fencesql

import (
	"sync"

	"github.com/lastword/lastword/fence"
)

// maxSeen bounds how many records a place remembers.
const maxSeen = 4096

// Memory is what a place knows to have been committed last, for writes that are decided
// before anything is asked. It may be out of date: what is decided on it is only ever
// stored if it was not. The zero value remembers nothing yet. It is safe for concurrent
// use.
type Memory struct {
	mu      sync.Mutex
	records map[fence.Key]Seen
}

// Get is the record of key as it is remembered.
func (m *Memory) Get(key fence.Key) (Seen, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.records[key]
	return s, ok
}

// Put remembers what was committed.
func (m *Memory) Put(key fence.Key, s Seen) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records == nil {
		m.records = map[fence.Key]Seen{}
	}
	if _, ok := m.records[key]; !ok && len(m.records) >= maxSeen {
		for other := range m.records {
			delete(m.records, other)
			break
		}
	}
	m.records[key] = s
}

// Drop forgets a record of which more may have happened.
func (m *Memory) Drop(key fence.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, key)
}
