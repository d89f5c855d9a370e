package protect

// What other languages call (R17, P3). It is the one place where an engine decides by
// itself: every row of the verdict table of internal/core is put to it.
//
// It checks no signature and asks no authority. What its caller says of both is believed:
// the right to call it is the right to write.
//
// What is called has a search_path of its own, so that no function that somebody has made
// fits its arguments better than that of pg_catalog. What that calls runs under it.

// postgresIssued is core.IssueTime.
const postgresIssued = `CREATE FUNCTION lastword.issued(operation text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE
	WHEN operation COLLATE "C" ~ '^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$'
		THEN ('x' || left(replace(operation, '-', ''), 12))::bit(48)::bigint
	WHEN operation COLLATE "C" ~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$' THEN (
		SELECT sum((strpos('0123456789ABCDEFGHJKMNPQRSTVWXYZ', substr(operation, i, 1)) - 1)::bigint << (5 * (10 - i)))::bigint FROM generate_series(1, 10) i)
	END
$$`

// postgresRank is core.StatusMode's order.
const postgresRank = `CREATE FUNCTION lastword.rank(mode text) RETURNS int LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE mode WHEN 'fence-only' THEN 0 WHEN 'proof' THEN 1 WHEN 'query' THEN 2 ELSE -1 END
$$`

// postgresRefuse ends a call with a verdict. attempt is what has to be told to
// lastword.refused after the roll-back; numbers are text, since not every language has
// integers of 64 bits in its JSON.
const postgresRefuse = `CREATE OR REPLACE FUNCTION lastword.refuse(verdict text, why text, domain text, resource text, stored bigint, receipt lastword.receipt, attempt jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'lastword: %', verdict || CASE WHEN why = '' THEN '' ELSE ' (' || why || ')' END || ': ' || resource USING
		ERRCODE = CASE verdict WHEN 'REPLAYED' THEN 'LW100' WHEN 'CONFLICT' THEN 'LW101' WHEN 'STALE_OWNER' THEN 'LW102'
			WHEN 'RECEIPT_EXPIRED' THEN 'LW103' WHEN 'OUT_OF_ORDER' THEN 'LW104' WHEN 'ROOT_MISMATCH' THEN 'LW105'
			WHEN 'FENCE_REGRESSION' THEN 'LW106' WHEN 'FENCE_JUMP' THEN 'LW107' WHEN 'UNVERIFIED' THEN 'LW108' WHEN 'STATUS_UNAVAILABLE' THEN 'LW109' END,
		DETAIL = jsonb_build_object('verdict', verdict, 'why', why, 'domain', domain, 'resource', resource, 'fence', stored::text, 'attempt', attempt,
			'receipt', CASE WHEN receipt IS NOT NULL AND receipt.operation IS NOT NULL THEN to_jsonb(receipt) END)::text,
		HINT = CASE verdict WHEN 'REPLAYED' THEN 'It had its effect before: roll back, there is nothing left to do.'
			WHEN 'STATUS_UNAVAILABLE' THEN 'The record wants to hear of the authority: say what it has answered, or make a new record with status_mode => ''fence-only''.'
			ELSE 'Roll back, and hand the detail to lastword.refused. Nothing was changed.' END;
END $$`

// in SQL the words of the protocol are the names of parameters, so that a caller names
// only those that it needs.
const postgresArguments = `domain text, resource text, owner text, fence bigint, lease_id text, grant_digest text, root text,
	seq bigint, operation text, payload text,
	policy text DEFAULT '', status_mode text DEFAULT '', step bigint DEFAULT 0, imported boolean DEFAULT FALSE,
	heard_mode text DEFAULT 'fence-only', heard_state text DEFAULT '', next_fence bigint DEFAULT 0, after_look boolean DEFAULT FALSE,
	heard_epoch bigint DEFAULT 0, heard_revision bigint DEFAULT 0,
	bundle_sequence bigint DEFAULT 0, min_epoch bigint DEFAULT 0, policy_generation bigint DEFAULT 0, min_policy_generation bigint DEFAULT 0,
	caller text DEFAULT '', result bytea DEFAULT ''`

