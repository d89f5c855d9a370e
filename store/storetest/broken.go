package storetest

import (
	"context"
	"runtime"
	"strings"
	"sync"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/memstore"
)

// Broken is a store with one fault. [Run] rejects each by a case of the rule that it
// breaks; a check that has never failed proves nothing.
type Broken struct {
	Name    string
	Breaks  string // what is wrong with it, in a sentence
	Rule    string // as the cases name it
	Harness func() Harness
}

// Brokens returns all of them.
func Brokens() []Broken {
	return []Broken{
		broken("counter-in-lease", "R1", "the counter is kept inside the lease and goes when the lease lapses or ends", fault{
			entry: func(h store.Header, e *store.Entry) {
				if l := e.Record.Lease; !open(l) || h.Tick >= l.Deadline {
					e.Record.Counter, e.Record.Epoch = 0, 0
				}
			}}),
		broken("reset-on-release", "R6", "a release puts the counter back to nothing", fault{
			step: func(_ *box, s *store.Step) {
				if s.Record != nil && s.Record.Lease.State == lastword.StateReleased {
					s.Record.Counter, s.Record.Epoch = 0, 0
				}
			}}),
		broken("no-request-records", "R2", "request ids are not kept, so that a repetition gets a second number", fault{
			step: func(_ *box, s *store.Step) { s.Requests = nil }}),
		broken("closed-interval", "R4", "the deadline is kept as the last tick at which the lease is valid", fault{
			entry: func(_ store.Header, e *store.Entry) {
				if open(e.Record.Lease) {
					e.Record.Lease.Deadline++
				}
			}}),
		broken("renew-revives", "R5", "a renewal is an unconditional write", fault{
			step: func(b *box, s *store.Step) {
				if renewal(s) {
					s.Record.Revision = b.revision(s.Record.Resource) + 1
				}
			}}),
		broken("renewal-not-durable", "R5", "a renewal is kept in memory until something else is written", fault{
			durable: func(s *store.Step) bool { return !renewal(s) }}),
		broken("stale-tick", "R8", "the tick that a deadline was computed from is not compared", fault{
			step: func(_ *box, s *store.Step) { s.OnTick = false }}),
		broken("lost-last-commit", "R1", "a commit is acknowledged before it is durable", fault{
			durable: func(*store.Step) bool { return false }}),
		broken("any-epoch", "R10", "a step is not conditional on the issuer epoch", fault{
			step: func(b *box, s *store.Step) { s.Epoch = b.header().Epoch }}),
		broken("lost-update", "R9", "the revision is not compared", fault{
			step: func(b *box, s *store.Step) {
				if s.Record != nil {
					s.Record.Revision = b.revision(s.Record.Resource) + 1
				}
			}}),
		broken("lagging-reads", "R9", "reads are answered by a follower that is one commit behind", fault{lag: true}),
		broken("torn-view", "R9", "header and records of a view are read one after the other", fault{torn: true}),
		broken("half-step", "store.Step", "the request records of a refused step are written all the same", fault{
			refused: func(b *box, s *store.Step) {
				if s.Record == nil || len(s.Requests) == 0 {
					return
				}
				record := b.record(s.Record.Resource)
				record.Revision++
				b.apply(store.Step{Epoch: b.header().Epoch, Record: &record, Requests: s.Requests})
			}}),
		broken("aliases", "store.View", "the caller's own bytes are kept and given out", fault{alias: true}),
		broken("folds-names", "KF-28", "names are compared without case and trailing space", fault{
			name: func(r lastword.Resource) lastword.Resource {
				return lastword.Resource(strings.TrimRight(strings.ToLower(string(r)), " "))
			}}),
		broken("loose-prefix", "KF-27", "a list matches whole segments instead of bytes", fault{
			prefix: func(prefix string) string { return strings.TrimSuffix(prefix, "/") }}),
		broken("small-counter", "R11", "the counter is kept in 32 bits", fault{
			step: func(_ *box, s *store.Step) {
				if s.Record != nil {
					s.Record.Counter = uint64(uint32(s.Record.Counter))
				}
			}}),
		broken("silent-commit", "P5", "a call whose context has ended is said not to be done, and is done", fault{silent: true}),
	}
}

func open(l store.Lease) bool {
	return l.State == lastword.StateHeld || l.State == lastword.StatePending
}

// renewal recognises the only write of an open lease that has no request record.
func renewal(s *store.Step) bool {
	return s.Record != nil && open(s.Record.Lease) && len(s.Requests) == 0
}

// fault is what a broken store does differently. Every field may be nil.
type fault struct {
	step    func(*box, *store.Step)          // changes a step before it is tried
	refused func(*box, *store.Step)          // happens after a refused step
	entry   func(store.Header, *store.Entry) // changes what is read
	durable func(*store.Step) bool           // whether a step is on disk at once
	name    func(lastword.Resource) lastword.Resource
	prefix  func(string) string
	lag     bool
	torn    bool
	alias   bool
	silent  bool
}

