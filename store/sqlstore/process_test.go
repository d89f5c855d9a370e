package sqlstore_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/sqlstore"
)

const (
	childRole = "SQLSTORE_TEST_CHILD"
	childPath = "SQLSTORE_TEST_PATH"
)

// TestMain turns a child that a test started from this binary into what it is for.
func TestMain(m *testing.M) {
	roles := map[string]func(path string) error{"serve": serve, "write": writeForEver, "disturb": disturb, "witness": planEpochs}
	role, ok := roles[os.Getenv(childRole)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := role(os.Getenv(childPath)); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child is a process of this binary. It ends with its input, and with the test.
type child struct {
	cmd   *exec.Cmd
	input io.Closer
	lines *bufio.Scanner
}

func start(t *testing.T, role, path string) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role, childPath+"="+path)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd, input, bufio.NewScanner(output)}
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait()
	})
	return c
}

// line is the next line that the child prints, "" at its end.
func (c *child) line() string {
	if !c.lines.Scan() {
		return ""
	}
	return c.lines.Text()
}

func untilInputEnds() { _, _ = io.Copy(io.Discard, os.Stdin) }

func serve(path string) error {
	s, err := sqlstore.Open(context.Background(), path, sqlstore.Config{})
	if err != nil {
		return err
	}
	fmt.Println("serving")
	untilInputEnds()
	return s.Close()
}

// KF-38: 8 processes start at once on one file that is not there yet; one serves,
// seven are refused with a line that names the file and the process.
func TestOfEightProcessesOneServes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "authority.db")
	for range 3 { // the first time it is made, then it is there
		var children []*child
		for range 8 {
			children = append(children, start(t, "serve", path))
		}
		var serving *child
		var refusals []string
		for _, c := range children {
			switch line := c.line(); {
			case line != "serving":
				refusals = append(refusals, line)
			case serving != nil:
				t.Fatal("two processes serve")
			default:
				serving = c
			}
		}
		if serving == nil {
			t.Fatalf("nobody serves: %q", refusals)
		}
		for _, line := range refusals {
			// The number may not be there yet when the refused one looks.
			named := fmt.Sprintf("%s is in use by process %d ", path, serving.cmd.Process.Pid)
			if !strings.Contains(line, named) && !strings.Contains(line, path+" is in use by another process") {
				t.Errorf("a refusal: %q, want %q", line, named)
			}
		}
		_ = serving.input.Close()
		if err := serving.cmd.Wait(); err != nil {
			t.Errorf("the serving process: %v", err)
		}
	}
}

// writeForEver prints the revision of every write after it was acknowledged.
func writeForEver(path string) error {
	ctx := context.Background()
	s, err := sqlstore.Open(ctx, path, sqlstore.Config{})
	if err != nil {
		return err
	}
	if _, err := s.Commit(ctx, first); err != nil {
		return err
	}
	view, err := s.Read(ctx, store.Query{Resource: "doc"}, store.Query{Resource: "other"})
	if err != nil {
		return err
	}
	for n := view.Entries[0].Record.Revision + 1; ; n++ {
		applied, err := s.Commit(ctx, version("doc", n), version("other", n))
		if err != nil || !applied[0] || !applied[1] {
			return fmt.Errorf("write %d: %v, %w", n, applied, err)
		}
		fmt.Println(n)
	}
}

