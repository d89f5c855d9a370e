package realservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config of a server. The zero value works.
type Config struct {
	// Dir is where the server's own directory is made; "" is the one for temporary
	// files. What is measured of a durable server is the disk that this lies on.
	Dir string
	// Settings are added to the server's configuration, in its own words, and win
	// over the ones chosen here.
	Settings []string
}

// Server is a running server, or a cluster of them. It is safe for concurrent use.
type Server struct {
	// Name of the server, "redis".
	Name string
	// Version, as the server itself tells it.
	Version string
	// Addr is "host:port", of several members divided by commas.
	Addr string
	// DSN is what its clients take to connect; where they take an address it is Addr.
	DSN string

	processes []*Process
	dir       *directory
	once      sync.Once
	stopped   error
}

// Usage is what a server has taken of the machine.
type Usage struct {
	CPU time.Duration // since its start
	RSS int64         // resident memory at this moment, bytes; shared pages count in each process
}

// Usage adds up all processes of the server and their children. It is known on Linux only
// ([errors.ErrUnsupported]).
func (s *Server) Usage() (Usage, error) {
	var all Usage
	for _, p := range s.processes {
		u, err := p.Usage()
		if err != nil {
			return Usage{}, err
		}
		all.CPU, all.RSS = all.CPU+u.CPU, all.RSS+u.RSS
	}
	return all, nil
}

// Usage is that of the process and of all that descend from it.
func (p *Process) Usage() (Usage, error) { return usage(p.ID()) }

// Signal sends sig to all processes of the server: SIGSTOP makes it hang, SIGKILL
// crash. Stop it all the same.
func (s *Server) Signal(sig syscall.Signal) error {
	var err error
	for _, p := range s.processes {
		err = errors.Join(err, p.Signal(sig))
	}
	return err
}

// Stop ends the server and removes its directory. A second Stop does nothing.
func (s *Server) Stop() error {
	s.once.Do(func() {
		for _, p := range slices.Backward(s.processes) {
			s.stopped = errors.Join(s.stopped, p.Stop())
		}
		s.stopped = errors.Join(s.stopped, s.dir.remove())
	})
	return s.stopped
}

// MissingError says that a server is not installed.
type MissingError struct {
	Server  string // "redis"
	Package string // the Debian package that has it; "" for what is built here
	Err     error  // what was looked for
}

// Error names the package.
func (e *MissingError) Error() string {
	if e.Package == "" {
		return fmt.Sprintf("%s is not there: %v", e.Server, e.Err)
	}
	return fmt.Sprintf("%s is not there: apt-get install %s (%v)", e.Server, e.Package, e.Err)
}

// Unwrap is what was looked for.
func (e *MissingError) Unwrap() error { return e.Err }

// launch is one attempt to start a server.
type launch struct {
	name string
	// command is what to run, on these ports in this directory.
	command func(dir string, ports []int) (Command, error)
	ports   int
	// ready asks the server at these ports, and returns its version.
	ready func(ctx context.Context, ports []int) (version string, err error)
	dsn   func(dir string, ports []int) string
	owner *syscall.Credential // of the directory; nil is the caller
}

const (
	attempts = 3                     // to find ports that nobody else takes
	patience = time.Minute           // for a server to come up; a JVM on a busy machine takes its time
	question = 2 * time.Second       // for one answer of a server that is starting
	between  = 20 * time.Millisecond // questions
)

// start runs a server on free ports, again with others if it did not come up.
func start(ctx context.Context, cfg Config, l launch) (*Server, error) {
	var err error
	for range attempts {
		var s *Server
		if s, err = l.try(ctx, cfg); err == nil {
			return s, nil
		}
		if !errors.Is(err, errEnded) || ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

func (l launch) try(ctx context.Context, cfg Config) (_ *Server, err error) {
	dir, err := makeDirectory(cfg.Dir, l.name, l.owner)
	if err != nil {
		return nil, err
	}
	s := &Server{Name: l.name, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	ports, err := freePorts(l.ports)
	if err != nil {
		return nil, err
	}
	command, err := l.command(dir.path, ports)
	if err != nil {
		return nil, err
	}
	p, err := Start(command)
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, p)
	s.Addr = address(ports[0])
	s.DSN = s.Addr
	if l.dsn != nil {
		s.DSN = l.dsn(dir.path, ports)
	}
	s.Version, err = await(ctx, s, func(ctx context.Context) (string, error) { return l.ready(ctx, ports) })
	return s, err
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// errEnded says that a server ended by itself before it was ready.
var errEnded = errors.New("it ended before it was ready")

// await asks a server until it has answered as it should, a process of it has ended, or
// time is over.
func await(ctx context.Context, s *Server, ask func(ctx context.Context) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not ready after %v", patience))
	defer cancel()
	ended := make(chan struct{}, len(s.processes))
	for _, p := range s.processes {
		go func() {
			select {
			case <-p.Gone():
				ended <- struct{}{}
			case <-ctx.Done():
			}
		}()
	}
	for {
		version, err := askOnce(ctx, ask)
		if err == nil {
			return version, nil
		}
		pause := time.NewTimer(between)
		select {
		case <-pause.C:
			continue
		case <-ended:
			pause.Stop()
			return "", s.failed(errEnded)
		case <-ctx.Done():
			pause.Stop()
			return "", s.failed(errors.Join(context.Cause(ctx), err))
		}
	}
}

func askOnce(ctx context.Context, ask func(ctx context.Context) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, question)
	defer cancel()
	return ask(ctx)
}

// failed is err with what the server printed.
func (s *Server) failed(err error) error {
	var said []string
	for _, p := range s.processes {
		if out := p.Output(); out != "" {
			said = append(said, out)
		}
	}
	return fmt.Errorf("start %s: %w; it printed: %s", s.Name, err, strings.Join(said, "\n"))
}

func program(server, pkg string, paths ...string) (string, error) {
	var err error
	for _, path := range paths {
		var info os.FileInfo
		if info, err = os.Stat(path); err == nil && !info.IsDir() {
			return path, nil
		}
	}
	return "", &MissingError{Server: server, Package: pkg, Err: err}
}
