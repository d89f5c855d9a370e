package sqlfence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
)

// What a place remembers of a record on SQLite is taken only if nothing of it, and nothing
// beside it, has changed: here each of them does, behind its back.
func TestWhatIsRememberedIsComparedAsAWhole(t *testing.T) { // R15
	digest := lastword.DigestOf([]byte("x")).String()
	changes := map[string]string{
		"a receipt":           `INSERT INTO lastword_receipt SELECT domain, resource, 'op', last_payload, fence, 9, lease_id, '', '', '', '', x'', '2026-01-01T00:00:00.000000Z' FROM lastword_fence WHERE domain = 'test' AND resource = 'r'`,
		"a tombstone":         `INSERT INTO lastword_tombstone VALUES ('test', 'r', '` + lastword.DigestOf([]byte("op")).String() + `', '')`,
		"a restore":           `INSERT INTO lastword_restored VALUES ('test', 5)`,
		"a roll-out":          `INSERT INTO lastword_rollout VALUES ('test', '', 1, '')`,
		"nothing":             ``,
		"another's receipt":   `INSERT INTO lastword_receipt SELECT domain, 's', 'op', '', 1, 1, '', '', '', '', '', x'', '' FROM lastword_fence WHERE domain = 'test' AND resource = 'r'`,
		"another's tombstone": `INSERT INTO lastword_tombstone VALUES ('test', 's', '` + lastword.DigestOf([]byte("op")).String() + `', '')`,
		"another's restore":   `INSERT INTO lastword_restored VALUES ('other', 5)`,
		"another's roll-out":  `INSERT INTO lastword_rollout VALUES ('other', '', 1, '')`,
		"an ended roll-out":   `INSERT INTO lastword_rollout VALUES ('test', '', 0, '')`,
	}
	for column, value := range map[string]string{
		"fence": "fence + 1", "lease_id": "'x'", "grant_digest": "'" + digest + "'", "root": "'" + digest + "'", "last_seq": "9",
		"last_operation": "'x'", "last_payload": "'" + digest + "'", "policy": "'latest'", "status_mode": "'query'", "frozen": "1", "step": "5",
		"bundle_sequence": "77", "min_epoch": "1", "min_policy_generation": "1", "imported": "1", "heard_epoch": "1", "heard_revision": "7",
		"restored": "3", "pruned": "1700000000000",
	} {
		changes["the column "+column] = fmt.Sprintf(`UPDATE lastword_fence SET %s = %s WHERE domain = 'test' AND resource = 'r'`, column, value)
	}
	errLooked := errors.New("looked")
	key := fence.Key{Domain: domain, Resource: "r"}
	const early = "01890a5d-ac96-7b2c-8f00-000000000001" // UUIDv7: 2023-06-29
	look := func(p *sqlfence.Place, operation string) (rec fence.Record, known fence.Known) {
		err := p.Transact(t.Context(), key, func(ctx context.Context, tx *sqlfence.Tx) (err error) {
			if rec, known, err = tx.Load(ctx, key, operation); err == nil {
				err = errLooked
			}
			return err
		})
		if !errors.Is(err, errLooked) {
			t.Fatal(err)
		}
		return rec, known
	}
	for name, change := range changes {
		db, _, s, f := faultyDatabase(t, durable)
		h := s.holder("r", "a", 1)
		mustPut(t, f, h, "r", "first", "v") // from here on the place remembers the record
		mustPut(t, f, h, "r", "second", "v")
		for _, twin := range []string{"'other', 'r'", "'test', 's'"} { // nobody takes one for the other
			mustExec(t, db, `INSERT INTO lastword_fence SELECT `+twin+`, fence, lease_id, grant_digest, root, last_seq, last_operation, last_payload, policy, status_mode,
	frozen, step, bundle_sequence, min_epoch, min_policy_generation, imported, heard_epoch, heard_revision, restored, pruned FROM lastword_fence WHERE domain = 'test' AND resource = 'r'`)
		}
		if change != "" {
			mustExec(t, db, change)
		}
		fresh, err := sqlfence.OpenPlace(t.Context(), db, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, operation := range []string{"op", early, "first", ""} {
			rec, known := look(f.Place(), operation)
			want, wants := look(fresh, operation)
			if rec != want || known != wants {
				t.Errorf("%s, operation %q:\ngot  %+v %+v\nwant %+v %+v", name, operation, rec, known, want, wants)
			}
		}
		if err := fresh.Close(); err != nil {
			t.Error(err)
		}
	}
}