// postgresGiven are the names of all of them, and of what makes a registration of a call:
// none may be NULL, which no comparison of the rules would refuse.
const postgresGiven = `registers, domain, resource, owner, fence, lease_id, grant_digest, root, seq, operation, payload,
		policy, status_mode, step, imported, heard_mode, heard_state, next_fence, after_look, heard_epoch, heard_revision,
		bundle_sequence, min_epoch, policy_generation, min_policy_generation, caller, result`

// What the Go packages check of names and numbers before they decide, in the same words:
// the regular expressions say what characters and segments a name has not. A literal with
// E means the same whatever a session has set.
//
// postgresNamed is lastword.CheckID, and of a resource lastword.ParseResource; it gives
// what is wrong with the name, or NULL.
const postgresNamed = `CREATE OR REPLACE FUNCTION lastword.named(name text, is_resource boolean) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE
	WHEN name = '' THEN 'is empty'
	WHEN octet_length(name) > 512 THEN 'has more than 512 bytes'
	WHEN name COLLATE "C" ~ E'[\u0001-\u001f\u007f-\u009f]' THEN 'has a control character'
	WHEN is_resource AND '/' || name || '/' COLLATE "C" ~ '/[.]?[.]?/' THEN 'has a segment that is empty, . or ..'
	END
$$`

// postgresLossy raises LW004 where a crash could undo a COMMIT that was acknowledged, as
// lastword.store does.
const postgresLossy = `	IF current_setting('fsync') <> 'on' OR current_setting('synchronous_commit') = 'off' THEN
		RAISE EXCEPTION 'lastword: fsync is %, synchronous_commit is %: a crash could undo what was acknowledged', current_setting('fsync'), current_setting('synchronous_commit')
			USING ERRCODE = 'LW004', HINT = 'Set synchronous_commit = on, or local, for the role or in the transaction, and fsync = on.';
	END IF;`

// postgresCheck raises LW020 for arguments of which the Go packages would make no attempt.
// The right to call decide is everybody's, so what stands for it is asked for here.
const postgresCheck = `CREATE OR REPLACE FUNCTION lastword.check_arguments(registers boolean, ` + postgresArguments + `) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
	why text;
BEGIN
	IF NOT (SELECT coalesce(bool_and(has_function_privilege(p.oid, 'EXECUTE')), FALSE) FROM pg_catalog.pg_proc p
			WHERE p.pronamespace = 'lastword'::regnamespace AND p.proname = CASE WHEN registers THEN 'advance' ELSE 'apply' END) THEN
		RAISE EXCEPTION 'permission denied for function %', CASE WHEN registers THEN 'lastword.advance' ELSE 'lastword.apply' END USING ERRCODE = '42501';
	END IF;
	IF num_nulls(` + postgresGiven + `) > 0 THEN
		why := 'an argument is NULL: give its value, or leave it out for its default';
	ELSE
		why := coalesce('the domain ' || lastword.named(domain, FALSE), 'the resource ' || lastword.named(resource, TRUE),
			'the owner ' || lastword.named(owner, FALSE), 'the lease id ' || lastword.named(nullif(lease_id, ''), FALSE),
			'the caller ' || lastword.named(nullif(caller, ''), FALSE),
			CASE WHEN NOT registers THEN coalesce('the operation ' || lastword.named(operation, FALSE),
				CASE WHEN payload !~ '^sha256:[0-9a-f]{64}$' THEN 'the payload is no digest (sha256:…)' END) END,
			CASE WHEN grant_digest !~ '^(sha256:[0-9a-f]{64})?$' OR root !~ '^(sha256:[0-9a-f]{64})?$' THEN 'grant_digest and root are digests (sha256:…), or empty' END,
			CASE WHEN seq NOT BETWEEN 0 AND 9007199254740991 THEN 'seq is not between 0 and 9007199254740991' END,
			CASE WHEN least(step, next_fence, heard_revision, bundle_sequence, policy_generation, min_policy_generation, heard_epoch, min_epoch) < 0
				OR greatest(heard_epoch, min_epoch) > 4294967295 THEN 'a number is out of its range' END,
			CASE WHEN octet_length(result) > 16384 THEN 'the result has more than 16384 bytes' END, '');
	END IF;
	IF why <> '' THEN
		RAISE EXCEPTION 'lastword: INVALID: %', why USING ERRCODE = 'LW020', HINT = 'Nothing was changed.';
	END IF;
END $$`

