// Package memstore keeps authority state in memory: the reference of the store
// contract, for tests, examples and authorities that need not outlive their process.
//
// # Guarantees
//
// It passes storetest.Run. Several handles on one [Memory] behave as several
// processes on one shared store. What goes in and what comes out is copied whole.
//
// # Not guaranteed
//
// Nothing survives the process: "durable" means kept in the [Memory]. List and Ended
// look at everything there is.
package memstore

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
)

// Memory is the state that outlives the handles on it. It is safe for concurrent use.
type Memory struct {
	mu       sync.RWMutex
	header   store.Header
	records  map[lastword.Resource]store.Record
	requests map[lastword.Resource]map[store.RequestKey]store.Request
}

// New returns an empty memory: a store that has never been started.
func New() *Memory {
	return &Memory{
		records:  map[lastword.Resource]store.Record{},
		requests: map[lastword.Resource]map[store.RequestKey]store.Request{},
	}
}

// Copy returns an independent memory with the same state, as a backup that was put
// back or a cloned disk has it.
func (m *Memory) Copy() *Memory {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := New()
	c.header = m.header
	for resource, record := range m.records {
		c.records[resource] = cloneRecord(record)
	}
	for resource, requests := range m.requests {
		c.requests[resource] = maps.Clone(requests)
		for key, request := range requests {
			c.requests[resource][key] = cloneRequest(request)
		}
	}
	return c
}

// Open returns a handle, as of one process.
func (m *Memory) Open() store.Store { return &handle{memory: m} }

type handle struct {
	memory *Memory
	closed atomic.Bool
}

func (h *handle) ready(ctx context.Context, op string) error {
	if h.closed.Load() {
		return &lastword.Error{Code: lastword.CodeUnavailable, Op: op, Message: "the store is closed"}
	}
	if err := ctx.Err(); err != nil {
		return &lastword.Error{Code: lastword.CodeUnavailable, Op: op, Message: "nothing was done", Err: err}
	}
	return nil
}

func (h *handle) Close() error {
	h.closed.Store(true)
	return nil
}

func (h *handle) Read(ctx context.Context, queries ...store.Query) (store.View, error) {
	if err := h.ready(ctx, "read"); err != nil {
		return store.View{}, err
	}
	h.memory.mu.RLock()
	defer h.memory.mu.RUnlock()
	view := store.View{Header: h.memory.header, Entries: make([]store.Entry, len(queries))}
	for i, q := range queries {
		view.Entries[i] = h.memory.entry(q)
	}
	return view, nil
}

func (m *Memory) entry(q store.Query) store.Entry {
	record, ok := m.records[q.Resource]
	if !ok {
		record.Resource = q.Resource
	}
	return store.Entry{Record: cloneRecord(record), Request: m.request(q)}
}

func (m *Memory) request(q store.Query) *store.Request {
	if q.RequestID != "" {
		if r, ok := m.requests[q.Resource][store.RequestKey{Owner: q.Owner, ID: q.RequestID}]; ok {
			r = cloneRequest(r)
			return &r
		}
		return nil
	}
	if q.LeaseID == "" {
		return nil
	}
	for _, r := range m.requests[q.Resource] {
		if r.LeaseID == q.LeaseID {
			r = cloneRequest(r)
			return &r
		}
	}
	return nil
}

func (h *handle) Commit(ctx context.Context, steps ...store.Step) ([]bool, error) {
	if err := store.Check(steps...); err != nil {
		return nil, err
	}
	if err := h.ready(ctx, "commit"); err != nil {
		return nil, err
	}
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	applied := make([]bool, len(steps))
	for i := range steps {
		applied[i] = h.memory.apply(&steps[i])
	}
	return applied, nil
}

func (m *Memory) apply(s *store.Step) bool {
	if !m.holds(s) {
		return false
	}
	if s.Header != nil {
		m.header = *s.Header
	}
	if s.Record == nil {
		return true
	}
	resource := s.Record.Resource
	m.records[resource] = cloneRecord(*s.Record)
	requests := m.requests[resource]
	if requests == nil {
		requests = map[store.RequestKey]store.Request{}
		m.requests[resource] = requests
	}
	for _, r := range s.Requests {
		requests[store.RequestKey{Owner: r.Owner, ID: r.ID}] = cloneRequest(r)
	}
	for _, key := range s.Forget {
		delete(requests, key)
	}
	return true
}

// holds reports whether all conditions of s hold.
func (m *Memory) holds(s *store.Step) bool {
	if s.Create {
		if m.header.Exists {
			return false
		}
	} else if !m.header.Exists || m.header.Epoch != s.Epoch || s.OnTick && m.header.Tick != s.Tick {
		return false
	}
	return s.Record == nil || m.records[s.Record.Resource].Revision == s.Record.Revision-1
}

func (h *handle) List(ctx context.Context, prefix string, after lastword.Resource, limit int) ([]store.Record, error) {
	if err := h.ready(ctx, "list"); err != nil {
		return nil, err
	}
	h.memory.mu.RLock()
	defer h.memory.mu.RUnlock()
	var found []lastword.Resource
	for resource := range h.memory.records {
		if resource > after && strings.HasPrefix(string(resource), prefix) {
			found = append(found, resource)
		}
	}
	slices.Sort(found)
	found = found[:min(len(found), max(limit, 0))]
	records := make([]store.Record, len(found))
	for i, resource := range found {
		records[i] = cloneRecord(h.memory.records[resource])
	}
	return records, nil
}

func (h *handle) Ended(ctx context.Context, until store.Tick, limit int) ([]store.Ended, error) {
	if err := h.ready(ctx, "ended"); err != nil {
		return nil, err
	}
	h.memory.mu.RLock()
	defer h.memory.mu.RUnlock()
	var found []store.Ended
	for resource, requests := range h.memory.requests {
		for _, r := range requests {
			open := r.State == lastword.StateHeld || r.State == lastword.StatePending
			if !open && r.EndedTick <= until {
				found = append(found, store.Ended{Resource: resource, Request: r})
			}
		}
	}
	slices.SortFunc(found, func(a, b store.Ended) int {
		return cmp.Or(cmp.Compare(a.Request.EndedTick, b.Request.EndedTick), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Request.Owner, b.Request.Owner), cmp.Compare(a.Request.ID, b.Request.ID))
	})
	found = found[:min(len(found), max(limit, 0))]
	for i := range found {
		found[i].Request = cloneRequest(found[i].Request)
	}
	return found, nil
}

func cloneRecord(r store.Record) store.Record {
	r.Lease.Result = bytes.Clone(r.Lease.Result)
	r.Previous.Result = bytes.Clone(r.Previous.Result)
	return r
}

func cloneRequest(r store.Request) store.Request {
	r.Result = bytes.Clone(r.Result)
	return r
}
