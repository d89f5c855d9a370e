package fencesql_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
)

// The test binary is its own child process: childEnv names what the child does.
const childEnv = "FENCESQL_TEST_CHILD"

var children = map[string]func(args []string) error{"work": childWork, "init": childInit}

var sqliteClient = client{"sqlite", openSQLite}

func allClients() []client { return append([]client{sqliteClient}, clients...) }

func openSQLite(ctx context.Context, dsn string, cfg fence.Config, conns int) (*guarded, func(), error) {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(conns)
	f, err := sqlfence.New(ctx, db, sqlfence.Config{Config: cfg})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	g := &guarded{lookup: f.Lookup, advance: f.Advance, resolve: f.Resolve, prune: f.Place().Prune}
	g.apply = func(ctx context.Context, h lastword.Holder, operation string, payload []byte, effect func(context.Context, exec) error) (lastword.Receipt, error) {
		return f.Apply(ctx, h, operation, payload, func(ctx context.Context, tx *sql.Tx) error {
			return effect(ctx, func(query string, args ...any) (int64, error) {
				r, err := tx.ExecContext(ctx, strings.ReplaceAll(query, "$", "?"), args...)
				if err != nil {
					return 0, err
				}
				return r.RowsAffected()
			})
		})
	}
	g.write = g.applied
	return g, func() { _ = f.Close(); _ = db.Close() }, nil
}

const sqliteBusiness = `CREATE TABLE doc (resource TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE effect (id INTEGER PRIMARY KEY, resource TEXT NOT NULL, operation TEXT NOT NULL, value TEXT NOT NULL) STRICT`

// place is a database for a client, and a look at it from outside.
func (c client) place(tb testing.TB) (dsn string, db *sql.DB) {
	tb.Helper()
	if c.name != "sqlite" {
		dsn = database(tb)
		return dsn, openDB(tb, dsn)
	}
	dsn = "file:" + filepath.Join(tb.TempDir(), "app.db") + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_txlock=immediate"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	mustExec(tb, db, sqliteBusiness)
	if err := sqlfence.Init(tb.Context(), db); err != nil {
		tb.Fatal(err)
	}
	return dsn, db
}

func (c client) verify(tb testing.TB, db *sql.DB) {
	tb.Helper()
	for story, query := range stories {
		if c.name == "sqlite" {
			query = strings.ReplaceAll(query, "lastword.", "lastword_")
		}
		if n := count(tb, db, query); n != 0 {
			tb.Errorf("%s: %d times", story, n)
		}
	}
}

// child is a worker process.
type child struct {
	cmd  *osexec.Cmd
	done chan struct{} // closed when all it said was read and it has been waited for
}

// start runs a child process, which dies with the test.
func start(tb testing.TB, what string, heard func(line string), args ...string) *child {
	tb.Helper()
	cmd := osexec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	c := &child{cmd, make(chan struct{})}
	go func() {
		defer close(c.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			heard(lines.Text())
		}
		_ = cmd.Wait()
	}()
	tb.Cleanup(func() { _ = cmd.Process.Kill(); <-c.done })
	return c
}

func TestEightProcessesInitAndWriteAtOnce(t *testing.T) { // KF-38 (1)
	for _, driver := range []string{"database/sql", "pgx apply"} {
		dsn := postgresEmpty(t)
		key := filepath.Join(t.TempDir(), "key.pem")
		if _, _, err := grant.LoadOrCreateKey(key); err != nil {
			t.Fatal(err)
		}
		var all []*child
		var said sync.Map
		for i := range 8 {
			all = append(all, start(t, "init", func(line string) { said.Store(i, line) }, driver, dsn, key, strconv.Itoa(i)))
		}
		for i, c := range all {
			<-c.done
			if line, _ := said.Load(i); line != "APPLIED" {
				t.Errorf("process %d: %v", i, line)
			}
		}
		if n := count(t, openDB(t, dsn), `SELECT count(*) FROM lastword.fence`); n != 8 {
			t.Errorf("%d records of 8 processes", n)
		}
	}
}

