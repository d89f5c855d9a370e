package realservers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// PgBouncer starts a pooler in transaction mode in front of a PostgreSQL that
// [PostgreSQL] started. DSN is a URL of the same database. Like PostgreSQL it does not
// run as root. Its package is pgbouncer.
func PgBouncer(ctx context.Context, postgres *Server, cfg Config) (*Server, error) {
	path, err := program("pgbouncer", "pgbouncer", "/usr/sbin/pgbouncer")
	if err != nil {
		return nil, err
	}
	owner, err := unprivileged("postgres", "nobody")
	if err != nil {
		return nil, fmt.Errorf("start pgbouncer: %w", err)
	}
	host, port, _ := strings.Cut(postgres.Addr, ":")
	return start(ctx, cfg, launch{
		name: "pgbouncer", ports: 1, owner: owner,
		command: func(dir string, ports []int) (Command, error) {
			settings := append([]string{
				"[databases]", fmt.Sprintf("* = host=%s port=%s user=%s", host, port, postgresName),
				"[pgbouncer]", "listen_addr = 127.0.0.1", fmt.Sprintf("listen_port = %d", ports[0]), "unix_socket_dir =",
				"auth_type = any", "pool_mode = transaction", "default_pool_size = 50", "max_client_conn = 1000",
				"ignore_startup_parameters = extra_float_digits",
			}, cfg.Settings...)
			file := filepath.Join(dir, "pgbouncer.ini")
			if err := os.WriteFile(file, []byte(strings.Join(settings, "\n")+"\n"), 0o644); err != nil {
				return Command{}, err
			}
			return Command{Path: path, Args: []string{file}, Dir: dir, User: owner}, nil
		},
		ready: func(ctx context.Context, ports []int) (string, error) {
			return askPostgreSQL(ctx, address(ports[0]), postgresName)
		},
		dsn: func(_ string, ports []int) string { return postgresURL(ports[0]) },
	})
}
