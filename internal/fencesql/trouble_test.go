package fencesql_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	osexec "os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/postgrestest"
	"github.com/lastword/lastword/internal/realservers"
)

// withCallback are the clients that run a callback inside the transaction.
func withCallback(t *testing.T, test func(t *testing.T, c client)) {
	for _, c := range clients {
		if c.name != "pgx send" {
			t.Run(c.name, func(t *testing.T) { test(t, c) })
		}
	}
}

func TestADeadlockRepeatsTheWholeTransactionUnderOneOperation(t *testing.T) { // X24, R16
	withCallback(t, func(t *testing.T, c client) {
		dsn := database(t)
		db, s := openDB(t, dsn), newSeal(t)
		g := c.guard(t, dsn, s, 4)
		mustExec(t, db, `INSERT INTO doc VALUES ('x', ''), ('y', '')`)
		runs := map[string]int{}
		var mu sync.Mutex
		var met sync.WaitGroup
		met.Add(2)
		var all sync.WaitGroup
		for _, me := range []struct{ resource, first, second string }{{"r/1", "x", "y"}, {"r/2", "y", "x"}} {
			all.Go(func() {
				h := s.holder(lastword.Resource(me.resource), "a", 1)
				r, err := g.apply(t.Context(), h, "op-"+me.resource, nil, func(_ context.Context, run exec) error {
					mu.Lock()
					runs[me.resource]++
					first := runs[me.resource] == 1
					mu.Unlock()
					if _, err := run(`UPDATE doc SET value = value || '.' WHERE resource = $1`, me.first); err != nil {
						return err
					}
					if first {
						met.Done()
						met.Wait()
					}
					_, err := run(`UPDATE doc SET value = value || '.' WHERE resource = $1`, me.second)
					return err
				})
				if err != nil || r.Verdict != lastword.Applied {
					t.Errorf("%s: %+v %v", me.resource, r, err)
				}
			})
		}
		all.Wait()
		if runs["r/1"]+runs["r/2"] < 3 {
			t.Errorf("no deadlock was met: %v", runs)
		}
		if n := count(t, db, `SELECT count(*) FROM doc WHERE value = '..'`); n != 2 {
			t.Error("an effect was lost or doubled")
		}
	})
}

func TestASerializationFailureRepeatsTheWholeTransaction(t *testing.T) { // X24, R16
	withCallback(t, func(t *testing.T, c client) {
		dsn := database(t)
		db, s := openDB(t, dsn), newSeal(t)
		g := c.guard(t, dsn+"&default_transaction_isolation=serializable", s, 4)
		mustExec(t, db, `INSERT INTO doc VALUES ('x', '0')`)
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				resource := lastword.Resource(fmt.Sprint("r/", i))
				h := s.holder(resource, "a", 1)
				for n := range 5 {
					r, err := g.apply(t.Context(), h, fmt.Sprint("op-", n), nil, func(_ context.Context, run exec) error {
						_, err := run(`UPDATE doc SET value = value::int + 1 WHERE resource = 'x'`)
						return err
					})
					if err != nil || r.Verdict != lastword.Applied {
						t.Errorf("%s: %+v %v", resource, r, err)
					}
				}
			})
		}
		all.Wait()
		if n := count(t, db, `SELECT value::int FROM doc WHERE resource = 'x'`); n != 20 {
			t.Errorf("%d additions of 20", n)
		}
	})
}

