package realservers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Redis starts redis-server with an append-only file that is synced before every
// answer (appendfsync always). Its package is redis-server.
func Redis(ctx context.Context, cfg Config) (*Server, error) {
	path, err := program("redis", "redis-server", "/usr/bin/redis-server", "/usr/local/bin/redis-server", "/opt/homebrew/bin/redis-server")
	if err != nil {
		return nil, err
	}
	return start(ctx, cfg, launch{
		name: "redis", ports: 1,
		command: func(dir string, ports []int) (Command, error) {
			args := []string{
				"--bind", "127.0.0.1", "--port", fmt.Sprint(ports[0]), "--dir", dir, "--daemonize", "no",
				"--appendonly", "yes", "--appendfsync", "always", "--save", "",
				// Nothing is rewritten in the middle of a measurement.
				"--auto-aof-rewrite-percentage", "0",
			}
			for _, setting := range cfg.Settings { // "appendfsync no"
				name, value, _ := strings.Cut(setting, " ")
				args = append(args, "--"+name, value)
			}
			return Command{Path: path, Args: args}, nil
		},
		ready: func(ctx context.Context, ports []int) (string, error) { return askRedis(ctx, address(ports[0])) },
	})
}

func askRedis(ctx context.Context, addr string) (version string, err error) {
	err = talk(ctx, addr, func(conn net.Conn) error {
		if _, err := fmt.Fprint(conn, "PING\r\nINFO server\r\n"); err != nil {
			return err
		}
		lines := bufio.NewScanner(conn)
		if !lines.Scan() || lines.Text() != "+PONG" {
			return fmt.Errorf("the answer to PING is %q", lines.Text())
		}
		for lines.Scan() {
			if v, ok := strings.CutPrefix(lines.Text(), "redis_version:"); ok {
				version = v
				return nil
			}
		}
		return errors.Join(errors.New("it does not tell its version"), lines.Err())
	})
	return version, err
}

// talk runs a conversation over one connection, which ends with ctx.
func talk(ctx context.Context, addr string, conversation func(conn net.Conn) error) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	return conversation(conn)
}
