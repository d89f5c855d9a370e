package postgrestest

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Fate is what a [Proxy] does with what a client has sent.
type Fate int

// The fates.
const (
	Pass      Fate = iota
	CutBefore      // the server does not get it, and the connection is gone
	CutAfter       // the server gets it and answers; nobody hears the answer
	Swallow        // nobody gets it, and the connection stays: the client waits
	Hold           // the server gets it; its answer is kept until Release
)

// Proxy stands between a client and a server.
type Proxy struct {
	Addr  string // to connect to
	trips atomic.Int64

	listener net.Listener
	target   string

	mu    sync.Mutex
	rule  func(sent []byte) Fate
	held  chan struct{}
	conns map[net.Conn]bool
	all   sync.WaitGroup
}

// NewProxy passes connections on to a server.
func NewProxy(tb TB, target string) *Proxy {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("proxy: %v", err)
	}
	p := &Proxy{Addr: l.Addr().String(), listener: l, target: target, conns: map[net.Conn]bool{}, held: make(chan struct{})}
	p.all.Go(p.accept)
	tb.Cleanup(func() {
		_ = l.Close()
		p.Cut()
		p.Release()
		p.all.Wait()
	})
	return p
}

// On sets what is done with what a client sends; nil passes everything.
func (p *Proxy) On(rule func(sent []byte) Fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
}

// Once is a rule for the first time that something is sent in which text appears. fired
// is closed then.
func (p *Proxy) Once(text string, fate Fate) (fired <-chan struct{}) {
	done := make(chan struct{})
	var once sync.Once
	p.On(func(sent []byte) (f Fate) {
		if bytes.Contains(sent, []byte(text)) {
			once.Do(func() { f = fate; close(done) })
		}
		return f
	})
	return done
}

// Cut ends all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Release lets held answers go.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.held:
	default:
		close(p.held)
	}
}

// Trips counts round trips since the last call: how often the client has sent something
// after it had heard something.
func (p *Proxy) Trips() int64 { return p.trips.Swap(0) }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{p: p, client: client, server: server}
		l.heard.Store(true)
		p.keep(client, server)
		p.all.Go(l.up)
		p.all.Go(l.down)
	}
}

func (p *Proxy) keep(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
}

func (p *Proxy) forget(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) fate(sent []byte) Fate {
	p.mu.Lock()
	rule := p.rule
	p.mu.Unlock()
	if rule == nil {
		return Pass
	}
	return rule(sent)
}

// link is one connection.
type link struct {
	p              *Proxy
	client, server net.Conn
	heard          atomic.Bool // the client has got something since it sent something
	deaf           atomic.Bool // the client gets nothing more
	hold           atomic.Bool
}

func (l *link) up() {
	defer l.p.forget(l.client)
	buf := make([]byte, 1<<20)
	for {
		n, err := l.client.Read(buf)
		if err != nil {
			if !l.deaf.Load() {
				l.p.forget(l.server)
			}
			return
		}
		if l.heard.Swap(false) {
			l.p.trips.Add(1)
		}
		switch l.p.fate(buf[:n]) {
		case CutBefore:
			l.p.forget(l.server)
			return
		case CutAfter:
			l.deaf.Store(true)
		case Hold:
			l.hold.Store(true)
		case Swallow:
			continue
		case Pass:
		}
		if _, err := l.server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (l *link) down() {
	defer l.p.forget(l.server)
	defer l.p.forget(l.client)
	buf := make([]byte, 1<<20)
	for {
		n, err := l.server.Read(buf)
		if err != nil || l.deaf.Load() { // what is not heard has been done
			return
		}
		if l.hold.Swap(false) {
			<-l.p.held
		}
		l.heard.Store(true)
		if _, err := io.Copy(l.client, bytes.NewReader(buf[:n])); err != nil {
			return
		}
	}
}
