package protect_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/lastword/lastword/internal/protect"
	"github.com/lastword/lastword/internal/sqldb"
)

// Tables of all kinds are protected and written to by all kinds of statements. Without a
// pass no protected row changes, with one for a resource none of another. What a table
// is refused for does not matter here, as long as most are taken.
func TestNoStatementChangesARowOfAnotherResource(t *testing.T) { // R16c, R17, KF-24
	seed, tables := rand.Uint64(), 150
	if testing.Short() { // under the race detector, which has nothing to find here
		tables = 10
	}
	if n, err := strconv.Atoi(os.Getenv("LASTWORD_TABLES")); err == nil {
		tables = n
	}
	if n, err := strconv.ParseUint(os.Getenv("LASTWORD_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("seed %d", seed)
	var sum tally
	for n := range tables {
		r := &randomTable{T: t, Rand: rand.New(rand.NewPCG(seed, uint64(n)))}
		r.play(&sum)
		if t.Failed() {
			t.Fatalf("LASTWORD_SEED=%d, table %d", seed, n)
		}
	}
	t.Logf("%d tables taken and %d refused %v; of %d statements %d changed rows under a pass, %d were refused for want of one, %d were free",
		sum.taken, tables-sum.taken, sum.refused, sum.statements, sum.changed, sum.stopped, sum.free)
	if tables < 100 {
		return // by chance most of them may be refused
	}
	if sum.taken*3 < tables*2 || sum.changed*20 < sum.statements || sum.stopped*5 < sum.statements {
		t.Error("too little of it was a test")
	}
}

type tally struct {
	taken, statements, changed, stopped, free int
	refused                                   map[string]int
}

// randomTable is one table, with what may go with it.
type randomTable struct {
	*testing.T
	*rand.Rand
	conn     *sql.Conn
	ddl      []string
	values   []string
	types    map[string]string
	loose    bool     // about types
	columns  []string // that can be written
	all      []string // generated ones as well
	template []string
	some     []string // the protected columns; none: all
	target   string   // the id of the row that a statement is mostly about
	rowid    bool
	parent   bool
}

func (r *randomTable) one(all ...string) string { return all[r.IntN(len(all))] }

func (r *randomTable) maybe(percent int, text string) string {
	if r.IntN(100) < percent {
		return text
	}
	return ""
}

// value is one of the few that the table has, so that they often meet; mostly one that
// the column takes.
func (r *randomTable) value(column string) string {
	if r.IntN(10) == 0 {
		if column == "id" || column == "rowid" || column == "" { // SQLite computes a rowid twice (docs/protect.md)
			return r.one("NULL", "'a/b'")
		}
		return r.one("NULL", "NULL", "NULL", "abs(random()) % 3", "'a/b'")
	}
	for range 5 {
		if v := r.one(r.values...); r.fits(column, v) {
			return v
		}
	}
	return r.one(r.values...)
}

func (r *randomTable) fits(column, value string) bool {
	switch r.types[column] {
	case "INTEGER", "INT":
		return !strings.ContainsAny(value, "'.")
	case "REAL":
		return !strings.Contains(value, "'")
	case "TEXT":
		return strings.HasPrefix(value, "'")
	case "BLOB":
		return strings.HasPrefix(value, "x") || r.loose
	}
	return true
}

func (r *randomTable) conflict() string {
	return r.maybe(50, " ON CONFLICT "+r.one("REPLACE", "REPLACE", "IGNORE", "FAIL", "ABORT", "ROLLBACK"))
}

func (r *randomTable) collation() string {
	return r.maybe(20, " COLLATE "+r.one("NOCASE", "RTRIM", "BINARY"))
}

func (r *randomTable) make() {
	r.ddl, r.columns, r.all, r.rowid, r.parent = nil, nil, nil, true, false
	r.values = nil
	for range 3 + r.IntN(3) {
		r.values = append(r.values, r.one("0", "1", "2", "'0'", "'1'", "'a'", "'A'", "'a '", "'b'", "x'61'", "1.0", "1.5", "'1.0'", "-1"))
	}
	r.values, r.types = append(r.values, "0", "1", "'a'", "x'61'"), map[string]string{}
	strict, without := r.IntN(4) == 0, r.IntN(4) == 0
	types := []string{"TEXT", "INT", "INTEGER", "REAL", "BLOB", "", "NUMERIC", "VARCHAR(3)"}
	if strict {
		types = []string{"TEXT", "INT", "INTEGER", "REAL", "BLOB", "ANY"}
	}
	r.loose = !strict
	var parts, key []string
	typed := func(name string) string {
		r.types[name] = r.one(types...)
		return name + " " + r.types[name] + r.collation()
	}
	switch id := r.IntN(4); {
	case id == 0:
		r.types["id"] = "INTEGER"
		parts = append(parts, "id INTEGER PRIMARY KEY"+r.maybe(20, " DEFAULT 1"))
	case id == 1 || without:
		parts = append(parts, typed("id")+r.maybe(20, " DEFAULT "+r.one("1", "'a'")))
		key = []string{"PRIMARY KEY (" + r.one("id", "id", "id, c1", "id, c1") + r.collation() + ")" + r.conflict()}
	default:
		parts = append(parts, typed("id")+r.maybe(30, " UNIQUE"+r.conflict()))
	}
	r.columns = []string{"id"}
	for i := range 2 + r.IntN(3) {
		name := fmt.Sprint("c", i+1)
		text := typed(name) + r.maybe(50, r.maybe(60, " NOT NULL"+r.conflict())+" DEFAULT "+r.one(r.value(name), r.value(name), "(abs(random()) % 3)", "(1 + 1)", "CURRENT_TIME")) +
			r.maybe(30, " UNIQUE"+r.conflict()) + r.maybe(10, " CHECK ("+name+" <> 7)")
		if r.IntN(6) == 0 {
			r.parent = true
			text += " REFERENCES parent (k)" + r.maybe(70, " ON DELETE "+r.one("CASCADE", "SET NULL", "SET DEFAULT")) + r.maybe(70, " ON UPDATE "+r.one("CASCADE", "SET NULL", "SET DEFAULT"))
		}
		parts, r.columns = append(parts, text), append(r.columns, name)
	}
	r.all = slices.Clone(r.columns)
	for i := range r.IntN(3) {
		name := fmt.Sprint("g", i+1)
		made := r.one("c1 || '-' || c2", "coalesce(c1, 0) + coalesce(c2, 0)", "lower(c1)", "c1", "typeof(c2)", "CASE WHEN c1 = '1' THEN c2 END", "id || c1", "id % 2", "c2 = 0")
		if i == 1 {
			made = r.one(made, "g1 || c1")
		}
		parts = append(parts, typed(name)+" GENERATED ALWAYS AS ("+made+") "+r.one("STORED", "VIRTUAL", "")+r.maybe(40, " UNIQUE"+r.conflict()))
		r.all = append(r.all, name)
	}
	parts = append(parts, key...)
	if r.IntN(3) == 0 {
		parts = append(parts, "UNIQUE ("+r.one(r.all...)+r.collation()+", "+r.one(r.columns...)+")"+r.conflict())
	}
	var options []string
	if strict {
		options = append(options, "STRICT")
	}
	if without {
		options, r.rowid = append(options, "WITHOUT ROWID"), false
	}
	if r.parent {
		r.ddl = append(r.ddl, `CREATE TABLE parent (k PRIMARY KEY, x)`, `INSERT INTO parent VALUES (0, 0), (1, 0), ('a', 0), ('0', 0), ('1', 0), ('b', 0)`)
	}
	r.ddl = append(r.ddl, "CREATE TABLE doc ("+strings.Join(parts, ", ")+") "+strings.Join(options, ", "), `CREATE TABLE log (x)`)
	for i := range r.IntN(3) {
		r.ddl = append(r.ddl, fmt.Sprintf("CREATE UNIQUE INDEX i%d ON doc (%s%s%s)%s", i, r.one(r.all...), r.collation(), r.maybe(30, ", "+r.one(r.all...)), r.maybe(60, " WHERE "+r.condition())))
	}
	if r.IntN(4) == 0 {
		r.ddl = append(r.ddl, r.trigger())
	}
}

func (r *randomTable) condition() string {
	a, b := r.one(r.all...), r.one(r.all...)
	if r.IntN(3) > 0 && a == "id" {
		a = "c1"
	}
	return r.one(a+" = 0", a+" = '0'", a+" IS NULL", a+" IS NOT NULL", a+" <> 'a'", a+" = c2", a+" < "+b, "typeof("+a+") = 'integer'", a+" IN (1, '2')",
		a+" = 1 AND c1 IS NOT NULL", a+" BETWEEN '0' AND 2", "NOT "+a, "c1 = "+a+" /* WHERE ' */", a+" LIKE 'a%'", a+" || '' = '1'", a+" == 'A' COLLATE NOCASE")
}

func (r *randomTable) trigger() string {
	event := r.one("INSERT", "UPDATE", "DELETE")
	row := "NEW"
	if event == "DELETE" {
		row = "OLD"
	}
	c := r.one(r.columns...)
	return "CREATE TRIGGER own " + r.one("BEFORE ", "AFTER ", "") + event + " ON doc BEGIN " + r.one(
		"UPDATE doc SET "+c+" = "+r.value("")+" WHERE id IS "+row+".id", "INSERT INTO log VALUES ("+row+".c1)",
		"DELETE FROM doc WHERE c1 IS "+row+".c1 AND id IS NOT "+row+".id", "SELECT RAISE(IGNORE) WHERE "+row+".c1 = 1",
		"INSERT INTO doc (id, "+c+") VALUES ("+row+".id, "+r.value("")+")", "UPDATE doc SET "+c+" = "+r.value("")) + "; END"
}

func (r *randomTable) exec(statement string) error {
	_, err := r.conn.ExecContext(r.Context(), statement)
	return err
}

func (r *randomTable) play(sum *tally) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		r.Fatal(err)
	}
	defer db.Close()
	if r.conn, err = db.Conn(r.Context()); err != nil {
		r.Fatal(err)
	}
	defer r.conn.Close()
	if err := sqldb.Migrate(r.Context(), sqldb.SQLite{}, r.conn, protect.SQLite{}.Schema()); err != nil {
		r.Fatal(err)
	}
	r.create()
	for range 20 {
		_ = r.exec(r.insert("INSERT OR IGNORE"))
	}
	r.template = []string{"id"}
	if r.IntN(4) == 0 {
		r.template = []string{"id", r.one(r.all...)}
	}
	r.some = nil
	if r.IntN(3) == 0 {
		r.some = []string{r.one(r.all...)}
	}
	text := "doc/{" + strings.Join(r.template, "}/{") + "}"
	template, err := protect.ParseTemplate(text)
	if err != nil {
		r.Fatal(err)
	}
	_, _, err = protect.Protect(r.Context(), protect.SQLite{}, r.conn, protect.Spec{Domain: "d", Table: "doc", Template: template, Columns: r.some}, time.Unix(0, 0))
	if err != nil {
		if !strings.Contains(err.Error(), "INVALID") {
			r.Errorf("%q: %v", r.ddl, err)
		}
		if sum.refused == nil {
			sum.refused = map[string]int{}
		}
		for _, why := range []string{"the number", "the trigger"} {
			if strings.Contains(err.Error(), why) {
				sum.refused[why]++
			}
		}
		return
	}
	sum.taken++
	r.ddl = append(r.ddl, text+fmt.Sprint(r.some))
	for range 80 {
		r.statement(sum)
		if r.Failed() {
			return
		}
	}
}

