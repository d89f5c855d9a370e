package sqlfence

import (
	"context"
	"database/sql"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/sqldb"
)

// schema is what [Init] creates. Digests are text, so that a person can compare
// them with a grant; ” is "none". TEXT without a collation compares bytes (KF-28).
var schema = sqldb.Schema{
	Name:   "fence",
	Tables: []string{"lastword_fence", "lastword_receipt", "lastword_tombstone", "lastword_refusal", "lastword_quarantine", "lastword_restored", "lastword_act"},
	// A store has one writer, which expects no other.
	Apart: []string{"lastword_header"},
	Steps: [][]string{{
		`CREATE TABLE lastword_fence (
	domain TEXT NOT NULL,
	resource TEXT NOT NULL,
	fence INTEGER NOT NULL CHECK (fence BETWEEN 0 AND 9007199254740991),
	lease_id TEXT NOT NULL, -- '': closed, an equal fence is stale
	grant_digest TEXT NOT NULL,
	root TEXT NOT NULL,
	last_seq INTEGER NOT NULL CHECK (last_seq >= 0),
	last_operation TEXT NOT NULL,
	last_payload TEXT NOT NULL,
	policy TEXT NOT NULL,
	status_mode TEXT NOT NULL,
	frozen INTEGER NOT NULL CHECK (frozen IN (0, 1)),
	step INTEGER NOT NULL CHECK (step >= 0), -- allowed jump of the fence, 0: the default
	bundle_sequence INTEGER NOT NULL CHECK (bundle_sequence >= 0),
	min_epoch INTEGER NOT NULL CHECK (min_epoch >= 0),
	min_policy_generation INTEGER NOT NULL CHECK (min_policy_generation >= 0),
	PRIMARY KEY (domain, resource)
) STRICT, WITHOUT ROWID`,
		// P1 and R19 also against a slip of the hand in a SQL shell.
		`CREATE TRIGGER lastword_fence_never_lowered BEFORE UPDATE OF domain, resource, fence ON lastword_fence
WHEN NEW.fence < OLD.fence OR NEW.domain <> OLD.domain OR NEW.resource <> OLD.resource
BEGIN SELECT RAISE(ABORT, 'lastword: a fence is never lowered or moved'); END`,
		`CREATE TRIGGER lastword_fence_never_deleted BEFORE DELETE ON lastword_fence
BEGIN SELECT RAISE(ABORT, 'lastword: a fence is never deleted while its data lives'); END`,
		`CREATE TABLE lastword_receipt (
	domain TEXT NOT NULL,
	resource TEXT NOT NULL,
	operation TEXT NOT NULL,
	payload TEXT NOT NULL,
	fence INTEGER NOT NULL,
	seq INTEGER NOT NULL,
	lease_id TEXT NOT NULL,
	grant_digest TEXT NOT NULL,
	owner TEXT NOT NULL,
	caller TEXT NOT NULL,
	root TEXT NOT NULL,
	result BLOB NOT NULL,
	applied_at TEXT NOT NULL, -- for people
	PRIMARY KEY (domain, resource, operation)
) STRICT, WITHOUT ROWID`,
		`CREATE TABLE lastword_tombstone (
	domain TEXT NOT NULL,
	resource TEXT NOT NULL,
	operation_digest TEXT NOT NULL,
	pruned_at TEXT NOT NULL,
	PRIMARY KEY (domain, resource, operation_digest)
) STRICT, WITHOUT ROWID`,
		`CREATE TABLE lastword_refusal (
	domain TEXT NOT NULL,
	resource TEXT NOT NULL,
	verdict TEXT NOT NULL,
	times INTEGER NOT NULL,
	last_why TEXT NOT NULL,
	last_fence INTEGER NOT NULL,
	last_lease_id TEXT NOT NULL,
	last_claimant TEXT NOT NULL,
	last_at TEXT NOT NULL,
	PRIMARY KEY (domain, resource, verdict)
) STRICT, WITHOUT ROWID`,
		`CREATE TABLE lastword_quarantine (
	domain TEXT NOT NULL,
	resource TEXT NOT NULL,
	claimant TEXT NOT NULL,
	place TEXT NOT NULL CHECK (place IN ('first', 'last')),
	times INTEGER NOT NULL, -- in the row 'first': how many there were in all
	verdict TEXT NOT NULL,
	why TEXT NOT NULL,
	fence INTEGER NOT NULL,
	lease_id TEXT NOT NULL,
	operation TEXT NOT NULL,
	seq INTEGER NOT NULL,
	payload TEXT NOT NULL,
	content BLOB NOT NULL,
	noted_at TEXT NOT NULL,
	PRIMARY KEY (domain, resource, claimant, place)
) STRICT, WITHOUT ROWID`,
	}, {
		`ALTER TABLE lastword_fence ADD COLUMN imported INTEGER NOT NULL DEFAULT 0 CHECK (imported IN (0, 1))`,
		// The newest answer of the authority that was heard: no older proof is believed.
		`ALTER TABLE lastword_fence ADD COLUMN heard_epoch INTEGER NOT NULL DEFAULT 0 CHECK (heard_epoch >= 0)`,
		`ALTER TABLE lastword_fence ADD COLUMN heard_revision INTEGER NOT NULL DEFAULT 0 CHECK (heard_revision >= 0)`,
		// The mark of an open window after a restore, in ms since 1970; 0: none.
		`ALTER TABLE lastword_fence ADD COLUMN restored INTEGER NOT NULL DEFAULT 0 CHECK (restored >= 0)`,
		`CREATE TABLE lastword_restored (
	domain TEXT NOT NULL PRIMARY KEY,
	mark INTEGER NOT NULL CHECK (mark >= 0)
) STRICT, WITHOUT ROWID`,
		`CREATE TABLE lastword_act (
	number INTEGER PRIMARY KEY,
	domain TEXT NOT NULL,
	resource TEXT NOT NULL, -- '': the whole place
	kind TEXT NOT NULL,
	operator TEXT NOT NULL,
	reason TEXT NOT NULL,
	fence_before INTEGER NOT NULL,
	fence_after INTEGER NOT NULL,
	mark INTEGER NOT NULL,
	at TEXT NOT NULL -- for people
) STRICT`,
		`CREATE INDEX lastword_act_resource ON lastword_act (domain, resource, number)`,
		`CREATE TRIGGER lastword_act_never_changed BEFORE UPDATE ON lastword_act
BEGIN SELECT RAISE(ABORT, 'lastword: what an operator did is never changed'); END`,
		`CREATE TRIGGER lastword_act_never_deleted BEFORE DELETE ON lastword_act
BEGIN SELECT RAISE(ABORT, 'lastword: what an operator did is never deleted'); END`,
	}},
}

