package main

import (
	"context"
	"path/filepath"

	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/server"
)

// ownAuthority is an authority on a free loopback port, and a client of it.
type ownAuthority struct {
	remote *rpc.Client
	cancel context.CancelFunc
	served chan error
}

func startAuthority(ctx context.Context, dir string) (*ownAuthority, error) {
	s, err := server.Open(ctx, server.Config{
		Store: "sqlite:" + filepath.Join(dir, "authority.db"), Domain: "agents", GRPC: "127.0.0.1:0",
	})
	if err != nil {
		return nil, err
	}
	// Ctrl-C ends the agents first: they still have to release.
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a := &ownAuthority{cancel: cancel, served: make(chan error, 1)}
	go func() { a.served <- s.Serve(serving) }()
	if a.remote, err = rpc.Dial(s.Addr().String(), rpc.ClientConfig{}); err != nil {
		cancel()
		<-a.served
		return nil, err
	}
	return a, nil
}

func (a *ownAuthority) stop() {
	_ = a.remote.Close()
	a.cancel()
	<-a.served
}
