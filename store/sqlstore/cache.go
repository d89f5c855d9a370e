package sqlstore

import (
	"bytes"
	"container/list"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
)

const (
	// keptRequests is how many request records of one resource are kept with its record.
	keptRequests = 8
	// keptNames is of how many others it is kept that they exist, so that the id of a
	// new request is known to be new without a look at the file; loadedNames is how
	// many of them are read when a record is.
	keptNames, loadedNames = 64 << 10, 256
)

// cache is what was last read or committed of the most recently used resources. The
// file is ours alone, so that it is also what the file holds. It changes only while
// the writing semaphore is held.
type cache struct {
	mu          sync.Mutex
	header      store.Header
	valid       bool // header is known
	closed      bool
	most, bytes int // bounds
	size        int // bytes in use, roughly
	entries     map[lastword.Resource]*list.Element
	recent      *list.List // of *entry, the most recently used first
	seeds       [2]maphash.Seed
}

type entry struct {
	record   store.Record
	requests []store.Request   // the most recently written last
	others   map[name]struct{} // of the request records that are in the file alone
	complete bool              // requests and others are all there are
	size     int
}

// name stands for the owner and the id of a request record. Its 128 bits depend on
// secrets of this process, so that nobody finds two that are alike.
type name [2]uint64

func newCache(most, bytes int) *cache {
	return &cache{most: most, bytes: bytes, entries: map[lastword.Resource]*list.Element{}, recent: list.New(),
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

func (c *cache) name(owner, id string) name {
	key := store.RequestKey{Owner: owner, ID: id}
	return name{maphash.Comparable(c.seeds[0], key), maphash.Comparable(c.seeds[1], key)}
}

// view answers from memory; ok is false if something is not there.
func (c *cache) view(queries []store.Query) (v store.View, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.valid {
		return store.View{}, false
	}
	v = store.View{Header: c.header, Entries: make([]store.Entry, len(queries))}
	for i, q := range queries {
		if v.Entries[i], ok = c.entry(q); !ok {
			return store.View{}, false
		}
	}
	return v, true
}

func (c *cache) entry(q store.Query) (store.Entry, bool) {
	element, ok := c.entries[q.Resource]
	if !ok {
		return store.Entry{}, false
	}
	c.recent.MoveToFront(element)
	e := element.Value.(*entry)
	answer := store.Entry{Record: cloneRecord(&e.record)}
	if q.RequestID == "" && q.LeaseID == "" {
		return answer, true
	}
	for i := range e.requests {
		if matches(&e.requests[i], &q) {
			r := cloneRequest(&e.requests[i])
			answer.Request = &r
			return answer, true
		}
	}
	if q.RequestID == "" {
		return answer, e.complete && len(e.others) == 0
	}
	_, exists := e.others[c.name(q.Owner, q.RequestID)]
	return answer, e.complete && !exists
}

func matches(r *store.Request, q *store.Query) bool {
	if q.RequestID != "" {
		return r.ID == q.RequestID && r.Owner == q.Owner
	}
	return q.LeaseID != "" && r.LeaseID == q.LeaseID
}

// publish makes what was committed visible, all at once.
func (c *cache) publish(h store.Header, steps []store.Step, applied []bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.header, c.valid = h, true
	for i := range steps {
		s := &steps[i]
		if s.Record == nil {
			continue
		}
		if applied[i] {
			c.update(s)
		} else { // if what is cached misled the caller, it must not do so again
			c.remove(s.Record.Resource)
		}
	}
}

// update changes the entry where it lies: what was given out are copies.
func (c *cache) update(s *store.Step) {
	element, ok := c.entries[s.Record.Resource]
	if !ok {
		element = c.add(&entry{complete: s.Record.Revision == 1}, s.Record.Resource)
	}
	e := element.Value.(*entry)
	e.record = cloneRecord(s.Record)
	for i := range s.Requests {
		c.forget(e, s.Requests[i].Owner, s.Requests[i].ID)
		e.requests = append(e.requests, cloneRequest(&s.Requests[i]))
	}
	for _, key := range s.Forget {
		c.forget(e, key.Owner, key.ID)
	}
	c.settle(element)
}

func (c *cache) forget(e *entry, owner, id string) {
	for i := range e.requests {
		if r := &e.requests[i]; r.ID == id && r.Owner == owner {
			e.requests = slices.Delete(e.requests, i, i+1)
			break
		}
	}
	if len(e.others) > 0 {
		delete(e.others, c.name(owner, id))
	}
}

func (c *cache) add(e *entry, resource lastword.Resource) *list.Element {
	c.remove(resource)
	element := c.recent.PushFront(e)
	c.entries[resource] = element
	return element
}

// settle makes an entry the most recently used, and drops what is too much.
func (c *cache) settle(element *list.Element) {
	e := element.Value.(*entry)
	if over := len(e.requests) - keptRequests; over > 0 {
		c.onlyName(e, e.requests[:over])
		e.requests = slices.Delete(e.requests, 0, over)
	}
	size := e.measure()
	c.size += size - e.size
	e.size = size
	c.recent.MoveToFront(element)
	for len(c.entries) > 0 && (len(c.entries) > c.most || c.size > c.bytes) {
		c.remove(c.recent.Back().Value.(*entry).record.Resource)
	}
}

// onlyName keeps of requests that they exist.
func (c *cache) onlyName(e *entry, requests []store.Request) {
	if !e.complete || len(e.others)+len(requests) > keptNames {
		e.complete, e.others = false, nil
		return
	}
	if e.others == nil {
		e.others = map[name]struct{}{}
	}
	for i := range requests {
		e.others[c.name(requests[i].Owner, requests[i].ID)] = struct{}{}
	}
}

func (e *entry) measure() int {
	const record, request, other = 1024, 512, 40 // with names and overhead, roughly
	size := record + other*len(e.others) + len(e.record.Lease.Result) + len(e.record.Previous.Result)
	for i := range e.requests {
		size += request + len(e.requests[i].Result)
	}
	return size
}

func (c *cache) remove(resource lastword.Resource) {
	if element, ok := c.entries[resource]; ok {
		c.size -= element.Value.(*entry).size
		c.recent.Remove(element)
		delete(c.entries, resource)
	}
}

// load keeps what was read of the file. complete says that there is no request record
// but requests and, if that is not nil, those of names.
func (c *cache) load(record store.Record, requests []store.Request, names []store.RequestKey, complete bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	e := &entry{record: cloneRecord(&record), complete: complete}
	if complete && len(names) > 0 {
		e.others = make(map[name]struct{}, len(names))
		for _, key := range names {
			e.others[c.name(key.Owner, key.ID)] = struct{}{}
		}
	}
	for i := range requests {
		e.requests = append(e.requests, cloneRequest(&requests[i]))
	}
	c.settle(c.add(e, record.Resource))
}

func (c *cache) setHeader(h store.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.header, c.valid = h, !c.closed
}

func (c *cache) headerIfValid() (store.Header, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.header, c.valid
}

// drop forgets everything.
func (c *cache) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.valid, c.size = false, 0
	clear(c.entries)
	c.recent.Init()
}

// close drops everything for good.
func (c *cache) close() {
	c.drop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

func cloneRecord(r *store.Record) store.Record {
	c := *r
	c.Lease.Result = bytes.Clone(r.Lease.Result)
	c.Previous.Result = bytes.Clone(r.Previous.Result)
	return c
}

func cloneRequest(r *store.Request) store.Request {
	c := *r
	c.Result = bytes.Clone(r.Result)
	return c
}
