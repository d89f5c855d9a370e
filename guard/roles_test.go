//go:build linux

package guard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/guard"
	"github.com/lastword/lastword/internal/grantfile"
	"github.com/lastword/lastword/rpc"
)

const roleVariable = "GUARD_TEST_ROLE"

func init() {
	if os.Getenv(roleVariable) == "headless" {
		runtime.LockOSThread() // main runs on the first thread then
	}
}

// headless ends its first thread, and runs on.
func headless() {
	go time.AfterFunc(2*time.Minute, func() { os.Exit(99) }) // after a test that failed
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
}

// TestMain lets this program be the processes of its own tests.
func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "wrapper":
		os.Exit(wrapper())
	case "worker":
		os.Exit(worker())
	case "listener":
		os.Exit(listener())
	case "headless":
		headless()
	default:
		os.Exit(m.Run())
	}
}

// wrapping is what a wrapper is told.
type wrapping struct {
	Authority string
	Resource  string
	Owner     string
	TTL, Wait time.Duration
	Margin    time.Duration // between the local deadline and the authority's
	MaxHold   time.Duration
	Grace     time.Duration
	TempDir   string
	Command   []string
}

const wrappingVariable = "GUARD_TEST_WRAPPING"

// wrapper is `lastword exec` without its command line.
func wrapper() int {
	var w wrapping
	if err := json.Unmarshal([]byte(os.Getenv(wrappingVariable)), &w); err != nil {
		panic(err)
	}
	remote, err := rpc.Dial(w.Authority, rpc.ClientConfig{Timeout: 2 * time.Second})
	if err != nil {
		panic(err)
	}
	defer remote.Close()
	c, err := client.New(remote, client.Config{Owner: w.Owner, CleanupTimeout: 2 * time.Second, Margin: w.Margin})
	if err != nil {
		panic(err)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, guard.Forwarded()...)
	exit, err := guard.Run(context.Background(), c, guard.Options{
		Resource: testResource, Acquire: client.AcquireOptions{TTL: w.TTL, Wait: w.Wait, MaxHold: w.MaxHold},
		Command: w.Command, Grace: w.Grace, TempDir: w.TempDir, Signals: signals,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return exit.Code
}

// note is what a process of a test tells the desk.
type note struct {
	Name  string
	PID   int
	Heard string // a signal
	Grant string // with it, a write is asked for
	Op    string
}

// desk is the line of a process to its test.
type deskLine struct {
	conn net.Conn
	in   *bufio.Reader
}

const deskVariable = "GUARD_TEST_DESK"

func dialDesk() deskLine {
	conn, err := net.Dial("unix", os.Getenv(deskVariable))
	if err != nil {
		panic(err)
	}
	return deskLine{conn, bufio.NewReader(conn)}
}

// tell waits for the answer.
func (d deskLine) tell(n note) string {
	n.Name, n.PID = os.Getenv("GUARD_TEST_NAME"), os.Getpid()
	if err := json.NewEncoder(d.conn).Encode(n); err != nil {
		os.Exit(99) // the test is over
	}
	answer, err := d.in.ReadString('\n')
	if err != nil {
		os.Exit(99)
	}
	return answer
}

// worker makes a write every 50 ms, for ever, with what the grant file says. A stubborn one
// does not end by SIGTERM.
func worker() int {
	if os.Getenv("GUARD_TEST_STUBBORN") != "" {
		signal.Ignore(syscall.SIGTERM)
	}
	d := dialDesk()
	for i := 0; ; i++ {
		b, err := os.ReadFile(os.Getenv("LASTWORD_GRANT_FILE"))
		n := note{Op: fmt.Sprintf("%d-%d", os.Getpid(), i)}
		if err == nil {
			f, err := grantfile.Parse(b)
			if err != nil {
				panic(err)
			}
			n.Grant = f.Grant()
		}
		d.tell(n)
		time.Sleep(50 * time.Millisecond)
	}
}

// listener tells of every signal that it hears. SIGTERM it ends with exit code 7.
func listener() int {
	time.AfterFunc(2*time.Minute, func() { os.Exit(99) }) // after a test that failed
	heard := make(chan os.Signal, 64)
	signal.Notify(heard, guard.Forwarded()...)
	d := dialDesk()
	d.tell(note{Heard: "ready"})
	for sig := range heard {
		d.tell(note{Heard: sig.String()})
		if sig == syscall.SIGTERM {
			return 7
		}
	}
	return 0
}
