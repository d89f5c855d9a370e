package realservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Programs are paths of what the nested module has.
type Programs struct {
	EtcdMember string // one member of etcd
	PeerLoad   string // the load generator for the peers
}

const (
	mainModule   = "module github.com/lastword/lastword\n"
	nestedModule = "internal/realservers/peers"
)

// Peers builds the programs of the nested module into bin/peers of the checkout that
// the working directory lies in; what is there already and up to date costs about a
// second. The first build takes minutes. Outside of a checkout, or without Go, the
// error is a [*MissingError].
func Peers(ctx context.Context) (Programs, error) {
	root, err := checkout()
	if err != nil {
		return Programs{}, &MissingError{Server: "etcd", Err: err}
	}
	bin := filepath.Join(root, "bin", "peers")
	built := Programs{filepath.Join(bin, "etcdmember"), filepath.Join(bin, "peerload")}
	compiler, err := exec.LookPath("go")
	if err != nil {
		return Programs{}, &MissingError{Server: "etcd", Package: "golang", Err: err}
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return Programs{}, err
	}
	// One build at a time: nobody runs a program that another one is replacing.
	lock, err := os.OpenFile(filepath.Join(bin, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return Programs{}, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return Programs{}, err
	}
	source := filepath.Join(root, filepath.FromSlash(nestedModule))
	if err := copyFiles(source, bin, "go.mod", "go.sum"); err != nil {
		return Programs{}, err
	}
	err = run(ctx, Command{
		Path: compiler, Dir: source, Env: []string{"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS="},
		Args: []string{
			"build", "-mod=mod", "-modfile=" + filepath.Join(bin, "go.mod"), "-buildvcs=false", "-trimpath",
			"-o", bin + "/", "./etcdmember", "./peerload",
		},
	})
	if err != nil {
		return Programs{}, fmt.Errorf("build %s: %w", nestedModule, err)
	}
	return built, nil
}

// copyFiles lets the build raise what the two modules share, where the product has moved
// on, without a change of the checkout.
func copyFiles(from, to string, names ...string) error {
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// checkout is the root of the checkout that the working directory lies in.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(b), mainModule) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("it is built in a checkout of lastword, and the working directory lies in none")
		}
		dir = parent
	}
}
