package lab

import (
	"errors"
	"io"
	"net"
	"sync"
)

// proxy stands between a client and its authority. Every fault of the network in an
// experiment comes from here, at a moment that the experiment chooses.
type proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	target string
	links  map[*link]struct{}
	closed bool
}

// link is one connection through the proxy. What is stalled waits in the kernel's
// buffers, as it does with TCP while packets are lost, and goes on afterwards.
type link struct {
	near, far net.Conn // the client's end and the target's
	asks      gate     // what the client sends
	answers   gate     // what the target sends
}

// gate lets bytes through while it is open.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // closed when the gate opens; nil while it is open
}

func (g *gate) pass() {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
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

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, links: map[*link]struct{}{}}
	p.running.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = near.Close() // as a dead target would
			continue
		}
		l := &link{near: near, far: far}
		if !p.enter(l) {
			l.cut()
			return
		}
		p.running.Go(func() { l.carry(near, far, &l.asks) })
		p.running.Go(func() {
			l.carry(far, near, &l.answers)
			p.leave(l)
		})
	}
}

func (p *proxy) enter(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *proxy) leave(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// carry ends both directions when one ends.
func (l *link) carry(from, to net.Conn, g *gate) {
	defer l.cut()
	room := make([]byte, 32<<10)
	for {
		n, err := from.Read(room)
		g.pass()
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

func (l *link) cut() {
	_ = l.near.Close()
	_ = l.far.Close()
	l.asks.open()
	l.answers.open()
}

// each does something with every link that is open now.
func (p *proxy) each(do func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		do(l)
	}
}

// delay keeps back what the target answers on the links that are open now, until
// release is called. Links that are made later are not affected.
func (p *proxy) delay() (release func()) {
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

// lose lets nothing through in either direction, without a sign to anybody, on the
// links that are open now, until heal is called.
func (p *proxy) lose() (heal func()) {
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

// cut ends the links that are open now. Answers that were kept back are lost.
func (p *proxy) cut() { p.each((*link).cut) }

func (p *proxy) close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.cut()
	p.running.Wait()
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
