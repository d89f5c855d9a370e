package realservers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Command is a process to start. Path is required.
type Command struct {
	Path string
	Args []string // without the path itself
	Dir  string   // working directory; "" is the caller's
	Env  []string // added to the caller's
	// Talk makes In and Out of the process pipes to the caller. Without it the
	// process reads nothing, and what it prints is kept for errors.
	Talk bool
	// User runs it as another user; nil as the caller.
	User *syscall.Credential
	// Term asks it to end; 0 is SIGTERM. Orphaned is what the kernel sends when the
	// caller's process ends first; 0 is SIGKILL.
	Term, Orphaned syscall.Signal
}

// Process is a child in a process group of its own. It is safe for concurrent use.
type Process struct {
	In  io.WriteCloser // of a process that talks; closing it is the end of its input
	Out io.ReadCloser

	name   string
	cmd    *exec.Cmd
	term   syscall.Signal
	output *tail
	gone   chan struct{} // closed when it has been waited for
	err    error         // then: how it ended
}

// grace is how long a process may take to end when it is asked to.
const grace = 10 * time.Second

// Start starts a process. The caller stops it.
func Start(c Command) (*Process, error) {
	p := &Process{name: baseName(c.Path), cmd: exec.Command(c.Path, c.Args...), term: c.Term, output: &tail{}, gone: make(chan struct{})}
	if p.term == 0 {
		p.term = syscall.SIGTERM
	}
	p.cmd.Dir, p.cmd.Stderr = c.Dir, p.output
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.SysProcAttr = attributes(c)
	p.cmd.WaitDelay = time.Second // for grandchildren that keep its output open
	var theirs []*os.File
	if c.Talk {
		var err error
		if theirs, err = p.pipes(); err != nil {
			return nil, err
		}
	} else {
		p.cmd.Stdout = p.output
	}
	started := make(chan error)
	go p.live(started)
	err := <-started
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		if c.Talk {
			_, _ = p.In.Close(), p.Out.Close()
		}
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return p, nil
}

func baseName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// pipes are the caller's own, so that waiting for the process does not take away what
// it said last. It returns the ends that are the child's.
func (p *Process) pipes() ([]*os.File, error) {
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, childIn.Close(), in.Close())
	}
	p.In, p.Out, p.cmd.Stdin, p.cmd.Stdout = in, out, childIn, childOut
	return []*os.File{childIn, childOut}, nil
}

// live starts the process and waits for it, on one thread that does nothing else: the
// signal that the kernel sends to an orphan is tied to the thread that started it.
func (p *Process) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.gone)
}

// ID is the process id, and the id of its group.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Gone is closed when the process has ended.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Output is the end of what the process printed, of stderr only if it talks.
func (p *Process) Output() string { return p.output.String() }

// Signal sends sig to the group.
func (p *Process) Signal(sig syscall.Signal) error {
	select {
	case <-p.gone:
		return os.ErrProcessDone
	default:
		return syscall.Kill(-p.ID(), sig)
	}
}

// Stop ends the process: its input is closed, it is asked by a signal, and after 10 s
// it is killed; and so is what is left of its group. A second Stop does nothing.
func (p *Process) Stop() error {
	if p.In != nil {
		_ = p.In.Close()
	}
	_ = p.Signal(p.term)
	late := time.NewTimer(grace)
	defer late.Stop()
	var err error
	select {
	case <-p.gone:
	case <-late.C:
		err = fmt.Errorf("%s did not end within %v and was killed: %s", p.name, grace, p.Output())
	}
	// Members of the group outlive their first process.
	if kill := syscall.Kill(-p.ID(), syscall.SIGKILL); kill != nil && !errors.Is(kill, syscall.ESRCH) && !errors.Is(kill, syscall.EPERM) {
		err = errors.Join(err, kill)
	}
	<-p.gone
	if p.Out != nil {
		_ = p.Out.Close()
	}
	return err
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailBytes = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if over := len(t.b) - tailBytes; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(t.b), ""))
}

// run runs a process to its end, or kills its group when ctx ends.
func run(ctx context.Context, c Command) error {
	c.Term = syscall.SIGKILL
	p, err := Start(c)
	if err != nil {
		return err
	}
	select {
	case <-p.gone:
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), p.Stop())
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w: %s", p.name, p.err, p.Output())
	}
	return nil
}
