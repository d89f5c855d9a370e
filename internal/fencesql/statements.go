package fencesql

import (
	"reflect"
	"regexp"
	"strings"
)

// texts are the statements that all engines share. They are written for SQLite: main.
// keeps a TEMP table of the same name from getting in between.
type texts struct {
	Receipt, CountRefusal, QuarantineFirst, QuarantineLast, Act, Acts,
	MarkRestored, Restored, Unraised, Jumped, Bundle, RaiseBundle, Records, Refusals, Quarantine,
	Oldest, DeleteReceipt, Tombstone, Watermark, Dismiss, DismissOne, Domains, Windows, EndRollouts, Result string
}

var sqliteTexts = texts{
	Receipt: `SELECT payload, fence, seq, lease_id, grant_digest, owner, caller, root, result, applied_at
FROM main.lastword_receipt WHERE domain = ?1 AND resource = ?2 AND operation = ?3`,

	CountRefusal: `INSERT INTO main.lastword_refusal AS r
	(domain, resource, verdict, times, last_why, last_fence, last_lease_id, last_claimant, last_at)
VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (domain, resource, verdict) DO UPDATE SET times = r.times + 1, last_why = excluded.last_why,
	last_fence = excluded.last_fence, last_lease_id = excluded.last_lease_id,
	last_claimant = excluded.last_claimant, last_at = excluded.last_at`,

	// The first of a claimant stays and counts; QuarantineLast is for the later ones,
	// each in the place of the one before.
	QuarantineFirst: `INSERT INTO main.lastword_quarantine AS q
	(domain, resource, claimant, place, times, verdict, why, fence, lease_id, operation, seq, payload, content, noted_at)
VALUES (?1, ?2, ?3, 'first', 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT (domain, resource, claimant, place) DO UPDATE SET times = q.times + 1
RETURNING times`,

	QuarantineLast: `INSERT INTO main.lastword_quarantine
	(domain, resource, claimant, place, times, verdict, why, fence, lease_id, operation, seq, payload, content, noted_at)
VALUES (?1, ?2, ?3, 'last', 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT (domain, resource, claimant, place) DO UPDATE SET verdict = excluded.verdict, why = excluded.why,
	fence = excluded.fence, lease_id = excluded.lease_id, operation = excluded.operation, seq = excluded.seq,
	payload = excluded.payload, content = excluded.content, noted_at = excluded.noted_at`,

	Act: `INSERT INTO main.lastword_act (domain, resource, kind, operator, reason, fence_before, fence_after, mark, at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)`,

	Acts: `SELECT kind, operator, reason, fence_before, fence_after, mark, at FROM (
	SELECT * FROM main.lastword_act WHERE domain = ?1 AND (resource = ?2 OR resource = '') ORDER BY number DESC LIMIT ?3
) AS newest ORDER BY number`,

	MarkRestored: `INSERT INTO main.lastword_restored (domain, mark) VALUES (?1, ?2)
ON CONFLICT (domain) DO UPDATE SET mark = excluded.mark`,

	Restored: `SELECT mark FROM main.lastword_restored WHERE domain = ?1`,

	Unraised: `SELECT resource FROM main.lastword_fence WHERE domain = ?1 AND restored < ?2 ORDER BY resource LIMIT 1`,

	Jumped: `SELECT last_fence FROM main.lastword_refusal WHERE domain = ?1 AND resource = ?2 AND verdict = 'FENCE_JUMP'`,

	Bundle: `SELECT sequence, min_epoch FROM main.lastword_bundle WHERE domain = ?1`,

	RaiseBundle: `INSERT INTO main.lastword_bundle AS b (domain, sequence, min_epoch) VALUES (?1, ?2, ?3)
ON CONFLICT (domain) DO UPDATE SET
	sequence = CASE WHEN excluded.sequence > b.sequence THEN excluded.sequence ELSE b.sequence END,
	min_epoch = CASE WHEN excluded.min_epoch > b.min_epoch THEN excluded.min_epoch ELSE b.min_epoch END`,

	Records: `SELECT resource FROM main.lastword_fence WHERE domain = ?1 AND resource > ?2 ORDER BY resource LIMIT ?3`,

	Refusals: `SELECT verdict, times FROM main.lastword_refusal WHERE domain = ?1 AND resource = ?2`,

	Quarantine: `SELECT claimant, verdict, why, fence, lease_id, operation, seq, payload, content, noted_at
FROM main.lastword_quarantine WHERE domain = ?1 AND resource = ?2 ORDER BY claimant, place`,

	// The receipt of the record's last write stays: with the policy once it answers.
	Oldest: `SELECT r.operation, r.applied_at FROM main.lastword_receipt AS r
JOIN main.lastword_fence AS f ON f.domain = r.domain AND f.resource = r.resource AND f.last_operation <> r.operation
WHERE r.domain = ?1 AND r.resource = ?2 AND r.applied_at < ?3 AND r.operation > ?4 ORDER BY r.operation LIMIT ?5`,

	DeleteReceipt: `DELETE FROM main.lastword_receipt WHERE domain = ?1 AND resource = ?2 AND operation = ?3`,

	Tombstone: `INSERT INTO main.lastword_tombstone (domain, resource, operation_digest, pruned_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO NOTHING`,

	Watermark: `UPDATE main.lastword_fence SET pruned = ?3 WHERE domain = ?1 AND resource = ?2 AND pruned < ?3`,

	Dismiss:    `DELETE FROM main.lastword_quarantine WHERE domain = ?1 AND resource = ?2`,
	DismissOne: `DELETE FROM main.lastword_quarantine WHERE domain = ?1 AND resource = ?2 AND claimant = ?3`,

	EndRollouts: `UPDATE main.lastword_rollout SET shadow = 0 WHERE domain = ?1`,

	Domains: `SELECT domain FROM main.lastword_fence WHERE resource = ?1
UNION SELECT domain FROM main.lastword_receipt WHERE resource = ?1
UNION SELECT domain FROM main.lastword_refusal WHERE resource = ?1 ORDER BY 1`,

	Result: `UPDATE main.lastword_receipt SET result = ?4 WHERE domain = ?1 AND resource = ?2 AND operation = ?3`,

	Windows: `SELECT domain FROM main.lastword_restored WHERE mark > 0
UNION SELECT domain FROM main.lastword_fence WHERE restored > 0 ORDER BY 1`,
}

var postgresTexts = withBypass(translated(sqliteTexts))

// withBypass counts what PostgreSQL's triggers have let pass in a roll-out as what it
// would have been: a refusal.
func withBypass(t texts) texts {
	t.Refusals += `
UNION ALL SELECT 'SHADOW(' || verdict || ')', pg_catalog.sum(weight)::bigint FROM lastword.bypass WHERE domain = $1 AND resource = $2 GROUP BY verdict`
	return t
}

// translated is the texts as PostgreSQL wants them.
func translated(t texts) texts {
	fields := reflect.ValueOf(&t).Elem()
	for i := range fields.NumField() {
		fields.Field(i).SetString(postgresText(fields.Field(i).String()))
	}
	return t
}

var placeholder = regexp.MustCompile(`\?(\d+)`)

func postgresText(s string) string {
	return placeholder.ReplaceAllString(strings.ReplaceAll(s, "main.lastword_", "lastword."), "$$$1")
}
