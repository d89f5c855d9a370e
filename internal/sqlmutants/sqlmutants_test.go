package sqlmutants_test

import (
	"strings"
	"testing"

	"github.com/lastword/lastword/internal/sqlmutants"
)

func TestTheGeneratorFindsEveryCondition(t *testing.T) {
	text := `UPDATE t SET a = $1, b = coalesce(b, 0) WHERE x = $2 AND t.y <> coalesce(z, 0) AND
	(q IS NOT NULL OR NOT EXISTS (SELECT 1 FROM u WHERE u.k = in_k)); IF changed <> 1 THEN; IF in_flag THEN;
	SELECT f.a IS NOT NULL, f.b IS NULL, o.shadow = 1 FROM f; a IS DISTINCT FROM b;
	IF ok = ('x' || CASE WHEN instr(c, '/') = 0 THEN c END) THEN; IF before IS DISTINCT FROM r AND p.resource = ('doc/' || (NEW."id"::text)) AND OLD."a b" IS NOT NEW.b AND NOT ((g = h OR i = j) AND k = l) THEN`
	var got []string
	for _, m := range sqlmutants.Of(text) {
		c, _, _ := strings.Cut(m.Condition, " #")
		if m.Forced == "TRUE" {
			got = append(got, c)
		}
		if strings.Count(m.Text, "(") != strings.Count(m.Text, ")") {
			t.Errorf("%s: %s", m, m.Text)
		}
	}
	want := `x = $2|t.y <> coalesce(z, 0)|q IS NOT NULL|u.k = in_k|changed <> 1|f.a IS NOT NULL|` +
		`ok = ('x' || CASE WHEN instr(c, '/') = 0 THEN c END)|instr(c, '/') = 0|before IS DISTINCT FROM r|p.resource = ('doc/' || (NEW."id"::text))|OLD."a b" IS NOT NEW.b|g = h|i = j|k = l|f.b IS NULL|in_flag|EXISTS`
	if strings.Join(got, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
	}
}

func TestAMutantHasTheParametersOfTheText(t *testing.T) {
	for _, c := range []struct{ text, yes, no string }{
		{`SELECT 1 FROM t WHERE a = ?1`, `SELECT 1 FROM t WHERE (a = ?1 OR TRUE)`, `SELECT 1 FROM t WHERE (a = ?1 AND FALSE)`},
		{`SELECT EXISTS (SELECT (1) FROM t) AND f()`, `SELECT (EXISTS (SELECT (1) FROM t) OR TRUE) AND f()`, `SELECT (EXISTS (SELECT (1) FROM t) AND FALSE) AND f()`},
	} {
		all := sqlmutants.Of(c.text)
		if len(all) != 2 || all[0].Text != c.yes || all[1].Text != c.no {
			t.Errorf("%+v", all)
		}
	}
}