func TestAFullPoolAndAFullServerSayThatNothingWasSent(t *testing.T) { // X28
	server, err := realservers.PostgreSQL(t.Context(), realservers.Config{Settings: []string{"max_connections=12", "superuser_reserved_connections=2", "max_wal_senders=0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	admin := openDB(t, server.DSN)
	admin.SetMaxOpenConns(1)
	if err := prepare(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	mustExec(t, admin, `CREATE ROLE app LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA lastword TO app; GRANT USAGE ON SCHEMA lastword TO app; GRANT ALL ON doc, effect TO app`)
	dsn := strings.Replace(server.DSN, "postgres@", "app@", 1)
	for _, c := range clients {
		s := newSeal(t)
		g, done, err := c.open(t.Context(), dsn, s.config(), 8)
		if err != nil {
			t.Fatal(err)
		}
		h := s.holder(lastword.Resource(c.name), "a", 1)
		if _, err := g.write(t.Context(), h, lastword.Resource(c.name), "first", "v"); err != nil {
			t.Fatal(err)
		}
		others := openDB(t, dsn)
		var taken []*sql.Conn
		for {
			conn, err := others.Conn(t.Context())
			if err != nil {
				break // the server is full
			}
			taken = append(taken, conn)
		}
		var busy sync.WaitGroup
		release := make(chan struct{})
		if g.apply != nil { // the one connection that the pool has is in use
			holding := make(chan struct{})
			busy.Go(func() {
				_, _ = g.apply(t.Context(), s.holder("busy", "b", 1), "busy", nil, func(context.Context, exec) error {
					close(holding)
					<-release
					return errors.New("no")
				})
			})
			<-holding
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err = g.write(ctx, h, lastword.Resource(c.name), "second", "v")
		cancel()
		if g.apply != nil && (!errors.Is(err, lastword.ErrUnavailable) || errors.Is(err, lastword.ErrUnknownOutcome)) {
			t.Errorf("%s: a full server: %v", c.name, err)
		}
		close(release)
		busy.Wait()
		for _, conn := range taken {
			_ = conn.Close()
		}
		_ = others.Close()
		if r, err := g.write(t.Context(), h, lastword.Resource(c.name), "second", "v"); err != nil {
			t.Errorf("%s: afterwards: %+v %v", c.name, r, err)
		}
		done()
	}
	verify(t, admin)
}

func TestAServerThatCrashesInMidTransactionLeavesNothingOrAll(t *testing.T) { // X28, X17
	server, err := realservers.PostgreSQL(t.Context(), realservers.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	admin := openDB(t, server.DSN)
	admin.SetMaxIdleConns(0) // each of its connections is new
	if err := prepare(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	withCallback(t, func(t *testing.T, c client) {
		s := newSeal(t)
		resource := lastword.Resource(c.name)
		g := c.guard(t, server.DSN, s, 2)
		h := s.holder(resource, "a", 1)
		crash := func(op string, when func(ctx context.Context, pid int) error) error {
			first := true
			_, err := g.apply(t.Context(), h, op, []byte("v"), func(ctx context.Context, run exec) error {
				if err := effect(resource, op, "v")(ctx, run); err != nil || !first {
					return err
				}
				first = false
				return when(ctx, backend(t, admin))
			})
			return err
		}
		err := crash(c.name+" killed", func(_ context.Context, pid int) error { return syscall.Kill(pid, syscall.SIGKILL) })
		// Whether it is unknown depends on how soon the server is there again, and says what
		// became of the transaction. With pgx the record travels with COMMIT, and nobody can
		// tell whether it was heard.
		if n := survived(t, admin, c.name+" killed"); err != nil && n != 0 {
			t.Errorf("killed before COMMIT: %d effects after %v", n, err)
		}
		await(t, func() bool {
			_, err := g.write(t.Context(), h, resource, c.name+" killed", "v")
			return err == nil
		})
		if n := survived(t, admin, c.name+" killed"); n != 1 {
			t.Errorf("%d effects", n)
		}

		// The disk fails at the COMMIT: PostgreSQL panics, and may find the commit in its
		// log all the same. An error is not "did not happen".
		err = crash(c.name+" disk", func(ctx context.Context, pid int) error { return failNextSync(t, pid) })
		if !errors.Is(err, lastword.ErrUnknownOutcome) {
			t.Errorf("fsync failed at COMMIT: %v", err)
		}
		t.Logf("%s: after the crash the write that was not acknowledged is there: %v", c.name, survived(t, admin, c.name+" disk") == 1)
		await(t, func() bool {
			_, err := g.write(t.Context(), h, resource, c.name+" disk", "v")
			return err == nil
		})
		if n := survived(t, admin, c.name+" disk"); n != 1 {
			t.Errorf("%d effects", n)
		}
		verify(t, admin)
	})
}

// survived is how often an operation has had its effect, told by a server that may still
// be coming up.
func survived(tb testing.TB, admin *sql.DB, operation string) (n int) {
	tb.Helper()
	await(tb, func() bool {
		return admin.QueryRowContext(tb.Context(), `SELECT count(*) FROM effect WHERE operation = $1`, operation).Scan(&n) == nil
	})
	return n
}

// backend is the process of the only transaction that is not over.
func backend(tb testing.TB, admin *sql.DB) int {
	tb.Helper()
	return count(tb, admin, `SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction' AND backend_type = 'client backend' AND pid <> pg_backend_pid()`)
}

// failNextSync lets the next fdatasync of a process fail, as a disk would.
func failNextSync(tb testing.TB, pid int) error {
	tb.Helper()
	path, err := osexec.LookPath("strace")
	if err != nil {
		tb.Fatal("strace is not there: apt-get install strace")
	}
	cmd := osexec.Command(path, "-p", fmt.Sprint(pid), "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:error=EIO:when=1")
	out, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	tb.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "attached") {
			var seen atomic.Bool
			done := make(chan struct{})
			go func() {
				defer close(done)
				for lines.Scan() {
					seen.Store(seen.Load() || strings.Contains(lines.Text(), "INJECTED"))
				}
			}()
			tb.Cleanup(func() {
				_ = cmd.Process.Kill()
				<-done
				if !seen.Load() {
					tb.Error("the fault did not fire")
				}
			})
			return nil
		}
		tb.Log(lines.Text())
	}
	return errors.New("strace did not attach")
}

func TestASynchronousCommitThatIsOffIsRefused(t *testing.T) { // durable before visible
	for _, c := range clients {
		dsn := database(t)
		db, s := openDB(t, dsn), newSeal(t)
		g := c.guard(t, dsn, s, 1)
		h := s.holder("r", "a", 1)
		if _, err := g.write(t.Context(), h, "r", "first", "v"); err != nil {
			t.Fatal(err)
		}
		mustExec(t, db, `ALTER DATABASE `+postgrestest.Name(dsn)+` SET synchronous_commit = off`)
		if _, _, err := c.open(t.Context(), dsn, s.config(), 1); !errors.Is(err, lastword.ErrInvalid) || !strings.HasPrefix(err.Error(), "open fence: ") {
			t.Errorf("%s: opened: %v", c.name, err)
		}
		mustExec(t, db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		await(t, func() bool { // the pool's connection is a new one
			_, err := g.write(t.Context(), h, "r", "second", "v")
			return errors.Is(err, lastword.ErrInvalid)
		})
		if n := effects(t, db, "second"); n != 0 {
			t.Errorf("%s: %d effects", c.name, n)
		}
	}
}
