package sqlfence_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lastword/lastword/fence/sqlfence"
)

// guardTrial is what the triggers of one protected table have to do, statement by
// statement: each is tried by itself, and undone.
type guardTrial struct {
	name, tables string
	protection   sqlfence.Protection
	refused      []string    // without a pass
	admitted     []string    // without one
	opened       [][2]string // a resource, and what its pass opens
	closed       [][2]string // a resource, and what its pass does not open
	setup        []string
	counted      [][3]string // a resource, a statement with a pass for it, and what is counted
	resources    []string    // of which another domain may have a pass
	// only, if not empty, is in the conditions that are made wrong: the others are those of
	// another trial.
	only string
}

// liteDocs has keys that say nothing of the resource: what is replaced is another's.
const liteDocs = `CREATE TABLE doc (id TEXT PRIMARY KEY, slug TEXT, body TEXT NOT NULL, mail TEXT UNIQUE);
INSERT INTO doc VALUES ('1', 'a', 'old', 'a@x'), ('2', 'b', 'old', 'b@x'), ('3', 'c', 'old', NULL)`

// liteCounted has, besides, a resource of which something is counted already, and one that
// begins like another that is not in the roll-out.
const liteCounted = liteDocs + `, ('8', 'bb', 'old', 'bb@x'), ('9', 'none', 'old', 'none@x')`

// liteTasks has rows in which both, one or none of the protected columns has something,
// and columns that keep the type of a value.
const liteTasks = `CREATE TABLE task (tenant, nr, state, result COLLATE NOCASE, note TEXT, mail TEXT UNIQUE, PRIMARY KEY (tenant, nr))%s;
INSERT INTO task VALUES ('t', 1, 'done', 'r', 'n', 'm1'), ('t', 2, NULL, NULL, 'n', 'm2'), ('t', 3, 'done', NULL, 'n', 'm3'), ('t', 4, NULL, 'r', 'n', 'm4'),
	(5, 5, 5, 5, 'n', 'm5'), ('u', 2, 'done', NULL, 'n', 'm6'), ('u', 8, NULL, NULL, 'n', 'm8'),
	('a/b', 8, 'done', NULL, 'n', 'm9'), ('a', 'c/d', 'done', NULL, 'n', 'm10')`

// liteEverywhere makes the roll-out of a table one of everything.
const liteEverywhere = `INSERT INTO lastword_rollout VALUES ('test', '', 1, ''); DELETE FROM lastword_rollout WHERE domain = 'test' AND prefix = 'doc/'; `

