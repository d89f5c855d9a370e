package sqlfence_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

// Records with names that no lease can be on, which an older lastword.apply let in: none of
// them may keep the domain closed after a restore, open it too early, or end an audit.
func TestARecordWithANameThatIsNotCanonicalIsInNobodysWay(t *testing.T) { // R20
	p := pgProtect(t, pgDocuments, whole)
	odd := []string{"", "/doc/a", "doc/a/", "doc//../ bad", strings.Repeat("x", 5000), "a\nb", "."}
	p.mustThrough("doc/a", 1, `UPDATE doc SET body = 'one' WHERE id = 'a'`)
	for _, name := range odd {
		if _, err := p.db.ExecContext(t.Context(), `INSERT INTO lastword.fence SELECT domain, $1, fence, lease_id, grant_digest, root, last_seq, last_operation, last_payload, policy, status_mode, frozen,
	step, bundle_sequence, min_epoch, min_policy_generation, imported, heard_epoch, heard_revision, restored FROM lastword.fence WHERE resource = 'doc/a'`, name); err != nil {
			t.Fatal(err)
		}
	}
	place := p.fence.Place()
	fails := true
	restore := func() (int, error) {
		return fence.DeclareRestored(t.Context(), place, fence.Restore{Domain: domain, Until: wall, Act: anna, NextFence: func(_ context.Context, r lastword.Resource) (lastword.Token, error) {
			if _, err := lastword.ParseResource(string(r)); err != nil {
				return 0, err // as the authority answers
			}
			if fails {
				return 0, lastword.ErrUnavailable
			}
			return 2, nil
		}})
	}
	if _, err := restore(); !errors.Is(err, lastword.ErrUnavailable) {
		t.Fatal(err)
	}
	// Not one record of all is raised at the end, '' among them: the window stays open.
	if _, err := fence.Reopen(t.Context(), place, domain, "", anna); !errors.Is(err, lastword.ErrRegression) {
		t.Errorf("closed the window over records that were not raised: %v", err)
	}
	fails = false
	raised, err := restore()
	if err != nil || raised != len(odd)+1 {
		t.Fatalf("raised %d: %v", raised, err)
	}
	if n := count(t, p.db, `SELECT count(*) FROM lastword.fence WHERE restored = 0 OR lease_id <> ''`); n != 0 {
		t.Errorf("%d records were not closed", n)
	}
	if n, err := fence.Reopen(t.Context(), place, domain, "", anna); err != nil || n != len(odd)+1 {
		t.Errorf("reopened %d: %v", n, err)
	}
	if open, err := place.Windows(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("windows %v: %v", open, err)
	}
	p.mustThrough("doc/a", 2, `UPDATE doc SET body = 'two' WHERE id = 'a'`)
	found, checked, err := fence.Audit(t.Context(), place, domain, oneAuthority{next: 3}, nil)
	if err != nil || checked != len(odd)+1 {
		t.Fatalf("checked %d: %v", checked, err)
	}
	told := map[lastword.Resource]bool{}
	for _, f := range found {
		told[f.Resource] = f.Kind == fence.FindingNotCanonical
	}
	for _, name := range odd {
		if !told[lastword.Resource(name)] {
			t.Errorf("nothing is told of %q: %v", name, found)
		}
	}
	if told["doc/a"] {
		t.Errorf("told of doc/a: %v", found)
	}
}

// The record without a name alone: "" is a name here, and does not say that there is none.
func TestAnUnraisedRecordWithoutANameKeepsTheWindowOpen(t *testing.T) { // R20
	p := pgProtect(t, pgDocuments)
	mustExec(t, p.db, `INSERT INTO lastword.fence VALUES ('test', '', 1, 'l', '', '', 1, 'op', '', 'ordered', 'fence-only', FALSE, 0, 0, 0, 0, FALSE, 0, 0, 0);
INSERT INTO lastword.restored VALUES ('test', 5)`)
	if _, err := fence.Reopen(t.Context(), p.fence.Place(), domain, "", anna); !errors.Is(err, lastword.ErrRegression) {
		t.Errorf("got %v", err)
	}
}

// oneAuthority says the same of every resource.
type oneAuthority struct{ next lastword.Token }

func (a oneAuthority) Status(_ context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	if _, err := lastword.ParseResource(string(q.Resource)); err != nil {
		return lastword.Status{}, err
	}
	return lastword.Status{Resource: q.Resource, NextFence: a.next}, nil
}

func (oneAuthority) List(context.Context, lastword.ListQuery) (lastword.Page, error) {
	return lastword.Page{}, nil
}
