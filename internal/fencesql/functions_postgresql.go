package fencesql

// SQLSTATEs of the functions. Class LW is nobody's.
const (
	stateNever     = "LW000" // a trigger of ours refused a statement
	stateChanged   = "LW001" // the record is not the one that was read
	stateReceipt   = "LW002" // the operation has a receipt already
	stateElsewhere = "LW003" // the transaction is not the one that read the record
	stateUnsafe    = "LW004" // a COMMIT of this connection could be lost
)

// postgresShadows says whether a resource is being rolled out (R18).
const postgresShadows = `CREATE FUNCTION lastword.shadows(in_domain text, in_resource text) RETURNS boolean LANGUAGE sql STABLE AS $$
	SELECT EXISTS (SELECT 1 FROM lastword.rollout o WHERE o.domain = in_domain AND o.shadow = 1) AND coalesce((
		SELECT o.shadow = 1 FROM lastword.rollout o WHERE o.domain = in_domain AND (o.prefix = '' OR o.prefix = in_resource
			OR pg_catalog.right(o.prefix, 1) = '/' AND pg_catalog.left(in_resource, pg_catalog.length(o.prefix)) = o.prefix)
		ORDER BY pg_catalog.length(o.prefix) DESC LIMIT 1), FALSE)
$$`

// postgresLoad locks a record and says what is known beside it. in_open opens the
// resource for this transaction, as everything does that stores a record; a gate that
// then refuses has to roll back, so only a transaction of the adapter's own asks for it.
//
// At READ COMMITTED each statement of a volatile function sees what was committed
// before it began. So what is read after the lock was waited for is as new as the
// record: in one statement with it, it would be as old as the beginning of the wait. At
// the higher levels a record that has moved since the transaction's first look is a
// serialization failure. A record that does not exist is locked by its name.
const postgresLoad = `CREATE FUNCTION lastword.load(in_domain text, in_resource text, in_operation text, in_digest text, in_open boolean,
	OUT xact text, OUT fsync text, OUT synchronous_commit text,
	OUT is_there boolean, OUT fence bigint, OUT lease_id text, OUT grant_digest text, OUT root text,
	OUT last_seq bigint, OUT last_operation text, OUT last_payload text, OUT policy text, OUT status_mode text,
	OUT frozen boolean, OUT step bigint, OUT bundle_sequence bigint, OUT min_epoch bigint, OUT min_policy_generation bigint,
	OUT imported boolean, OUT heard_epoch bigint, OUT heard_revision bigint, OUT restored bigint,
	OUT unraised boolean, OUT lost boolean, OUT has_receipt boolean, OUT payload text, OUT has_tombstone boolean, OUT pruned bigint, OUT shadow boolean)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
	f lastword.fence;
	mark bigint;
BEGIN
	xact := pg_catalog.pg_current_xact_id()::text;
	fsync := pg_catalog.current_setting('fsync');
	synchronous_commit := pg_catalog.current_setting('synchronous_commit');
	FOR attempt IN 1..2 LOOP
		IF in_open THEN
			UPDATE lastword.fence SET passed = pg_catalog.pg_current_xact_id()
				WHERE domain = in_domain AND resource = in_resource RETURNING * INTO f;
		ELSE
			SELECT * INTO f FROM lastword.fence WHERE domain = in_domain AND resource = in_resource FOR NO KEY UPDATE;
		END IF;
		is_there := FOUND;
		EXIT WHEN is_there OR attempt = 2;
		PERFORM pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(in_domain || ' ' || in_resource, 720720));
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
END $$`

// postgresStore is the one conditional write of a record, and of a receipt beside it.
// in_xact is the transaction that has read the record, ” if none has: the write is
// then decided by what it finds alone, tombstones and the mark of a restore included.
// Every number of rows but one is an error, so nobody can overlook it.
const postgresStore = `CREATE FUNCTION lastword.store(in_xact text, in_domain text, in_resource text, in_existed boolean,
	now_fence bigint, now_lease_id text, now_grant_digest text, now_root text,
	now_last_seq bigint, now_last_operation text, now_last_payload text, now_policy text, now_status_mode text,
	now_frozen boolean, now_step bigint, now_bundle_sequence bigint, now_min_epoch bigint, now_min_policy_generation bigint,
	now_imported boolean, now_heard_epoch bigint, now_heard_revision bigint, now_restored bigint,
	was_fence bigint, was_lease_id text, was_grant_digest text, was_root text,
	was_last_seq bigint, was_last_operation text, was_last_payload text, was_policy text, was_status_mode text,
	was_frozen boolean, was_step bigint, was_bundle_sequence bigint, was_min_epoch bigint, was_min_policy_generation bigint,
	was_imported boolean, was_heard_epoch bigint, was_heard_revision bigint, was_restored bigint,
	in_receipt boolean, in_operation text, in_payload text, in_fence bigint, in_seq bigint, in_lease_id text,
	in_grant_digest text, in_owner text, in_caller text, in_root text, in_result bytea, in_applied_at text,
	in_digest text, in_pruned bigint)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	changed bigint;
BEGIN
	IF in_xact <> '' AND in_xact <> pg_catalog.pg_current_xact_id()::text THEN
		RAISE EXCEPTION 'lastword: the transaction that read the record has ended' USING ERRCODE = 'LW003';
	END IF;
	IF pg_catalog.current_setting('fsync') <> 'on' OR pg_catalog.current_setting('synchronous_commit') = 'off' THEN -- an effect may have changed that
		RAISE EXCEPTION 'lastword: fsync is %, synchronous_commit is %', pg_catalog.current_setting('fsync'), pg_catalog.current_setting('synchronous_commit')
			USING ERRCODE = 'LW004';
	END IF;
	IF in_existed THEN
		UPDATE lastword.fence f SET fence = now_fence, lease_id = now_lease_id, grant_digest = now_grant_digest, root = now_root,
			last_seq = now_last_seq, last_operation = now_last_operation, last_payload = now_last_payload,
			policy = now_policy, status_mode = now_status_mode, frozen = now_frozen, step = now_step,
			bundle_sequence = now_bundle_sequence, min_epoch = now_min_epoch, min_policy_generation = now_min_policy_generation,
			imported = now_imported, heard_epoch = now_heard_epoch, heard_revision = now_heard_revision, restored = now_restored,
			passed = pg_catalog.pg_current_xact_id()
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
			now_min_policy_generation, now_imported, now_heard_epoch, now_heard_revision, now_restored, pg_catalog.pg_current_xact_id())
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
END $$`
