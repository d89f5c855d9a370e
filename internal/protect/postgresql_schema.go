package protect

import "github.com/lastword/lastword/internal/sqldb"

// postgresSchema stands beside that of the fence.
var postgresSchema = sqldb.Schema{
	Name:   "protect",
	Tables: []string{"lastword_protected"},
	Steps: [][]string{{
		`CREATE TABLE lastword.protected (
	name text COLLATE "C" NOT NULL PRIMARY KEY, -- with its schema, as a statement has it
	domain text COLLATE "C" NOT NULL,
	template text COLLATE "C" NOT NULL,
	columns text COLLATE "C" NOT NULL, -- a JSON array; []: all
	shadow smallint NOT NULL CHECK (shadow IN (0, 1)),
	is_open smallint NOT NULL CHECK (is_open IN (0, 1)),
	since text COLLATE "C" NOT NULL -- for people
)`,
		postgresIssued, postgresRank,
	}, {}, {
		// A function has no rows to keep: the last step makes those anew that decide, and
		// no earlier one makes any. What was granted on them stays.
		`DROP FUNCTION IF EXISTS lastword.refuse(text, text, text, bigint, lastword.receipt)`,
		postgresNamed, postgresCheck, postgresRefuse, postgresDecide, postgresApply, postgresAdvance, postgresRefused, postgresBypassed, postgresRevoke, postgresGrant,
		postgresDamagedRecords, postgresDamagedReceipts,
	}},
}

// postgresBypassed is what becomes of a row without a pass. It runs as whoever made the
// table's triggers, so that the writer needs no right on the tables of the fence.
//
// After so many rows one of a hundred stands for all, drawn by chance: by their numbers,
// writers that take turns would be left out, or nobody else be seen.
const postgresBypassed = `CREATE OR REPLACE FUNCTION lastword.bypassed(in_domain text, in_resource text, in_prefix text, in_relation text, in_event text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	n bigint;
BEGIN
	IF NOT lastword.shadows(in_domain, coalesce(in_resource, in_prefix)) THEN
		RAISE EXCEPTION 'lastword: FENCE_REQUIRED: the table % is protected', in_relation USING
			ERRCODE = 'LW010', DETAIL = format('%s without a pass for the resource %s of the domain %s', in_event, coalesce(quote_literal(in_resource), 'of the row, which has none'), in_domain),
			HINT = 'Write through the fence, in the transaction that it has admitted, under a lease on the resource of the row.';
	END IF;
	n := nextval('lastword.bypass_number_seq');
	IF n <= 10000 OR random() * 100 < 1 THEN
		INSERT INTO lastword.bypass (number, domain, resource, relation, event, weight) OVERRIDING SYSTEM VALUE
		VALUES (n, in_domain, coalesce(in_resource, ''), in_relation, in_event, CASE WHEN n <= 10000 THEN 1 ELSE 100 END);
	END IF;
END $$`
