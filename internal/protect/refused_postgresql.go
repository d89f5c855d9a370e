package protect

// postgresRefused writes the evidence of a refusal of lastword.apply or lastword.advance,
// which could not outlive it in the same transaction (R16b): it counts the refusal, keeps
// a CONFLICT, and freezes the record where two leases came with one fence. It writes what
// the adapters in Go write, and counts what they count: no REPLAYED, and nothing that was
// only to be asked again.
//
// It believes the detail as lastword.apply believes its arguments, but for the freeze: the
// record has to show, under its lock, what that stands on. It opens nothing.
const postgresRefused = `CREATE OR REPLACE FUNCTION lastword.refused(detail text, content bytea DEFAULT '', OUT counted boolean, OUT frozen boolean) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
	told jsonb;
	attempt jsonb;
	verdict text;
	why text;
	domain text;
	resource text;
	owner text;
	fence bigint;
	lease_id text;
	operation text;
	seq bigint;
	payload text;
	times bigint;
	kept bytea;
	now constant text := to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'); -- for people
BEGIN
	counted := FALSE; frozen := FALSE;
	BEGIN
		told := detail::jsonb; attempt := told -> 'attempt';
		verdict := coalesce(told ->> 'verdict', ''); why := coalesce(told ->> 'why', '');
		domain := coalesce(told ->> 'domain', ''); resource := coalesce(told ->> 'resource', '');
		owner := coalesce(attempt ->> 'owner', ''); lease_id := coalesce(attempt ->> 'lease_id', '');
		fence := coalesce(attempt ->> 'fence', '0'); seq := coalesce(attempt ->> 'seq', '0');
		operation := coalesce(attempt ->> 'operation', ''); payload := coalesce(attempt ->> 'payload', '');
		content := coalesce(content, '');
	EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
		attempt := NULL;
	END;
	IF jsonb_typeof(attempt) IS DISTINCT FROM 'object' OR verdict NOT IN ('REPLAYED', 'CONFLICT', 'STALE_OWNER', 'RECEIPT_EXPIRED', 'OUT_OF_ORDER',
			'ROOT_MISMATCH', 'FENCE_REGRESSION', 'FENCE_JUMP', 'UNVERIFIED', 'STATUS_UNAVAILABLE')
		OR why !~ '^[A-Z_]{0,64}$' OR seq < 0 OR coalesce(lastword.named(domain, FALSE), lastword.named(resource, TRUE), lastword.named(owner, FALSE),
			lastword.named(nullif(lease_id, ''), FALSE), lastword.named(nullif(operation, ''), FALSE)) IS NOT NULL
		OR payload !~ '^(sha256:[0-9a-f]{64})?$'
		OR verdict = 'CONFLICT' AND (operation = '' OR payload = '') THEN
		RAISE EXCEPTION 'lastword: INVALID: want the detail of an error of lastword.apply, as it is' USING ERRCODE = 'LW020';
	END IF;
	IF content <> '' AND payload <> 'sha256:' || encode(sha256(content), 'hex') THEN
		RAISE EXCEPTION 'lastword: INVALID: the content is not the one that was refused: %', resource USING ERRCODE = 'LW020';
	END IF;
	IF verdict IN ('REPLAYED', 'STATUS_UNAVAILABLE') OR verdict = 'UNVERIFIED' AND why = 'OUTDATED' THEN
		RETURN;
	END IF;
` + postgresLossy + `

	INSERT INTO lastword.refusal AS r (domain, resource, verdict, times, last_why, last_fence, last_lease_id, last_claimant, last_at)
	VALUES (domain, resource, verdict, 1, why, fence, lease_id, owner, now)
	ON CONFLICT ON CONSTRAINT refusal_pkey DO UPDATE SET times = r.times + 1, last_why = excluded.last_why, last_fence = excluded.last_fence,
		last_lease_id = excluded.last_lease_id, last_claimant = excluded.last_claimant, last_at = excluded.last_at;
	counted := TRUE;

	IF verdict = 'CONFLICT' THEN -- of a claimant the first and the last stay, the others count
		kept := substr(content, 1, 4096);
		INSERT INTO lastword.quarantine AS q (domain, resource, claimant, place, times, verdict, why, fence, lease_id, operation, seq, payload, content, noted_at)
		VALUES (domain, resource, owner, 'first', 1, verdict, why, fence, lease_id, operation, seq, payload, kept, now)
		ON CONFLICT ON CONSTRAINT quarantine_pkey DO UPDATE SET times = q.times + 1
		RETURNING q.times INTO times;
		IF times > 1 THEN
			INSERT INTO lastword.quarantine (domain, resource, claimant, place, times, verdict, why, fence, lease_id, operation, seq, payload, content, noted_at)
			VALUES (domain, resource, owner, 'last', 1, verdict, why, fence, lease_id, operation, seq, payload, kept, now)
			ON CONFLICT ON CONSTRAINT quarantine_pkey DO UPDATE SET verdict = excluded.verdict, why = excluded.why, fence = excluded.fence,
				lease_id = excluded.lease_id, operation = excluded.operation, seq = excluded.seq, payload = excluded.payload,
				content = excluded.content, noted_at = excluded.noted_at;
		END IF;
	END IF;

	IF verdict = 'FENCE_REGRESSION' AND why = 'OTHER_LEASE' AND lease_id <> '' THEN -- what has moved on is left alone
		UPDATE lastword.fence f SET frozen = TRUE
		WHERE f.domain = domain AND f.resource = resource AND f.fence = fence AND f.lease_id <> '' AND f.lease_id <> lease_id AND NOT f.frozen;
		frozen := FOUND;
	END IF;
END $$`