// create makes tables until SQLite takes one.
func (r *randomTable) create() {
	for {
		r.make()
		err := r.exec("SAVEPOINT made")
		for _, statement := range r.ddl {
			if err == nil {
				err = r.exec(statement)
			}
		}
		if err == nil {
			err = r.exec("RELEASE made")
		}
		if err == nil {
			return
		}
		if err := r.exec("ROLLBACK TO made; RELEASE made"); err != nil {
			r.Fatal(err)
		}
	}
}

func (r *randomTable) insert(verb string) string {
	columns := slices.Clone(r.columns)
	if r.rowid && r.IntN(8) == 0 {
		columns = append(columns, "rowid")
	}
	r.Shuffle(len(columns), func(i, j int) { columns[i], columns[j] = columns[j], columns[i] })
	columns = columns[:max(1+r.IntN(len(columns)), r.IntN(len(columns)+1))]
	var values []string
	for _, c := range columns {
		if c == "id" && r.target != "" && r.IntN(10) > 0 {
			values = append(values, r.target)
			continue
		}
		values = append(values, r.value(c))
	}
	what := "VALUES (" + strings.Join(values, ", ") + ")"
	if r.IntN(6) == 0 {
		what = "SELECT " + strings.Join(columns, ", ") + " FROM doc WHERE TRUE"
		what = strings.Replace(what, columns[0], r.value(columns[0]), 1)
	}
	return verb + " INTO doc (" + strings.Join(columns, ", ") + ") " + what
}

