package sqlfence_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
)

// KF-38 (1): testdata/version1.db was written by the program of before the second step
// of the schema: a record at fence 42 with two receipts and refusals, and a frozen one
// at 7.
func TestAFileOfTheFirstVersionIsUpgradedAndKeepsEverything(t *testing.T) {
	old, err := os.ReadFile("testdata/version1.db")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "app.db")
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	db := openDB(t, path, durable)
	s := newSeal(t)
	_, err = sqlfence.New(t.Context(), db, s.config())
	oneLine(t, "the tables of before", err, lastword.CodeInvalid)
	if !strings.Contains(err.Error(), "fence init") {
		t.Errorf("no word of fence init: %v", err)
	}
	const rows = `SELECT domain, resource, fence, lease_id, grant_digest, root, last_seq, last_operation, last_payload, policy,
	status_mode, frozen, step, bundle_sequence, min_epoch, min_policy_generation FROM lastword_fence ORDER BY resource`
	before := dump(t, db, rows) + dump(t, db, `SELECT * FROM lastword_receipt`) + dump(t, db, `SELECT * FROM lastword_refusal`) + dump(t, db, `SELECT * FROM lastword_quarantine`)
	for range 2 {
		if err := sqlfence.Init(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	after := dump(t, db, rows) + dump(t, db, `SELECT * FROM lastword_receipt`) + dump(t, db, `SELECT * FROM lastword_refusal`) + dump(t, db, `SELECT * FROM lastword_quarantine`)
	if before != after || len(before) < 500 {
		t.Fatalf("the upgrade changed\n%s\nto\n%s", before, after)
	}
	f := guard(t, db, s.config())
	in, err := f.Inspect(t.Context(), "doc/a")
	if rec := in.Record; err != nil || rec.Fence != 42 || rec.Imported || rec.Heard != (fence.Mark{}) || rec.Restored != 0 || rec.Unraised || len(in.Acts) != 0 {
		t.Fatalf("%+v, %v", in, err)
	}
	if _, err := put(t.Context(), f, s.holder("doc/a", "worker", 41), "doc/a", "op-3", "late"); err == nil {
		t.Fatal("a stale owner after the upgrade")
	}
	mustPut(t, f, s.holder("doc/a", "worker", 43), "doc/a", "op-4", "three")
	key := fence.Key{Domain: domain, Resource: "doc/b"}
	if _, err := put(t.Context(), f, s.holder("doc/b", "worker", 8), "doc/b", "op-2", "x"); err == nil {
		t.Fatal("the frozen record is open")
	}
	if _, err := fence.Release(t.Context(), f.Place(), key, 0, fence.Act{Operator: "o", Reason: "upgrade", At: wall}); err != nil {
		t.Fatal(err)
	}
	mustPut(t, f, s.holder("doc/b", "worker", 8), "doc/b", "op-2", "x")
}

// T13, T16: also a person with a SQL shell does not change what was recorded, by a slip.
func TestWhatOperatorsDidIsNotChangedInSQL(t *testing.T) {
	db, _ := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	mustPut(t, f, s.holder("r", "a", 41), "r", "op", "v")
	if _, err := fence.Release(t.Context(), f.Place(), fence.Key{Domain: domain, Resource: "r"}, 0, fence.Act{Operator: "anna", Reason: "a test", At: wall}); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`UPDATE lastword_act SET operator = 'nobody'`, `DELETE FROM lastword_act`,
		`UPDATE lastword_fence SET fence = 40`, `DELETE FROM lastword_fence`,
		`REPLACE INTO lastword_fence (domain, resource, fence, lease_id, grant_digest, root, last_seq, last_operation, last_payload, policy,
			status_mode, frozen, step, bundle_sequence, min_epoch, min_policy_generation, imported, heard_epoch, heard_revision, restored)
		 SELECT domain, resource, 40, lease_id, grant_digest, root, last_seq, last_operation, last_payload, policy,
			status_mode, frozen, step, bundle_sequence, min_epoch, min_policy_generation, imported, heard_epoch, heard_revision, restored
		 FROM lastword_fence`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "lastword:") {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if n := count(t, db, `SELECT count(*) FROM lastword_act WHERE operator = 'anna' AND kind = 'release' AND fence_before = 41 AND fence_after = 41`); n != 1 {
		t.Errorf("%d acts", n)
	}
}
