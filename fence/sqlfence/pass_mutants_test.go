package sqlfence_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/internal/sqlmutants"
)

// Each condition of the statements that open and close a pass is made wrong, one at a
// time, and a write has to tell.
func TestEveryConditionOfThePassIsNeeded(t *testing.T) { // R16c
	p := protect(t, documents, whole)
	if told := p.passDiffers(); told != "" {
		t.Fatalf("nothing is wrong, and yet: %s", told)
	}
	open, closes := sqlfence.PassTexts()
	mutants := map[string][]sqlmutants.Mutant{open: sqlmutants.Of(open), closes: sqlmutants.Of(closes)}
	for _, forced := range []string{"TRUE", "FALSE"} { // a bare parameter is none that is found
		by := map[string]string{"TRUE": "(?4 OR TRUE)", "FALSE": "(?4 AND FALSE)"}[forced]
		wrong := strings.Replace(open, "?4", by, 1)
		mutants[open] = append(mutants[open], sqlmutants.Mutant{Condition: "?4", Forced: forced, Text: wrong})
	}
	if len(mutants[open]) != 8 || len(mutants[closes]) != 4 {
		t.Errorf("%d and %d mutants", len(mutants[open]), len(mutants[closes]))
	}
	for text, all := range mutants {
		for i, m := range all {
			kind, _, _ := strings.Cut(text, " ")
			t.Run(fmt.Sprint(kind, " ", i), func(t *testing.T) { // the name of the mutant is none for a file
				p := protect(t, documents, whole)
				if err := p.fence.Place().Mistake(t.Context(), text, m.Text); err != nil {
					t.Fatal(err)
				}
				if told := p.passDiffers(); told == "" {
					t.Errorf("nothing tells of %s", m)
				} else {
					t.Logf("%s: %s", m, told)
				}
			})
		}
	}
}

// passDiffers is the first thing that the passes of the writes do otherwise than they
// have to; "" if none. It leaves a table without one of its triggers.
func (p *protected) passDiffers() string {
	p.Helper()
	const change = `UPDATE doc SET body = 'new' WHERE id = 'a'`
	for token := range lastword.Token(2) { // the schema is looked at, and then known
		if err := p.through("doc/a", token+1, change); err != nil {
			return fmt.Sprintf("write %d: %v", token+1, err)
		}
	}
	if err := p.unenforced(func() error { return p.through("doc/a", 3, change) }); !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), "foreign_keys") {
		return fmt.Sprintf("a write on a connection that does not enforce foreign keys: %v", err)
	}
	mustExec(p.T, p.bypass, `PRAGMA foreign_keys = OFF; INSERT INTO lastword_pass (domain, resource) VALUES ('test', 'doc/c')`)
	if err := p.through("doc/a", 4, change); err != nil {
		return fmt.Sprintf("a write where a pass was left open: %v", err)
	}
	if n := count(p.T, p.db, `SELECT count(*) FROM lastword_act WHERE kind = 'PASS_LEFT_OPEN'`); n != 1 {
		return fmt.Sprintf("%d alarms of a pass that was left open", n)
	}
	for i, pass := range []string{`('test', 'doc/c')`, `('another', 'doc/a')`} { // a write closes its own pass and no other
		err := p.through("doc/a", lastword.Token(5+i), change, `INSERT INTO lastword_pass (domain, resource) VALUES `+pass)
		if err == nil || !strings.Contains(err.Error(), "FOREIGN KEY") {
			return fmt.Sprintf("a write that opens another pass %s: %v", pass, err)
		}
	}
	if err := p.both(7); err != nil {
		return fmt.Sprintf("two resources in a transaction of the caller's: %v", err)
	}
	mustExec(p.T, p.bypass, `DROP TRIGGER lastword_guard_delete_doc`)
	if err := p.through("doc/a", 8, change); err == nil {
		return "a write was admitted after a trigger was removed"
	}
	return ""
}

// unenforced does something on a connection that does not enforce foreign keys.
func (p *protected) unenforced(do func() error) error {
	p.Helper()
	p.db.SetMaxOpenConns(1)
	defer p.db.SetMaxOpenConns(0)
	mustExec(p.T, p.db, `PRAGMA foreign_keys = OFF`)
	defer mustExec(p.T, p.db, `PRAGMA foreign_keys = ON`)
	return do()
}

// both writes to two resources in one transaction.
func (p *protected) both(token lastword.Token) error {
	p.Helper()
	tx, err := p.db.BeginTx(p.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, id := range []string{"a", "b"} {
		h := p.seal.holder(lastword.Resource("doc/"+id), "w", token)
		if _, err := p.fence.Within(p.Context(), tx, h, "both "+id, []byte("x")); err != nil {
			return err
		}
		if _, err := tx.ExecContext(p.Context(), `UPDATE doc SET body = 'both' WHERE id = ?`, id); err != nil {
			return err
		}
	}
	return errors.Join(p.fence.ClosePass(p.Context(), tx), tx.Commit())
}