func (r *randomTable) equal(is string) string {
	c := r.one(r.columns...)
	if c == "id" && r.IntN(4) > 0 {
		c = "c1"
	}
	return c + is + r.one(r.value(c), r.value(c), r.value(c), r.one(r.columns...))
}

func (r *randomTable) random() string {
	or := r.one("", "", " OR REPLACE", " OR REPLACE", " OR REPLACE", " OR IGNORE", " OR FAIL", " OR ROLLBACK")
	where := r.maybe(70, " WHERE "+r.equal(" IS "))
	if r.IntN(10) > 2 && r.target != "" {
		where = " WHERE id IS " + r.target
	}
	set := func() string {
		text := r.equal(" = ")
		if r.rowid && r.IntN(8) == 0 {
			text += ", rowid = " + r.value("rowid")
		}
		return text + r.maybe(30, ", "+r.equal(" = "))
	}
	switch k := r.IntN(12); {
	case k < 5:
		return r.insert("INSERT" + or)
	case k < 9:
		or = r.one(or, " OR REPLACE")
		return "UPDATE" + or + " doc SET " + set() + where
	case k == 9:
		return "DELETE FROM doc" + where
	case k == 10 || !r.parent:
		return r.insert("INSERT") + " ON CONFLICT DO UPDATE SET " + set()
	}
	return r.one("DELETE FROM parent"+r.maybe(80, " WHERE k IS "+r.value("")), "UPDATE"+or+" parent SET k = "+r.value("")+" WHERE k IS "+r.value(""),
		"REPLACE INTO parent VALUES ("+r.value("")+", 1)")
}

