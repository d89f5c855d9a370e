package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// patience bounds every step of an experiment. It only ends one that hangs; no
// order of events depends on it.
const patience = 30 * time.Second

// process is an agent, seen from the experiment.
type process struct {
	name    string
	request string // id of its latest acquire
	cmd     *exec.Cmd
	in      io.WriteCloser
	orders  *json.Encoder
	answers chan answer
	readErr error // why answers was closed
	reaped  bool
}

// start runs an agent as a process of its own.
func start(name string, command []string) (*process, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	// Ctrl-C is for the experiment; its processes end with it, by their input.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, in: in, orders: json.NewEncoder(in), answers: make(chan answer, 16)}
	go p.read(out)
	return p, nil
}

func (p *process) read(out io.Reader) {
	defer close(p.answers)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			p.readErr = err
			return
		}
		p.answers <- a
	}
	p.readErr = lines.Err()
}

// call gives an order and waits for its answer.
func (p *process) call(ctx context.Context, o order) (answer, error) {
	if err := p.tell(o); err != nil {
		return answer{}, err
	}
	return p.hear(ctx)
}

func (p *process) tell(o order) error {
	if err := p.orders.Encode(o); err != nil {
		return fmt.Errorf("%s does not take orders: %w", p.name, err)
	}
	return nil
}

func (p *process) hear(ctx context.Context) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case a, ok := <-p.answers:
		if !ok {
			return answer{}, fmt.Errorf("%s ended: %w", p.name, errors.Join(p.readErr, io.ErrUnexpectedEOF))
		}
		if a.Failed != "" {
			return a, fmt.Errorf("%s: %s", p.name, a.Failed)
		}
		return a, nil
	case <-ctx.Done():
		return answer{}, fmt.Errorf("%s does not answer: %w", p.name, ctx.Err())
	}
}

// pause stops the process and returns when the kernel says that it is stopped.
func (p *process) pause() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	return p.stopped()
}

// stopped waits until the process is stopped, by a signal of ours or of its own.
func (p *process) stopped() error {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for %s to stop: %w", p.name, err)
		case status.Stopped():
			return nil
		default:
			p.reaped = true
			return fmt.Errorf("%s ended when it should have stopped: status %d", p.name, status)
		}
	}
}

func (p *process) resume() error {
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("continue %s: %w", p.name, err)
	}
	return nil
}

// died waits for a process that ends itself by SIGKILL.
func (p *process) died() error {
	err := p.cmd.Wait()
	p.reaped = true
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return nil
		}
	}
	return fmt.Errorf("%s should have died by SIGKILL: %w", p.name, err)
}

// close ends the process: its input first, and if that is not enough, by SIGKILL.
func (p *process) close() error {
	if p.reaped {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	err := p.in.Close()
	kill := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	for range p.answers { // until its output ends
	}
	p.reaped = true
	return errors.Join(err, p.cmd.Wait())
}
