package model

// pool keeps each distinct value of a part once and names it by a small number.
// Name 0 is the first value that was put in.
type pool[T comparable] struct {
	names  map[T]uint16
	values []T
	full   *bool
}

func newPool[T comparable](full *bool, first T) *pool[T] {
	p := &pool[T]{names: map[T]uint16{}, full: full}
	p.name(first)
	return p
}

const maxValues = 1 << 16

func (p *pool[T]) name(v T) uint16 {
	n, ok := p.names[v]
	if ok {
		return n
	}
	if len(p.values) >= maxValues {
		*p.full = true
		return 0
	}
	n = uint16(len(p.values))
	p.names[v] = n
	p.values = append(p.values, v)
	return n
}

func (p *pool[T]) at(n uint16) *T { return &p.values[n] }

// storePool is a pool of values that cannot be compared.
type storePool struct {
	names  map[string]uint16
	values []*storeState
	room   []byte
	full   *bool
}

func newStorePool(full *bool) *storePool {
	return &storePool{names: map[string]uint16{}, values: []*storeState{nil}, full: full}
}

func (p *storePool) name(v *storeState) uint16 {
	p.room = v.key(p.room[:0])
	if n, ok := p.names[string(p.room)]; ok {
		return n
	}
	if len(p.values) >= maxValues {
		*p.full = true
		return 0
	}
	n := uint16(len(p.values))
	p.names[string(p.room)] = n
	kept := *v
	p.values = append(p.values, &kept)
	return n
}

func (p *storePool) at(n uint16) *storeState { return p.values[n] }

// memo keeps the answers to questions of two words. It is sound because what it is
// used for depends on the question alone.
type memo[V any] struct {
	keys   [][2]uint64
	values []V
	slots  []uint32 // index + 1 into keys
}

func newMemo[V any]() *memo[V] { return &memo[V]{slots: make([]uint32, 1<<10)} }

func hash2(a, b uint64) uint64 {
	h := (a ^ 0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93
	h ^= h >> 32
	h = (h ^ b) * 0x9E3779B97F4A7C15
	return h ^ h>>29
}

// get is the answer to (a, b), which make gives the first time.
func (m *memo[V]) get(a, b uint64) (v *V, known bool) {
	mask := uint64(len(m.slots) - 1)
	for i := hash2(a, b) & mask; ; i = (i + 1) & mask {
		n := m.slots[i]
		if n == 0 {
			return nil, false
		}
		if k := &m.keys[n-1]; k[0] == a && k[1] == b {
			return &m.values[n-1], true
		}
	}
}

func (m *memo[V]) put(a, b uint64, v V) *V {
	if 2*(len(m.keys)+1) > len(m.slots) {
		m.grow()
	}
	m.keys = append(m.keys, [2]uint64{a, b})
	m.values = append(m.values, v)
	m.place(len(m.keys) - 1)
	return &m.values[len(m.values)-1]
}

func (m *memo[V]) place(n int) {
	mask := uint64(len(m.slots) - 1)
	i := hash2(m.keys[n][0], m.keys[n][1]) & mask
	for m.slots[i] != 0 {
		i = (i + 1) & mask
	}
	m.slots[i] = uint32(n + 1)
}

func (m *memo[V]) grow() {
	m.slots = make([]uint32, 2*len(m.slots))
	for n := range m.keys {
		m.place(n)
	}
}