// protectedRow is what of a row may not change without a pass.
type protectedRow struct{ resource, content, id string }

func (r *randomTable) rows() (all []protectedRow, everything string) {
	var what, has []string
	for _, c := range r.template {
		what = append(what, "CAST("+c+" AS TEXT)")
	}
	kept := r.all
	if r.some != nil {
		kept = slices.Concat(r.template, r.some)
	}
	var values []string
	for _, c := range kept {
		values = append(values, "typeof("+c+") || quote("+c+")")
	}
	if r.some == nil && r.rowid {
		values = append(values, "rowid")
	}
	for _, c := range r.some {
		has = append(has, c+" IS NOT NULL")
	}
	if len(what) == 1 {
		what = append(what, "''")
	}
	what = append(what, strings.Join(values, " || ' ' || "), strings.Join(append(has, "FALSE"), " OR ")+" OR "+fmt.Sprint(r.some == nil), "quote(id)")
	rows, err := r.conn.QueryContext(r.Context(), "SELECT "+strings.Join(what, ", ")+" FROM doc ORDER BY 3")
	if err != nil {
		r.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var parts [2]sql.NullString
		var content, id string
		var counts bool
		if err := rows.Scan(&parts[0], &parts[1], &content, &counts, &id); err != nil {
			r.Fatal(err)
		}
		everything += content + "\n"
		if counts {
			all = append(all, protectedRow{r.resource(parts), content, id})
		}
	}
	if err := rows.Err(); err != nil {
		r.Fatal(err)
	}
	return all, everything
}

// resource is that of a row, "" if it has none.
func (r *randomTable) resource(parts [2]sql.NullString) string {
	if len(r.template) == 1 {
		if !parts[0].Valid {
			return ""
		}
		return "doc/" + parts[0].String
	}
	if !parts[0].Valid || !parts[1].Valid || strings.Contains(parts[0].String+parts[1].String, "/") {
		return ""
	}
	return "doc/" + parts[0].String + "/" + parts[1].String
}

func (r *randomTable) statement(sum *tally) {
	if err := r.exec(fmt.Sprintf("PRAGMA foreign_keys = %d; PRAGMA recursive_triggers = %d", r.IntN(2), r.IntN(6)/5)); err != nil {
		r.Fatal(err)
	}
	before, whole := r.rows()
	pass := ""
	r.target = ""
	if r.IntN(3) > 0 {
		pass, r.target = "doc/"+r.one("0", "1", "2", "a", "b", "1.0"), r.value("id")
		if len(before) > 0 && r.IntN(4) > 0 {
			row := before[r.IntN(len(before))]
			pass, r.target = row.resource, row.id
		}
		if len(r.template) == 2 && strings.Count(pass, "/") < 2 {
			pass += "/" + r.one("0", "1", "a")
		}
	}
	statement := r.random()
	err := r.apply(statement, pass)
	after, wholeAfter := r.rows()
	others := func(rows []protectedRow) []protectedRow {
		return slices.DeleteFunc(slices.Clone(rows), func(p protectedRow) bool { return pass != "" && p.resource == pass })
	}
	sum.statements++
	switch {
	case err != nil && strings.Contains(err.Error(), "FENCE_REQUIRED"):
		sum.stopped++
	case whole != wholeAfter && pass != "":
		sum.changed++
	case whole != wholeAfter:
		sum.free++
	}
	if !slices.Equal(others(before), others(after)) {
		r.Errorf("%s\nwith a pass for %q: %s: %v\n%v\n%v", strings.Join(r.ddl, ";\n"), pass, statement, err, others(before), others(after))
	}
}

// apply runs a statement, with a pass as the fence opens it or without one.
func (r *randomTable) apply(statement, pass string) error {
	if pass == "" {
		return r.exec(statement)
	}
	_, err := r.conn.ExecContext(r.Context(), `BEGIN; INSERT INTO lastword_pass (domain, resource) VALUES ('d', ?)`, pass)
	if err != nil {
		r.Fatal(err)
	}
	if err = r.exec(statement); err == nil {
		if err := r.exec(`DELETE FROM lastword_pass`); err != nil {
			r.Fatal(err)
		}
		if err = r.exec("COMMIT"); err == nil {
			return nil
		}
	}
	_, _ = r.conn.ExecContext(context.WithoutCancel(r.Context()), "ROLLBACK") // it may be over
	return err
}
