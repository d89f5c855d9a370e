package protect

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lastword/lastword/internal/sqldb"
)

// PostgreSQL is the engine of PostgreSQL 13 or later.
type PostgreSQL struct{}

// Dialect is PostgreSQL's.
func (PostgreSQL) Dialect() sqldb.Dialect { return sqldb.PostgreSQL{} }

// Schema is the tables of this package on PostgreSQL.
func (PostgreSQL) Schema() sqldb.Schema { return postgresSchema }

func (PostgreSQL) place(n int) string { return fmt.Sprintf("$%d", n) }

// resolve finds the table by the search path, as a statement would.
func (PostgreSQL) resolve(ctx context.Context, q sqldb.Querier, table string) (string, error) {
	var name, kind, persistence, schema string
	err := q.QueryRowContext(ctx, `SELECT format('%I.%I', n.nspname, c.relname), c.relkind, c.relpersistence, n.nspname
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)`, table).Scan(&name, &kind, &persistence, &schema)
	switch state := sqldb.SQLState(err); {
	case errors.Is(err, sql.ErrNoRows):
		return "", invalid("spell it as a statement does, with its schema if it is in none of the search path", "there is no table %s", table)
	case state == "42601" || state == "42602" || state == "42622" || state == "0A000": // syntax, name, length, another database's
		return "", invalid("spell it as a statement does, with its schema if it is in none of the search path", "%q is no name of a table", table)
	case err != nil:
		return "", err
	case kind != "r" && kind != "p":
		return "", invalid("protect the tables that stand behind it", "%s is not an ordinary table", name)
	case persistence == "t":
		return "", invalid("nobody else can write to it", "%s is a temporary table", name)
	case schema == sqldb.PostgreSQLSchema, schema == "information_schema", strings.HasPrefix(schema, "pg_"):
		return "", invalid("protect a table of your own", "%s is not a table of the application", name)
	}
	return name, nil
}

// The triggers of a table. The one for rows is AFTER: it sees what is really written,
// whatever other triggers, defaults and generated columns make of a row.
const (
	rowTrigger      = "lastword_guard"
	truncateTrigger = "lastword_guard_truncate"
)

// guardName is the function of a table, with its schema.
func guardName(table string) string {
	sum := sha256.Sum256([]byte(table))
	return "lastword.guard_" + hex.EncodeToString(sum[:12])
}

// relation is the table, or one of its partitions or heirs.
type relation struct {
	name      string
	partition bool // has the row trigger of its parent
}

