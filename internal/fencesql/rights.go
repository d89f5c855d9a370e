package fencesql

import (
	"context"
	"fmt"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/sqldb"
)

// rights are what a role needs on PostgreSQL for guarded writes, and no more.
var rights = []right{
	{"schema", "lastword", "USAGE"},
	{"table", "lastword.schema", "SELECT"},
	{"table", "lastword.fence", "SELECT"},
	{"table", "lastword.fence", "INSERT"},
	{"table", "lastword.fence", "UPDATE"},
	{"table", "lastword.receipt", "SELECT"},
	{"table", "lastword.receipt", "INSERT"},
	{"table", "lastword.tombstone", "SELECT"},
	{"table", "lastword.restored", "SELECT"},
	{"table", "lastword.refusal", "SELECT"},
	{"table", "lastword.refusal", "INSERT"},
	{"table", "lastword.refusal", "UPDATE"},
	{"table", "lastword.quarantine", "SELECT"},
	{"table", "lastword.quarantine", "INSERT"},
	{"table", "lastword.quarantine", "UPDATE"},
	{"table", "lastword.bundle", "SELECT"},
	{"table", "lastword.bundle", "INSERT"},
	{"table", "lastword.bundle", "UPDATE"},
	{"table", "lastword.act", "SELECT"},
	{"table", "lastword.rollout", "SELECT"},
	{"table", "lastword.bypass", "SELECT"},
	{"table", "lastword.pass", "SELECT"},
	{"table", "lastword.pass", "INSERT"},
	{"table", "lastword.pass", "UPDATE"},
	{"table", "lastword.protected", "SELECT"},
	{"function", "lastword.shadows", "EXECUTE"},
	{"function", "lastword.load", "EXECUTE"},
	{"function", "lastword.store", "EXECUTE"},
}

type right struct{ kind, object, privilege string }

func (r right) question() string {
	if r.kind == "function" {
		schema, name, _ := strings.Cut(r.object, ".")
		return fmt.Sprintf(`(SELECT bool_and(has_function_privilege(p.oid, '%s')) FROM pg_catalog.pg_proc p
	JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = '%s' AND p.proname = '%s')`, r.privilege, schema, name)
	}
	return fmt.Sprintf("has_%s_privilege('%s', '%s')", r.kind, r.object, r.privilege)
}

// grant is the statement that gives the right.
func (r right) grant(role string) string {
	object := r.object
	if r.kind == "function" {
		return fmt.Sprintf("GRANT %s ON FUNCTION %s TO %s", r.privilege, object, role)
	}
	return fmt.Sprintf("GRANT %s ON %s %s TO %s", r.privilege, strings.ToUpper(r.kind), object, role)
}

// Grants are the statements that give role, which is quoted already, what guarded writes
// need.
func Grants(role string) (all []string) {
	for _, r := range rights {
		all = append(all, r.grant(role))
	}
	return all
}

// CheckRights refuses a role of PostgreSQL that lacks a right that guarded writes need,
// and names the first one.
func CheckRights(ctx context.Context, op string, c Conn) error {
	for i, batch := range [][]right{rights[:1], rights[1:]} { // without USAGE nothing else can be asked
		questions := make([]string, len(batch))
		answers, targets := make([]bool, len(batch)), make([]any, len(batch))
		for i, r := range batch {
			questions[i], targets[i] = r.question(), &answers[i]
		}
		err := c.Row(ctx, "SELECT "+strings.Join(questions, ", ")).Scan(targets...)
		switch state := sqldb.SQLState(err); {
		case state == "3F000" || state == "42P01" || state == "42883": // what is not there is told by [CheckSchema]
			return nil
		case err != nil:
			return Explain(PostgreSQL{}, op, err)
		}
		for j, ok := range answers {
			if !ok {
				r := rights[i+j]
				return &lastword.Error{Code: lastword.CodeInvalid, Op: op,
					Message: fmt.Sprintf("the role lacks the right %s on the %s %s", r.privilege, r.kind, r.object),
					Hint:    r.grant("the role")}
			}
		}
	}
	return nil
}
