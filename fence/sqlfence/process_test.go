package sqlfence_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/postgrestest"
)

// The test binary is its own child process: childEnv names what the child does.
const childEnv = "SQLFENCE_TEST_CHILD"

func TestMain(m *testing.M) {
	child, ok := children[os.Getenv(childEnv)]
	if !ok {
		os.Exit(postgrestest.Main(m))
	}
	if err := child(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var children = map[string]func(args []string) error{"init": childInit, "pause": childPause, "work": childWork}

// start runs a child process, which dies with the test.
func start(tb testing.TB, what string, args ...string) (*exec.Cmd, *bufio.Scanner) {
	tb.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, bufio.NewScanner(out)
}

// sealAt is one authority for all processes of a test.
func sealAt(dir string) (*seal, error) {
	key, _, err := grant.LoadOrCreateKey(filepath.Join(dir, "key.pem"))
	if err != nil {
		return nil, err
	}
	return sealOf(key)
}

func TestEightProcessesInitAtOnce(t *testing.T) { // KF-38 (1)
	dir := t.TempDir()
	if _, err := sealAt(dir); err != nil {
		t.Fatal(err)
	}
	var all []*exec.Cmd
	for i := range 8 {
		cmd, _ := start(t, "init", dir, strconv.Itoa(i+1))
		all = append(all, cmd)
	}
	for i, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
	}
	db := openDB(t, filepath.Join(dir, "app.db"), durable)
	if n := count(t, db, `SELECT count(*) FROM lastword_fence WHERE domain = ?`, domain); n != 8 {
		t.Errorf("%d records of 8 processes", n)
	}
	if n := count(t, db, `SELECT version FROM lastword_schema WHERE name = 'fence'`); n != sqlfence.Steps() {
		t.Errorf("schema version %d", n)
	}
}

// childInit starts as a service would on its first day: init, open, first write.
func childInit(args []string) error {
	ctx, dir := context.Background(), args[0]
	s, err := sealAt(dir)
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn(filepath.Join(dir, "app.db"), durable))
	if err != nil {
		return err
	}
	defer db.Close()
	if err := sqlfence.Init(ctx, db); err != nil {
		return err
	}
	f, err := sqlfence.New(ctx, db, s.config())
	if err != nil {
		return err
	}
	defer f.Close()
	resource := lastword.Resource("first/" + args[1])
	_, err = f.Apply(ctx, s.holder(resource, "a", 1), "op", nil, func(context.Context, *sql.Tx) error { return nil })
	return err
}

// pausePoints are moments of a transaction at which a process can be killed, and
// whether its write must be there after that.
var pausePoints = []struct {
	name  string
	at    func(event) bool
	there bool
}{
	{"after the business write", func(e event) bool { return e.is("exec", "INTO effect") && e.after }, false},
	{"after the record", func(e event) bool { return e.is("exec", "UPDATE main.lastword_fence SET fence") && e.after }, false},
	{"before COMMIT", func(e event) bool { return e.op == "commit" && !e.after }, false},
	{"after COMMIT", func(e event) bool { return e.op == "commit" && e.after }, true},
}