// R1: what a process acknowledged before it was killed at any moment is there, and a
// batch is there whole or not at all.
func TestWhatAKilledProcessAcknowledgedIsThere(t *testing.T) {
	rounds := 25
	if small || testing.Short() {
		rounds = 4
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	path := filepath.Join(t.TempDir(), "authority.db")
	acknowledged := uint64(0)
	for round := range rounds {
		c := start(t, "write", path)
		for range 1 + rng.IntN(80) {
			acknowledged = number(t, c.line(), acknowledged)
		}
		if err := c.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for line := c.line(); line != ""; line = c.line() { // printed before it died
			acknowledged = number(t, line, acknowledged)
		}
		_ = c.cmd.Wait()

		s, err := sqlstore.Open(t.Context(), path, sqlstore.Config{})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		got := revision(t, s, "doc")
		if got != acknowledged && got != acknowledged+1 {
			t.Fatalf("round %d: revision %d, acknowledged was %d", round, got, acknowledged)
		}
		if other := revision(t, s, "other"); other != got {
			t.Fatalf("round %d: half a batch: revisions %d and %d", round, got, other)
		}
		checkRequests(t, s, got)
		acknowledged = got
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d writes, %d kills", acknowledged, rounds)
}

func number(t *testing.T, line string, after uint64) uint64 {
	t.Helper()
	var n uint64
	if _, err := fmt.Sscan(line, &n); err != nil || n != after+1 {
		t.Fatalf("the child says %q after %d", line, after)
	}
	return n
}

// checkRequests looks for the request record of every version.
func checkRequests(t *testing.T, s *sqlstore.Store, last uint64) {
	t.Helper()
	for n := uint64(1); n <= last; n++ {
		view, err := s.Read(t.Context(), store.Query{Resource: "doc", Owner: "worker", RequestID: fmt.Sprint("r", n)})
		if err != nil {
			t.Fatal(err)
		}
		if r := view.Entries[0].Request; r == nil || r.Fence != lastword.Token(n) {
			t.Fatalf("request %d of %d: %+v", n, last, r)
		}
	}
}

// disturb does to a file what backups, shells and monitors do: it reads for long,
// folds the log, and takes the write lock for longer than a statement waits.
func disturb(path string) error {
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(50)")
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, stop := context.WithCancel(context.Background())
	go func() { untilInputEnds(); stop() }()
	var all sync.WaitGroup
	for _, statements := range [][]string{
		{"BEGIN", "SELECT count(*) FROM lastword_request", "", "COMMIT"},
		{"PRAGMA wal_checkpoint(PASSIVE)", "PRAGMA wal_checkpoint(RESTART)", "PRAGMA wal_checkpoint(TRUNCATE)"},
		{"BEGIN IMMEDIATE", "", "ROLLBACK"},
	} {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		all.Go(func() {
			defer conn.Close()
			for ctx.Err() == nil {
				for _, statement := range statements {
					if statement == "" {
						pause(ctx, time.Duration(50+rand.IntN(150))*time.Millisecond)
					} else {
						_, _ = conn.ExecContext(ctx, statement) // it may well be refused itself
					}
				}
				pause(ctx, 5*time.Millisecond)
			}
		})
	}
	fmt.Println("disturbing")
	all.Wait()
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// KF-22, the authority's side on SQLite: beside a long reader, a checkpoint loop and
// a program that takes the write lock, every call is answered, and no busy error is.
func TestNoBusyErrorIsSeenUnderLoad(t *testing.T) {
	const callers = 8
	lasting := 3 * time.Second
	if small || testing.Short() {
		lasting = time.Second
	}
	path := filepath.Join(t.TempDir(), "authority.db")
	s := open(t, path, sqlstore.Config{CacheRecords: 4})
	commit(t, s, first)
	if line := start(t, "disturb", path).line(); line != "disturbing" {
		t.Fatal(line)
	}
	until, cancel := context.WithTimeout(t.Context(), lasting)
	defer cancel()
	var applied, refused atomic.Uint64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			resource := lastword.Resource(fmt.Sprint("doc/", i/2)) // two callers each
			for until.Err() == nil {
				ok, err := acquireLike(t.Context(), s, resource)
				if err != nil {
					t.Errorf("caller %d: %v", i, err)
					return
				}
				if ok {
					applied.Add(1)
				} else {
					refused.Add(1)
				}
			}
		})
	}
	all.Wait()
	var sum uint64
	for i := range callers / 2 {
		sum += revision(t, s, lastword.Resource(fmt.Sprint("doc/", i)))
	}
	if sum != applied.Load() || sum == 0 {
		t.Errorf("revisions sum up to %d, applied were %d", sum, applied.Load())
	}
	t.Logf("%d steps applied, %d refused", applied.Load(), refused.Load())
}

// acquireLike reads, writes the next version, and looks at lists, with a deadline of
// its own.
func acquireLike(ctx context.Context, s *sqlstore.Store, resource lastword.Resource) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	view, err := s.Read(ctx, store.Query{Resource: resource, Owner: "worker", RequestID: "none"})
	if err != nil {
		return false, err
	}
	n := view.Entries[0].Record.Revision + 1
	applied, err := s.Commit(ctx, version(resource, n))
	if err != nil {
		return false, err
	}
	_, listErr := s.List(ctx, "doc/", "", 10)
	_, endedErr := s.Ended(ctx, 1<<40, 10)
	return applied[0], errors.Join(listErr, endedErr)
}