// liteTrials are those of SQLite.
var liteTrials = []guardTrial{
	{
		name: "whole", tables: liteDocs, protection: sqlfence.Protection{Table: "doc", Template: "doc/{slug}"},
		resources: []string{"doc/a", "doc/b", "doc/c", "doc/d", "doc/z"},
		refused: []string{
			`UPDATE doc SET body = 'x' WHERE slug = 'a'`, `UPDATE doc SET slug = 'z' WHERE slug = 'a'`, `UPDATE doc SET rowid = 77 WHERE slug = 'a'`, `DELETE FROM doc WHERE slug = 'a'`,
			`INSERT INTO doc VALUES ('4', 'd', 'x', NULL)`, `INSERT INTO doc VALUES ('4', NULL, 'x', NULL)`,
		},
		opened: [][2]string{
			{"doc/a", `UPDATE doc SET body = 'x' WHERE slug = 'a'`}, {"doc/a", `DELETE FROM doc WHERE slug = 'a'`}, {"doc/a", `REPLACE INTO doc VALUES ('1', 'a', 'x', 'a@x')`},
			{"doc/a", `UPDATE OR REPLACE doc SET mail = 'new@x' WHERE slug = 'a'`}, {"doc/a", `UPDATE doc SET rowid = 77 WHERE slug = 'a'`},
			{"doc/a doc/z", `UPDATE doc SET slug = 'z' WHERE slug = 'a'`}, {"doc/a doc/b", `UPDATE OR REPLACE doc SET mail = 'b@x' WHERE slug = 'a'`},
			{"doc/a doc/d", `REPLACE INTO doc VALUES ('4', 'd', 'x', 'a@x')`}, {"doc/d", `INSERT INTO doc VALUES ('4', 'd', 'x', 'd@x')`}, {"doc/c", `UPDATE doc SET mail = NULL WHERE slug = 'c'`},
		},
		closed: [][2]string{
			{"doc/a", `UPDATE doc SET body = 'x'`}, {"doc/a", `UPDATE doc SET slug = 'z' WHERE slug = 'a'`}, {"doc/z", `UPDATE doc SET slug = 'z' WHERE slug = 'a'`},
			{"doc/a", `UPDATE OR REPLACE doc SET mail = 'b@x' WHERE slug = 'a'`}, {"doc/a", `UPDATE OR REPLACE doc SET id = '2' WHERE slug = 'a'`}, {"doc/a", `UPDATE OR REPLACE doc SET rowid = 2 WHERE slug = 'a'`},
			{"doc/a", `REPLACE INTO doc VALUES ('1', 'a', 'x', 'b@x')`}, {"doc/a", `REPLACE INTO doc VALUES ('2', 'a', 'x', 'a@x')`}, {"doc/a", `REPLACE INTO doc (rowid, id, slug, body) VALUES (2, '7', 'a', 'x')`},
			{"doc/a", `DELETE FROM doc`}, {"doc/d", `REPLACE INTO doc VALUES ('4', 'd', 'x', 'a@x')`},
		},
	},
	liteColumns("columns", " WITHOUT ROWID"), liteColumns("columns and rowid", ""),
	{
		name: "rollout", tables: liteCounted, protection: sqlfence.Protection{Table: "doc", Template: "doc/{slug}", Shadow: true},
		resources: []string{"doc/a", "doc/b", "doc/bb", "doc/b/x", "doc/c", "doc/d", "doc/e", "doc/none", "doc/y", "doc/z"},
		setup: []string{
			`INSERT INTO lastword_rollout VALUES ('test', 'doc/b', 0, ''), ('test', 'doc/b/', 1, ''), ('test', 'doc/c/', 0, ''), ('test', 'do', 0, ''), ('test', 'xoc/', 0, ''), ('another', 'doc/a', 0, ''), ('another', '', 0, ''),
	('another', 'doc/b', 1, '')`,
			// Each resource has something that is not to be counted on.
			`WITH r (resource) AS (VALUES (''), ('doc/a'), ('doc/b'), ('doc/bb'), ('doc/b/x'), ('doc/c'), ('doc/d'), ('doc/e'), ('doc/none'), ('doc/y'), ('doc/z'))
INSERT INTO lastword_refusal SELECT 'test', resource, 'SHADOW(STALE_OWNER)', 7, '', 0, '', '', '' FROM r
UNION ALL SELECT 'another', resource, 'SHADOW(FENCE_REQUIRED)', 7, '', 0, '', '', '' FROM r
UNION ALL SELECT 'test', 'doc/none', 'SHADOW(FENCE_REQUIRED)', 7, '', 0, '', '', ''`,
		},
		refused: []string{
			`UPDATE doc SET body = 'x' WHERE slug = 'b'`, `UPDATE doc SET slug = 'b' WHERE slug = 'a'`, `DELETE FROM doc WHERE slug = 'b'`, `REPLACE INTO doc VALUES ('2', 'd', 'x', NULL)`,
			`UPDATE OR REPLACE doc SET mail = 'b@x' WHERE slug = 'a'`, `INSERT INTO doc VALUES ('4', 'd', 'x', NULL), ('5', 'c/x', 'x', NULL)`,
			`UPDATE doc SET slug = 'z' WHERE slug = 'b'`, `INSERT INTO doc VALUES ('4', 'b', 'x', NULL)`,
			`REPLACE INTO doc (rowid, id, slug, body) VALUES (2, '7', 'd', 'x')`, `REPLACE INTO doc VALUES ('4', 'd', 'x', 'b@x')`,
			`UPDATE OR REPLACE doc SET id = '2' WHERE slug = 'a'`, `UPDATE OR REPLACE doc SET rowid = 2 WHERE slug = 'a'`,
		},
		opened: [][2]string{
			{"doc/b", `UPDATE doc SET body = 'x' WHERE slug = 'b'`}, {"doc/b doc/a", `UPDATE OR REPLACE doc SET mail = 'b@x' WHERE slug = 'a'`},
			{"doc/b", `DELETE FROM doc WHERE slug = 'b'`}, {"doc/b", `INSERT INTO doc VALUES ('4', 'b', 'x', NULL)`}, {"doc/b", `REPLACE INTO doc VALUES ('2', 'd', 'x', NULL)`},
			{"doc/b", `UPDATE doc SET slug = 'z' WHERE slug = 'b'`}, {"doc/b", `UPDATE doc SET slug = 'b' WHERE slug = 'z'`},
		},
		closed: [][2]string{
			{"doc/z", `UPDATE doc SET slug = 'z' WHERE slug = 'b'`}, {"doc/a", `UPDATE doc SET slug = 'b' WHERE slug = 'a'`}, {"doc/a", `UPDATE OR REPLACE doc SET mail = 'b@x' WHERE slug = 'a'`},
			{"doc/d", `REPLACE INTO doc VALUES ('2', 'd', 'x', NULL)`}, {"doc/a", `DELETE FROM doc WHERE slug = 'b'`}, {"doc/a", `INSERT INTO doc VALUES ('4', 'b', 'x', NULL)`},
		},
		counted: [][3]string{
			{"", `UPDATE doc SET body = 'x' WHERE slug = 'a'`, "doc/a 1, doc/none 7"},
			{"", `UPDATE doc SET body = 'x' WHERE slug IN ('a', 'c')`, "doc/a 1, doc/c 1, doc/none 7"},
			{"", `UPDATE doc SET slug = 'z' WHERE slug = 'a'`, "doc/a 1, doc/none 7, doc/z 1"},
			{"", `DELETE FROM doc WHERE slug = 'a'`, "doc/a 1, doc/none 7"},
			{"", `INSERT INTO doc VALUES ('4', 'd', 'x', NULL), ('5', NULL, 'x', NULL), ('6', NULL, 'x', NULL)`, " 2, doc/d 1, doc/none 7"},
			{"", `INSERT INTO doc VALUES ('4', 'b/x', 'x', NULL)`, "doc/b/x 1, doc/none 7"},
			{"", `REPLACE INTO doc VALUES ('4', 'd', 'x', 'a@x')`, "doc/a 1, doc/d 1, doc/none 7"},
			{"", `UPDATE OR REPLACE doc SET mail = 'a@x' WHERE slug = 'c'`, "doc/a 1, doc/c 1, doc/none 7"},
			{"", `UPDATE doc SET slug = 'none' WHERE slug = 'a'`, "doc/a 1, doc/none 8"},
			{"doc/a", `UPDATE doc SET body = 'x' WHERE slug IN ('a', 'c')`, "doc/c 1, doc/none 7"},
			{"doc/a", `UPDATE doc SET body = 'x' WHERE slug = 'a'`, "doc/none 7"},
			{"doc/a", `UPDATE doc SET slug = 'z' WHERE slug = 'a'`, "doc/none 7, doc/z 1"},
			{"doc/a", `UPDATE doc SET slug = 'z' WHERE slug = 'a'; UPDATE doc SET slug = 'y' WHERE slug = 'z'`, "doc/none 7, doc/y 1, doc/z 2"},
			{"doc/z", `UPDATE doc SET slug = 'z' WHERE slug = 'a'`, "doc/a 1, doc/none 7"},
			{"doc/z", `UPDATE doc SET slug = 'z' WHERE slug = 'a'; UPDATE doc SET slug = 'a' WHERE slug = 'z'`, "doc/a 2, doc/none 7"},
			{"doc/a doc/z", `UPDATE doc SET slug = 'z' WHERE slug = 'a'`, "doc/none 7"},
			{"doc/a", `DELETE FROM doc WHERE slug = 'a'`, "doc/none 7"},
			{"doc/a", `DELETE FROM doc WHERE slug IN ('a', 'c')`, "doc/c 1, doc/none 7"},
			{"", `DELETE FROM doc WHERE slug = 'a'; INSERT INTO doc VALUES ('1', 'a', 'x', NULL); DELETE FROM doc WHERE slug = 'a'`, "doc/a 3, doc/none 7"},
			{"doc/d", `INSERT INTO doc VALUES ('4', 'd', 'x', NULL), ('5', 'e', 'x', NULL)`, "doc/e 1, doc/none 7"},
			{"", `INSERT INTO doc VALUES ('4', 'd', 'x', NULL), ('5', 'd', 'x', NULL), ('6', 'e', 'x', NULL)`, "doc/d 2, doc/e 1, doc/none 7"},
			{"doc/d", `REPLACE INTO doc VALUES ('4', 'd', 'x', 'a@x')`, "doc/a 1, doc/none 7"},
			{"doc/a", `REPLACE INTO doc VALUES ('4', 'd', 'x', 'a@x')`, "doc/d 1, doc/none 7"},
			{"", `REPLACE INTO doc VALUES ('4', 'd', 'x', 'a@x'); REPLACE INTO doc VALUES ('5', 'd', 'x', 'a@x')`, "doc/a 1, doc/d 3, doc/none 7"},
			{"doc/c", `UPDATE OR REPLACE doc SET mail = 'a@x' WHERE slug = 'c'`, "doc/a 1, doc/none 7"},
			{"doc/a", `UPDATE OR REPLACE doc SET mail = 'a@x' WHERE slug = 'c'`, "doc/c 1, doc/none 7"},
			{"doc/a doc/c", `UPDATE OR REPLACE doc SET mail = 'a@x' WHERE slug = 'c'`, "doc/none 7"},
			{"doc/c", `DELETE FROM doc WHERE slug = 'a'; UPDATE doc SET mail = 'a@x' WHERE slug = 'c'`, "doc/a 1, doc/none 7"},
			{"doc/c", `UPDATE doc SET slug = 'c' WHERE slug = 'a'`, "doc/a 1, doc/none 7"},
			{"doc/none", `UPDATE doc SET slug = 'none' WHERE slug = 'a'`, "doc/a 1, doc/none 7"},

			// what is counted already, without a pass for it
			{"", `UPDATE doc SET body = 'x' WHERE slug = 'none'`, "doc/none 8"},
			{"doc/a", `UPDATE doc SET body = 'x' WHERE slug = 'none'`, "doc/none 8"},
			{"doc/a", `UPDATE doc SET slug = 'none' WHERE slug = 'a'`, "doc/none 8"},
			{"doc/z", `UPDATE doc SET slug = 'z' WHERE slug = 'none'`, "doc/none 8"},
			{"doc/a", `DELETE FROM doc WHERE slug = 'none'`, "doc/none 8"},
			{"doc/a", `INSERT INTO doc VALUES ('4', 'none', 'x', NULL)`, "doc/none 8"},
			{"doc/d", `REPLACE INTO doc VALUES ('4', 'd', 'x', 'none@x')`, "doc/none 8"},
			{"doc/d", `REPLACE INTO doc VALUES ('9', 'd', 'x', NULL)`, "doc/none 8"},
			{"doc/d", `REPLACE INTO doc (rowid, id, slug, body) VALUES (5, '7', 'd', 'x')`, "doc/none 8"},
			{"doc/c", `UPDATE OR REPLACE doc SET mail = 'none@x' WHERE slug = 'c'`, "doc/none 8"},
			{"doc/c", `UPDATE OR REPLACE doc SET id = '9' WHERE slug = 'c'`, "doc/none 8"},
			{"doc/c", `UPDATE OR REPLACE doc SET rowid = 5 WHERE slug = 'c'`, "doc/none 8"},
			// and with one
			{"doc/none", `UPDATE doc SET body = 'x' WHERE slug = 'none'`, "doc/none 7"},
			{"doc/none", `UPDATE doc SET slug = 'z' WHERE slug = 'none'`, "doc/none 7, doc/z 1"},
			{"doc/none", `DELETE FROM doc WHERE slug = 'none'`, "doc/none 7"},
			{"doc/none", `INSERT INTO doc VALUES ('4', 'none', 'x', NULL)`, "doc/none 7"},
			{"doc/none", `REPLACE INTO doc VALUES ('4', 'd', 'x', 'none@x')`, "doc/d 1, doc/none 7"},
			{"doc/none", `UPDATE OR REPLACE doc SET mail = 'none@x' WHERE slug = 'c'`, "doc/c 1, doc/none 7"},

			// each key by which a row can be in the way
			{"doc/d", `REPLACE INTO doc VALUES ('1', 'd', 'x', NULL)`, "doc/a 1, doc/none 7"},
			{"doc/d", `REPLACE INTO doc (rowid, id, slug, body) VALUES (1, '7', 'd', 'x')`, "doc/a 1, doc/none 7"},
			{"doc/c", `UPDATE OR REPLACE doc SET id = '1' WHERE slug = 'c'`, "doc/a 1, doc/none 7"},
			{"doc/c", `UPDATE OR REPLACE doc SET rowid = 1 WHERE slug = 'c'`, "doc/a 1, doc/none 7"},

			// what is enforced for doc/b is not for what begins like it
			{"", `UPDATE doc SET body = 'x' WHERE slug = 'bb'`, "doc/bb 1, doc/none 7"},
			{"", `UPDATE doc SET slug = 'bb' WHERE slug = 'a'`, "doc/a 1, doc/bb 1, doc/none 7"},
			{"", `UPDATE doc SET slug = 'z' WHERE slug = 'bb'`, "doc/bb 1, doc/none 7, doc/z 1"},
			{"", `DELETE FROM doc WHERE slug = 'bb'`, "doc/bb 1, doc/none 7"},
			{"", `INSERT INTO doc VALUES ('4', 'bb', 'x', NULL)`, "doc/bb 1, doc/none 7"},
			{"", `REPLACE INTO doc VALUES ('4', 'd', 'x', 'bb@x')`, "doc/bb 1, doc/d 1, doc/none 7"},
			{"", `UPDATE OR REPLACE doc SET mail = 'bb@x' WHERE slug = 'c'`, "doc/bb 1, doc/c 1, doc/none 7"},

			// a roll-out of everything
			{"", liteEverywhere + `UPDATE doc SET body = 'x' WHERE slug = 'a'`, "doc/a 1, doc/none 7"},
			{"", liteEverywhere + `DELETE FROM doc WHERE slug = 'a'`, "doc/a 1, doc/none 7"},
			{"", liteEverywhere + `INSERT INTO doc VALUES ('4', 'd', 'x', NULL)`, "doc/d 1, doc/none 7"},
			{"doc/d", liteEverywhere + `REPLACE INTO doc VALUES ('4', 'd', 'x', 'a@x')`, "doc/a 1, doc/none 7"},
			{"doc/c", liteEverywhere + `UPDATE OR REPLACE doc SET mail = 'a@x' WHERE slug = 'c'`, "doc/a 1, doc/none 7"},
			{"doc/z", liteEverywhere + `UPDATE doc SET slug = 'z' WHERE slug = 'a'`, "doc/a 1, doc/none 7"},
			{"doc/a", liteEverywhere + `UPDATE doc SET slug = 'z' WHERE slug = 'a'`, "doc/none 7, doc/z 1"},
		},
	},
	liteRolloutOfColumns(),
}