// postgresDecide is core.Admit, and core.Advance where registers is set, and the step
// that follows. After STALE_OWNER the caller may ask the authority whether it is behind.
const postgresDecide = `CREATE OR REPLACE FUNCTION lastword.decide(registers boolean, ` + postgresArguments + `,
	OUT verdict text, OUT number bigint) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
	rec lastword.fence;
	receipt lastword.receipt;
	known lastword.receipt;
	there boolean;
	newer boolean;
	tombstone boolean;
	lost boolean := FALSE;
	unraised boolean := FALSE;
	shadow boolean;
	mark bigint;
	why text := '';
	again boolean := FALSE;
	least text := CASE WHEN registers THEN 'PENDING' ELSE 'HELD' END;
	jump bigint;
	wanted_mode text;
	wanted_policy text;
	wanted_step bigint;
	last bigint;
	epoch constant bigint := fence >> 33;
BEGIN
	PERFORM lastword.check_arguments(` + postgresGiven + `);
` + postgresLossy + `
	FOR attempt IN 1..2 LOOP
		SELECT f.* INTO rec FROM lastword.fence f WHERE f.domain = domain AND f.resource = resource FOR NO KEY UPDATE;
		there := FOUND;
		EXIT WHEN there OR attempt = 2;
		PERFORM pg_advisory_xact_lock(hashtextextended(domain || ' ' || resource, 720720));
	END LOOP;
	shadow := NOT registers AND lastword.shadows(domain, resource);
	SELECT coalesce(max(r.mark), 0) INTO mark FROM lastword.restored r WHERE r.domain = domain;
	IF there THEN
		unraised := mark > rec.restored;
	ELSE
		rec.fence := 0; rec.lease_id := ''; rec.grant_digest := ''; rec.root := ''; rec.last_seq := 0; rec.last_operation := ''; rec.last_payload := '';
		rec.policy := ''; rec.status_mode := ''; rec.frozen := FALSE; rec.step := 0; rec.bundle_sequence := 0; rec.min_epoch := 0;
		rec.min_policy_generation := 0; rec.imported := FALSE; rec.heard_epoch := 0; rec.heard_revision := 0; rec.restored := mark; rec.pruned := 0;
		lost := EXISTS (SELECT 1 FROM lastword.receipt r WHERE r.domain = domain AND r.resource = resource)
			OR EXISTS (SELECT 1 FROM lastword.tombstone t WHERE t.domain = domain AND t.resource = resource);
	END IF;
	SELECT r.* INTO known FROM lastword.receipt r WHERE r.domain = domain AND r.resource = resource AND r.operation = operation;
	tombstone := NOT registers AND (
		EXISTS (SELECT 1 FROM lastword.tombstone t WHERE t.domain = domain AND t.resource = resource
			AND t.operation_digest = 'sha256:' || encode(sha256(convert_to(operation, 'UTF8')), 'hex'))
		OR rec.pruned > 0 AND coalesce(lastword.issued(operation) <= rec.pruned, FALSE)
		OR rec.restored > 0 AND coalesce(lastword.issued(operation) <= rec.restored, TRUE));

	newer := NOT there OR fence > rec.fence;
	wanted_mode := coalesce(nullif(rec.status_mode, ''), nullif(status_mode, ''), 'query');
	IF NOT there AND rec.restored > 0 THEN
		wanted_mode := 'query';
	ELSIF status_mode <> '' AND lastword.rank(wanted_mode) >= 0 AND (lastword.rank(status_mode) < 0 OR lastword.rank(status_mode) > lastword.rank(wanted_mode)) THEN
		wanted_mode := status_mode;
	END IF;
	wanted_policy := CASE WHEN newer THEN coalesce(nullif(policy, ''), nullif(rec.policy, ''), 'ordered') ELSE coalesce(nullif(rec.policy, ''), 'ordered') END;
	wanted_step := CASE WHEN step = 0 THEN rec.step WHEN NOT there THEN step
		WHEN step < coalesce(nullif(rec.step, 0), 1048576) THEN step ELSE rec.step END;
	jump := coalesce(nullif(wanted_step, 0), 1048576);

	verdict := '';
	IF fence < 1 OR fence > 9007199254740991 OR lease_id = '' THEN
		verdict := 'UNVERIFIED'; why := 'NO_FENCE';
	ELSIF NOT imported AND (bundle_sequence < rec.bundle_sequence OR epoch < rec.min_epoch OR policy_generation < rec.min_policy_generation) THEN
		verdict := 'UNVERIFIED'; why := 'OUTDATED'; again := TRUE;
	ELSIF lastword.rank(wanted_mode) < 0 OR lastword.rank(heard_mode) < lastword.rank(wanted_mode) THEN
		verdict := 'STATUS_UNAVAILABLE'; again := TRUE;
	ELSIF NOT registers AND known.operation IS NOT NULL THEN
		receipt := known;
		IF known.payload = payload THEN
			verdict := 'REPLAYED';
		ELSE
			verdict := 'CONFLICT'; why := 'OTHER_PAYLOAD';
		END IF;
	ELSIF fence < rec.fence OR there AND rec.lease_id = '' AND fence = rec.fence THEN
		verdict := 'STALE_OWNER';
	ELSIF heard_mode <> 'fence-only' AND heard_state <> 'HELD' AND heard_state <> least THEN
		verdict := 'UNVERIFIED'; why := 'NOT_HELD';
	ELSIF heard_mode = 'proof' AND (heard_epoch, heard_revision) < (rec.heard_epoch, rec.heard_revision) THEN
		verdict := 'UNVERIFIED'; why := 'PROOF_OLD';
	ELSIF there AND rec.imported <> imported AND imported THEN
		verdict := 'UNVERIFIED'; why := 'NOT_IMPORTED';
	ELSIF there AND rec.imported <> imported AND epoch <= rec.fence >> 33 THEN
		verdict := 'UNVERIFIED'; why := 'IMPORTED';
	ELSIF tombstone THEN
		verdict := 'RECEIPT_EXPIRED';
	ELSIF lost THEN
		verdict := 'FENCE_REGRESSION'; why := 'RECORD_LOST';
	ELSIF unraised THEN
		verdict := 'FENCE_REGRESSION'; why := 'RESTORED';
	ELSIF rec.frozen AND (imported OR epoch <= rec.fence >> 33) THEN
		verdict := 'FENCE_REGRESSION'; why := 'FROZEN';
	ELSIF there AND fence = rec.fence AND lease_id <> rec.lease_id THEN
		verdict := 'FENCE_REGRESSION'; why := 'OTHER_LEASE';
	ELSIF there AND fence = rec.fence AND root <> rec.root THEN
		verdict := 'ROOT_MISMATCH';
	ELSIF NOT there AND wanted_mode = 'query' AND NOT after_look THEN
		verdict := 'STATUS_UNAVAILABLE'; again := TRUE;
	ELSIF NOT imported AND next_fence <= fence AND (CASE WHEN there AND NOT rec.imported AND epoch = rec.fence >> 33
			THEN fence - rec.fence > jump ELSE fence & 8589934591 > jump END) THEN
		verdict := 'FENCE_JUMP';
	ELSIF wanted_policy NOT IN ('ordered', 'latest', 'once') THEN
		verdict := 'OUT_OF_ORDER'; why := 'UNKNOWN_POLICY';
	ELSIF registers THEN
		verdict := 'APPLIED';
	ELSE
		last := CASE WHEN newer THEN 0 ELSE rec.last_seq END;
		number := CASE WHEN seq = 0 THEN last + 1 ELSE seq END;
		IF newer THEN
			IF wanted_policy = 'ordered' AND number <> 1 THEN
				verdict := 'OUT_OF_ORDER';
			END IF;
		ELSIF wanted_policy = 'latest' THEN
			IF number < last THEN
				verdict := 'OUT_OF_ORDER';
			ELSIF number = last THEN
				verdict := 'CONFLICT'; why := 'SEQ_TAKEN';
			END IF;
		ELSIF wanted_policy = 'once' THEN
			IF last > 0 AND payload = rec.last_payload THEN
				verdict := 'REPLAYED';
				SELECT r.* INTO receipt FROM lastword.receipt r WHERE r.domain = domain AND r.resource = resource AND r.operation = rec.last_operation;
			ELSIF last > 0 THEN
				verdict := 'CONFLICT'; why := 'ONE_VALUE';
			END IF;
		ELSIF number <= last THEN
			verdict := 'CONFLICT'; why := 'SEQ_TAKEN';
		ELSIF number <> last + 1 THEN
			verdict := 'OUT_OF_ORDER';
		END IF;
		verdict := coalesce(nullif(verdict, ''), 'APPLIED');
	END IF;

	IF verdict <> 'APPLIED' THEN
		number := NULL;
		IF NOT shadow OR again OR verdict = 'REPLAYED' THEN
			PERFORM lastword.refuse(verdict, why, domain, resource, rec.fence, receipt, jsonb_build_object('owner', owner,
				'fence', fence::text, 'lease_id', lease_id, 'operation', operation, 'seq', seq::text, 'payload', payload));
		END IF;
		INSERT INTO lastword.pass AS p (domain, resource, xact) VALUES (domain, resource, pg_current_xact_id())
		ON CONFLICT ON CONSTRAINT pass_pkey DO UPDATE SET xact = excluded.xact;
		INSERT INTO lastword.bypass (domain, resource, relation, event, verdict, weight) VALUES (domain, resource, '', 'apply', verdict, 1);
		verdict := 'SHADOW(' || verdict || ')';
		RETURN;
	END IF;
	IF registers AND there AND fence = rec.fence THEN
		RETURN; -- nothing changes
	END IF;

	IF newer THEN
		rec.frozen := FALSE; rec.imported := imported;
		rec.fence := fence; rec.lease_id := lease_id; rec.grant_digest := grant_digest; rec.root := root; rec.last_seq := 0;
	END IF;
	rec.policy := wanted_policy; rec.status_mode := wanted_mode; rec.step := wanted_step;
	IF (rec.heard_epoch, rec.heard_revision) < (heard_epoch, heard_revision) THEN
		rec.heard_epoch := heard_epoch; rec.heard_revision := heard_revision;
	END IF;
	rec.bundle_sequence := greatest(rec.bundle_sequence, bundle_sequence);
	rec.min_epoch := greatest(rec.min_epoch, min_epoch);
	rec.min_policy_generation := greatest(rec.min_policy_generation, min_policy_generation);
	IF registers THEN
		rec.last_seq := 0; rec.last_operation := ''; rec.last_payload := '';
	ELSE
		rec.last_seq := number; rec.last_operation := operation; rec.last_payload := payload;
	END IF;
	rec.domain := domain; rec.resource := resource; rec.passed := pg_current_xact_id();
	IF there THEN -- the row is locked since it was read
		UPDATE lastword.fence f SET fence = rec.fence, lease_id = rec.lease_id, grant_digest = rec.grant_digest, root = rec.root, last_seq = rec.last_seq,
			last_operation = rec.last_operation, last_payload = rec.last_payload, policy = rec.policy, status_mode = rec.status_mode, frozen = rec.frozen,
			step = rec.step, bundle_sequence = rec.bundle_sequence, min_epoch = rec.min_epoch, min_policy_generation = rec.min_policy_generation,
			imported = rec.imported, heard_epoch = rec.heard_epoch, heard_revision = rec.heard_revision, passed = rec.passed
		WHERE f.domain = domain AND f.resource = resource;
	ELSE
		INSERT INTO lastword.fence SELECT rec.* ON CONFLICT DO NOTHING; -- a first write of others, unseen: a serialization failure
	END IF;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'lastword: the record of % is not the one that was read', resource USING ERRCODE = 'LW001';
	END IF;
	IF NOT registers THEN
		INSERT INTO lastword.receipt (domain, resource, operation, payload, fence, seq, lease_id, grant_digest, owner, caller, root, result, applied_at)
		VALUES (domain, resource, operation, payload, fence, number, lease_id, grant_digest, owner, caller, root, result,
			to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')); -- for people
	END IF;
END $$`

