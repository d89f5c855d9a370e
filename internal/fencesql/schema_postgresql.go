package fencesql

import (
	"slices"
	"strings"

	"github.com/lastword/lastword/internal/sqldb"
)

// postgresSchema is the tables on PostgreSQL 13 or later (xid8). Names are compared byte by
// byte (COLLATE "C", KF-28). Digests are text, so that a person can compare them with a
// grant; ” is "none". All of it is in the schema lastword, where no search_path and
// no temporary table gets in between.
var postgresSchema = sqldb.Schema{
	Name:   "fence",
	Tables: slices.Concat(tables, []string{"lastword_pass", "lastword_bypass"}),
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
		// Which resources are being rolled out (R18): a prefix ends with a slash, or is ''
		// for all; else it is a resource. The longest counts.
		`CREATE TABLE lastword.rollout (
	domain text COLLATE "C" NOT NULL,
	prefix text COLLATE "C" NOT NULL,
	shadow smallint NOT NULL CHECK (shadow IN (0, 1)),
	since text COLLATE "C" NOT NULL, -- for people
	PRIMARY KEY (domain, prefix)
)`,
		// The transaction to which a resource without a record is open (R16c).
		`CREATE TABLE lastword.pass (
	domain text COLLATE "C" NOT NULL,
	resource text COLLATE "C" NOT NULL,
	xact xid8 NOT NULL,
	PRIMARY KEY (domain, resource)
)`,
		// What has bypassed the fence in a roll-out. Rows are added and never changed, so
		// that nobody who is counted waits for another one.
		`CREATE TABLE lastword.bypass (
	number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	domain text COLLATE "C" NOT NULL,
	resource text COLLATE "C" NOT NULL, -- '': of no resource
	relation text NOT NULL,
	event text NOT NULL,
	verdict text NOT NULL DEFAULT 'FENCE_REQUIRED',
	login text NOT NULL DEFAULT session_user,
	application text NOT NULL DEFAULT current_setting('application_name'),
	weight bigint NOT NULL -- how many it stands for
)`,
		`CREATE INDEX bypass_resource ON lastword.bypass (domain, resource)`,
		postgresShadows,
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
		`CREATE TRIGGER one_way BEFORE UPDATE ON lastword.rollout FOR EACH ROW
WHEN (NEW.shadow > OLD.shadow OR NEW.domain <> OLD.domain OR NEW.prefix <> OLD.prefix)
EXECUTE FUNCTION lastword.never('a roll-out that has ended does not begin again')`,
		`CREATE TRIGGER never_deleted BEFORE DELETE ON lastword.rollout FOR EACH ROW WHEN (OLD.shadow = 0)
EXECUTE FUNCTION lastword.never('a roll-out that has ended does not begin again')`,
		`CREATE TRIGGER never_truncated BEFORE TRUNCATE ON lastword.rollout FOR EACH STATEMENT
EXECUTE FUNCTION lastword.never('a roll-out that has ended does not begin again')`,
		`ALTER TABLE lastword.rollout ENABLE ALWAYS TRIGGER one_way, ENABLE ALWAYS TRIGGER never_deleted, ENABLE ALWAYS TRIGGER never_truncated`,
		`CREATE TRIGGER never_changed BEFORE UPDATE ON lastword.act FOR EACH ROW
EXECUTE FUNCTION lastword.never('what an operator did is never changed')`,
		`CREATE TRIGGER never_deleted BEFORE DELETE ON lastword.act FOR EACH ROW
EXECUTE FUNCTION lastword.never('what an operator did is never deleted')`,
		`CREATE TRIGGER never_truncated BEFORE TRUNCATE ON lastword.act FOR EACH STATEMENT
EXECUTE FUNCTION lastword.never('what an operator did is never deleted')`,
		`ALTER TABLE lastword.fence ENABLE ALWAYS TRIGGER never_lowered, ENABLE ALWAYS TRIGGER never_deleted, ENABLE ALWAYS TRIGGER never_truncated`,
		`ALTER TABLE lastword.act ENABLE ALWAYS TRIGGER never_changed, ENABLE ALWAYS TRIGGER never_deleted, ENABLE ALWAYS TRIGGER never_truncated`,
	}, {
		// The newest trust bundle that was brought here binds every record (R13).
		`CREATE TABLE lastword.bundle (
	domain text COLLATE "C" NOT NULL PRIMARY KEY,
	sequence bigint NOT NULL CHECK (sequence >= 0),
	min_epoch bigint NOT NULL CHECK (min_epoch >= 0)
)`,
		`INSERT INTO lastword.bundle (domain, sequence, min_epoch)
SELECT domain, max(bundle_sequence), max(min_epoch) FROM lastword.fence GROUP BY domain`,
		`CREATE TRIGGER never_lowered BEFORE UPDATE ON lastword.bundle FOR EACH ROW
WHEN (NEW.sequence < OLD.sequence OR NEW.min_epoch < OLD.min_epoch OR NEW.domain <> OLD.domain)
EXECUTE FUNCTION lastword.never('a trust bundle never goes back')`,
		`ALTER TABLE lastword.bundle ENABLE ALWAYS TRIGGER never_lowered`,
	}, {
		// A condition of a table is read and planned by every statement that writes to
		// it: one costs less than ten.
		`ALTER TABLE lastword.fence DROP CONSTRAINT IF EXISTS fence_fence_check, DROP CONSTRAINT IF EXISTS fence_last_seq_check,
	DROP CONSTRAINT IF EXISTS fence_step_check, DROP CONSTRAINT IF EXISTS fence_bundle_sequence_check,
	DROP CONSTRAINT IF EXISTS fence_min_epoch_check, DROP CONSTRAINT IF EXISTS fence_min_policy_generation_check,
	DROP CONSTRAINT IF EXISTS fence_heard_epoch_check, DROP CONSTRAINT IF EXISTS fence_heard_revision_check,
	DROP CONSTRAINT IF EXISTS fence_restored_check, DROP CONSTRAINT IF EXISTS fence_pruned_check,
	ADD CONSTRAINT fence_numbers CHECK (fence <= 9007199254740991 AND least(fence, last_seq, step, bundle_sequence, min_epoch,
		min_policy_generation, heard_epoch, heard_revision, restored, pruned) >= 0)`,
		// A store looks at the settings of COMMIT whenever it is, behind the effect too, and
		// none of them calls what a session's search_path has.
		anew(postgresShadows), anew(postgresLoad), anew(postgresStore),
	}},
}

func anew(function string) string {
	return strings.Replace(function, "CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)
}

// tables are the tables of the fence on every engine.
var tables = []string{
	"lastword_fence", "lastword_receipt", "lastword_tombstone", "lastword_refusal",
	"lastword_quarantine", "lastword_restored", "lastword_act", "lastword_rollout", "lastword_bundle",
}
