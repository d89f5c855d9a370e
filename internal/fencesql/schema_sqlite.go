package fencesql

import "github.com/lastword/lastword/internal/sqldb"

// sqliteSchema is the tables on SQLite. Digests are text, so that a person can compare
// them with a grant; ” is "none". TEXT without a collation compares bytes (KF-28).
var sqliteSchema = sqldb.Schema{
	Name:   "fence",
	Tables: tables,
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
	}, {
		// Receipts of operations that were issued up to here, in ms since 1970, may be
		// gone without a tombstone (R19).
		`ALTER TABLE lastword_fence ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0 CHECK (pruned >= 0)`,
		// Which resources are being rolled out (R18): a prefix ends with a slash, or is ''
		// for all; else it is a resource. The longest counts.
		`CREATE TABLE lastword_rollout (
	domain TEXT NOT NULL,
	prefix TEXT NOT NULL,
	shadow INTEGER NOT NULL CHECK (shadow IN (0, 1)),
	since TEXT NOT NULL, -- for people
	PRIMARY KEY (domain, prefix)
) STRICT, WITHOUT ROWID`,
		// R18 also against a slip of the hand in a SQL shell.
		`CREATE TRIGGER lastword_rollout_one_way BEFORE UPDATE ON lastword_rollout
WHEN NEW.shadow > OLD.shadow OR NEW.domain <> OLD.domain OR NEW.prefix <> OLD.prefix
BEGIN SELECT RAISE(ABORT, 'lastword: a roll-out that has ended does not begin again'); END`,
		`CREATE TRIGGER lastword_rollout_never_deleted BEFORE DELETE ON lastword_rollout WHEN NOT OLD.shadow
BEGIN SELECT RAISE(ABORT, 'lastword: a roll-out that has ended does not begin again'); END`,
	}, {
		// The newest trust bundle that was brought here binds every record (R13).
		`CREATE TABLE lastword_bundle (
	domain TEXT NOT NULL PRIMARY KEY,
	sequence INTEGER NOT NULL CHECK (sequence >= 0),
	min_epoch INTEGER NOT NULL CHECK (min_epoch >= 0)
) STRICT, WITHOUT ROWID`,
		`INSERT INTO lastword_bundle (domain, sequence, min_epoch)
SELECT domain, max(bundle_sequence), max(min_epoch) FROM lastword_fence GROUP BY domain`,
		`CREATE TRIGGER lastword_bundle_never_lowered BEFORE UPDATE ON lastword_bundle
WHEN NEW.sequence < OLD.sequence OR NEW.min_epoch < OLD.min_epoch OR NEW.domain <> OLD.domain
BEGIN SELECT RAISE(ABORT, 'lastword: a trust bundle never goes back'); END`,
		// REPLACE deletes the row in its way, and no trigger hears of that.
		`CREATE TRIGGER lastword_fence_never_replaced BEFORE INSERT ON lastword_fence
WHEN EXISTS (SELECT 1 FROM lastword_fence WHERE domain = NEW.domain AND resource = NEW.resource AND fence > NEW.fence)
BEGIN SELECT RAISE(ABORT, 'lastword: a fence is never lowered by a replacement'); END`,
	}},
}