// postgresApply and postgresAdvance are what is called.
const postgresApply = `CREATE OR REPLACE FUNCTION lastword.apply(` + postgresArguments + `, OUT verdict text, OUT number bigint) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
	SELECT d.verdict, d.number INTO verdict, number FROM lastword.decide(FALSE, domain, resource, owner, fence, lease_id, grant_digest, root, seq, operation, payload,
		policy, status_mode, step, imported, heard_mode, heard_state, next_fence, after_look, heard_epoch, heard_revision,
		bundle_sequence, min_epoch, policy_generation, min_policy_generation, caller, result) d;
END $$`

const postgresAdvance = `CREATE OR REPLACE FUNCTION lastword.advance(domain text, resource text, owner text, fence bigint, lease_id text, grant_digest text, root text,
	policy text DEFAULT '', status_mode text DEFAULT '', step bigint DEFAULT 0, imported boolean DEFAULT FALSE,
	heard_mode text DEFAULT 'fence-only', heard_state text DEFAULT '', next_fence bigint DEFAULT 0, after_look boolean DEFAULT FALSE,
	heard_epoch bigint DEFAULT 0, heard_revision bigint DEFAULT 0,
	bundle_sequence bigint DEFAULT 0, min_epoch bigint DEFAULT 0, policy_generation bigint DEFAULT 0, min_policy_generation bigint DEFAULT 0)
RETURNS text LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	SELECT d.verdict FROM lastword.decide(TRUE, domain, resource, owner, fence, lease_id, grant_digest, root, 0, '', '',
		policy, status_mode, step, imported, heard_mode, heard_state, next_fence, after_look, heard_epoch, heard_revision,
		bundle_sequence, min_epoch, policy_generation, min_policy_generation) d
$$`

