package fencesql

import (
	"context"
	"database/sql"
	"slices"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/protect"
	"github.com/lastword/lastword/internal/sqldb"
)

// Init creates the tables of schemas, in their order, or brings older ones up to date.
func Init(ctx context.Context, e Engine, db *sql.DB, schemas ...sqldb.Schema) error {
	err := sqldb.Backoff{}.Retry(ctx, e, func(ctx context.Context) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close() // goes back to the pool; what it did has been reported
		// Migrate must not be interrupted in COMMIT.
		ctx = context.WithoutCancel(ctx)
		for _, s := range schemas {
			if err := sqldb.Migrate(ctx, e, conn, s); err != nil {
				return err
			}
		}
		return renew(ctx, e, conn, schemas)
	})
	return Explain(e, "fence init", err)
}

// renew makes what an older program has made of the protection of tables anew, once their
// list is there.
func renew(ctx context.Context, e Engine, conn *sql.Conn, schemas []sqldb.Schema) error {
	closing := e.Closing()
	if !slices.ContainsFunc(schemas, func(s sqldb.Schema) bool { return s.Name == closing.Schema().Name }) {
		return nil
	}
	if old, err := protect.Outdated(ctx, closing, conn); err != nil || len(old) == 0 {
		return err
	}
	_, err := sqldb.Transact(ctx, e, conn, func(ctx context.Context) error {
		if err := e.Enter(ctx, conn); err != nil { // of several that run at once one does it
			return err
		}
		old, err := protect.Outdated(ctx, closing, conn)
		for _, statement := range old {
			if err == nil {
				_, err = conn.ExecContext(ctx, statement)
			}
		}
		return err
	})
	return err
}

// CheckSchema looks whether the tables are there, in a version that this code knows.
func CheckSchema(ctx context.Context, op string, e Engine, db *sql.DB, schemas ...sqldb.Schema) error {
	old := false
	err := sqldb.Backoff{}.Retry(ctx, e, func(ctx context.Context) error {
		for _, s := range schemas {
			version, err := sqldb.Inspect(ctx, e, db, s)
			if err != nil {
				return err
			}
			old = old || version < len(s.Steps)
		}
		return nil
	})
	switch {
	case err != nil:
		return Explain(e, op, err)
	case old:
		return &lastword.Error{Code: lastword.CodeInvalid, Op: op,
			Message: "the database does not have the tables of the fence, or has older ones",
			Hint:    "run lastword fence init on it once"}
	}
	return nil
}