func liteColumns(name, rowid string) guardTrial {
	g := guardTrial{
		name: name, tables: fmt.Sprintf(liteTasks, rowid),
		protection: sqlfence.Protection{Table: "task", Template: "task/{tenant}/{nr}", Columns: []string{"state", "result"}},
		resources:  []string{"task/t/1", "task/t/2", "task/t/3", "task/t/4", "task/t/5", "task/t/7", "task/u/2", "task/5/5", "task/5.0/5", "task/5/5.0", "task/u/1"},
		admitted: []string{
			`INSERT INTO task (tenant, nr, note) VALUES ('t', 6, 'new')`, `UPDATE task SET note = 'x'`, `UPDATE task SET note = 'y', state = state, tenant = tenant`,
			`UPDATE task SET nr = 9 WHERE tenant = 't' AND nr = 2`, `DELETE FROM task WHERE tenant = 't' AND nr = 2`, `UPDATE OR REPLACE task SET mail = 'm2' WHERE tenant = 't' AND nr = 2`,
			`REPLACE INTO task (tenant, nr, note) VALUES ('t', 2, 'x')`, `REPLACE INTO task (tenant, nr, mail) VALUES ('t', 7, 'm2')`,
			`REPLACE INTO task (tenant, nr, note) VALUES ('w', 1, 'x')`, `UPDATE OR REPLACE task SET tenant = 'w', nr = 1 WHERE tenant = 't' AND nr = 2`, `UPDATE OR REPLACE task SET nr = 9 WHERE tenant = 't' AND nr = 2`,
			`UPDATE OR REPLACE task SET mail = 'm8' WHERE tenant = 't' AND nr = 2`,
		},
		refused: []string{
			`UPDATE task SET state = 'x' WHERE nr = 1`, `UPDATE task SET state = NULL WHERE nr = 3`, `UPDATE task SET result = NULL WHERE nr = 4`, `UPDATE task SET state = 'x' WHERE tenant = 't' AND nr = 2`, `UPDATE task SET result = 'x' WHERE tenant = 't' AND nr = 2`,
			`UPDATE task SET result = 'R' WHERE nr = 1`, `UPDATE task SET result = 'x' WHERE nr = 4`, `UPDATE task SET nr = 7 WHERE nr = 1`, `UPDATE task SET tenant = 'u' WHERE nr = 1`,
			`UPDATE task SET tenant = 5.0 WHERE nr = 5`, `UPDATE task SET nr = 5.0 WHERE nr = 5`, `UPDATE task SET state = 5.0 WHERE nr = 5`, `UPDATE task SET result = 5.0 WHERE nr = 5`,
			`DELETE FROM task WHERE nr = 1`, `DELETE FROM task WHERE nr = 3`, `DELETE FROM task WHERE nr = 4`, `INSERT INTO task (tenant, nr, state) VALUES ('t', 7, 'x')`, `INSERT INTO task (tenant, nr, result) VALUES ('t', 7, 'x')`,
			`REPLACE INTO task (tenant, nr, note) VALUES ('t', 1, 'x')`, `REPLACE INTO task (tenant, nr, mail) VALUES ('t', 7, 'm1')`, `REPLACE INTO task (tenant, nr, mail) VALUES ('t', 7, 'm3')`, `REPLACE INTO task (tenant, nr, mail) VALUES ('t', 7, 'm4')`,
			`UPDATE OR REPLACE task SET mail = 'm1' WHERE tenant = 't' AND nr = 2`, `UPDATE OR REPLACE task SET mail = 'm3' WHERE tenant = 't' AND nr = 2`, `UPDATE OR REPLACE task SET mail = 'm4' WHERE tenant = 't' AND nr = 2`,
			`UPDATE OR REPLACE task SET nr = 1 WHERE tenant = 't' AND nr = 2`, `UPDATE OR REPLACE task SET tenant = 'u' WHERE tenant = 't' AND nr = 2`,
		},
		opened: [][2]string{
			{"task/t/1", `UPDATE task SET state = 'x' WHERE nr = 1`}, {"task/t/2", `UPDATE task SET result = 'x' WHERE tenant = 't' AND nr = 2`}, {"task/t/1", `DELETE FROM task WHERE nr = 1`},
			{"task/t/1", `REPLACE INTO task (tenant, nr, note) VALUES ('t', 1, 'x')`}, {"task/t/1", `UPDATE OR REPLACE task SET nr = 1 WHERE tenant = 't' AND nr = 2`}, {"task/t/7", `INSERT INTO task (tenant, nr, state) VALUES ('t', 7, 'x')`},
		},
		closed: [][2]string{
			{"task/t/1", `UPDATE task SET state = 'x' WHERE tenant = 't' AND nr = 2`}, {"task/a/b/8", `DELETE FROM task WHERE tenant = 'a/b'`}, {"task/a/c/d", `DELETE FROM task WHERE nr = 'c/d'`},
			{"task/a/b/9", `INSERT INTO task (tenant, nr, state) VALUES ('a/b', 9, 'x')`}, {"task/a/b/9", `INSERT INTO task (tenant, nr, state) VALUES ('a', 'b/9', 'x')`},
			{"task/a/b/8", `UPDATE task SET state = 'x' WHERE tenant = 'a/b'`}, {"task/a/c/d", `UPDATE task SET state = 'x' WHERE nr = 'c/d'`},
			{"task/a/b/8 task/t/7", `UPDATE task SET tenant = 't', nr = 7 WHERE tenant = 'a/b'`}, {"task/a/c/d task/t/7", `UPDATE task SET tenant = 't', nr = 7 WHERE nr = 'c/d'`},
			{"task/a/b/8 task/t/7", `REPLACE INTO task (tenant, nr, mail) VALUES ('t', 7, 'm9')`}, {"task/a/c/d task/t/7", `REPLACE INTO task (tenant, nr, mail) VALUES ('t', 7, 'm10')`},
			{"task/a/b/8 task/t/2", `UPDATE OR REPLACE task SET mail = 'm9' WHERE tenant = 't' AND nr = 2`}, {"task/a/c/d task/t/2", `UPDATE OR REPLACE task SET mail = 'm10' WHERE tenant = 't' AND nr = 2`},
			{"task/t/1 task/a/b/1", `UPDATE task SET tenant = 'a/b' WHERE tenant = 't' AND nr = 1`}, {"task/t/1 task/t/b/1", `UPDATE task SET nr = 'b/1' WHERE tenant = 't' AND nr = 1`},
		},
	}
	if rowid == "" {
		g.refused = append(g.refused, `REPLACE INTO task (rowid, tenant, nr) VALUES (1, 'w', 9)`, `UPDATE OR REPLACE task SET rowid = 1 WHERE tenant = 't' AND nr = 2`)
	}
	return g
}

