package sqlfence

import (
	"context"
	"database/sql"

	"github.com/lastword/lastword/internal/fencesql"
	"github.com/lastword/lastword/internal/sqldb"
)

// Steps is how many migrations there are.
func Steps() int { return len(fencesql.SQLite{}.Schema().Steps) }

// InitWith is Init with further steps behind the real ones.
func InitWith(ctx context.Context, db *sql.DB, further ...[]string) error {
	return initialise(ctx, db, func(e fencesql.Engine) sqldb.Schema {
		s := e.Schema()
		s.Steps = append(append([][]string{}, s.Steps...), further...)
		return s
	})
}
