package fencesql

import "github.com/lastword/lastword/internal/sqldb"

// postgresSchema is the tables on PostgreSQL 13 or later (xid8). Names are compared byte by
// byte (COLLATE "C", KF-28). Digests are text, so that a person can compare them with a
// grant; ” is "none". All of it is in the schema lastword, where no search_path and
// no temporary table gets in between.
var postgresSchema = sqldb.Schema{
	Name:   "fence",
	Tables: tables,
	Steps: [][]string{{
		// Room beside each row: the record moves with every write, and finds place
		// in its own page without touching an index.
		`CREATE TABLE lastword.fence (
	domain text COLLATE "C" NOT NULL,
	resource text COLLATE "C" NOT NULL,
	fence bigint NOT NULL CHECK (fence BETWEEN 0 AND 9007199254740991),
	lease_id text COLLATE "C" NOT NULL, -- '': closed, an equal fence is stale
	grant_digest text COLLATE "C" NOT NULL,
	root text COLLATE "C" NOT NULL,
	last_seq bigint NOT NULL CHECK (last_seq >= 0),
	last_operation text COLLATE "C" NOT NULL,
	last_payload text COLLATE "C" NOT NULL,
	policy text COLLATE "C" NOT NULL,
	status_mode text COLLATE "C" NOT NULL,
	frozen boolean NOT NULL,
	step bigint NOT NULL CHECK (step >= 0), -- allowed jump of the fence, 0: the default
	bundle_sequence bigint NOT NULL CHECK (bundle_sequence >= 0),
	min_epoch bigint NOT NULL CHECK (min_epoch >= 0),
	min_policy_generation bigint NOT NULL CHECK (min_policy_generation >= 0),
	imported boolean NOT NULL,
	heard_epoch bigint NOT NULL CHECK (heard_epoch >= 0), -- the newest answer of the authority that was heard
	heard_revision bigint NOT NULL CHECK (heard_revision >= 0),
	restored bigint NOT NULL CHECK (restored >= 0), -- mark of an open window after a restore, ms since 1970; 0: none
	pruned bigint NOT NULL DEFAULT 0 CHECK (pruned >= 0), -- receipts issued up to here may be gone without a tombstone, ms since 1970
	passed xid8, -- the transaction that has passed the fence last: while it runs, the resource is open to it (R16c)
	PRIMARY KEY (domain, resource)
) WITH (fillfactor = 50)`,
		`CREATE TABLE lastword.receipt (
	domain text COLLATE "C" NOT NULL,
	resource text COLLATE "C" NOT NULL,
	operation text COLLATE "C" NOT NULL,
	payload text COLLATE "C" NOT NULL,
	fence bigint NOT NULL,
	seq bigint NOT NULL,
	lease_id text COLLATE "C" NOT NULL,
	grant_digest text COLLATE "C" NOT NULL,
	owner text COLLATE "C" NOT NULL,
	caller text COLLATE "C" NOT NULL,
	root text COLLATE "C" NOT NULL,
	result bytea NOT NULL,
	applied_at text COLLATE "C" NOT NULL, -- for people
	PRIMARY KEY (domain, resource, operation)
)`,
		`CREATE TABLE lastword.tombstone (
	domain text COLLATE "C" NOT NULL,
	resource text COLLATE "C" NOT NULL,
	operation_digest text COLLATE "C" NOT NULL,
	pruned_at text COLLATE "C" NOT NULL,
	PRIMARY KEY (domain, resource, operation_digest)
)`,
		`CREATE TABLE lastword.refusal (
	domain text COLLATE "C" NOT NULL,
	resource text COLLATE "C" NOT NULL,
	verdict text COLLATE "C" NOT NULL,
	times bigint NOT NULL,
	last_why text COLLATE "C" NOT NULL,
	last_fence bigint NOT NULL,
	last_lease_id text COLLATE "C" NOT NULL,
	last_claimant text COLLATE "C" NOT NULL,
	last_at text COLLATE "C" NOT NULL,
	PRIMARY KEY (domain, resource, verdict)
)`,
		`CREATE TABLE lastword.quarantine (
	domain text COLLATE "C" NOT NULL,
	resource text COLLATE "C" NOT NULL,
	claimant text COLLATE "C" NOT NULL,
	place text COLLATE "C" NOT NULL CHECK (place IN ('first', 'last')),
	times bigint NOT NULL, -- in the row 'first': how many there were in all
	verdict text COLLATE "C" NOT NULL,
	why text COLLATE "C" NOT NULL,
	fence bigint NOT NULL,
	lease_id text COLLATE "C" NOT NULL,
	operation text COLLATE "C" NOT NULL,
	seq bigint NOT NULL,
	payload text COLLATE "C" NOT NULL,
	content bytea NOT NULL,
	noted_at text COLLATE "C" NOT NULL,
	PRIMARY KEY (domain, resource, claimant, place)
)`,
		`CREATE TABLE lastword.restored (
	domain text COLLATE "C" NOT NULL PRIMARY KEY,
	mark bigint NOT NULL CHECK (mark >= 0)
)`,
		`CREATE TABLE lastword.act (
	number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	domain text COLLATE "C" NOT NULL,
	resource text COLLATE "C" NOT NULL, -- '': the whole place
	kind text COLLATE "C" NOT NULL,
	operator text COLLATE "C" NOT NULL,
	reason text COLLATE "C" NOT NULL,
	fence_before bigint NOT NULL,
	fence_after bigint NOT NULL,
	mark bigint NOT NULL,
	at text COLLATE "C" NOT NULL -- for people
)`,
		`CREATE INDEX act_resource ON lastword.act (domain, resource, number)`,
		postgresLoad,
		postgresStore,
		// P1 and R19 also against a slip of the hand in a SQL shell, and in a session
		// that replays another server's changes.
		`CREATE FUNCTION lastword.never() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'lastword: %', TG_ARGV[0] USING ERRCODE = 'LW000';
END $$`,
		`CREATE TRIGGER never_lowered BEFORE UPDATE OF domain, resource, fence ON lastword.fence FOR EACH ROW
WHEN (NEW.fence < OLD.fence OR NEW.domain <> OLD.domain OR NEW.resource <> OLD.resource)
EXECUTE FUNCTION lastword.never('a fence is never lowered or moved')`,
		`CREATE TRIGGER never_deleted BEFORE DELETE ON lastword.fence FOR EACH ROW
EXECUTE FUNCTION lastword.never('a fence is never deleted while its data lives')`,
		`CREATE TRIGGER never_truncated BEFORE TRUNCATE ON lastword.fence FOR EACH STATEMENT
EXECUTE FUNCTION lastword.never('a fence is never deleted while its data lives')`,
		`CREATE TRIGGER never_changed BEFORE UPDATE ON lastword.act FOR EACH ROW
EXECUTE FUNCTION lastword.never('what an operator did is never changed')`,
		`CREATE TRIGGER never_deleted BEFORE DELETE ON lastword.act FOR EACH ROW
EXECUTE FUNCTION lastword.never('what an operator did is never deleted')`,
		`CREATE TRIGGER never_truncated BEFORE TRUNCATE ON lastword.act FOR EACH STATEMENT
EXECUTE FUNCTION lastword.never('what an operator did is never deleted')`,
		`ALTER TABLE lastword.fence ENABLE ALWAYS TRIGGER never_lowered, ENABLE ALWAYS TRIGGER never_deleted, ENABLE ALWAYS TRIGGER never_truncated`,
		`ALTER TABLE lastword.act ENABLE ALWAYS TRIGGER never_changed, ENABLE ALWAYS TRIGGER never_deleted, ENABLE ALWAYS TRIGGER never_truncated`,
	}},
}

// tables are the tables of the fence on every engine.
var tables = []string{
	"lastword_fence", "lastword_receipt", "lastword_tombstone", "lastword_refusal",
	"lastword_quarantine", "lastword_restored", "lastword_act",
}
