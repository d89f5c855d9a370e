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
	return fencesql.Init(ctx, engine, db, schema(engine), engine.Closing().Schema())
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
	case err == nil && fencesql.IsPostgreSQL(version), sqldb.SQLState(err) != "", err != nil && (sqldb.PostgreSQL{}).Class(err) == sqldb.Unreachable:
		engine = fencesql.PostgreSQL{}
	case err == nil:
		return nil, &lastword.Error{Code: lastword.CodeInvalid, Op: op,
			Message: "the database is neither SQLite nor PostgreSQL", Hint: "only these are supported"}
	}
	err = sqldb.Backoff{}.Retry(ctx, engine, func(ctx context.Context) error { return engine.Check(ctx, conn) })
	return engine, fencesql.Explain(engine, op, err)
}
