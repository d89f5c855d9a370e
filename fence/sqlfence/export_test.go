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

// PassTexts are the statements that open and close a pass on SQLite.
func PassTexts() (open, closes string) { return sqlPass, sqlClosePass }

// Mistake makes the place execute wrong wherever it means text.
func (p *Place) Mistake(ctx context.Context, text, wrong string) error {
	stmt, err := p.db.PrepareContext(ctx, wrong)
	if err != nil {
		return err
	}
	old := p.stmts[text]
	p.stmts[text] = stmt
	return old.Close()
}
