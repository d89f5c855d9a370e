package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/lastword/lastword/bench/load"
	"github.com/lastword/lastword/internal/realservers"
)

// Names of subjects.
const (
	ours       = "lastword"
	etcd1      = "etcd, 1 member"
	etcd3      = "etcd, 3 members"
	zookeeper  = "ZooKeeper"
	redis      = "Redis, redislock"
	postgresql = "PostgreSQL, advisory"
)

// peer is something that people use today.
type peer struct {
	name    string // on the command line
	driver  string // of the peers' load generator
	subject string
	leases  bool // has leases that are kept alive
	start   func(ctx context.Context, cfg realservers.Config) (*realservers.Server, error)
}

var peers = []peer{
	{"etcd", "etcd", etcd1, true, func(ctx context.Context, cfg realservers.Config) (*realservers.Server, error) {
		return realservers.Etcd(ctx, 1, cfg)
	}},
	{"etcd3", "etcd", etcd3, false, func(ctx context.Context, cfg realservers.Config) (*realservers.Server, error) {
		return realservers.Etcd(ctx, 3, cfg)
	}},
	{"zookeeper", "zookeeper", zookeeper, false, realservers.ZooKeeper},
	{"redis", "redis", redis, false, realservers.Redis},
	{"postgresql", "postgresql", postgresql, false, realservers.PostgreSQL},
}

// subject is one side of a comparison, running.
type subject struct {
	name   string
	leases bool
	server *realservers.Server // nil for what runs inside the load generator
	driver *driver
	close  []func() error // in this order
}

func (s *subject) stop() (err error) {
	if s.driver != nil {
		err = s.driver.stop()
	}
	if s.server != nil {
		err = errors.Join(err, s.server.Stop())
	}
	for _, f := range s.close {
		err = errors.Join(err, f())
	}
	return err
}

func (s *subject) version() string {
	if s.server == nil {
		return ""
	}
	return s.server.Version
}

// crowd is all sides that run at once, ours first. While one is measured the others
// are idle.
type crowd struct {
	subjects []*subject
	missing  []Missing
}

func (c *crowd) stop() (err error) {
	for _, s := range c.subjects {
		err = errors.Join(err, s.stop())
	}
	return err
}

// gather starts ours and the peers that were asked for and are installed.
func gather(ctx context.Context, o Options) (_ *crowd, err error) {
	c := &crowd{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	o.Progress("start lastword")
	s, err := startOurs(ctx, o)
	if err != nil {
		return nil, err
	}
	c.subjects = append(c.subjects, s)
	wanted := wantedPeers(o)
	if len(wanted) == 0 {
		return c, nil
	}
	o.Progress("build the peers' programs (minutes, the first time)")
	programs, err := realservers.Peers(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		for _, p := range wanted {
			c.missing = append(c.missing, Missing{p.subject, "their load generator is not there: " + err.Error()})
		}
		return c, nil
	}
	for _, p := range wanted {
		o.Progress("start " + p.subject)
		if err := c.join(ctx, o, p, programs); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func wantedPeers(o Options) []peer {
	var wanted []peer
	for _, name := range o.Peers {
		for _, p := range peers {
			if p.name == name {
				wanted = append(wanted, p)
			}
		}
	}
	return wanted
}

func startOurs(ctx context.Context, o Options) (_ *subject, err error) {
	s := &subject{name: ours, leases: true}
	if s.server, err = realservers.Lastword(ctx, o.Program, realservers.Config{Dir: o.Dir}); err != nil {
		return nil, err
	}
	if s.driver, err = startDriver(ctx, o.Program, "bench", "load", remote, s.server.Addr); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// join adds a peer; one that is not installed is missing, which is no error.
func (c *crowd) join(ctx context.Context, o Options, p peer, programs realservers.Programs) error {
	server, err := p.start(ctx, realservers.Config{Dir: o.Dir})
	if missing, ok := errors.AsType[*realservers.MissingError](err); ok {
		c.missing = append(c.missing, Missing{p.subject, missing.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	s := &subject{name: p.subject, leases: p.leases, server: server}
	c.subjects = append(c.subjects, s)
	s.driver, err = startDriver(ctx, programs.PeerLoad, p.driver, server.DSN)
	if err != nil {
		return fmt.Errorf("%s: %w", p.subject, err)
	}
	return nil
}

// measured are the figures of one window, with what the server took in it.
type measured struct {
	load.Figures
	serverCPU float64 // cores
	serverRSS int64   // at the beginning or the end, whichever is more, bytes
	clientRSS int64   // of the load generator, at the beginning
	known     bool    // whether these are
}

// measure gives one order to one side.
func (s *subject) measure(ctx context.Context, o load.Order) (m measured, err error) {
	var before realservers.Usage
	began := func() {
		if s.server == nil {
			return
		}
		generator, failed := s.driver.process.Usage()
		m.clientRSS = generator.RSS
		if failed == nil {
			before, failed = s.server.Usage()
		}
		m.known = failed == nil // else this system does not tell
	}
	m.Figures, err = s.driver.run(ctx, o, began)
	if err != nil {
		return m, fmt.Errorf("%s, %s: %w", s.name, o.Workload, err)
	}
	if !m.known {
		return m, nil
	}
	after, err := s.server.Usage()
	if err != nil {
		return m, fmt.Errorf("%s: %w", s.name, err)
	}
	m.serverCPU = (after.CPU - before.CPU).Seconds() / m.Elapsed.Seconds()
	m.serverRSS = max(before.RSS, after.RSS)
	return m, nil
}

// again puts a new process in place of a load generator that is good for nothing more,
// and a new server behind ours.
func (s *subject) again(ctx context.Context, o Options) error {
	if s.name != ours {
		return fmt.Errorf("%s: its load generator gave up", s.name)
	}
	if err := s.stop(); err != nil {
		return err
	}
	fresh, err := startOurs(ctx, o)
	if err == nil {
		*s = *fresh
	}
	return err
}

// inTurns calls visit for every side in every round, beginning with another one each
// time, so that nobody is always first.
func inTurns[T any](sides []T, rounds int, visit func(round int, side T) error) error {
	for round := range rounds {
		for i := range sides {
			if err := visit(round, sides[(i+round)%len(sides)]); err != nil {
				return err
			}
		}
	}
	return nil
}
