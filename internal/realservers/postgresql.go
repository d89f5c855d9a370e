package realservers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// The database of PostgreSQL, and its role, which needs no password.
const postgresName = "postgres"

// postgresPrograms is where Debian has them, the newest version last.
const postgresPrograms = "/usr/lib/postgresql/*/bin"

// PostgreSQL starts one server with its defaults, durable, for up to 200 connections.
// DSN is a URL of the database and role postgres, without a password. PostgreSQL does
// not run as root: started by root it runs as the user postgres, or as nobody. Its
// package is postgresql.
func PostgreSQL(ctx context.Context, cfg Config) (*Server, error) {
	found, err := filepath.Glob(postgresPrograms)
	if err != nil || len(found) == 0 {
		return nil, &MissingError{Server: "postgresql", Package: "postgresql", Err: errors.New("no " + postgresPrograms)}
	}
	bin := found[len(found)-1]
	postgres, err := program("postgresql", "postgresql", bin+"/postgres")
	if err != nil {
		return nil, err
	}
	owner, err := unprivileged("postgres", "nobody")
	if err != nil {
		return nil, fmt.Errorf("start postgresql: %w", err)
	}
	return start(ctx, cfg, launch{
		name: "postgresql", ports: 1, owner: owner,
		command: func(dir string, ports []int) (Command, error) {
			data := filepath.Join(dir, "data")
			if err := initdb(ctx, bin+"/initdb", dir, data, owner); err != nil {
				return Command{}, err
			}
			args := []string{
				"-D", data, "-c", "listen_addresses=127.0.0.1", "-c", fmt.Sprintf("port=%d", ports[0]),
				"-c", "unix_socket_directories=", "-c", "max_connections=200",
			}
			for _, setting := range cfg.Settings { // "fsync=off"
				args = append(args, "-c", setting)
			}
			// SIGINT breaks connections off. SIGQUIT ends at once and still gives the
			// shared memory back, which SIGKILL would leave behind.
			return Command{Path: postgres, Args: args, Dir: dir, User: owner, Term: syscall.SIGINT, Orphaned: syscall.SIGQUIT}, nil
		},
		ready: func(ctx context.Context, ports []int) (string, error) {
			return askPostgreSQL(ctx, address(ports[0]), postgresName)
		},
		dsn: func(_ string, ports []int) string { return postgresURL(ports[0]) },
	})
}

func postgresURL(port int) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", postgresName, address(port), postgresName)
}

func initdb(ctx context.Context, path, dir, data string, owner *syscall.Credential) error {
	return run(ctx, Command{Path: path, Dir: dir, User: owner, Args: []string{
		"-D", data, "-U", postgresName, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions",
	}})
}

// unprivileged is the first of the users that exists, for a caller that is root; nil
// for one that is not.
func unprivileged(names ...string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nobody else is needed
	}
	var missing error
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			missing = err
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, missing
}

// askPostgreSQL opens a session in PostgreSQL's protocol, version 3.0, and returns the
// server's version once it says that it is ready for a query.
func askPostgreSQL(ctx context.Context, addr, database string) (version string, err error) {
	err = talk(ctx, addr, func(conn net.Conn) error {
		hello := binary.BigEndian.AppendUint32(nil, 3<<16)
		hello = append(hello, "user\x00"+postgresName+"\x00database\x00"+database+"\x00\x00"...)
		if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(hello)+4)), hello...)); err != nil {
			return err
		}
		for {
			kind, body, err := postgresMessage(conn)
			if err != nil {
				return err
			}
			switch kind {
			case 'S': // a parameter
				if name, value, _ := strings.Cut(string(body), "\x00"); name == "server_version" {
					version, _, _ = strings.Cut(strings.TrimRight(value, "\x00"), " ")
				}
			case 'E':
				return fmt.Errorf("it answers %q", body)
			case 'Z':
				_, err := conn.Write([]byte{'X', 0, 0, 0, 4})
				return err
			}
		}
	})
	return version, err
}

func postgresMessage(conn io.Reader) (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size < 4 || size > 1<<20 {
		return 0, nil, fmt.Errorf("a message of %d bytes", size)
	}
	body = make([]byte, size-4)
	_, err = io.ReadFull(conn, body)
	return head[0], body, err
}