func broken(name, rule, breaks string, f fault) Broken {
	return Broken{Name: name, Rule: rule, Breaks: breaks, Harness: func() Harness {
		var b *box
		return Harness{
			Open: func(TB) store.Store {
				b = &box{fault: f, memory: memstore.New(), aliases: map[string][]byte{}}
				b.disk, b.follower = b.memory.Copy(), b.memory.Copy()
				return b.open()
			},
			Reopen: func(_ TB, graceful bool) store.Store {
				if f.durable != nil && !graceful {
					b.memory = b.disk.Copy()
				}
				b.follower = b.memory.Copy()
				return b.open()
			},
			Second: func(TB) (store.Store, error) { return b.open(), nil },
			Shared: true,
		}
	}}
}

// box is the state of a broken store.
type box struct {
	fault    fault
	memory   *memstore.Memory
	mu       sync.Mutex       // of what follows
	disk     *memstore.Memory // what a crash leaves
	follower *memstore.Memory // one commit behind
	aliases  map[string][]byte
}

func (b *box) open() store.Store { return &bent{Store: b.memory.Open(), box: b} }

func (b *box) header() store.Header { return b.view().Header }

func (b *box) record(r lastword.Resource) store.Record {
	return b.view(store.Query{Resource: r}).Entries[0].Record
}

func (b *box) revision(r lastword.Resource) uint64 { return b.record(r).Revision }

func (b *box) view(queries ...store.Query) store.View {
	view, err := b.memory.Open().Read(context.Background(), queries...)
	if err != nil {
		panic(err) // a memory that is open has no errors
	}
	return view
}

func (b *box) apply(s store.Step) bool {
	applied, err := b.memory.Open().Commit(context.Background(), s)
	return err == nil && applied[0]
}

// bent is a handle on a box.
type bent struct {
	store.Store
	box *box
}

func (s *bent) Commit(ctx context.Context, steps ...store.Step) ([]bool, error) {
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	f := s.box.fault
	if f.silent && ctx.Err() != nil {
		_, _ = s.Store.Commit(context.WithoutCancel(ctx), steps...)
		return nil, &lastword.Error{Code: lastword.CodeUnavailable, Op: "commit", Err: ctx.Err()}
	}
	if f.lag {
		s.box.follower = s.box.memory.Copy()
	}
	if f.durable != nil {
		s.box.disk = s.box.memory.Copy()
	}
	if f.step == nil && f.refused == nil && f.name == nil && f.durable == nil && !f.alias {
		return s.Store.Commit(ctx, steps...)
	}
	if err := store.Check(steps...); err != nil {
		return nil, err
	}
	applied := make([]bool, len(steps))
	for i, step := range steps {
		one, err := s.commit(ctx, step)
		if err != nil {
			return nil, err
		}
		applied[i] = one
	}
	return applied, nil
}

func (s *bent) commit(ctx context.Context, step store.Step) (bool, error) {
	f := s.box.fault
	if step.Record != nil {
		record := *step.Record
		step.Record = &record
		if f.name != nil {
			record.Resource = f.name(record.Resource)
		}
	}
	if f.step != nil && !step.Create {
		f.step(s.box, &step)
	}
	applied, err := s.Store.Commit(ctx, step)
	if err != nil {
		return false, err
	}
	switch {
	case !applied[0] && f.refused != nil:
		f.refused(s.box, &step)
	case applied[0] && f.alias && step.Record != nil:
		s.box.aliases[step.Record.Lease.ID] = step.Record.Lease.Result
	case applied[0] && f.durable != nil && f.durable(&step):
		s.box.disk = s.box.memory.Copy()
	}
	return applied[0], nil
}

func (s *bent) Read(ctx context.Context, queries ...store.Query) (store.View, error) {
	f := s.box.fault
	asked := append([]store.Query(nil), queries...)
	if f.name != nil {
		for i := range asked {
			asked[i].Resource = f.name(asked[i].Resource)
		}
	}
	from := s.Store
	if f.lag {
		from = s.box.followed()
	}
	view, err := from.Read(ctx, asked...)
	if err != nil {
		return view, err
	}
	if f.torn {
		later, err := s.torn(ctx, asked)
		if err != nil {
			return view, err
		}
		view.Entries = later
	}
	for i := range view.Entries {
		e := &view.Entries[i]
		e.Record.Resource = queries[i].Resource
		if f.entry != nil {
			f.entry(view.Header, e)
		}
		if f.alias {
			s.box.alias(&e.Record.Lease)
		}
	}
	return view, nil
}

func (b *box) followed() store.Store {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.follower.Open()
}

func (b *box) alias(l *store.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if kept, ok := b.aliases[l.ID]; ok {
		l.Result = kept
	}
}

// torn reads the records at a later moment than the header: it lets others come
// first until one of them has written, or nobody does.
func (s *bent) torn(ctx context.Context, queries []store.Query) ([]store.Entry, error) {
	var entries []store.Entry
	for range 50 {
		runtime.Gosched()
		view, err := s.Store.Read(ctx, queries...)
		if err != nil {
			return nil, err
		}
		entries = view.Entries
	}
	return entries, nil
}

func (s *bent) List(ctx context.Context, prefix string, after lastword.Resource, limit int) ([]store.Record, error) {
	if s.box.fault.prefix != nil {
		prefix = s.box.fault.prefix(prefix)
	}
	return s.Store.List(ctx, prefix, after, limit)
}
