package realservers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Lastword starts "lastword serve" of the given program, on a new SQLite file, for the
// domain "bench". Settings are further flags of it ("--lock-delay=jobs/=1s"). Its
// LASTWORD_… variables are not the caller's.
func Lastword(ctx context.Context, program string, cfg Config) (_ *Server, err error) {
	dir, err := makeDirectory(cfg.Dir, "lastword", nil)
	if err != nil {
		return nil, err
	}
	s := &Server{Name: "lastword", dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	p, err := Start(Command{
		Path: program, Env: unset("LASTWORD_"), Talk: true,
		Args: append([]string{
			"serve", "--store", "sqlite:" + filepath.Join(dir.path, "lastword.db"), "--domain", "bench", "--grpc", "127.0.0.1:0", "-o", "json",
		}, cfg.Settings...),
	})
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, p)
	said := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(p.Out).ReadString('\n')
		if err == nil {
			said <- line
		}
	}()
	s.Version, err = await(ctx, s, func(ctx context.Context) (string, error) {
		select {
		case line := <-said:
			return "", s.told(line)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	return s, err
}

// told reads the line that says that calls are answered.
func (s *Server) told(line string) error {
	var ready struct {
		Ready bool
		GRPC  string
	}
	if err := json.Unmarshal([]byte(line), &ready); err != nil || !ready.Ready || ready.GRPC == "" {
		return fmt.Errorf("it says %q", line)
	}
	s.Addr, s.DSN = ready.GRPC, ready.GRPC
	return nil
}

// unset are the variables of this process with a prefix, as empty ones.
func unset(prefix string) []string {
	var empty []string
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, prefix) {
			empty = append(empty, name+"=")
		}
	}
	return empty
}
