package sqlfence

import (
	"context"
	"database/sql"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/fencesql"
	"github.com/lastword/lastword/internal/sqldb"
)

// Init creates the tables, or brings older ones up to date. It never touches a row
// of a record, and does nothing where nothing is to be done. Several processes may
// run it at once (KF-38): one does the work, the others wait and see it, until ctx
// ends. It leaves every setting of the database alone, the journal mode of a SQLite file
// among them.
//
// A file that is no database, a database that cannot be written to, a newer schema
// and tables of somebody else with our names are refused with one line, and nothing
// is changed. On PostgreSQL the tables are in the schema lastword, which is made by
// whoever may create one in the database.
func Init(ctx context.Context, db *sql.DB) error {
	return initialise(ctx, db, func(e fencesql.Engine) sqldb.Schema { return e.Schema() })
}

func initialise(ctx context.Context, db *sql.DB, schema func(fencesql.Engine) sqldb.Schema) error {
	const op = "fence init"
	engine, err := engineOf(ctx, op, db)
	if err != nil {
		return err
	}
	err = sqldb.Backoff{}.Retry(ctx, engine, func(ctx context.Context) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close() // goes back to the pool; what it did has been reported
		// Migrate must not be interrupted in COMMIT.
		ctx = context.WithoutCancel(ctx)
		if err := sqldb.Migrate(ctx, engine, conn, schema(engine)); err != nil {
			return err
		}
		return sqldb.Migrate(ctx, engine, conn, closing(engine).Schema())
	})
	return fencesql.Explain(engine, op, err)
}

// checkSchema looks whether the tables are there, in a version that this code knows.
func checkSchema(ctx context.Context, op string, engine fencesql.Engine, db *sql.DB) error {
	old := false
	err := sqldb.Backoff{}.Retry(ctx, engine, func(ctx context.Context) error {
		for _, s := range []sqldb.Schema{engine.Schema(), closing(engine).Schema()} {
			version, err := sqldb.Inspect(ctx, engine, db, s)
			if err != nil {
				return err
			}
			old = old || version < len(s.Steps)
		}
		return nil
	})
	switch {
	case err != nil:
		return fencesql.Explain(engine, op, err)
	case old:
		return &lastword.Error{Code: lastword.CodeInvalid, Op: op,
			Message: "the database does not have the tables of the fence, or has older ones",
			Hint:    "run lastword fence init on it once, or call sqlfence.Init"}
	}
	return nil
}

// engineOf asks the database what it is. SQLite has no function version, and no log
// that an error would disturb.
func engineOf(ctx context.Context, op string, db *sql.DB) (fencesql.Engine, error) {
	if db == nil {
		return nil, &lastword.Error{Code: lastword.CodeInvalid, Op: op, Message: "the database is nil", Hint: "open it with sql.Open"}
	}
	conn := fencesql.Plain{Querier: db}
	var engine fencesql.Engine = fencesql.SQLite{}
	var version string
	err := conn.Row(ctx, "SELECT version()").Scan(&version)
	switch {
	case err == nil && fencesql.IsPostgreSQL(version), sqldb.SQLState(err) != "":
		engine = fencesql.PostgreSQL{}
	case err == nil:
		return nil, &lastword.Error{Code: lastword.CodeInvalid, Op: op,
			Message: "the database is neither SQLite nor PostgreSQL", Hint: "only these are supported"}
	}
	err = sqldb.Backoff{}.Retry(ctx, engine, func(ctx context.Context) error { return engine.Check(ctx, conn) })
	return engine, fencesql.Explain(engine, op, err)
}
