package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lastword/lastword"
)

// An effect that writes to the record by itself is noticed before COMMIT, whether the
// place remembers the record or not.
func TestAnEffectThatChangesTheRecordIsNoticed(t *testing.T) { // R15
	for name, change := range map[string]string{
		"the fence": `UPDATE lastword.fence SET fence = fence + 1`, "the lease": `UPDATE lastword.fence SET lease_id = 'mine'`,
		"the number": `UPDATE lastword.fence SET last_seq = last_seq + 1`, "the freeze": `UPDATE lastword.fence SET frozen = TRUE`,
	} {
		p := pgProtect(t, pgDocuments, whole)
		h := p.seal.holder("doc/a", "w", 1)
		apply := func(op, statement string) error {
			_, err := p.fence.Apply(t.Context(), h, op, []byte(op), func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, statement)
				return err
			})
			return err
		}
		for i, remembered := range []bool{false, true} {
			if remembered {
				if err := apply("first", `UPDATE doc SET body = 'first' WHERE id = 'a'`); err != nil {
					t.Fatal(err)
				}
			}
			op := fmt.Sprint("op-", i)
			before := dump(t, p.db, `SELECT to_jsonb(f)::text FROM lastword.fence f`)
			err := apply(op, change+` WHERE resource = 'doc/a'`)
			if !remembered && err == nil { // there is no record yet that could be changed
				continue
			}
			var told *lastword.Error
			if !errors.As(err, &told) || told.Code != lastword.CodeInternal || !strings.Contains(told.Hint, "must not write to the tables of the fence") {
				t.Errorf("%s, remembered %v: %v", name, remembered, err)
			}
			if after := dump(t, p.db, `SELECT to_jsonb(f)::text FROM lastword.fence f`); after != before {
				t.Errorf("%s: the record was\n%sand is\n%s", name, before, after)
			}
			if err := apply("next"+op, `UPDATE doc SET body = 'next' WHERE id = 'a'`); err != nil {
				t.Errorf("%s: the next write: %v", name, err)
			}
		}
	}
}
