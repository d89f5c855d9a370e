package sqlfence_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lastword/lastword/internal/core"
)

// asked is a database, or a transaction.
type asked interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// point is a transaction that goes on after a statement that failed.
type point struct{ *sql.Tx }

func (p point) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if _, err := p.Tx.ExecContext(ctx, `SAVEPOINT point`); err != nil {
		return nil, err
	}
	r, err := p.Tx.ExecContext(ctx, query, args...)
	if err != nil {
		_, _ = p.Tx.ExecContext(ctx, `ROLLBACK TO point`)
	}
	return r, err
}

// undone does something in a transaction of which nothing stays.
func undone(t *testing.T, db *sql.DB, do func(tx point)) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	do(point{tx})
}

// lossyIsRefused: nothing is decided, or counted, where a crash could undo it.
func lossyIsRefused(t *testing.T, tx point, report func(string, ...any)) {
	t.Helper()
	detail := literal(otherLease(t, func(map[string]any, map[string]any) {}))
	calls := admittedCalls()
	calls["refused"] = call{"lastword.refused", map[string]string{"detail": detail}}
	delete(calls, "check_arguments")
	for setting, want := range map[string]string{"off": "LW004", "local": "", "on": ""} {
		mustExecTx(t, tx.Tx, `SET LOCAL synchronous_commit = `+setting)
		for name, c := range calls {
			if state := c.state(t, tx); state != want {
				report("%s with synchronous_commit = %s: %q, want %q", name, setting, state, want)
			}
		}
	}
	mustExecTx(t, tx.Tx, `SET LOCAL synchronous_commit = on`)
}

// issueTimesAreRead: the function reads the issue times that Go reads.
func issueTimesAreRead(t *testing.T, tx point, seed uint64, report func(string, ...any)) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	ids := []string{
		"017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "00000000-0000-7000-8000-000000000000", "FFFFFFFF-FFFF-7FFF-BFFF-FFFFFFFFFFFF",
		"01ARYZ6S41TSV4RRFFQ69G5FAV", "00000000000000000000000000", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "settle-4711", "",
	}
	for _, id := range ids[:6] {
		ids = append(ids, strings.ToLower(id), strings.ToUpper(id), id+"0", "0"+id, id[1:], id+"\n", strings.ReplaceAll(id, "-", ""))
		for i := range id { // each character is another one, of all those at an edge of what is one
			for _, c := range "0123456789:/-@AGHIJKLMNOPTUVWZ[`abfgz{ä" {
				ids = append(ids, id[:i]+string(c)+id[i+1:])
			}
		}
	}
	for range 200 {
		const letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
		id := make([]byte, 26)
		for i := range id {
			id[i] = letters[random.IntN(len(letters))]
		}
		id[0] = letters[random.IntN(8)]
		ids = append(ids, string(id), fmt.Sprintf("%08x-%04x-7%03x-a%03x-%012x", random.Uint32(), random.Uint32()>>16, random.IntN(4096), random.IntN(4096), random.Uint64()>>16))
	}
	list, err := json.Marshal(ids)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := tx.QueryContext(t.Context(), `SELECT id, lastword.issued(id) FROM json_array_elements_text($1::json) id`, string(list))
	if err != nil {
		report("%v", err)
	}
	defer rows.Close()
	bound, n := 0, 0
	for ; rows.Next(); n++ {
		var id string
		var ms sql.NullInt64
		if err := rows.Scan(&id, &ms); err != nil {
			report("%v", err)
		}
		want, ok := core.IssueTime(id)
		if ms.Valid != ok || ok && uint64(ms.Int64) != want {
			report("%q was issued at %v, by Go at %d, %v", id, ms, want, ok)
		}
		if ok {
			bound++
		}
	}
	if rows.Err() != nil || n != len(ids) || bound < 1000 || n-bound < 1000 {
		report("%d of %d ids, %d with a time: %v", n, len(ids), bound, rows.Err())
	}
}

// R19, R20: an id that is bound to its time in one language is so in all.
func TestTheFunctionReadsTheIssueTimesThatGoReads(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	undone(t, pgProtect(t, pgDocuments).db, func(tx point) { issueTimesAreRead(t, tx, seed, t.Errorf) })
}
