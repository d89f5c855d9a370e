package realservers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
)

// MariaDB starts one server with its defaults, durable. DSN is that of Go's driver, as
// root without a password, for the database test. Its package is mariadb-server.
func MariaDB(ctx context.Context, cfg Config) (*Server, error) {
	path, err := program("mariadb", "mariadb-server", "/usr/sbin/mariadbd")
	if err != nil {
		return nil, err
	}
	install, err := program("mariadb", "mariadb-server", "/usr/bin/mariadb-install-db")
	if err != nil {
		return nil, err
	}
	owner, err := unprivileged("mysql", "nobody")
	if err != nil {
		return nil, fmt.Errorf("start mariadb: %w", err)
	}
	return start(ctx, cfg, launch{
		name: "mariadb", ports: 1, owner: owner,
		command: func(dir string, ports []int) (Command, error) {
			data := filepath.Join(dir, "data")
			if err := run(ctx, Command{Path: install, Dir: dir, User: owner, Args: []string{
				"--no-defaults", "--datadir=" + data, "--auth-root-authentication-method=normal", "--skip-name-resolve",
			}}); err != nil {
				return Command{}, err
			}
			args := []string{
				"--no-defaults", "--datadir=" + data, "--socket=" + filepath.Join(dir, "socket"), "--pid-file=" + filepath.Join(dir, "pid"),
				"--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", ports[0]), "--skip-name-resolve", "--max-connections=200",
			}
			for _, setting := range cfg.Settings { // "innodb-flush-log-at-trx-commit=0"
				args = append(args, "--"+setting)
			}
			return Command{Path: path, Args: args, Dir: dir, User: owner}, nil
		},
		ready: func(ctx context.Context, ports []int) (string, error) { return askMariaDB(ctx, address(ports[0])) },
		dsn:   func(_ string, ports []int) string { return fmt.Sprintf("root@tcp(%s)/test", address(ports[0])) },
	})
}

// askMariaDB reads the greeting, which comes when the server takes connections.
func askMariaDB(ctx context.Context, addr string) (version string, err error) {
	err = talk(ctx, addr, func(conn net.Conn) error {
		var head [5]byte // length, number, then the protocol's version
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		body := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
		if len(body) < 2 {
			return errors.New("an empty greeting")
		}
		if _, err := io.ReadFull(conn, body[:len(body)-1]); err != nil {
			return err
		}
		if head[4] != 10 {
			return fmt.Errorf("it answers %q", body)
		}
		text, _, _ := strings.Cut(string(body), "\x00")
		version, _, _ = strings.Cut(strings.TrimPrefix(text, "5.5.5-"), "-")
		return nil
	})
	return version, err
}