// Init creates the tables, or brings older ones up to date. It never touches a row
// of a record, and does nothing where nothing is to be done. Several processes may
// run it at once (KF-38): one does the work, the others wait and see it, until ctx
// ends. It leaves the journal mode and every other setting of the file alone.
//
// A file that is no database, a database that cannot be written to, a newer schema
// and tables of somebody else with our names are refused with one line, and nothing
// is changed.
func Init(ctx context.Context, db *sql.DB) error {
	return initialise(ctx, db, schema)
}

func initialise(ctx context.Context, db *sql.DB, s sqldb.Schema) error {
	const op = "fence init"
	if err := checkEngine(ctx, op, db); err != nil {
		return err
	}
	err := sqldb.Backoff{}.Retry(ctx, dialect, func(ctx context.Context) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close() // goes back to the pool; what it did has been reported
		// Migrate must not be interrupted in COMMIT.
		ctx = context.WithoutCancel(ctx)
		if err := sqldb.Migrate(ctx, dialect, conn, s); err != nil {
			return err
		}
		return sqldb.Migrate(ctx, dialect, conn, engine.Schema())
	})
	return explain(op, err)
}

// checkSchema looks whether the tables are there, in a version that this code knows.
func checkSchema(ctx context.Context, op string, db *sql.DB) error {
	old := false
	err := sqldb.Backoff{}.Retry(ctx, dialect, func(ctx context.Context) error {
		for _, s := range []sqldb.Schema{schema, engine.Schema()} {
			version, err := sqldb.Inspect(ctx, dialect, db, s)
			if err != nil {
				return err
			}
			old = old || version < len(s.Steps)
		}
		return nil
	})
	switch {
	case err != nil:
		return explain(op, err)
	case old:
		return &lastword.Error{Code: lastword.CodeInvalid, Op: op,
			Message: "the database does not have the tables of the fence, or has older ones",
			Hint:    "run lastword fence init on it once, or call sqlfence.Init"}
	}
	return nil
}
