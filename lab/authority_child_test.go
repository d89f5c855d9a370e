package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/sqlstore"
)

// authorityConfig of an authority in a process of its own. It is put together as
// package server does it, with a kill switch between authority and store.
type authorityConfig struct {
	Dir      string
	Addr     string        // "" is a free one
	Tick     time.Duration // of a new store
	WallSkew time.Duration // how far its wall clock is off
	Kill     killPoint
}

// killPoint is a step at which a process ends itself by SIGKILL.
type killPoint struct {
	Phase string // "start" until the authority is open, then "run"
	Op    string // load, swap, read, commit
	When  string // before, after or amid: at some moment while it is under way
	Nth   int32
}

func (k killPoint) String() string { return k.Phase + "/" + k.Op + "/" + k.When }

type killSwitch struct {
	at      killPoint
	running atomic.Bool
	count   atomic.Int32
}

func dieNow() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // nothing happens between the signal and the end
}

// step does one step of store or witness, unless it is where to die.
func (k *killSwitch) step(op string, do func()) {
	phase := "start"
	if k.running.Load() {
		phase = "run"
	}
	if k.at.Op != op || k.at.Phase != phase || k.count.Add(1) != k.at.Nth {
		do()
		return
	}
	switch k.at.When {
	case "before":
		dieNow()
	case "amid":
		time.AfterFunc(time.Duration(50+os.Getpid()%400)*time.Microsecond, dieNow)
	}
	do()
	dieNow()
}

type fatalStore struct {
	store.Store
	kill *killSwitch
}

func (s fatalStore) Read(ctx context.Context, q ...store.Query) (v store.View, err error) {
	s.kill.step("read", func() { v, err = s.Store.Read(ctx, q...) })
	return v, err
}

func (s fatalStore) Commit(ctx context.Context, steps ...store.Step) (applied []bool, err error) {
	s.kill.step("commit", func() { applied, err = s.Store.Commit(ctx, steps...) })
	return applied, err
}

type fatalWitness struct {
	authority.Witness
	kill *killSwitch
}

func (w fatalWitness) Load(ctx context.Context) (m *authority.Mark, err error) {
	w.kill.step("load", func() { m, err = w.Witness.Load(ctx) })
	return m, err
}

func (w fatalWitness) Swap(ctx context.Context, old *authority.Mark, next authority.Mark) (ok bool, err error) {
	w.kill.step("swap", func() { ok, err = w.Witness.Swap(ctx, old, next) })
	return ok, err
}

func authorityChild(c authorityConfig) (err error) {
	ctx := context.Background()
	if c.Addr == "" {
		c.Addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return err
	}
	s, err := sqlstore.Open(ctx, authorityPath(c.Dir), sqlstore.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	key, _, err := grant.LoadOrCreateKey(authorityPath(c.Dir) + ".key")
	if err != nil {
		return err
	}
	signer, err := grant.NewSigner(Domain, key)
	if err != nil {
		return err
	}
	kill := &killSwitch{at: c.Kill}
	a, err := authority.Open(ctx, fatalStore{s, kill}, signer, authority.Config{
		Domain: Domain, Tick: c.Tick, Witness: fatalWitness{authority.NewFileWitness(authorityPath(c.Dir) + ".witness"), kill},
		Now: func() time.Time { return time.Now().Add(c.WallSkew) },
	})
	if err != nil {
		return err
	}
	kill.running.Store(true)
	defer func() { err = errors.Join(err, a.Close()) }()
	server := rpc.NewServer(a, rpc.ServerConfig{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	fmt.Println("ready", l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is done, or gone
	limit, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err = server.Shutdown(limit)
	if errors.Is(err, lastword.ErrUnknownOutcome) {
		err = nil // calls that were cut off are the clients' matter
	}
	return errors.Join(err, <-served)
}