// liteRolloutOfColumns has for each of what is enforced (5, 6, 8, 10), what is counted
// already (9, 12, 13, 14) and what is not (1, 2, 3, 4) rows in which both, one or none of
// the protected columns has something; 10 and 14 are not there.
func liteRolloutOfColumns() guardTrial {
	g := guardTrial{
		name: "rollout of columns", only: " IS ", tables: `CREATE TABLE task (nr INTEGER PRIMARY KEY, state, result, note TEXT, mail TEXT UNIQUE);
INSERT INTO task VALUES (1, 'done', 'r', 'n', 'm1'), (2, NULL, NULL, 'n', 'm2'), (3, 'done', NULL, 'n', 'm3'), (4, NULL, 'r', 'n', 'm4'),
	(8, 'done', NULL, 'n', 'm8'), (5, NULL, 'r', 'n', 'm5'), (6, NULL, NULL, 'n', 'm6'), (9, 'done', NULL, 'n', 'm9'), (12, NULL, 'r', 'n', 'm12'), (13, NULL, NULL, 'n', 'm13')`,
		protection: sqlfence.Protection{Table: "task", Template: "task/{nr}", Columns: []string{"state", "result"}, Shadow: true},
		setup: []string{
			`INSERT INTO lastword_rollout VALUES ('test', 'task/5', 0, ''), ('test', 'task/6', 0, ''), ('test', 'task/8', 0, ''), ('test', 'task/10', 0, '')`,
			`INSERT INTO lastword_refusal SELECT 'test', 'task/' || value, 'SHADOW(FENCE_REQUIRED)', 7, '', 0, '', '', '' FROM json_each('[9, 12, 13, 14]')`,
		},
		admitted: []string{
			`UPDATE task SET note = 'x'`, `DELETE FROM task WHERE nr = 6`, `INSERT INTO task (nr, note) VALUES (10, 'x')`, `UPDATE task SET nr = 10 WHERE nr = 6`,
			`REPLACE INTO task (nr, mail) VALUES (7, 'm6')`, `UPDATE OR REPLACE task SET mail = 'm6' WHERE nr = 2`,
		},
		refused: []string{
			`UPDATE task SET state = NULL WHERE nr = 8`, `UPDATE task SET result = NULL WHERE nr = 5`, `UPDATE task SET state = 'x' WHERE nr = 6`, `UPDATE task SET result = 'x' WHERE nr = 6`,
			`UPDATE task SET nr = 7 WHERE nr = 8`, `UPDATE task SET nr = 7 WHERE nr = 5`, `UPDATE task SET nr = 10 WHERE nr = 3`, `UPDATE task SET nr = 10 WHERE nr = 4`,
			`DELETE FROM task WHERE nr = 8`, `DELETE FROM task WHERE nr = 5`, `INSERT INTO task (nr, state) VALUES (10, 'x')`, `INSERT INTO task (nr, result) VALUES (10, 'x')`,
			`REPLACE INTO task (nr, mail) VALUES (7, 'm8')`, `REPLACE INTO task (nr, mail) VALUES (7, 'm5')`,
			`UPDATE OR REPLACE task SET mail = 'm8' WHERE nr = 2`, `UPDATE OR REPLACE task SET mail = 'm5' WHERE nr = 2`,
		},
	}
	for _, c := range [][2]string{
		{`UPDATE task SET note = 'x'`, ""}, {`UPDATE task SET nr = 7 WHERE nr IN (2)`, ""}, {`UPDATE task SET nr = 7 WHERE nr = 13`, ""}, {`UPDATE task SET nr = 14 WHERE nr = 2`, ""},
		{`DELETE FROM task WHERE nr IN (2, 13)`, ""}, {`INSERT INTO task (nr, note) VALUES (7, 'x'), (14, 'x')`, ""},
		{`REPLACE INTO task (nr, mail) VALUES (7, 'm2'), (14, 'm13')`, ""}, {`UPDATE OR REPLACE task SET mail = 'm2' WHERE nr = 13`, ""}, {`UPDATE OR REPLACE task SET mail = 'm13' WHERE nr = 2`, ""},

		{`UPDATE task SET state = 'x' WHERE nr = 1`, "1 1"}, {`UPDATE task SET state = 'x' WHERE nr = 2`, "2 1"}, {`UPDATE task SET result = 'x' WHERE nr = 2`, "2 1"},
		{`UPDATE task SET state = NULL WHERE nr = 3`, "3 1"}, {`UPDATE task SET result = NULL WHERE nr = 4`, "4 1"}, {`UPDATE task SET nr = 7 WHERE nr = 3`, "3 1 7 1"}, {`UPDATE task SET nr = 7 WHERE nr = 4`, "4 1 7 1"},
		{`DELETE FROM task WHERE nr = 3`, "3 1"}, {`DELETE FROM task WHERE nr = 4`, "4 1"}, {`INSERT INTO task (nr, state) VALUES (7, 'x')`, "7 1"}, {`INSERT INTO task (nr, result) VALUES (7, 'x')`, "7 1"},
		{`REPLACE INTO task (nr, mail) VALUES (7, 'm3')`, "3 1"}, {`REPLACE INTO task (nr, mail) VALUES (7, 'm4')`, "4 1"},
		{`UPDATE OR REPLACE task SET mail = 'm3' WHERE nr = 2`, "3 1"}, {`UPDATE OR REPLACE task SET mail = 'm4' WHERE nr = 2`, "4 1"},

		{`UPDATE task SET state = 'x' WHERE nr = 9`, "9 8"}, {`UPDATE task SET result = 'x' WHERE nr = 12`, "12 8"}, {`UPDATE task SET state = 'x' WHERE nr = 13`, "13 8"}, {`UPDATE task SET result = 'x' WHERE nr = 13`, "13 8"},
		{`UPDATE task SET state = NULL WHERE nr = 9`, "9 8"}, {`UPDATE task SET result = NULL WHERE nr = 12`, "12 8"}, {`UPDATE task SET nr = 14 WHERE nr = 9`, "9 8 14 8"}, {`UPDATE task SET nr = 14 WHERE nr = 12`, "12 8 14 8"},
		{`DELETE FROM task WHERE nr = 9`, "9 8"}, {`DELETE FROM task WHERE nr = 12`, "12 8"}, {`INSERT INTO task (nr, state) VALUES (14, 'x')`, "14 8"}, {`INSERT INTO task (nr, result) VALUES (14, 'x')`, "14 8"},
		{`REPLACE INTO task (nr, mail) VALUES (7, 'm9')`, "9 8"}, {`REPLACE INTO task (nr, mail) VALUES (7, 'm12')`, "12 8"},
		{`UPDATE OR REPLACE task SET mail = 'm9' WHERE nr = 2`, "9 8"}, {`UPDATE OR REPLACE task SET mail = 'm12' WHERE nr = 2`, "12 8"},
	} {
		times := map[string]string{"9": "7", "12": "7", "13": "7", "14": "7"}
		for f := strings.Fields(c[1]); len(f) > 0; f = f[2:] {
			times[f[0]] = f[1]
		}
		var lines []string
		for nr, n := range times {
			lines = append(lines, "task/"+nr+" "+n)
		}
		slices.Sort(lines)
		g.counted = append(g.counted, [3]string{"", c[0], strings.Join(lines, ", ")})
	}
	return g
}

