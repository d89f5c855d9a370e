package client

import (
	"container/heap"
	"sync"
	"time"
)

// agenda wakes the leases of a client when something is to be done about them. It
// has one timer for all of them, none without leases, and no goroutine.
type agenda struct {
	now func() int64

	mu      sync.Mutex
	leases  byMoment
	timer   *time.Timer
	running bool  // run is waking leases, and sets the timer when it is through
	piece   int64 // the longest time without a look at the clock
}

// plan sets when l is to be woken next. piece is the longest time that may go by
// before somebody compares the clock: the system's timers may stop in a suspend
// while the clock goes on.
func (a *agenda) plan(l *Lease, at, piece int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.wake.index >= 0 && l.wake.at == at {
		return
	}
	if len(a.leases) == 0 || piece < a.piece {
		a.piece = piece
	}
	l.wake.at = at
	if l.wake.index < 0 {
		heap.Push(&a.leases, &l.wake)
	} else {
		heap.Fix(&a.leases, l.wake.index)
	}
	if l.wake.index == 0 {
		a.arm()
	}
}

// drop forgets l.
func (a *agenda) drop(l *Lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.wake.index < 0 {
		return
	}
	heap.Remove(&a.leases, l.wake.index)
	if len(a.leases) == 0 {
		a.arm()
	}
}

// arm sets the timer to the first lease's moment.
func (a *agenda) arm() {
	if a.running {
		return
	}
	if len(a.leases) == 0 {
		if a.timer != nil {
			a.timer.Stop()
			a.timer = nil
		}
		return
	}
	d := time.Duration(min(a.leases[0].at-a.now(), a.piece))
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.run)
	} else {
		a.timer.Reset(d)
	}
}

// run wakes whoever is due. Waking never blocks: calls and callbacks have their own
// goroutines.
func (a *agenda) run() {
	due, ok := a.due()
	if !ok {
		return
	}
	for _, l := range due {
		l.State()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running = false
	a.arm()
}

// due takes those out whose moment has come. It is false while another run is not
// through; that one sets the timer again.
func (a *agenda) due() (due []*Lease, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running {
		return nil, false
	}
	a.running = true
	for now := a.now(); len(a.leases) > 0 && a.leases[0].at <= now; {
		due = append(due, heap.Pop(&a.leases).(*place).lease)
	}
	return due, true
}

// place is that of a lease in a heap, whose lock guards it.
type place struct {
	lease *Lease
	at    int64
	index int   // -1 if it is not in there
	call  int64 // of those that wait for their turn: the time-out of the call
}

// byMoment is a heap of leases, the earliest moment first.
type byMoment []*place

func (m byMoment) Len() int           { return len(m) }
func (m byMoment) Less(i, j int) bool { return m[i].at < m[j].at }

func (m byMoment) Swap(i, j int) {
	m[i], m[j] = m[j], m[i]
	m[i].index, m[j].index = i, j
}

// Push implements heap.Interface.
func (m *byMoment) Push(x any) {
	p := x.(*place)
	p.index = len(*m)
	*m = append(*m, p)
}

// Pop implements heap.Interface.
func (m *byMoment) Pop() any {
	last := len(*m) - 1
	p := (*m)[last]
	(*m)[last] = nil
	*m = (*m)[:last]
	p.index = -1
	return p
}
