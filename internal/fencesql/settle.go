package fencesql

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lastword/lastword"
)

const (
	settlePatience = 10 * time.Second
	settlePause    = 20 * time.Millisecond
)

// postgresOpen are the transactions that are open in this database, but for the one that
// asks. Each has a lock on its virtual number, whatever it has done, and everybody may see
// that. Those that wait for COMMIT PREPARED have none.
const postgresOpen = `SELECT coalesce(string_agg(o.name, ' '), '') FROM (
	SELECT 'process:' || l.pid || ':' || l.virtualxid AS name FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
	WHERE l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock' AND a.datname = current_database() AND l.pid <> pg_catalog.pg_backend_pid()
		AND coalesce(a.backend_type, '') NOT IN ('autovacuum worker', 'walsender')
	UNION ALL SELECT 'prepared:' || replace(gid, ' ', '_') FROM pg_catalog.pg_prepared_xacts WHERE database = current_database()) o`

// Settle waits until every transaction has ended that is open when it is called. On
// PostgreSQL one that began before a roll-out was ended, or a restore was declared, may not
// see that: at REPEATABLE READ and SERIALIZABLE for as long as it lives, and what it has
// written before is not looked at again. On SQLite nobody writes on what is not the newest
// state. It waits for 10 s at most.
func Settle(ctx context.Context, e Engine, c Conn, op string) error {
	if _, ok := e.(PostgreSQL); !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	ticker := time.NewTicker(settlePause) //nolint:forbidigo // how often to look; nothing is decided by it
	defer ticker.Stop()
	before, err := opened(ctx, c)
	for err == nil && len(before) > 0 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		var now []string
		if now, err = opened(ctx, c); err == nil {
			before = slices.DeleteFunc(before, func(name string) bool { return !slices.Contains(now, name) })
		}
	}
	if err == nil {
		return nil
	}
	left := "which of those from before are still open could not be read"
	if len(before) > 0 {
		left = "of those from before some are still open: " + some(before)
	}
	return &lastword.Error{
		Code: lastword.CodeUnavailable, Op: op, Err: err,
		Message: "done, and in force for every transaction that begins now; " + left,
		Hint:    "wait for them, or end them, and run it again until it succeeds",
	}
}

func opened(ctx context.Context, c Conn) ([]string, error) {
	var names string
	err := c.Row(ctx, postgresOpen).Scan(&names)
	return strings.Fields(names), err
}

// some is the first few of names.
func some(names []string) string {
	const few = 5
	if len(names) > few {
		names = append(names[:few:few], "…")
	}
	return strings.Join(names, ", ")
}
