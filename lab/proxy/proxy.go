// Package proxy is a TCP proxy whose connections an experiment can delay, block in one
// direction or both, and cut.
//
// # Guarantees
//
// What is kept back is lost to nobody's knowledge: bytes wait in the proxy and in the
// kernel's buffers, as they do with TCP while packets are lost, and go on afterwards,
// in order. What is cut is lost.
//
// # Not guaranteed
//
// It knows nothing of messages: what it keeps back is bytes, and one message may be in
// two parts on its two sides.
package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Proxy stands between a client and its authority. Every fault of the network in an
// experiment comes from here, at a moment that the experiment chooses.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	target string
	links  map[*link]struct{}
	blocks map[*Block]struct{}
	slow   func() time.Duration
	closed bool
}

// Direction is which way bytes do not get through.
type Direction int

// The directions. They can be added up.
const (
	Asks    Direction = 1 << iota // what the client sends
	Answers                       // what the target sends
	Both    = Asks | Answers
)

// link is one connection through the proxy.
type link struct {
	near, far net.Conn // the client's end and the target's
	asks      gate     // what the client sends
	answers   gate     // what the target sends
	cutting   chan struct{}
	once      sync.Once
}

// gate lets bytes through while it is open.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // closed when the gate opens; nil while it is open
}

// pass waits until the gate is open, and says first that it has to.
func (g *gate) pass(kept func()) {
	for {
		g.mu.Lock()
		shut := g.shut
		g.mu.Unlock()
		if shut == nil {
			return
		}
		kept()
		<-shut // and it may be shut again by now
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// New listens on a free port of the loopback interface and connects each client to the
// target.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, links: map[*link]struct{}{}, blocks: map[*Block]struct{}{}}
	p.running.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetTarget names the target of connections that are made from now on.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		far, err := net.Dial("tcp", target)
		if err != nil {
			_ = near.Close() // as a dead target would
			continue
		}
		l := &link{near: near, far: far, cutting: make(chan struct{})}
		if !p.enter(l) {
			l.cut()
			return
		}
		p.running.Go(func() { p.carry(l, near, far, &l.asks, func() {}) })
		p.running.Go(func() {
			p.carry(l, far, near, &l.answers, p.keptBack)
			p.leave(l)
		})
	}
}

func (p *Proxy) enter(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	l.set(p.blocked())
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) leave(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *Proxy) keptBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for b := range p.blocks {
		if b.directions&Answers != 0 {
			b.once.Do(func() { close(b.kept) })
		}
	}
}

// carry ends both directions when one ends.
func (p *Proxy) carry(l *link, from, to net.Conn, g *gate, kept func()) {
	defer l.cut()
	room := make([]byte, 32<<10)
	for {
		n, err := from.Read(room)
		p.linger(l)
		g.pass(kept)
		if n > 0 {
			if _, err := to.Write(room[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// linger makes bytes late, if they are to be.
func (p *Proxy) linger(l *link) {
	p.mu.Lock()
	slow := p.slow
	p.mu.Unlock()
	if slow == nil {
		return
	}
	t := time.NewTimer(slow())
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.cutting:
	}
}

func (l *link) cut() {
	l.once.Do(func() { close(l.cutting) })
	_ = l.near.Close()
	_ = l.far.Close()
	l.asks.open()
	l.answers.open()
}

// each does something with every link that is open now.
func (p *Proxy) each(do func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		do(l)
	}
}

// Delay keeps back what the target answers on the links that are open now, until
// release is called. Links that are made later are not affected.
func (p *Proxy) Delay() (release func()) {
	var held []*link
	p.each(func(l *link) {
		l.answers.close()
		held = append(held, l)
	})
	return func() {
		for _, l := range held {
			l.answers.open()
		}
	}
}

// Lose lets nothing through in either direction, without a sign to anybody, on the
// links that are open now, until heal is called.
func (p *Proxy) Lose() (heal func()) {
	var lost []*link
	p.each(func(l *link) {
		l.asks.close()
		l.answers.close()
		lost = append(lost, l)
	})
	return func() {
		for _, l := range lost {
			l.asks.open()
			l.answers.open()
		}
	}
}

// Block is a direction, or both, in which nothing gets through. Several blocks of one
// proxy add up.
type Block struct {
	proxy      *Proxy
	directions Direction
	kept       chan struct{}
	once       sync.Once
}

// Block lets nothing through in a direction, on the links that are open now and on those
// that are made later, until the block is healed.
func (p *Proxy) Block(d Direction) *Block {
	b := &Block{proxy: p, directions: d, kept: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocks[b] = struct{}{}
	p.apply()
	return b
}

// Kept is closed with the first bytes of an answer that are kept back: the target has
// acted on something.
func (b *Block) Kept() <-chan struct{} { return b.kept }

// Heal ends the block. What was kept back goes on, unless another block keeps it. A
// second Heal does nothing.
func (b *Block) Heal() {
	p := b.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.blocks, b)
	p.apply()
}

// Heal ends all blocks.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.blocks)
	p.apply()
}

// blocked is what no link lets through.
func (p *Proxy) blocked() (d Direction) {
	for b := range p.blocks {
		d |= b.directions
	}
	return d
}

func (p *Proxy) apply() {
	d := p.blocked()
	for l := range p.links {
		l.set(d)
	}
}

func (l *link) set(blocked Direction) {
	for g, d := range map[*gate]Direction{&l.asks: Asks, &l.answers: Answers} {
		if blocked&d != 0 {
			g.close()
		} else {
			g.open()
		}
	}
}

// Slow makes each read of bytes, in either direction, wait as long as late says; nil
// makes it wait no longer. late is called by many goroutines.
func (p *Proxy) Slow(late func() time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = late
}

// Cut ends the links that are open now. Answers that were kept back are lost.
func (p *Proxy) Cut() { p.each((*link).cut) }

// Close ends all links and waits until nothing is left of them.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Cut()
	p.running.Wait()
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