// pgTrials are those of PostgreSQL.
var pgTrials = []guardTrial{
	{
		name: "whole", tables: pgDocuments, protection: whole, resources: []string{"doc/a", "doc/b", "doc/c", "doc/d", "doc/z"},
		refused: []string{
			`UPDATE doc SET body = 'x' WHERE id = 'a'`, `UPDATE doc SET id = 'z' WHERE id = 'a'`, `DELETE FROM doc WHERE id = 'a'`, `TRUNCATE doc`,
			`INSERT INTO doc (id, body) VALUES ('d', 'x')`, `INSERT INTO doc (id, body) VALUES ('a', 'x') ON CONFLICT (id) DO UPDATE SET body = 'x'`,
		},
		opened: [][2]string{
			{"doc/a", `UPDATE doc SET body = 'x' WHERE id = 'a'`}, {"doc/a", `DELETE FROM doc WHERE id = 'a'`}, {"doc/d", `INSERT INTO doc (id, body) VALUES ('d', 'x')`},
		},
		closed: [][2]string{
			{"doc/a", `UPDATE doc SET body = 'x'`}, {"doc/a", `UPDATE doc SET id = 'z' WHERE id = 'a'`}, {"doc/z", `UPDATE doc SET id = 'z' WHERE id = 'a'`}, {"doc/a", `DELETE FROM doc`},
			{"doc/a", `TRUNCATE doc`}, {"doc/a", `INSERT INTO doc (id, body) VALUES ('d', 'x')`},
		},
	},
	{
		name: "columns", tables: `CREATE TABLE task (tenant text, nr int, state text, result json, note text, PRIMARY KEY (tenant, nr));
INSERT INTO task VALUES ('t', 1, 'done', '{"r": 1}', 'n'), ('t', 2, NULL, NULL, 'n'), ('t', 4, NULL, '{"r": 1}', 'n'), ('t', 6, 'done', NULL, 'n'), ('a/b', 8, 'done', NULL, 'n')`,
		protection: sqlfence.Protection{Table: "task", Template: "task/{tenant}/{nr}", Columns: []string{"state", "result"}},
		resources:  []string{"task/t/1", "task/t/2", "task/t/4", "task/t/5", "task/t/6", "task/t/7"},
		admitted: []string{
			`INSERT INTO task (tenant, nr, note) VALUES ('t', 3, 'new')`, `UPDATE task SET note = 'x'`, `UPDATE task SET note = 'y', state = state, tenant = tenant`,
			`UPDATE task SET nr = 9 WHERE nr = 2`, `DELETE FROM task WHERE nr = 2`,
		},
		refused: []string{
			`UPDATE task SET state = 'x' WHERE nr = 1`, `UPDATE task SET state = NULL, result = NULL WHERE nr = 1`, `UPDATE task SET state = 'x' WHERE nr = 2`, `UPDATE task SET result = '{"r":1}' WHERE nr = 1`,
			`UPDATE task SET nr = 7 WHERE nr = 1`, `DELETE FROM task WHERE nr = 1`, `DELETE FROM task WHERE nr = 4`, `DELETE FROM task WHERE nr = 6`, `UPDATE task SET state = NULL WHERE nr = 6`, `UPDATE task SET result = NULL WHERE nr = 4`, `TRUNCATE task`,
			`INSERT INTO task (tenant, nr, state) VALUES ('t', 5, 'x')`, `INSERT INTO task (tenant, nr, result) VALUES ('t', 5, '1')`,
			`INSERT INTO task (tenant, nr, state) VALUES ('a/b', 9, 'x')`, `UPDATE task SET tenant = 'a/b', state = 'x' WHERE nr = 2`,
		},
		opened: [][2]string{{"task/t/1", `UPDATE task SET state = 'x' WHERE nr = 1`}, {"task/t/2", `UPDATE task SET result = '1' WHERE nr = 2`}},
		closed: [][2]string{
			{"task/t/1", `UPDATE task SET state = 'x' WHERE nr = 2`}, {"task/t/1", `UPDATE task SET nr = 7 WHERE nr = 1`}, {"task/a/b/8 task/t/8", `UPDATE task SET tenant = 't' WHERE nr = 8`}, {"task/a/b/8", `DELETE FROM task WHERE nr = 8`}, {"task/a/b/9", `INSERT INTO task (tenant, nr, state) VALUES ('a/b', 9, 'x')`},
		},
	},
	{
		name: "rollout", tables: pgDocuments, protection: sqlfence.Protection{Table: "doc", Template: "doc/{id}", Shadow: true},
		setup:     []string{`INSERT INTO lastword.rollout VALUES ('test', 'doc/b', 0, '')`},
		resources: []string{"doc/a", "doc/b", "doc/c", "doc/d", "doc/e", "doc/z"},
		refused:   []string{`UPDATE doc SET body = 'x' WHERE id = 'b'`, `DELETE FROM doc WHERE id = 'b'`, `UPDATE doc SET id = 'z' WHERE id = 'b'`},
		opened:    [][2]string{{"doc/b", `UPDATE doc SET body = 'x' WHERE id = 'b'`}, {"doc/b", `DELETE FROM doc WHERE id = 'b'`}, {"doc/b", `UPDATE doc SET id = 'z' WHERE id = 'b'`}},
		closed:    [][2]string{{"doc/a", `UPDATE doc SET body = 'x'`}, {"doc/z", `UPDATE doc SET id = 'z' WHERE id = 'b'`}, {"doc/a", `DELETE FROM doc`}},
		counted: [][3]string{
			{"", `INSERT INTO doc (id, body) VALUES ('d', 'x')`, "doc/d 1"},
			{"doc/d", `INSERT INTO doc (id, body) VALUES ('d', 'x'), ('e', 'x')`, "doc/e 1"},
			{"doc/a", `UPDATE doc SET body = 'x' WHERE id IN ('a', 'c')`, "doc/c 1"},
			{"doc/a", `UPDATE doc SET id = 'z' WHERE id = 'a'`, "doc/z 1"},
			{"doc/z", `UPDATE doc SET id = 'z' WHERE id = 'a'`, "doc/a 1"},
			{"doc/a doc/z", `UPDATE doc SET id = 'z' WHERE id = 'a'`, ""},
			{"doc/a", `DELETE FROM doc WHERE id IN ('a', 'c')`, "doc/c 1"},
			{"doc/a", `TRUNCATE doc`, " 1"},
			{"", `UPDATE doc SET body = 'x' WHERE id = 'a'`, "doc/a 1"},
			{"", `UPDATE doc SET body = 'x' WHERE id IN ('a', 'c')`, "doc/a 1, doc/c 1"},
			{"", `UPDATE doc SET id = 'z' WHERE id = 'a'`, "doc/a 1, doc/z 1"},
			{"", `DELETE FROM doc WHERE id = 'a'`, "doc/a 1"},
			{"", `TRUNCATE doc`, " 1"},
			{"", drawn("* 100 >= 1") + `SELECT setval('lastword.bypass_number_seq', 10000); UPDATE doc SET body = 'x' WHERE id = 'a'`, ""},
			{"", drawn("* 100 < 1") + `SELECT setval('lastword.bypass_number_seq', 10000); UPDATE doc SET body = 'x' WHERE id = 'a'`, "doc/a 100"},
			{"", drawn("* 100 >= 1") + `SELECT setval('lastword.bypass_number_seq', 9999); UPDATE doc SET body = 'x' WHERE id = 'a'`, "doc/a 1"},
			{"", `SELECT setval('lastword.bypass_number_seq', 9998); UPDATE doc SET body = 'x' WHERE id = 'a'`, "doc/a 1"},
		},
	},
}

// drawn makes the next random number of the session one of those that are wanted.
func drawn(wanted string) string {
	return `DO $$ BEGIN FOR i IN 1..100000 LOOP
	PERFORM setseed(i / 100000.0);
	IF random() ` + wanted + ` THEN PERFORM setseed(i / 100000.0); RETURN; END IF;
END LOOP; END $$; `
}
