package realservers_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastword/lastword/internal/realservers"
)

// parentName makes this binary a parent of servers instead of tests.
const parentName = "run-as-parent"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == parentName {
		if err := parent(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {} // until it is killed
	}
	os.Exit(m.Run())
}

// parent starts servers, one of them as another user, says where they are, and hangs.
func parent(dir string) error {
	ctx := context.Background()
	redis, err := realservers.Redis(ctx, realservers.Config{Dir: dir})
	if err != nil {
		return err
	}
	postgres, err := realservers.PostgreSQL(ctx, realservers.Config{Dir: dir})
	if err != nil {
		return err
	}
	fmt.Println(redis.Addr, postgres.Addr)
	return nil
}

// TestServersEndWhenTheirParentIsKilled: nobody is left to stop them, and the next
// start of any server removes their directories.
func TestServersEndWhenTheirParentIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: real servers; runs without the race detector")
	}
	t.Parallel()
	dir := open(t)
	p, err := realservers.Start(realservers.Command{Path: os.Args[0], Args: []string{parentName, dir}, Talk: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	said := bufio.NewScanner(p.Out)
	if !said.Scan() {
		t.Fatalf("the parent did not start: %s", p.Output())
	}
	addrs := strings.Fields(said.Text())
	if len(addrs) != 2 {
		t.Fatalf("the parent says %q", said.Text())
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, addr := range addrs {
		gone(t, addr)
	}
	s, err := realservers.Redis(t.Context(), realservers.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("in its directory are %v, %v, want the new server's alone", left, err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

// gone waits until nobody listens on addr.
func gone(t *testing.T, addr string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); listens(addr); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("something still listens on %s", addr)
		}
	}
}
