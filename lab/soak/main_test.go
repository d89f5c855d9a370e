package soak_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/lastword/lastword/lab/soak"
	"github.com/lastword/lastword/server"
)

// The names under which this binary is a process of a run instead of the tests.
const (
	asHand      = "run-as-hand"
	asAuthority = "run-as-authority"
	asRun       = "run-as-run"
)

func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == asHand:
		err = soak.Hand(context.Background(), os.Stdin, os.Stdout)
	case len(os.Args) > 1 && os.Args[1] == asAuthority:
		err = serve(os.Args[2:])
	case len(os.Args) > 1 && os.Args[1] == asRun:
		o := options()
		o.Rounds, o.Cells, o.Dir = 10_000, 2, os.Args[2]
		o.Progress = func(int, int) { fmt.Print(".") }
		_, err = soak.Run(context.Background(), o)
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve is as much of `lastword serve` as a run uses.
func serve(args []string) error {
	var cfg server.Config
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	f.StringVar(&cfg.Store, "store", "", "")
	f.StringVar(&cfg.Domain, "domain", "", "")
	f.StringVar(&cfg.GRPC, "grpc", "", "")
	f.StringVar(&cfg.DevTokens, "dev-tokens", "", "")
	f.StringVar(&cfg.Policy, "policy", "", "")
	f.String("o", "", "")
	if err := f.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := server.Open(ctx, cfg)
	if err != nil {
		return err
	}
	epoch, err := s.Authority().Epoch()
	if err != nil {
		return err
	}
	ready := map[string]any{"ready": true, "grpc": s.Addr().String(), "epoch": epoch}
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		return err
	}
	return s.Serve(ctx)
}

// options run this binary as the processes of a run.
func options() soak.Options {
	return soak.Options{Hand: []string{os.Args[0], asHand}, Authority: []string{os.Args[0], asAuthority}}
}