func TestAKilledProcessLeavesItsWriteWholeOrNotAtAll(t *testing.T) { // R33: crash inside the transaction
	kills, seed := 30, uint64(time.Now().UnixNano())
	if raceOn || testing.Short() {
		kills = len(pausePoints)
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	path := filepath.Join(dir, "app.db")
	s, err := sealAt(dir)
	if err != nil {
		t.Fatal(err)
	}
	db := openDB(t, path, durable)
	mustExec(t, db, business)
	if err := sqlfence.Init(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	f := guard(t, db, s.config())
	mustPut(t, f, s.holder("r", "old", 1), "r", "op-1", "value-1")

	newest, half := 1, 0
	for kill := range kills {
		point, token := kill, newest+1
		if kill >= len(pausePoints) { // each once, then as it comes
			point = random.IntN(len(pausePoints))
		}
		cmd, out := start(t, "pause", dir, strconv.Itoa(point), strconv.Itoa(token))
		if !out.Scan() || out.Text() != "paused" {
			t.Fatalf("the child said %q", out.Text())
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if pausePoints[point].there {
			newest = token
		}
		in, err := f.Inspect(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("fence %s, value %s, receipts %d, effects %d", in.Record.Fence, value(t, db, "r"),
			count(t, db, `SELECT count(*) FROM lastword_receipt`), count(t, db, `SELECT count(*) FROM effect`))
		written := count(t, db, `SELECT count(DISTINCT fence) FROM lastword_receipt`)
		want := fmt.Sprintf("fence %d, value value-%d, receipts %d, effects %d", newest, newest, written, written)
		if got != want {
			half++
			t.Errorf("killed %s: %s, want %s", pausePoints[point].name, got, want)
		}
		verify(t, db)
		// The successor is not kept waiting by what the dead one held.
		newest++
		op := strconv.Itoa(newest)
		mustPut(t, f, s.holder("r", "next", lastword.Token(newest)), "r", "next-"+op, "value-"+op)
	}
	t.Logf("%d kills, half = %d", kills, half)
	verify(t, db)
}

// childPause writes, and stops for ever at the given point of the transaction.
func childPause(args []string) error {
	dir := args[0]
	point, err1 := strconv.Atoi(args[1])
	token, err2 := strconv.Atoi(args[2])
	s, err3 := sealAt(dir)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	plain, err := sql.Open("sqlite", "")
	if err != nil {
		return err
	}
	hooks := &faulty{dsn: dsn(filepath.Join(dir, "app.db"), durable), inner: plain.Driver()}
	db := sql.OpenDB(hooks)
	f, err := sqlfence.New(context.Background(), db, s.config())
	if err != nil {
		return err
	}
	hooks.set(func(e event) error {
		if pausePoints[point].at(e) {
			fmt.Println("paused")
			time.Sleep(time.Hour) // until SIGKILL
		}
		return nil
	})
	_, err = put(context.Background(), f, s.holder("r", "killed", lastword.Token(token)), "r", "op-"+args[2], "value-"+args[2])
	return errors.Join(errors.New("the point was never reached"), err)
}

const (
	callTimeout = 2 * time.Second
	// overrun is what a call may need beyond its deadline: a refusal takes up to
	// 250 ms to write its evidence, and the machine is busy.
	overrun = 2 * time.Second
)

func TestEightProcessesUnderLoadSeeVerdictsOnly(t *testing.T) { // KF-22 (1)
	duration := 5 * time.Second
	if s := os.Getenv("SQLFENCE_LOAD"); s != "" { // "60s" for the whole case
		var err error
		if duration, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	} else if raceOn || testing.Short() {
		duration = time.Second
	}
	dir := t.TempDir()
	if _, err := sealAt(dir); err != nil {
		t.Fatal(err)
	}
	db := openDB(t, filepath.Join(dir, "app.db"), "_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	mustExec(t, db, business)
	if err := sqlfence.Init(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var beside sync.WaitGroup
	beside.Go(func() { readLong(ctx, t, db) })
	// A checkpoint keeps writers out while it waits for readers; it waits briefly.
	checkpoints := openDB(t, filepath.Join(dir, "app.db"), "_pragma=busy_timeout(20)")
	beside.Go(func() { checkpoint(ctx, t, checkpoints) })

	results := map[string]int{}
	var mu sync.Mutex
	var workers sync.WaitGroup
	for i := range 8 {
		cmd, out := start(t, "work", dir, strconv.Itoa(i), duration.String())
		workers.Go(func() {
			for out.Scan() {
				mu.Lock()
				results[out.Text()]++
				mu.Unlock()
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("process %d: %v", i, err)
			}
		})
	}
	workers.Wait()
	stop()
	beside.Wait()
	t.Logf("results: %v", results)
	for result := range results {
		switch result {
		case "APPLIED", "STALE_OWNER", "REPLAYED", "TIMEOUT":
		default:
			t.Errorf("unexpected: %s (%d times)", result, results[result])
		}
	}
	if results["APPLIED"] < 8 || results["STALE_OWNER"] == 0 || results["REPLAYED"] == 0 {
		t.Error("the load did not reach every result")
	}
	verify(t, db)
}

// readLong keeps snapshots open, so that the log cannot be reset.
func readLong(ctx context.Context, t *testing.T, db *sql.DB) {
	for ctx.Err() == nil {
		tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
		if err != nil {
			t.Error(err)
			return
		}
		var n int
		if err := tx.QueryRow(`SELECT count(*) FROM effect`).Scan(&n); err != nil {
			t.Error(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

func checkpoint(ctx context.Context, t *testing.T, db *sql.DB) {
	for ctx.Err() == nil {
		var busy, log, done int
		if err := db.QueryRowContext(context.WithoutCancel(ctx), `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &log, &done); err != nil && !strings.Contains(err.Error(), "locked") {
			t.Error(err)
		}
		if err := db.QueryRowContext(context.WithoutCancel(ctx), `PRAGMA wal_checkpoint(RESTART)`).Scan(&busy, &log, &done); err != nil && !strings.Contains(err.Error(), "locked") {
			t.Error(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// childWork takes ever newer fences on two resources, writes with them twice, retries
// one operation and lets an older tenure try.
func childWork(args []string) error {
	dir := args[0]
	me, err1 := strconv.Atoi(args[1])
	duration, err2 := time.ParseDuration(args[2])
	s, err3 := sealAt(dir)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn(filepath.Join(dir, "app.db"), "_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)"))
	if err != nil {
		return err
	}
	defer db.Close()
	f, err := sqlfence.New(context.Background(), db, s.config())
	if err != nil {
		return err
	}
	defer f.Close()
	owner := "worker-" + args[1]
	for turn, end := 0, time.Now().Add(duration); time.Now().Before(end); turn++ {
		resource := lastword.Resource(fmt.Sprintf("r/%d", turn%2))
		token := lastword.Token(turn*8 + me + 1)
		h := s.holder(resource, owner, token)
		for _, n := range []string{"1", "2", "1"} {
			op := fmt.Sprintf("%s-%s-%s", owner, token, n)
			fmt.Println(timed(f, h, resource, op))
		}
		if token > 8 {
			late := s.holder(resource, owner+"-late", token-8)
			fmt.Println(timed(f, late, resource, fmt.Sprintf("%s-%s-late", owner, token)))
		}
	}
	return nil
}

// timed is the result of one write in one word.
func timed(f *sqlfence.Fence, h *holder, resource lastword.Resource, op string) string {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	began := time.Now()
	r, err := put(ctx, f, h, resource, op, "by "+op)
	took := time.Since(began)
	var e *lastword.Error
	switch {
	case took > callTimeout+overrun:
		return fmt.Sprintf("OVERRUN %v", took)
	case err == nil:
		return string(r.Verdict)
	case errors.Is(err, context.DeadlineExceeded) && (errors.Is(err, lastword.ErrUnavailable) || errors.Is(err, lastword.ErrUnknownOutcome)):
		return "TIMEOUT"
	case errors.As(err, &e) && e.Code == lastword.CodeStaleOwner && strings.Count(err.Error(), "\n") == 0:
		return string(e.Code)
	}
	return "ERROR " + strings.ReplaceAll(err.Error(), "\n", " | ")
}
