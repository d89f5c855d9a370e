
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

CREATE SCHEMA lastword;

CREATE FUNCTION lastword.advance(domain text, resource text, owner text, fence bigint, lease_id text, grant_digest text, root text, policy text DEFAULT ''::text, status_mode text DEFAULT ''::text, step bigint DEFAULT 0, imported boolean DEFAULT false, heard_mode text DEFAULT 'fence-only'::text, heard_state text DEFAULT ''::text, next_fence bigint DEFAULT 0, after_look boolean DEFAULT false, heard_epoch bigint DEFAULT 0, heard_revision bigint DEFAULT 0, bundle_sequence bigint DEFAULT 0, min_epoch bigint DEFAULT 0, policy_generation bigint DEFAULT 0, min_policy_generation bigint DEFAULT 0) RETURNS text
    LANGUAGE sql
    AS $$
	SELECT d.verdict FROM lastword.decide(TRUE, domain, resource, owner, fence, lease_id, grant_digest, root, 0, '', '',
		policy, status_mode, step, imported, heard_mode, heard_state, next_fence, after_look, heard_epoch, heard_revision,
		bundle_sequence, min_epoch, policy_generation, min_policy_generation) d
$$;

CREATE FUNCTION lastword.apply(domain text, resource text, owner text, fence bigint, lease_id text, grant_digest text, root text, seq bigint, operation text, payload text, policy text DEFAULT ''::text, status_mode text DEFAULT ''::text, step bigint DEFAULT 0, imported boolean DEFAULT false, heard_mode text DEFAULT 'fence-only'::text, heard_state text DEFAULT ''::text, next_fence bigint DEFAULT 0, after_look boolean DEFAULT false, heard_epoch bigint DEFAULT 0, heard_revision bigint DEFAULT 0, bundle_sequence bigint DEFAULT 0, min_epoch bigint DEFAULT 0, policy_generation bigint DEFAULT 0, min_policy_generation bigint DEFAULT 0, caller text DEFAULT ''::text, result bytea DEFAULT '\x'::bytea, OUT verdict text, OUT number bigint) RETURNS record
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_variable
BEGIN
	IF coalesce(operation, '') = '' OR payload IS NULL OR payload !~ '^sha256:[0-9a-f]{64}$' OR coalesce(owner, '') = '' THEN
		RAISE EXCEPTION 'lastword: INVALID: want an owner, an operation id and a payload digest (sha256:…)' USING ERRCODE = 'LW020';
	END IF;
	SELECT d.verdict, d.number INTO verdict, number FROM lastword.decide(FALSE, domain, resource, owner, fence, lease_id, grant_digest, root, seq, operation, payload,
		policy, status_mode, step, imported, heard_mode, heard_state, next_fence, after_look, heard_epoch, heard_revision,
		bundle_sequence, min_epoch, policy_generation, min_policy_generation, caller, result) d;
END $_$;

