package bench_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// heavy tests start real servers.
func heavy(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("heavy: real servers; runs without the race detector")
	}
}

// shared is a directory that servers of other users can enter.
func shared(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bench-test-") //nolint:usetesting // t.TempDir lies in a private directory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

var (
	buildOnce sync.Once
	built     string
	buildErr  error
)

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(filepath.Dir(built))
	}
	os.Exit(code)
}

// lastwordProgram is the real program, which is server and load generator.
func lastwordProgram(t *testing.T) string {
	t.Helper()
	buildOnce.Do(func() {
		dir, err := os.MkdirTemp("", "bench-test-program-") //nolint:usetesting // for all tests
		if err != nil {
			buildErr = err
			return
		}
		built = filepath.Join(dir, "lastword")
		cmd := exec.Command("go", "build", "-buildvcs=false", "-o", built, "../cmd/lastword")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			buildErr = &buildError{string(out), err}
		}
	})
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return built
}

type buildError struct {
	out string
	err error
}

func (e *buildError) Error() string { return e.err.Error() + ": " + e.out }

// TestNothingOutlivesABenchThatIsKilled: SIGKILL leaves nobody who could stop servers
// and load generators.
func TestNothingOutlivesABenchThatIsKilled(t *testing.T) {
	heavy(t)
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("the kernel ends orphans on Linux only")
	}
	dir := shared(t)
	cmd := exec.Command(lastwordProgram(t), "bench", "--workload", "W1", "--peers", "redis,postgresql", "--duration", "1h", "--dir", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var kids []int
	until(t, "servers and load generators run", func() bool {
		kids = descendants(t, cmd.Process.Pid)
		return len(kids) >= 6 // two servers of ours and Redis, PostgreSQL with its own, three load generators
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	until(t, "all of them are gone", func() bool {
		for _, pid := range kids {
			if state := stat(pid); state != nil && state[0] != "Z" {
				return false
			}
		}
		return true
	})
}

// descendants of a process, as /proc shows them.
func descendants(t *testing.T, pid int) (all []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	parents := map[int]int{}
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if fields := stat(id); fields != nil {
			parents[id], _ = strconv.Atoi(fields[1])
		}
	}
	for id := range parents {
		for up, ok := parents[id]; ok; up, ok = parents[up] {
			if up == pid {
				all = append(all, id)
				break
			}
		}
	}
	return all
}

// stat is state, parent and so on, nil for none.
func stat(pid int) []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for this: %s", what)
		}
	}
}