// relations are the table and all that stand below it.
func (PostgreSQL) relations(ctx context.Context, q sqldb.Querier, table string) (all []relation, err error) {
	rows, err := q.QueryContext(ctx, `WITH RECURSIVE tree (oid, top) AS (
	SELECT to_regclass($1)::oid, TRUE UNION SELECT i.inhrelid, FALSE FROM pg_catalog.pg_inherits i JOIN tree t ON i.inhparent = t.oid)
SELECT format('%I.%I', n.nspname, c.relname), c.relispartition AND NOT t.top, c.relkind FROM tree t
JOIN pg_catalog.pg_class c ON c.oid = t.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace ORDER BY t.top DESC, 1`, table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r relation
		var kind string
		if err := rows.Scan(&r.name, &r.partition, &kind); err != nil {
			return nil, err
		}
		if kind == "f" {
			return nil, invalid("protect the tables of the other server there", "%s, a part of %s, is a foreign table: it can be written to past every trigger", r.name, table)
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

// columnTypes are the types of the table's columns, of domains the type below.
func (PostgreSQL) columnTypes(ctx context.Context, q sqldb.Querier, table string) (map[string]string, error) {
	rows, err := q.QueryContext(ctx, `WITH RECURSIVE base (attname, oid) AS (
	SELECT a.attname, a.atttypid FROM pg_catalog.pg_attribute a WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
	UNION SELECT b.attname, t.typbasetype FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.oid AND t.typtype = 'd')
SELECT b.attname, CASE WHEN t.typtype = 'e' THEN 'enum' ELSE t.typname END FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.oid AND t.typtype <> 'd'`, table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	types := map[string]string{}
	for rows.Next() {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			return nil, err
		}
		types[name] = kind
	}
	return types, rows.Err()
}

// plainTypes have one text for each value, whatever the settings of a session are.
var plainTypes = []string{"text", "varchar", "bpchar", "name", "int2", "int4", "int8", "uuid", "bool", "enum"}

func (e PostgreSQL) check(ctx context.Context, q sqldb.Querier, s Spec) error {
	types, err := e.columnTypes(ctx, q, s.Table)
	if err != nil {
		return err
	}
	for _, c := range s.Template.columns() {
		kind, ok := types[c]
		if !ok {
			return invalid("spell it as the table does", "the table %s has no column %s, which the template names", s.Table, c)
		}
		if !slices.Contains(plainTypes, kind) {
			return invalid("name columns of text, whole numbers, uuid, boolean or an enumeration",
				"the text of column %s, of type %s, depends on the settings of a session", c, kind)
		}
	}
	for _, c := range s.Columns {
		if _, ok := types[c]; !ok {
			return invalid("spell it as the table does", "the table %s has no column %s to protect", s.Table, c)
		}
	}
	return nil
}

func (e PostgreSQL) write(ctx context.Context, q sqldb.Querier, s Spec) error {
	if err := e.check(ctx, q, s); err != nil {
		return err
	}
	relations, err := e.relations(ctx, q, s.Table)
	if err != nil {
		return err
	}
	if err := e.apart(ctx, q, s.Table, relations); err != nil {
		return err
	}
	numbers, err := e.columnNumbers(ctx, q, s)
	if err != nil {
		return err
	}
	function := guardName(s.Table)
	statements := []string{guardFunction(function, e.body(s, numbers)), "REVOKE ALL ON FUNCTION " + function + "() FROM PUBLIC"}
	for _, r := range relations {
		if !r.partition { // a partition has its parent's, which is dropped with that
			statements = append(statements,
				fmt.Sprintf("DROP TRIGGER IF EXISTS %s ON %s", rowTrigger, r.name),
				fmt.Sprintf("CREATE TRIGGER %s AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION %s()", rowTrigger, r.name, function))
		}
		statements = append(statements,
			fmt.Sprintf("DROP TRIGGER IF EXISTS %s ON %s", truncateTrigger, r.name),
			fmt.Sprintf("CREATE TRIGGER %s BEFORE TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION %s()", truncateTrigger, r.name, function))
	}
	for _, r := range relations { // also for a session that replays another server's changes
		statements = append(statements, fmt.Sprintf("ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %s, ENABLE ALWAYS TRIGGER %s", r.name, rowTrigger, truncateTrigger))
	}
	for _, statement := range statements {
		if _, err := q.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func guardFunction(name, body string) string {
	return "CREATE OR REPLACE FUNCTION " + name + "() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS " + dollar(body)
}

// apart refuses a table of which a part, or of whose parts one, is protected by itself:
// both would have the same triggers, and only one of them the right function.
func (e PostgreSQL) apart(ctx context.Context, q sqldb.Querier, table string, relations []relation) error {
	known, err := read(ctx, e, q)
	if err != nil {
		return err
	}
	within := func(name string, all []relation) bool {
		return slices.ContainsFunc(all, func(r relation) bool { return r.name == name })
	}
	for _, t := range known {
		if t.Table == table {
			continue
		}
		others, err := e.relations(ctx, q, t.Table)
		if err != nil && !isUnfit(err) {
			return err
		}
		if within(t.Table, relations) || within(table, others) {
			return invalid("protect the whole or its parts, not both, or take them apart first",
				"the table %s is a part or the whole of %s, which is protected already", table, t.Table)
		}
	}
	return nil
}

// columnNumbers are the numbers, by which a table knows its columns whatever they are
// called, of those that the template and the spec name. What is not there has none.
func (PostgreSQL) columnNumbers(ctx context.Context, q sqldb.Querier, s Spec) (string, error) {
	var all []string
	for _, c := range s.columns() {
		var n int
		err := q.QueryRowContext(ctx, `SELECT coalesce(max(attnum), 0) FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass($1) AND attname = $2 AND NOT attisdropped`, s.Table, c).Scan(&n)
		if err != nil {
			return "", err
		}
		all = append(all, strconv.Itoa(n))
	}
	return strings.Join(all, " "), nil
}

func (e PostgreSQL) drop(ctx context.Context, q sqldb.Querier, table string) error {
	// With the function go all triggers that call it, of tables that are parts no more
	// among them.
	_, err := q.ExecContext(ctx, "DROP FUNCTION IF EXISTS "+guardName(table)+"() CASCADE")
	return err
}

// numbersLine begins the line of a function that says for which columns it was made.
const numbersLine = "\n-- columns "

// body is the function of a table whose columns have these numbers.
//
// Only the tables themselves are asked: an heir is whoever made it.
//
// A row that belongs to no resource has none before and none after; so that it is
// refused all the same, whether OLD was looked at is remembered by itself.
func (PostgreSQL) body(s Spec, numbers string) string {
	return postgresBody(s, numbers, postgresText)
}

func postgresBody(s Spec, numbers string, quote func(string) string) string {
	domain := quote(s.Domain)
	row := func(row, event string) string {
		return fmt.Sprintf(`		r := %[1]s;
		IF %[4]sNOT EXISTS (SELECT 1 FROM ONLY lastword.fence f WHERE f.domain = %[2]s AND f.resource = r AND f.passed = pg_current_xact_id_if_assigned())
			AND NOT EXISTS (SELECT 1 FROM ONLY lastword.pass p WHERE p.domain = %[2]s AND p.resource = r AND p.xact = pg_current_xact_id_if_assigned()) THEN
			PERFORM lastword.bypassed(%[2]s, r, %[3]s, TG_RELID::regclass::text, TG_OP);
		END IF;
`, postgresResource(s.Template, row, quote), domain, quote(s.Template.Prefix()), event)
	}
	return numbersLine + numbers + fmt.Sprintf(`
DECLARE
	r text;
	before text;
	looked boolean := FALSE;
BEGIN
	IF TG_OP = 'TRUNCATE' THEN
		PERFORM lastword.bypassed(%s, NULL, %s, TG_RELID::regclass::text, TG_OP);
		RETURN NULL;
	END IF;
	IF TG_OP <> 'INSERT'%s THEN
%s		before := r; looked := TRUE;
	END IF;
	IF TG_OP <> 'DELETE'%s THEN
%s	END IF;
	RETURN NULL;
END `, domain, quote(s.Template.Prefix()),
		and(postgresHas(s.Columns, "OLD"), postgresChanged(s, "DELETE")), row("OLD", ""),
		and(postgresHas(s.Columns, "NEW"), postgresChanged(s, "INSERT")), row("NEW", "(NOT looked OR before IS DISTINCT FROM r) AND "))
}

// formerBodies are the functions that this body was before, the newest first.
func formerBodies(s Spec, numbers string) [3]string {
	last := strings.ReplaceAll(postgresBody(s, numbers, quoteText), "FROM ONLY lastword.", "FROM lastword.")
	newer := strings.ReplaceAll(last[strings.Index(last[1:], "\n")+1:], ` COLLATE "C", '/')`, ", '/')")
	oldest := strings.NewReplacer("\tlooked boolean := FALSE;\n", "", "; looked := TRUE;", ";",
		"(NOT looked OR before IS DISTINCT FROM r)", "before IS DISTINCT FROM r").Replace(newer)
	return [3]string{last, newer, oldest}
}

// outdated are the statements that make the functions of tables anew that an older program
// has made, without a lock on the tables. What is neither theirs nor ours stays, for a
// person to look at, and so does what this role may not replace: both are faults.
func (e PostgreSQL) outdated(ctx context.Context, q sqldb.Querier) (statements []string, err error) {
	tables, err := read(ctx, e, q)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		if t.Open {
			continue
		}
		numbers, err := e.columnNumbers(ctx, q, t.Spec)
		if err != nil {
			return nil, err
		}
		function, body := guardName(t.Table), e.body(t.Spec, numbers)
		were := formerBodies(t.Spec, numbers)
		var former bool
		err = q.QueryRowContext(ctx, `SELECT count(*) = 1 FROM pg_catalog.pg_proc WHERE oid = to_regprocedure($1) AND prosrc IN ($2, $3, $4) AND pg_has_role(proowner, 'USAGE')`,
			function+"()", were[0], were[1], were[2]).Scan(&former)
		if err != nil {
			return nil, err
		}
		if former {
			statements = append(statements, guardFunction(function, body))
		}
	}
	return statements, nil
}

func and(terms ...string) string {
	var all string
	for _, t := range terms {
		if t != "" {
			all += " AND " + t
		}
	}
	return all
}

func postgresHas(columns []string, row string) string {
	var terms []string
	for _, c := range columns {
		terms = append(terms, row+"."+quoteIdent(c)+" IS NULL")
	}
	if len(terms) == 0 {
		return ""
	}
	return "NOT (" + strings.Join(terms, " AND ") + ")"
}

// postgresChanged compares images, which every type has. Without the casts rows are
// compared column by column.
func postgresChanged(s Spec, alone string) string {
	if len(s.Columns) == 0 {
		return ""
	}
	var before, after []string
	for _, c := range s.columns() {
		before, after = append(before, "OLD."+quoteIdent(c)), append(after, "NEW."+quoteIdent(c))
	}
	return fmt.Sprintf("(TG_OP = '%s' OR ROW(%s)::record *<> ROW(%s)::record)", alone, strings.Join(before, ", "), strings.Join(after, ", "))
}

// postgresText is text as a literal that means the same whatever a session has set
// standard_conforming_strings to.
func postgresText(text string) string {
	quoted := quoteText(text)
	if strings.Contains(text, `\`) {
		return " E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}

func postgresResource(t Template, row string, quote func(string) string) string {
	return t.join(func(literal string) string { return quote(literal) + "::text" }, func(column string, whole bool) string {
		value := row + "." + quoteIdent(column) + "::text"
		if whole {
			return "(" + value + ")"
		}
		return "CASE WHEN strpos(" + value + ` COLLATE "C", '/') = 0 THEN ` + value + " END"
	})
}

// dollar quotes a function's body.
func dollar(body string) string {
	tag := "$guard$"
	for strings.Contains(body, tag) {
		tag = strings.TrimSuffix(tag, "$") + "_$"
	}
	return tag + body + tag
}

func (e PostgreSQL) faults(ctx context.Context, q sqldb.Querier, s Spec) ([]string, error) {
	var there bool
	if err := q.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, s.Table).Scan(&there); err != nil {
		return nil, err
	}
	if !there {
		return []string{tableGone}, nil
	}
	var faults []string
	for _, look := range []func(context.Context, sqldb.Querier, Spec) ([]string, error){e.shapeFaults, e.functionFaults, e.triggerFaults} {
		found, err := look(ctx, q, s)
		if err != nil {
			return nil, err
		}
		faults = append(faults, found...)
	}
	return faults, nil
}

func (e PostgreSQL) shapeFaults(ctx context.Context, q sqldb.Querier, s Spec) ([]string, error) {
	err := e.check(ctx, q, s)
	if err == nil {
		_, err = e.relations(ctx, q, s.Table)
	}
	return unfitness(err)
}

func (e PostgreSQL) functionFaults(ctx context.Context, q sqldb.Querier, s Spec) ([]string, error) {
	var body, config string
	var definer bool
	err := q.QueryRowContext(ctx, `SELECT prosrc, prosecdef, coalesce(array_to_string(proconfig, ';'), '') FROM pg_catalog.pg_proc WHERE oid = to_regprocedure($1)`,
		guardName(s.Table)+"()").Scan(&body, &definer, &config)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return []string{"the function " + guardName(s.Table) + " is missing"}, nil
	case err != nil:
		return nil, err
	}
	numbers, err := e.columnNumbers(ctx, q, s)
	if err != nil {
		return nil, err
	}
	made, _, _ := strings.Cut(strings.TrimPrefix(body, numbersLine), "\n")
	right := e.body(s, numbers)
	were := formerBodies(s, numbers)
	switch {
	case !definer || config != "search_path=pg_catalog, pg_temp":
	case body == right:
		return nil, nil
	case body == e.body(s, made):
		return []string{"a column that the template or the protection of " + s.Table + " names is another one than when it was protected"}, nil
	case slices.Contains(were[:], body):
		return []string{"the function " + guardName(s.Table) + " was made by an older lastword, and has to be made anew"}, nil
	}
	return []string{"the function " + guardName(s.Table) + " is not what it has to be"}, nil
}

// What pg_trigger says of the two triggers: for each row, after INSERT, UPDATE, DELETE;
// before TRUNCATE. See pg_trigger.h.
const (
	rowTriggerType      = 1 | 4 | 8 | 16
	truncateTriggerType = 2 | 32
)

// triggerFaults looks at each part of the table: a partition or an heir that came later
// has not the triggers that its parent has.
func (e PostgreSQL) triggerFaults(ctx context.Context, q sqldb.Querier, s Spec) ([]string, error) {
	relations, err := e.relations(ctx, q, s.Table)
	if err != nil {
		return unfitness(err)
	}
	var faults []string
	for _, r := range relations {
		for name, kind := range map[string]int{rowTrigger: rowTriggerType, truncateTrigger: truncateTriggerType} {
			var enabled string
			var right bool
			err := q.QueryRowContext(ctx, `SELECT tgenabled, tgtype = $3 AND tgfoid = to_regprocedure($4) AND tgqual IS NULL AND tgattr = '' FROM pg_catalog.pg_trigger
WHERE tgrelid = to_regclass($1) AND tgname = $2`, r.name, name, kind, guardName(s.Table)+"()").Scan(&enabled, &right)
			switch {
			case errors.Is(err, sql.ErrNoRows):
				faults = append(faults, fmt.Sprintf("the trigger %s of %s is missing", name, r.name))
			case err != nil:
				return nil, err
			case enabled != "A":
				faults = append(faults, fmt.Sprintf("the trigger %s of %s is not enabled always", name, r.name))
			case !right:
				faults = append(faults, fmt.Sprintf("the trigger %s of %s is not what it has to be", name, r.name))
			}
		}
	}
	slices.Sort(faults)
	return faults, nil
}

func (PostgreSQL) unreachable(ctx context.Context, q sqldb.Querier, s Spec) (n int64, err error) {
	err = q.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*) FROM %s AS t WHERE (%s) IS NULL", s.Table, postgresResource(s.Template, "t", postgresText))).Scan(&n)
	return n, err
}
