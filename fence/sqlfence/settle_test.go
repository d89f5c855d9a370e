package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

// A transaction that began before an operator's act may not see it. The act says so, and
// is over only when no such transaction is left.
func TestAnActIsOverWhenNoTransactionFromBeforeIsLeft(t *testing.T) { // R18, R20
	shadowed := whole
	shadowed.Shadow = true
	p := pgProtect(t, pgDocuments, shadowed)
	place := p.fence.Place()
	for name, act := range map[string]func(ctx context.Context) error{
		"enforce": func(ctx context.Context) error {
			_, err := place.Enforce(ctx, domain, "doc/", anna)
			return err
		},
		"restored": func(ctx context.Context) error {
			_, err := fence.DeclareRestored(ctx, place, fence.Restore{Domain: domain, Until: wall, Act: anna,
				NextFence: func(context.Context, lastword.Resource) (lastword.Token, error) { return 99, nil }})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			old, err := p.bypass.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = old.Rollback() }()
			if _, err := old.ExecContext(t.Context(), `SELECT 1 FROM doc`); err != nil {
				t.Fatal(err)
			}
			var process string
			if err := old.QueryRowContext(t.Context(), `SELECT 'process:' || pg_backend_pid()`).Scan(&process); err != nil {
				t.Fatal(err)
			}
			short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if err := act(short); !errors.Is(err, lastword.ErrUnavailable) || !strings.Contains(err.Error(), process) || !strings.Contains(err.Error(), "in force") {
				t.Errorf("%s is open: %v", process, err)
			}
			if name == "enforce" {
				p.refused(`UPDATE doc SET body = 'now' WHERE id = 'a'`)
				if _, err := old.ExecContext(t.Context(), `UPDATE doc SET body = 'late' WHERE id = 'a'`); err != nil {
					t.Logf("the transaction from before: %v", err) // it may, and does
				}
			}
			if err := old.Rollback(); err != nil {
				t.Fatal(err)
			}
			if err := act(t.Context()); err != nil {
				t.Errorf("nobody is left: %v", err)
			}
		})
	}
}