// Nobody may call them to whom it was not granted: the right to make a pass, or to end a
// roll-out, is not the business writer's. What they call has no right of its own: who may
// call decide still needs the right to call what stands for it, and all of them run with
// the rights of their caller.
const (
	postgresRevoke = `REVOKE ALL ON FUNCTION lastword.apply, lastword.advance, lastword.refused, lastword.bypassed FROM PUBLIC`
	postgresGrant  = `GRANT EXECUTE ON FUNCTION lastword.decide, lastword.check_arguments, lastword.refuse, lastword.named, lastword.issued, lastword.rank TO PUBLIC`
)

// What was written before names and digests were checked: a digest that is none would stop
// everybody who reads its record. It says nothing, so its tenure is closed.
const (
	postgresDamagedRecords = `UPDATE lastword.fence SET grant_digest = '', root = '', lease_id = ''
WHERE grant_digest !~ '^(sha256:[0-9a-f]{64})?$' OR root !~ '^(sha256:[0-9a-f]{64})?$'`
	postgresDamagedReceipts = `UPDATE lastword.receipt SET
	grant_digest = CASE WHEN grant_digest ~ '^sha256:[0-9a-f]{64}$' THEN grant_digest ELSE '' END,
	root = CASE WHEN root ~ '^sha256:[0-9a-f]{64}$' THEN root ELSE '' END
WHERE grant_digest !~ '^(sha256:[0-9a-f]{64})?$' OR root !~ '^(sha256:[0-9a-f]{64})?$'`
)
