package realservers_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lastword/lastword/internal/realservers"
)

// TestEveryServerComesUpAndLeavesNothing: what a server needs is installed by
// `make test`; where it is missing the test fails and names the package.
func TestEveryServerComesUpAndLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: real servers; runs without the race detector")
	}
	t.Parallel()
	for name, start := range map[string]func(ctx context.Context, cfg realservers.Config) (*realservers.Server, error){
		"redis":      realservers.Redis,
		"zookeeper":  realservers.ZooKeeper,
		"postgresql": realservers.PostgreSQL,
		"mariadb":    realservers.MariaDB,
		"etcd1": func(ctx context.Context, cfg realservers.Config) (*realservers.Server, error) {
			return realservers.Etcd(ctx, 1, cfg)
		},
		"etcd3": func(ctx context.Context, cfg realservers.Config) (*realservers.Server, error) {
			return realservers.Etcd(ctx, 3, cfg)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := open(t)
			s, err := start(t.Context(), realservers.Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			checkRunning(t, s)
			checkStopped(t, s, dir)
		})
	}
	t.Run("pgbouncer", func(t *testing.T) {
		t.Parallel()
		dir := open(t)
		db, err := realservers.PostgreSQL(t.Context(), realservers.Config{Dir: open(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Stop()
		s, err := realservers.PgBouncer(t.Context(), db, realservers.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		checkRunning(t, s)
		checkStopped(t, s, dir)
	})
}

func checkRunning(t *testing.T, s *realservers.Server) {
	t.Helper()
	if s.Version == "" || s.Version[0] < '0' || s.Version[0] > '9' {
		t.Errorf("version %q", s.Version)
	}
	t.Log(s.Name, s.Version, s.DSN)
	if u, err := s.Usage(); !errors.Is(err, errors.ErrUnsupported) && (err != nil || u.RSS <= 0) {
		t.Errorf("usage %+v, %v", u, err)
	}
}

func checkStopped(t *testing.T, s *realservers.Server, dir string) {
	t.Helper()
	for range 2 { // a second one does nothing
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in its directory: %v, %v", left, err)
	}
	for addr := range strings.SplitSeq(s.Addr, ",") {
		if listens(addr) {
			t.Errorf("something still listens on %s", addr)
		}
	}
	if _, err := s.Usage(); err == nil {
		t.Error("a process is alive")
	}
}

func listens(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// open is a directory that servers of other users can enter.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "realservers-test-") //nolint:usetesting // t.TempDir lies in a private directory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAServerThatDoesNotComeUpIsAnErrorWithItsOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := realservers.Redis(t.Context(), realservers.Config{Dir: dir, Settings: []string{"no-such-setting 1"}})
	if err == nil {
		_ = s.Stop()
		t.Fatal("it came up")
	}
	if !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("the error does not show what the server printed: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestAStartThatIsGivenUpLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if _, err := realservers.Redis(ctx, realservers.Config{Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestAServerThatWasKilledIsStoppedLikeAnyOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := realservers.Redis(t.Context(), realservers.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	checkStopped(t, s, dir)
}

func TestDirectoriesOfDeadProcessesAreRemovedAndThoseOfLivingOnesStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dead := filepath.Join(dir, "lastword-server-redis-1")
	if err := os.Mkdir(dead, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead, "in-use"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := realservers.Redis(t.Context(), realservers.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Stop()
	second, err := realservers.Redis(t.Context(), realservers.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Stop()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("got %v, %v, want the two of the servers that run", left, err)
	}
}
