package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lastword/lastword/identity"
	"github.com/lastword/lastword/internal/realservers"
	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/lab/proxy"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/server"
)

// The callers of a run beside its workers.
const (
	keeperName   = "keeper"   // the run itself: it reads, settles and revokes
	attackerName = "attacker" // who forges
)

// keeper is the authority of a run: a process that is started, frozen, killed and
// started again on the same files.
type keeper struct {
	command []string
	dir     string
	names   []string // of callers, each with a token

	way    *proxy.Proxy // the run's own way to it, over restarts
	client *rpc.Client
	diary  *diary

	mu      sync.Mutex
	proc    *realservers.Process
	epoch   uint32
	proxies []*proxy.Proxy
}

// newKeeper starts an authority in a new directory.
func newKeeper(ctx context.Context, command []string, dir string, names []string, note func(Call)) (k *keeper, err error) {
	k = &keeper{command: command, dir: dir, names: append(names, keeperName, attackerName), diary: &diary{who: keeperName, note: note}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	opened := k
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.close())
		}
	}()
	if err := k.writeTokens(); err != nil {
		return nil, err
	}
	if err := k.writePolicy(1); err != nil {
		return nil, err
	}
	addr, err := k.start(ctx)
	if err != nil {
		return nil, err
	}
	if k.way, err = proxy.New(addr); err != nil {
		return nil, err
	}
	k.follow(k.way)
	k.client, err = k.dial(keeperName, k.way)
	return k, err
}

func (k *keeper) store() string         { return filepath.Join(k.dir, "authority.db") }
func (k *keeper) policyFile() string    { return filepath.Join(k.dir, "policy.yaml") }
func (k *keeper) token(n string) string { return filepath.Join(k.dir, "token-"+n) }

// dial is a connection in somebody's name.
func (k *keeper) dial(name string, way *proxy.Proxy) (*rpc.Client, error) {
	return dial(way.Addr(), k.token(name))
}

func dial(addr, tokenFile string) (*rpc.Client, error) {
	t, err := identity.OpenToken(tokenFile)
	if err != nil {
		return nil, err
	}
	return rpc.Dial(addr, rpc.ClientConfig{Timeout: callTimeout, Token: t})
}

// writeTokens gives each caller a token, which proves its name.
func (k *keeper) writeTokens() error {
	var all strings.Builder
	for _, n := range k.names {
		line := fmt.Sprintf("%s: token-of-%s-for-one-run\n", n, n)
		all.WriteString(line)
		if err := os.WriteFile(k.token(n), []byte(line), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(k.dir, "tokens.yaml"), []byte(all.String()), 0o600)
}

// writePolicy lets every worker do what it does, under a generation.
func (k *keeper) writePolicy(generation uint64) error {
	var b strings.Builder
	fmt.Fprintf(&b, "generation: %d\nrules:\n", generation)
	for _, n := range k.names {
		fmt.Fprintf(&b, "  - who: %s\n    acquire: /\n", n)
		if n == keeperName {
			b.WriteString("    status: /\n    revoke: /\n")
		}
	}
	next := k.policyFile() + ".next"
	if err := os.WriteFile(next, []byte(b.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(next, k.policyFile())
}

// follow keeps a proxy pointed at the authority, over restarts.
func (k *keeper) follow(p *proxy.Proxy) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.proxies = append(k.proxies, p)
}

// start runs the authority and returns the address at which it answers.
func (k *keeper) start(ctx context.Context) (addr string, err error) {
	args := append(k.command[1:len(k.command):len(k.command)], "--store", "sqlite:"+k.store(), "--domain", Domain, "--grpc", "127.0.0.1:0",
		"--dev-tokens", filepath.Join(k.dir, "tokens.yaml"), "--policy", k.policyFile(), "-o", "json")
	p, err := realservers.Start(realservers.Command{Path: k.command[0], Args: args, Env: unset(), Talk: true})
	if err != nil {
		return "", err
	}
	line := make(chan string, 1)
	go func() {
		defer close(line)
		if text, err := bufio.NewReader(p.Out).ReadString('\n'); err == nil {
			line <- text
		}
	}()
	late := time.NewTimer(patience)
	defer late.Stop()
	var ready struct {
		Ready bool
		GRPC  string
		Epoch uint32
	}
	select {
	case text := <-line:
		if err := json.Unmarshal([]byte(text), &ready); err != nil || !ready.Ready {
			return "", errors.Join(fmt.Errorf("the authority did not start: %s", p.Output()), p.Stop())
		}
	case <-late.C:
		return "", errors.Join(fmt.Errorf("the authority was not ready after %v: %s", patience, p.Output()), p.Stop())
	case <-ctx.Done():
		return "", errors.Join(context.Cause(ctx), p.Stop())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.proc, k.epoch = p, ready.Epoch
	return ready.GRPC, nil
}

// kill ends the authority as a crash does, starts it again on its files and returns how
// long nobody answered.
func (k *keeper) kill(ctx context.Context) (down time.Duration, err error) {
	p := k.process()
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return 0, err
	}
	<-p.Gone()
	began := history.Clock()
	_ = p.Stop() // closes its pipes
	addr, err := k.start(ctx)
	if err != nil {
		return 0, err
	}
	down = since(began)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, way := range k.proxies {
		way.SetTarget(addr)
	}
	return down, nil
}

func (k *keeper) process() *realservers.Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.proc
}

func (k *keeper) epochNow() uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.epoch
}

// operator works at the authority's files, as the commands for operators do.
func (k *keeper) operator() server.Operator {
	return server.Operator{Store: "sqlite:" + k.store(), Domain: Domain, Name: keeperName, Reason: "planned"}
}

// close ends the authority as a service ends.
func (k *keeper) close() error {
	var errs []error
	if k.client != nil {
		errs = append(errs, k.client.Close())
	}
	if k.way != nil {
		errs = append(errs, k.way.Close())
	}
	if p := k.process(); p != nil {
		_ = p.Signal(syscall.SIGCONT)
		errs = append(errs, p.Stop())
	}
	return errors.Join(errs...)
}