const (
	processes = 16
	resources = 4
)

// Sixteen processes write to four resources, are stopped in the middle of whatever they
// do, killed and started again, and their sessions are ended by the server. What is left
// tells one story, and no outcome stays open.
func TestSixteenProcessesPausedAndKilled(t *testing.T) { // P1, P4, P5, X1, X2, KF-22
	duration := 3 * time.Second
	if s := os.Getenv("FENCESQL_LOAD"); s != "" { // "2m" for the whole of it
		var err error
		if duration, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range allClients() {
		t.Run(c.name, func(t *testing.T) { c.hardTimes(t, duration) })
	}
}

func (c client) hardTimes(t *testing.T, duration time.Duration) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	dsn, db := c.place(t)
	key := filepath.Join(t.TempDir(), "key.pem")
	signing, _, err := grant.LoadOrCreateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	results, open, faults := map[string]int{}, map[string]string{}, map[string]int{}
	heard := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		result, rest, _ := strings.Cut(line, " ")
		operation, resource, _ := strings.Cut(rest, " ")
		results[result]++
		if result == "UNKNOWN" {
			open[operation] = resource
		} else {
			delete(open, operation)
		}
	}
	began := time.Now()
	run := func(i int) *child {
		return start(t, "work", heard, c.name, dsn, key, strconv.Itoa(i), strconv.FormatInt(began.UnixMilli(), 10), duration.String())
	}
	var workers []*child
	for i := range processes {
		workers = append(workers, run(i))
	}
	for time.Since(began) < duration {
		time.Sleep(time.Duration(20+random.IntN(60)) * time.Millisecond)
		i := random.IntN(processes)
		switch n := random.IntN(10); {
		case n < 5:
			faults["stopped"]++
			stopped := workers[i].cmd.Process // another one may have its place when it goes on
			_ = stopped.Signal(syscall.SIGSTOP)
			time.AfterFunc(time.Duration(random.IntN(700))*time.Millisecond, func() { _ = stopped.Signal(syscall.SIGCONT) })
		case n < 7:
			faults["killed"]++
			_ = workers[i].cmd.Process.Kill()
			<-workers[i].done
			workers[i] = run(i)
		case c.name != "sqlite":
			faults["session ended"]++
			if _, err := db.ExecContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 2) x`); err != nil && !strings.Contains(err.Error(), "57P01") {
				t.Log(err)
			}
		}
	}
	for _, w := range workers {
		_ = w.cmd.Process.Signal(syscall.SIGCONT)
		<-w.done
	}
	s, err := sealOf(signing)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("results %v, faults %v, open %d", results, faults, len(open))
	c.settle(t, dsn, s, lastword.Token(time.Since(began).Milliseconds()+1000)*processes, open)
	for result := range results {
		switch result {
		case "APPLIED", "REPLAYED", "STALE_OWNER", "TIMEOUT", "UNKNOWN", "LOST", "RESUMED":
		default:
			t.Errorf("unexpected: %s", result)
		}
	}
	if results["APPLIED"] < processes || results["STALE_OWNER"] == 0 || results["REPLAYED"] == 0 || faults["killed"] == 0 || faults["stopped"] == 0 {
		t.Errorf("the run did not reach everything: %v %v", results, faults)
	}
	c.verify(t, db)
}

// settle ends what killed processes have left open: a newer tenure registers its fence, and
// then looks (R22).
func (c client) settle(t *testing.T, dsn string, s *seal, newest lastword.Token, open map[string]string) {
	g := c.guard(t, dsn, s, 2)
	for i := range resources {
		resource := lastword.Resource(fmt.Sprint("r/", i))
		if _, err := g.advance(t.Context(), resource, s.holder(resource, "last", newest)); err != nil {
			t.Errorf("advance %s: %v", resource, err)
		}
	}
	for operation, resource := range open {
		_, found, err := g.lookup(t.Context(), lastword.Resource(resource), operation)
		if err != nil {
			t.Errorf("%s stays open: %v", operation, err)
		}
		t.Logf("%s on %s had its effect: %v", operation, resource, found)
	}
}

// childInit starts as a service would on its first day: init, open, first write.
func childInit(args []string) error {
	ctx, name, dsn, key, me := context.Background(), args[0], args[1], args[2], args[3]
	c, s, err := atWork(name, key)
	if err != nil {
		return err
	}
	if err := initWith(ctx, name, dsn); err != nil {
		return err
	}
	g, done, err := c.open(ctx, dsn, s.config(), 2)
	if err != nil {
		return err
	}
	defer done()
	resource := lastword.Resource("first/" + me)
	r, err := g.apply(ctx, s.holder(resource, "a", 1), "op", nil, func(context.Context, exec) error { return nil })
	fmt.Println(r.Verdict)
	return err
}

func atWork(name, key string) (client, *seal, error) {
	signing, _, err := grant.LoadOrCreateKey(key)
	if err != nil {
		return client{}, nil, err
	}
	s, err := sealOf(signing)
	for _, c := range allClients() {
		if c.name == name {
			return c, s, err
		}
	}
	return client{}, nil, fmt.Errorf("no client %q", name)
}

// childWork takes ever newer fences, writes with them, retries one operation, lets an older
// tenure try, and does not rest before it knows what became of a write.
func childWork(args []string) error {
	name, dsn, key := args[0], args[1], args[2]
	me, err1 := strconv.Atoi(args[3])
	began, err2 := strconv.ParseInt(args[4], 10, 64)
	duration, err3 := time.ParseDuration(args[5])
	c, s, err4 := atWork(name, key)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	w := &worker{c: c, dsn: dsn, seal: s}
	if err := w.open(); err != nil {
		return err
	}
	for end := time.UnixMilli(began).Add(duration); time.Now().Before(end); {
		resource := lastword.Resource(fmt.Sprint("r/", rand.IntN(resources)))
		token := lastword.Token(time.Now().UnixMilli()-began)*processes + lastword.Token(me) + 1
		h := s.holder(resource, args[3], token)
		for _, n := range []string{"1", "2", "1", "3"} {
			w.write(h, resource, fmt.Sprintf("%d-%d-%s", me, token, n))
		}
		if token > 100*processes {
			old := s.holder(resource, args[3]+"-late", token-100*processes)
			w.write(old, resource, fmt.Sprintf("%d-%d-late", me, token))
		}
	}
	return nil
}

type worker struct {
	c    client
	dsn  string
	seal *seal
	g    *guarded
}

func (w *worker) open() (err error) {
	for range 50 { // the server may be ending sessions
		if w.g, _, err = w.c.open(context.Background(), w.dsn, w.seal.config(), 2); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// write says what became of one write, in one word for each attempt.
func (w *worker) write(h *holder, resource lastword.Resource, operation string) {
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		r, err := w.g.write(ctx, h, resource, operation, "by "+operation)
		cancel()
		result := word(r, err)
		fmt.Println(result, operation, resource)
		if result != "UNKNOWN" {
			return
		}
	}
}

func word(r lastword.Receipt, err error) string {
	var e *lastword.Error
	switch {
	case err == nil:
		return string(r.Verdict)
	case errors.Is(err, lastword.ErrUnknownOutcome):
		return "UNKNOWN"
	case errors.Is(err, lastword.ErrStale):
		return "STALE_OWNER"
	case errors.Is(err, context.DeadlineExceeded) && errors.Is(err, lastword.ErrUnavailable):
		return "TIMEOUT"
	case errors.As(err, &e) && e.Code == lastword.CodeUnavailable, strings.Contains(err.Error(), "57P01"), strings.Contains(err.Error(), "conn closed"):
		return "LOST" // nothing was written
	case errors.As(err, &e) && e.Code == lastword.CodeOutOfOrder:
		return "RESUMED" // the operation before was lost
	}
	return strings.ReplaceAll("ERROR:"+err.Error(), " ", "_")
}