CREATE FUNCTION lastword.bypassed(in_domain text, in_resource text, in_prefix text, in_relation text, in_event text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
	n bigint;
BEGIN
	IF NOT lastword.shadows(in_domain, coalesce(in_resource, in_prefix)) THEN
		RAISE EXCEPTION 'lastword: FENCE_REQUIRED: the table % is protected', in_relation USING
			ERRCODE = 'LW010', DETAIL = format('%s without a pass for the resource %s of the domain %s', in_event, coalesce(quote_literal(in_resource), 'of the row, which has none'), in_domain),
			HINT = 'Write through the fence, in the transaction that it has admitted, under a lease on the resource of the row.';
	END IF;
	n := nextval('lastword.bypass_number_seq');
	IF n <= 10000 OR n % 100 = 0 THEN -- after that one of a hundred stands for all
		INSERT INTO lastword.bypass (number, domain, resource, relation, event, weight) OVERRIDING SYSTEM VALUE
		VALUES (n, in_domain, coalesce(in_resource, ''), in_relation, in_event, CASE WHEN n <= 10000 THEN 1 ELSE 100 END);
	END IF;
END $$;

CREATE FUNCTION lastword.decide(registers boolean, domain text, resource text, owner text, fence bigint, lease_id text, grant_digest text, root text, seq bigint, operation text, payload text, policy text DEFAULT ''::text, status_mode text DEFAULT ''::text, step bigint DEFAULT 0, imported boolean DEFAULT false, heard_mode text DEFAULT 'fence-only'::text, heard_state text DEFAULT ''::text, next_fence bigint DEFAULT 0, after_look boolean DEFAULT false, heard_epoch bigint DEFAULT 0, heard_revision bigint DEFAULT 0, bundle_sequence bigint DEFAULT 0, min_epoch bigint DEFAULT 0, policy_generation bigint DEFAULT 0, min_policy_generation bigint DEFAULT 0, caller text DEFAULT ''::text, result bytea DEFAULT '\x'::bytea, OUT verdict text, OUT number bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
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
	IF fence IS NULL OR fence < 1 OR fence > 9007199254740991 OR coalesce(lease_id, '') = '' THEN
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
		number := CASE WHEN coalesce(seq, 0) = 0 THEN last + 1 ELSE seq END;
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
			PERFORM lastword.refuse(verdict, why, resource, rec.fence, receipt);
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
		INSERT INTO lastword.fence SELECT rec.*;
	END IF;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'lastword: the record of % is not the one that was read', resource USING ERRCODE = 'LW001';
	END IF;
	IF NOT registers THEN
		INSERT INTO lastword.receipt (domain, resource, operation, payload, fence, seq, lease_id, grant_digest, owner, caller, root, result, applied_at)
		VALUES (domain, resource, operation, payload, fence, number, lease_id, grant_digest, owner, caller, root, result,
			to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')); -- for people
	END IF;
END $$;

CREATE FUNCTION lastword.guard_6ce3b666ab6ef6f5e6428e5b() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
	r text;
	before text;
BEGIN
	IF TG_OP = 'TRUNCATE' THEN
		PERFORM lastword.bypassed('test', NULL, 'doc/', TG_RELID::regclass::text, TG_OP);
		RETURN NULL;
	END IF;
	IF TG_OP <> 'INSERT' THEN
		r := 'doc/'::text || (OLD."id"::text);
		IF NOT EXISTS (SELECT 1 FROM lastword.fence f WHERE f.domain = 'test' AND f.resource = r AND f.passed = pg_current_xact_id_if_assigned())
			AND NOT EXISTS (SELECT 1 FROM lastword.pass p WHERE p.domain = 'test' AND p.resource = r AND p.xact = pg_current_xact_id_if_assigned()) THEN
			PERFORM lastword.bypassed('test', r, 'doc/', TG_RELID::regclass::text, TG_OP);
		END IF;
		before := r;
	END IF;
	IF TG_OP <> 'DELETE' THEN
		r := 'doc/'::text || (NEW."id"::text);
		IF before IS DISTINCT FROM r AND NOT EXISTS (SELECT 1 FROM lastword.fence f WHERE f.domain = 'test' AND f.resource = r AND f.passed = pg_current_xact_id_if_assigned())
			AND NOT EXISTS (SELECT 1 FROM lastword.pass p WHERE p.domain = 'test' AND p.resource = r AND p.xact = pg_current_xact_id_if_assigned()) THEN
			PERFORM lastword.bypassed('test', r, 'doc/', TG_RELID::regclass::text, TG_OP);
		END IF;
	END IF;
	RETURN NULL;
END $$;

CREATE FUNCTION lastword.issued(operation text) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $_$
	SELECT CASE
	WHEN operation COLLATE "C" ~ '^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$'
		THEN ('x' || left(replace(operation, '-', ''), 12))::bit(48)::bigint
	WHEN operation COLLATE "C" ~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$' THEN (
		SELECT sum((strpos('0123456789ABCDEFGHJKMNPQRSTVWXYZ', substr(operation, i, 1)) - 1)::bigint << (5 * (10 - i)))::bigint FROM generate_series(1, 10) i)
	END
$_$;

CREATE FUNCTION lastword.load(in_domain text, in_resource text, in_operation text, in_digest text, in_open boolean, OUT xact text, OUT fsync text, OUT synchronous_commit text, OUT is_there boolean, OUT fence bigint, OUT lease_id text, OUT grant_digest text, OUT root text, OUT last_seq bigint, OUT last_operation text, OUT last_payload text, OUT policy text, OUT status_mode text, OUT frozen boolean, OUT step bigint, OUT bundle_sequence bigint, OUT min_epoch bigint, OUT min_policy_generation bigint, OUT imported boolean, OUT heard_epoch bigint, OUT heard_revision bigint, OUT restored bigint, OUT unraised boolean, OUT lost boolean, OUT has_receipt boolean, OUT payload text, OUT has_tombstone boolean, OUT pruned bigint, OUT shadow boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
DECLARE
	f lastword.fence;
	mark bigint;
BEGIN
	xact := pg_current_xact_id()::text;
	fsync := current_setting('fsync');
	synchronous_commit := current_setting('synchronous_commit');
	FOR attempt IN 1..2 LOOP
		IF in_open THEN
			UPDATE lastword.fence SET passed = pg_current_xact_id()
				WHERE domain = in_domain AND resource = in_resource RETURNING * INTO f;
		ELSE
			SELECT * INTO f FROM lastword.fence WHERE domain = in_domain AND resource = in_resource FOR NO KEY UPDATE;
		END IF;
		is_there := FOUND;
		EXIT WHEN is_there OR attempt = 2;
		PERFORM pg_advisory_xact_lock(hashtextextended(in_domain || ' ' || in_resource, 720720));
	END LOOP;
	SELECT r.mark INTO mark FROM lastword.restored r WHERE r.domain = in_domain;
	SELECT r.payload INTO payload FROM lastword.receipt r
		WHERE r.domain = in_domain AND r.resource = in_resource AND r.operation = in_operation;
	has_receipt := FOUND;
	payload := coalesce(payload, '');
	has_tombstone := EXISTS (SELECT 1 FROM lastword.tombstone t
		WHERE t.domain = in_domain AND t.resource = in_resource AND t.operation_digest = in_digest);
	lost := NOT is_there AND (
		EXISTS (SELECT 1 FROM lastword.receipt r WHERE r.domain = in_domain AND r.resource = in_resource)
		OR EXISTS (SELECT 1 FROM lastword.tombstone t WHERE t.domain = in_domain AND t.resource = in_resource));
	unraised := is_there AND coalesce(mark, 0) > f.restored;
	fence := coalesce(f.fence, 0); lease_id := coalesce(f.lease_id, '');
	grant_digest := coalesce(f.grant_digest, ''); root := coalesce(f.root, '');
	last_seq := coalesce(f.last_seq, 0); last_operation := coalesce(f.last_operation, '');
	last_payload := coalesce(f.last_payload, ''); policy := coalesce(f.policy, '');
	status_mode := coalesce(f.status_mode, ''); frozen := coalesce(f.frozen, FALSE); step := coalesce(f.step, 0);
	bundle_sequence := coalesce(f.bundle_sequence, 0); min_epoch := coalesce(f.min_epoch, 0);
	min_policy_generation := coalesce(f.min_policy_generation, 0); imported := coalesce(f.imported, FALSE);
	heard_epoch := coalesce(f.heard_epoch, 0); heard_revision := coalesce(f.heard_revision, 0);
	restored := coalesce(f.restored, mark, 0); pruned := coalesce(f.pruned, 0);
	-- A function in SQL is planned at every call: it is asked only in a roll-out.
	shadow := EXISTS (SELECT 1 FROM lastword.rollout o WHERE o.domain = in_domain AND o.shadow = 1);
	IF shadow THEN
		shadow := lastword.shadows(in_domain, in_resource);
	END IF;
END $$;

CREATE FUNCTION lastword.never() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
	RAISE EXCEPTION 'lastword: %', TG_ARGV[0] USING ERRCODE = 'LW000';
END $$;

CREATE FUNCTION lastword.rank(mode text) RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS $$
	SELECT CASE mode WHEN 'fence-only' THEN 0 WHEN 'proof' THEN 1 WHEN 'query' THEN 2 ELSE -1 END
$$;

SET default_tablespace = '';

SET default_table_access_method = heap;

CREATE TABLE lastword.receipt (
    domain text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    operation text NOT NULL COLLATE pg_catalog."C",
    payload text NOT NULL COLLATE pg_catalog."C",
    fence bigint NOT NULL,
    seq bigint NOT NULL,
    lease_id text NOT NULL COLLATE pg_catalog."C",
    grant_digest text NOT NULL COLLATE pg_catalog."C",
    owner text NOT NULL COLLATE pg_catalog."C",
    caller text NOT NULL COLLATE pg_catalog."C",
    root text NOT NULL COLLATE pg_catalog."C",
    result bytea NOT NULL,
    applied_at text NOT NULL COLLATE pg_catalog."C"
);

CREATE FUNCTION lastword.refuse(verdict text, why text, resource text, stored bigint, receipt lastword.receipt) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
	RAISE EXCEPTION 'lastword: %', verdict || CASE WHEN why = '' THEN '' ELSE ' (' || why || ')' END || ': ' || resource USING
		ERRCODE = CASE verdict WHEN 'REPLAYED' THEN 'LW100' WHEN 'CONFLICT' THEN 'LW101' WHEN 'STALE_OWNER' THEN 'LW102'
			WHEN 'RECEIPT_EXPIRED' THEN 'LW103' WHEN 'OUT_OF_ORDER' THEN 'LW104' WHEN 'ROOT_MISMATCH' THEN 'LW105'
			WHEN 'FENCE_REGRESSION' THEN 'LW106' WHEN 'FENCE_JUMP' THEN 'LW107' WHEN 'UNVERIFIED' THEN 'LW108' WHEN 'STATUS_UNAVAILABLE' THEN 'LW109' END,
		DETAIL = jsonb_build_object('verdict', verdict, 'why', why, 'resource', resource, 'fence', stored::text,
			'receipt', CASE WHEN receipt IS NOT NULL AND receipt.operation IS NOT NULL THEN to_jsonb(receipt) END)::text,
		HINT = CASE verdict WHEN 'REPLAYED' THEN 'It had its effect before: roll back, there is nothing left to do.'
			WHEN 'STATUS_UNAVAILABLE' THEN 'The record wants to hear of the authority: say what it has answered, or make a new record with status_mode => ''fence-only''.'
			ELSE 'Roll back. Nothing was changed.' END;
END $$;

CREATE FUNCTION lastword.shadows(in_domain text, in_resource text) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
	SELECT EXISTS (SELECT 1 FROM lastword.rollout o WHERE o.domain = in_domain AND o.shadow = 1) AND coalesce((
		SELECT o.shadow = 1 FROM lastword.rollout o WHERE o.domain = in_domain AND (o.prefix = '' OR o.prefix = in_resource
			OR right(o.prefix, 1) = '/' AND left(in_resource, length(o.prefix)) = o.prefix)
		ORDER BY length(o.prefix) DESC LIMIT 1), FALSE)
$$;

CREATE FUNCTION lastword.store(in_xact text, in_domain text, in_resource text, in_existed boolean, now_fence bigint, now_lease_id text, now_grant_digest text, now_root text, now_last_seq bigint, now_last_operation text, now_last_payload text, now_policy text, now_status_mode text, now_frozen boolean, now_step bigint, now_bundle_sequence bigint, now_min_epoch bigint, now_min_policy_generation bigint, now_imported boolean, now_heard_epoch bigint, now_heard_revision bigint, now_restored bigint, was_fence bigint, was_lease_id text, was_grant_digest text, was_root text, was_last_seq bigint, was_last_operation text, was_last_payload text, was_policy text, was_status_mode text, was_frozen boolean, was_step bigint, was_bundle_sequence bigint, was_min_epoch bigint, was_min_policy_generation bigint, was_imported boolean, was_heard_epoch bigint, was_heard_revision bigint, was_restored bigint, in_receipt boolean, in_operation text, in_payload text, in_fence bigint, in_seq bigint, in_lease_id text, in_grant_digest text, in_owner text, in_caller text, in_root text, in_result bytea, in_applied_at text, in_digest text, in_pruned bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
	changed bigint;
BEGIN
	IF in_xact <> '' AND in_xact <> pg_current_xact_id()::text THEN
		RAISE EXCEPTION 'lastword: the transaction that read the record has ended' USING ERRCODE = 'LW003';
	END IF;
	IF in_xact = '' AND (current_setting('fsync') <> 'on' OR current_setting('synchronous_commit') = 'off') THEN
		RAISE EXCEPTION 'lastword: fsync is %, synchronous_commit is %', current_setting('fsync'), current_setting('synchronous_commit')
			USING ERRCODE = 'LW004';
	END IF;
	IF in_existed THEN
		UPDATE lastword.fence f SET fence = now_fence, lease_id = now_lease_id, grant_digest = now_grant_digest, root = now_root,
			last_seq = now_last_seq, last_operation = now_last_operation, last_payload = now_last_payload,
			policy = now_policy, status_mode = now_status_mode, frozen = now_frozen, step = now_step,
			bundle_sequence = now_bundle_sequence, min_epoch = now_min_epoch, min_policy_generation = now_min_policy_generation,
			imported = now_imported, heard_epoch = now_heard_epoch, heard_revision = now_heard_revision, restored = now_restored,
			passed = pg_current_xact_id()
		WHERE f.domain = in_domain AND f.resource = in_resource AND f.fence = was_fence AND f.lease_id = was_lease_id
			AND f.grant_digest = was_grant_digest AND f.root = was_root AND f.last_seq = was_last_seq
			AND f.last_operation = was_last_operation AND f.last_payload = was_last_payload AND f.policy = was_policy
			AND f.status_mode = was_status_mode AND f.frozen = was_frozen AND f.step = was_step
			AND f.bundle_sequence = was_bundle_sequence AND f.min_epoch = was_min_epoch
			AND f.min_policy_generation = was_min_policy_generation AND f.imported = was_imported
			AND f.heard_epoch = was_heard_epoch AND f.heard_revision = was_heard_revision AND f.restored = was_restored
			AND (in_xact <> '' OR f.pruned = in_pruned);
	ELSE
		INSERT INTO lastword.fence (domain, resource, fence, lease_id, grant_digest, root, last_seq, last_operation, last_payload,
			policy, status_mode, frozen, step, bundle_sequence, min_epoch, min_policy_generation,
			imported, heard_epoch, heard_revision, restored, passed)
		VALUES (in_domain, in_resource, now_fence, now_lease_id, now_grant_digest, now_root, now_last_seq, now_last_operation,
			now_last_payload, now_policy, now_status_mode, now_frozen, now_step, now_bundle_sequence, now_min_epoch,
			now_min_policy_generation, now_imported, now_heard_epoch, now_heard_revision, now_restored, pg_current_xact_id())
		ON CONFLICT DO NOTHING;
	END IF;
	GET DIAGNOSTICS changed = ROW_COUNT;
	IF changed <> 1 THEN
		RAISE EXCEPTION 'lastword: the record of % is not the one that was read', in_resource USING ERRCODE = 'LW001';
	END IF;
	IF in_xact = '' AND (
		EXISTS (SELECT 1 FROM lastword.tombstone t
			WHERE t.domain = in_domain AND t.resource = in_resource AND t.operation_digest = in_digest)
		OR EXISTS (SELECT 1 FROM lastword.restored r WHERE r.domain = in_domain AND r.mark > now_restored)) THEN
		RAISE EXCEPTION 'lastword: what stands beside the record of % is not what was read', in_resource USING ERRCODE = 'LW001';
	END IF;
	IF NOT in_receipt THEN
		RETURN;
	END IF;
	INSERT INTO lastword.receipt (domain, resource, operation, payload, fence, seq, lease_id, grant_digest, owner, caller, root, result, applied_at)
	VALUES (in_domain, in_resource, in_operation, in_payload, in_fence, in_seq, in_lease_id, in_grant_digest, in_owner, in_caller,
		in_root, in_result, in_applied_at)
	ON CONFLICT DO NOTHING;
	GET DIAGNOSTICS changed = ROW_COUNT;
	IF changed <> 1 THEN
		RAISE EXCEPTION 'lastword: operation % has a receipt already', in_operation USING ERRCODE = 'LW002';
	END IF;
END $$;

CREATE TABLE lastword.act (
    number bigint NOT NULL,
    domain text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    operator text NOT NULL COLLATE pg_catalog."C",
    reason text NOT NULL COLLATE pg_catalog."C",
    fence_before bigint NOT NULL,
    fence_after bigint NOT NULL,
    mark bigint NOT NULL,
    at text NOT NULL COLLATE pg_catalog."C"
);

ALTER TABLE lastword.act ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME lastword.act_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE lastword.bundle (
    domain text NOT NULL COLLATE pg_catalog."C",
    sequence bigint NOT NULL,
    min_epoch bigint NOT NULL,
    CONSTRAINT bundle_min_epoch_check CHECK ((min_epoch >= 0)),
    CONSTRAINT bundle_sequence_check CHECK ((sequence >= 0))
);

CREATE TABLE lastword.bypass (
    number bigint NOT NULL,
    domain text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    relation text NOT NULL,
    event text NOT NULL,
    verdict text DEFAULT 'FENCE_REQUIRED'::text NOT NULL,
    login text DEFAULT SESSION_USER NOT NULL,
    application text DEFAULT current_setting('application_name'::text) NOT NULL,
    weight bigint NOT NULL
);

ALTER TABLE lastword.bypass ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME lastword.bypass_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE lastword.fence (
    domain text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    fence bigint NOT NULL,
    lease_id text NOT NULL COLLATE pg_catalog."C",
    grant_digest text NOT NULL COLLATE pg_catalog."C",
    root text NOT NULL COLLATE pg_catalog."C",
    last_seq bigint NOT NULL,
    last_operation text NOT NULL COLLATE pg_catalog."C",
    last_payload text NOT NULL COLLATE pg_catalog."C",
    policy text NOT NULL COLLATE pg_catalog."C",
    status_mode text NOT NULL COLLATE pg_catalog."C",
    frozen boolean NOT NULL,
    step bigint NOT NULL,
    bundle_sequence bigint NOT NULL,
    min_epoch bigint NOT NULL,
    min_policy_generation bigint NOT NULL,
    imported boolean NOT NULL,
    heard_epoch bigint NOT NULL,
    heard_revision bigint NOT NULL,
    restored bigint NOT NULL,
    pruned bigint DEFAULT 0 NOT NULL,
    passed xid8,
    CONSTRAINT fence_bundle_sequence_check CHECK ((bundle_sequence >= 0)),
    CONSTRAINT fence_fence_check CHECK (((fence >= 0) AND (fence <= '9007199254740991'::bigint))),
    CONSTRAINT fence_heard_epoch_check CHECK ((heard_epoch >= 0)),
    CONSTRAINT fence_heard_revision_check CHECK ((heard_revision >= 0)),
    CONSTRAINT fence_last_seq_check CHECK ((last_seq >= 0)),
    CONSTRAINT fence_min_epoch_check CHECK ((min_epoch >= 0)),
    CONSTRAINT fence_min_policy_generation_check CHECK ((min_policy_generation >= 0)),
    CONSTRAINT fence_pruned_check CHECK ((pruned >= 0)),
    CONSTRAINT fence_restored_check CHECK ((restored >= 0)),
    CONSTRAINT fence_step_check CHECK ((step >= 0))
)
WITH (fillfactor='50');

CREATE TABLE lastword.pass (
    domain text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    xact xid8 NOT NULL
);

CREATE TABLE lastword.protected (
    name text NOT NULL COLLATE pg_catalog."C",
    domain text NOT NULL COLLATE pg_catalog."C",
    template text NOT NULL COLLATE pg_catalog."C",
    columns text NOT NULL COLLATE pg_catalog."C",
    shadow smallint NOT NULL,
    is_open smallint NOT NULL,
    since text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT protected_is_open_check CHECK ((is_open = ANY (ARRAY[0, 1]))),
    CONSTRAINT protected_shadow_check CHECK ((shadow = ANY (ARRAY[0, 1])))
);

CREATE TABLE lastword.quarantine (
    domain text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    claimant text NOT NULL COLLATE pg_catalog."C",
    place text NOT NULL COLLATE pg_catalog."C",
    times bigint NOT NULL,
    verdict text NOT NULL COLLATE pg_catalog."C",
    why text NOT NULL COLLATE pg_catalog."C",
    fence bigint NOT NULL,
    lease_id text NOT NULL COLLATE pg_catalog."C",
    operation text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    payload text NOT NULL COLLATE pg_catalog."C",
    content bytea NOT NULL,
    noted_at text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT quarantine_place_check CHECK ((place = ANY (ARRAY['first'::text, 'last'::text])))
);

CREATE TABLE lastword.refusal (
    domain text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    verdict text NOT NULL COLLATE pg_catalog."C",
    times bigint NOT NULL,
    last_why text NOT NULL COLLATE pg_catalog."C",
    last_fence bigint NOT NULL,
    last_lease_id text NOT NULL COLLATE pg_catalog."C",
    last_claimant text NOT NULL COLLATE pg_catalog."C",
    last_at text NOT NULL COLLATE pg_catalog."C"
);

CREATE TABLE lastword.restored (
    domain text NOT NULL COLLATE pg_catalog."C",
    mark bigint NOT NULL,
    CONSTRAINT restored_mark_check CHECK ((mark >= 0))
);

CREATE TABLE lastword.rollout (
    domain text NOT NULL COLLATE pg_catalog."C",
    prefix text NOT NULL COLLATE pg_catalog."C",
    shadow smallint NOT NULL,
    since text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT rollout_shadow_check CHECK ((shadow = ANY (ARRAY[0, 1])))
);

CREATE TABLE lastword.schema (
    name character varying(64) NOT NULL,
    version integer NOT NULL
);

CREATE TABLE lastword.tombstone (
    domain text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    operation_digest text NOT NULL COLLATE pg_catalog."C",
    pruned_at text NOT NULL COLLATE pg_catalog."C"
);

CREATE TABLE public.doc (
    id text NOT NULL,
    body text NOT NULL,
    mail text,
    free jsonb
);

CREATE TABLE public.other (
    x integer
);

INSERT INTO lastword.act OVERRIDING SYSTEM VALUE VALUES (1, 'test', '', 'protect', 'anna', 'table public.doc as doc/{id}: tables are closed', 0, 0, 0, '2027-01-15T08:00:00.000000Z');

INSERT INTO lastword.bundle VALUES ('test', 1, 0);

INSERT INTO lastword.fence VALUES ('test', 'doc/a', 42, 'lease-w42-42', 'sha256:38d8b40f3672ac5ccabf003c44a84aeba7237a3f5acca882e8b067eef20d5cca', '', 1, 'sha256:230a56d1bc9669a687a42d6744944d2a261593d44a538dcb607ab75962503786', 'sha256:2e3f167acda97f36302509795bb3e8defc4587c59349bbdf742ecac98ea863ef', 'ordered', 'fence-only', false, 0, 1, 0, 0, false, 0, 0, 0, 0, '1');

INSERT INTO lastword.pass VALUES ('test', 'doc/a', '1');

INSERT INTO lastword.protected VALUES ('public.doc', 'test', 'doc/{id}', '[]', 0, 0, '2027-01-15T08:00:00.000000Z');

INSERT INTO lastword.receipt VALUES ('test', 'doc/a', 'sha256:230a56d1bc9669a687a42d6744944d2a261593d44a538dcb607ab75962503786', 'sha256:2e3f167acda97f36302509795bb3e8defc4587c59349bbdf742ecac98ea863ef', 42, 1, 'lease-w42-42', 'sha256:38d8b40f3672ac5ccabf003c44a84aeba7237a3f5acca882e8b067eef20d5cca', 'w42', '', '', '\x', '2026-11-30T00:49:25.338205Z');

INSERT INTO lastword.schema VALUES ('fence', 2);
INSERT INTO lastword.schema VALUES ('protect', 1);

INSERT INTO public.doc VALUES ('b', 'old', 'b@x', NULL);
INSERT INTO public.doc VALUES ('c', 'old', NULL, NULL);
INSERT INTO public.doc VALUES ('a', 'x', 'a@x', NULL);

SELECT pg_catalog.setval('lastword.act_number_seq', 1, true);

SELECT pg_catalog.setval('lastword.bypass_number_seq', 1, false);

ALTER TABLE ONLY lastword.act
    ADD CONSTRAINT act_pkey PRIMARY KEY (number);

ALTER TABLE ONLY lastword.bundle
    ADD CONSTRAINT bundle_pkey PRIMARY KEY (domain);

ALTER TABLE ONLY lastword.bypass
    ADD CONSTRAINT bypass_pkey PRIMARY KEY (number);

ALTER TABLE ONLY lastword.fence
    ADD CONSTRAINT fence_pkey PRIMARY KEY (domain, resource);

ALTER TABLE ONLY lastword.pass
    ADD CONSTRAINT pass_pkey PRIMARY KEY (domain, resource);

ALTER TABLE ONLY lastword.protected
    ADD CONSTRAINT protected_pkey PRIMARY KEY (name);

ALTER TABLE ONLY lastword.quarantine
    ADD CONSTRAINT quarantine_pkey PRIMARY KEY (domain, resource, claimant, place);

ALTER TABLE ONLY lastword.receipt
    ADD CONSTRAINT receipt_pkey PRIMARY KEY (domain, resource, operation);

ALTER TABLE ONLY lastword.refusal
    ADD CONSTRAINT refusal_pkey PRIMARY KEY (domain, resource, verdict);

ALTER TABLE ONLY lastword.restored
    ADD CONSTRAINT restored_pkey PRIMARY KEY (domain);

ALTER TABLE ONLY lastword.rollout
    ADD CONSTRAINT rollout_pkey PRIMARY KEY (domain, prefix);

ALTER TABLE ONLY lastword.schema
    ADD CONSTRAINT schema_pkey PRIMARY KEY (name);

ALTER TABLE ONLY lastword.tombstone
    ADD CONSTRAINT tombstone_pkey PRIMARY KEY (domain, resource, operation_digest);

ALTER TABLE ONLY public.doc
    ADD CONSTRAINT doc_mail_key UNIQUE (mail);

ALTER TABLE ONLY public.doc
    ADD CONSTRAINT doc_pkey PRIMARY KEY (id);

CREATE INDEX act_resource ON lastword.act USING btree (domain, resource, number);

CREATE INDEX bypass_resource ON lastword.bypass USING btree (domain, resource);

CREATE TRIGGER never_changed BEFORE UPDATE ON lastword.act FOR EACH ROW EXECUTE FUNCTION lastword.never('what an operator did is never changed');

ALTER TABLE lastword.act ENABLE ALWAYS TRIGGER never_changed;

CREATE TRIGGER never_deleted BEFORE DELETE ON lastword.act FOR EACH ROW EXECUTE FUNCTION lastword.never('what an operator did is never deleted');

ALTER TABLE lastword.act ENABLE ALWAYS TRIGGER never_deleted;

CREATE TRIGGER never_deleted BEFORE DELETE ON lastword.fence FOR EACH ROW EXECUTE FUNCTION lastword.never('a fence is never deleted while its data lives');

ALTER TABLE lastword.fence ENABLE ALWAYS TRIGGER never_deleted;

CREATE TRIGGER never_deleted BEFORE DELETE ON lastword.rollout FOR EACH ROW WHEN ((old.shadow = 0)) EXECUTE FUNCTION lastword.never('a roll-out that has ended does not begin again');

ALTER TABLE lastword.rollout ENABLE ALWAYS TRIGGER never_deleted;

CREATE TRIGGER never_lowered BEFORE UPDATE ON lastword.bundle FOR EACH ROW WHEN (((new.sequence < old.sequence) OR (new.min_epoch < old.min_epoch) OR (new.domain <> old.domain))) EXECUTE FUNCTION lastword.never('a trust bundle never goes back');

ALTER TABLE lastword.bundle ENABLE ALWAYS TRIGGER never_lowered;

CREATE TRIGGER never_lowered BEFORE UPDATE OF domain, resource, fence ON lastword.fence FOR EACH ROW WHEN (((new.fence < old.fence) OR (new.domain <> old.domain) OR (new.resource <> old.resource))) EXECUTE FUNCTION lastword.never('a fence is never lowered or moved');

ALTER TABLE lastword.fence ENABLE ALWAYS TRIGGER never_lowered;

CREATE TRIGGER never_truncated BEFORE TRUNCATE ON lastword.act FOR EACH STATEMENT EXECUTE FUNCTION lastword.never('what an operator did is never deleted');

ALTER TABLE lastword.act ENABLE ALWAYS TRIGGER never_truncated;

CREATE TRIGGER never_truncated BEFORE TRUNCATE ON lastword.fence FOR EACH STATEMENT EXECUTE FUNCTION lastword.never('a fence is never deleted while its data lives');

ALTER TABLE lastword.fence ENABLE ALWAYS TRIGGER never_truncated;

CREATE TRIGGER never_truncated BEFORE TRUNCATE ON lastword.rollout FOR EACH STATEMENT EXECUTE FUNCTION lastword.never('a roll-out that has ended does not begin again');

ALTER TABLE lastword.rollout ENABLE ALWAYS TRIGGER never_truncated;

CREATE TRIGGER one_way BEFORE UPDATE ON lastword.rollout FOR EACH ROW WHEN (((new.shadow > old.shadow) OR (new.domain <> old.domain) OR (new.prefix <> old.prefix))) EXECUTE FUNCTION lastword.never('a roll-out that has ended does not begin again');

ALTER TABLE lastword.rollout ENABLE ALWAYS TRIGGER one_way;

CREATE TRIGGER lastword_guard AFTER INSERT OR DELETE OR UPDATE ON public.doc FOR EACH ROW EXECUTE FUNCTION lastword.guard_6ce3b666ab6ef6f5e6428e5b();

ALTER TABLE public.doc ENABLE ALWAYS TRIGGER lastword_guard;

CREATE TRIGGER lastword_guard_truncate BEFORE TRUNCATE ON public.doc FOR EACH STATEMENT EXECUTE FUNCTION lastword.guard_6ce3b666ab6ef6f5e6428e5b();

ALTER TABLE public.doc ENABLE ALWAYS TRIGGER lastword_guard_truncate;

GRANT USAGE ON SCHEMA lastword TO worker;

REVOKE ALL ON FUNCTION lastword.advance(domain text, resource text, owner text, fence bigint, lease_id text, grant_digest text, root text, policy text, status_mode text, step bigint, imported boolean, heard_mode text, heard_state text, next_fence bigint, after_look boolean, heard_epoch bigint, heard_revision bigint, bundle_sequence bigint, min_epoch bigint, policy_generation bigint, min_policy_generation bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION lastword.apply(domain text, resource text, owner text, fence bigint, lease_id text, grant_digest text, root text, seq bigint, operation text, payload text, policy text, status_mode text, step bigint, imported boolean, heard_mode text, heard_state text, next_fence bigint, after_look boolean, heard_epoch bigint, heard_revision bigint, bundle_sequence bigint, min_epoch bigint, policy_generation bigint, min_policy_generation bigint, caller text, result bytea, OUT verdict text, OUT number bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lastword.apply(domain text, resource text, owner text, fence bigint, lease_id text, grant_digest text, root text, seq bigint, operation text, payload text, policy text, status_mode text, step bigint, imported boolean, heard_mode text, heard_state text, next_fence bigint, after_look boolean, heard_epoch bigint, heard_revision bigint, bundle_sequence bigint, min_epoch bigint, policy_generation bigint, min_policy_generation bigint, caller text, result bytea, OUT verdict text, OUT number bigint) TO worker;

REVOKE ALL ON FUNCTION lastword.bypassed(in_domain text, in_resource text, in_prefix text, in_relation text, in_event text) FROM PUBLIC;

REVOKE ALL ON FUNCTION lastword.decide(registers boolean, domain text, resource text, owner text, fence bigint, lease_id text, grant_digest text, root text, seq bigint, operation text, payload text, policy text, status_mode text, step bigint, imported boolean, heard_mode text, heard_state text, next_fence bigint, after_look boolean, heard_epoch bigint, heard_revision bigint, bundle_sequence bigint, min_epoch bigint, policy_generation bigint, min_policy_generation bigint, caller text, result bytea, OUT verdict text, OUT number bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lastword.decide(registers boolean, domain text, resource text, owner text, fence bigint, lease_id text, grant_digest text, root text, seq bigint, operation text, payload text, policy text, status_mode text, step bigint, imported boolean, heard_mode text, heard_state text, next_fence bigint, after_look boolean, heard_epoch bigint, heard_revision bigint, bundle_sequence bigint, min_epoch bigint, policy_generation bigint, min_policy_generation bigint, caller text, result bytea, OUT verdict text, OUT number bigint) TO worker;

REVOKE ALL ON FUNCTION lastword.guard_6ce3b666ab6ef6f5e6428e5b() FROM PUBLIC;

GRANT SELECT,INSERT,UPDATE ON TABLE lastword.receipt TO worker;

REVOKE ALL ON FUNCTION lastword.refuse(verdict text, why text, resource text, stored bigint, receipt lastword.receipt) FROM PUBLIC;
GRANT ALL ON FUNCTION lastword.refuse(verdict text, why text, resource text, stored bigint, receipt lastword.receipt) TO worker;

GRANT SELECT,INSERT,UPDATE ON TABLE lastword.act TO worker;

GRANT SELECT,INSERT,UPDATE ON TABLE lastword.bundle TO worker;

GRANT SELECT,INSERT,UPDATE ON TABLE lastword.bypass TO worker;

GRANT SELECT,INSERT,UPDATE ON TABLE lastword.fence TO worker;

GRANT SELECT,INSERT,UPDATE ON TABLE lastword.pass TO worker;

GRANT SELECT,INSERT,UPDATE ON TABLE lastword.protected TO worker;

GRANT SELECT,INSERT,UPDATE ON TABLE lastword.quarantine TO worker;

GRANT SELECT,INSERT,UPDATE ON TABLE lastword.refusal TO worker;

GRANT SELECT,INSERT,UPDATE ON TABLE lastword.restored TO worker;

GRANT SELECT,INSERT,UPDATE ON TABLE lastword.rollout TO worker;

GRANT SELECT,INSERT,UPDATE ON TABLE lastword.schema TO worker;

GRANT SELECT,INSERT,UPDATE ON TABLE lastword.tombstone TO worker;

GRANT ALL ON TABLE public.doc TO worker;

GRANT ALL ON TABLE public.other TO worker;

