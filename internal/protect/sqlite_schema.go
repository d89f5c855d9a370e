package protect

import "github.com/lastword/lastword/internal/sqldb"

// sqliteSchema stands beside that of the fence. A pass is a row that has to be gone
// before COMMIT: it refers to a row that cannot be there, and that is looked at by
// COMMIT alone. Nobody has to be trusted to close it.
var sqliteSchema = sqldb.Schema{
	Name:   "protect",
	Tables: []string{"lastword_never", "lastword_pass", "lastword_protected"},
	Steps: [][]string{{
		`CREATE TABLE lastword_never (id INTEGER PRIMARY KEY CHECK (FALSE)) STRICT`,
		`CREATE TABLE lastword_pass (
	domain TEXT NOT NULL,
	resource TEXT NOT NULL,
	closed INTEGER NOT NULL DEFAULT 1 REFERENCES lastword_never (id) DEFERRABLE INITIALLY DEFERRED,
	PRIMARY KEY (domain, resource)
) STRICT, WITHOUT ROWID`,
		`CREATE TABLE lastword_protected (
	name TEXT NOT NULL PRIMARY KEY COLLATE NOCASE, -- as SQLite compares names of tables
	domain TEXT NOT NULL,
	template TEXT NOT NULL,
	columns TEXT NOT NULL, -- a JSON array; []: all
	shadow INTEGER NOT NULL CHECK (shadow IN (0, 1)),
	is_open INTEGER NOT NULL CHECK (is_open IN (0, 1)),
	since TEXT NOT NULL -- for people
) STRICT, WITHOUT ROWID`,
	}},
}
