package sqldb

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/lastword/lastword"
)

// SchemaTable records which schemas a database holds, and in which version.
const SchemaTable = "lastword_schema"

// Prefix begins the name of every table of ours.
const Prefix = "lastword_"

// Schema is the tables of one package and how they came to be.
type Schema struct {
	// Name of the schema in [SchemaTable].
	Name string
	// Tables are the names of all its tables.
	Tables []string
	// Steps are the migrations: Steps[i] brings version i to version i + 1, in one
	// transaction, statement by statement. A released step never changes.
	Steps [][]string
	// Alone says that the database must hold no other tables.
	Alone bool
	// Apart are tables of ours that must not be in the same database.
	Apart []string
}

// Inspect looks at a database without changing it and returns the version of the
// schema, 0 if it is not there. It returns an error of [lastword.CodeInvalid] if the
// schema is newer than s, a table of s belongs to somebody else or is missing, or the
// database is another program's and s wants to be alone.
func Inspect(ctx context.Context, d Dialect, q Querier, s Schema) (int, error) {
	tables, err := d.Tables(ctx, q)
	if err != nil {
		return 0, err
	}
	if s.Alone {
		if err := s.onlyOurs(tables); err != nil {
			return 0, err
		}
	}
	for _, table := range s.Apart {
		if slices.Contains(tables, table) {
			return 0, refuse("use a file of its own", "the database is an authority's store: it has the table %s", table)
		}
	}
	version, err := s.version(ctx, d, q, tables)
	if err != nil {
		return 0, err
	}
	for _, table := range s.Tables {
		exists := slices.Contains(tables, table)
		switch {
		case exists && version == 0:
			return 0, refuse("move that table away, or use another database",
				"the table %s exists, but no lastword has made it", table)
		case !exists && version == len(s.Steps):
			return 0, refuse("restore the database from a backup",
				"the table %s of the schema %s is missing", table, s.Name)
		}
	}
	return version, nil
}

// Migrate brings the schema to the version of s. Several processes may do so at
// once: every step is one transaction that looks at the version first.
//
// Who finds nothing to do needs no right to change anything.
func Migrate(ctx context.Context, d Dialect, conn *sql.Conn, s Schema) error {
	if version, err := Inspect(ctx, d, conn, s); err == nil && version == len(s.Steps) {
		return nil
	}
	for done := false; !done; {
		_, err := Transact(ctx, d, conn, func(ctx context.Context) error {
			if err := d.Enter(ctx, conn); err != nil {
				return err
			}
			version, err := Inspect(ctx, d, conn, s)
			if err != nil {
				return err
			}
			done = version == len(s.Steps)
			if done {
				return nil
			}
			return s.step(ctx, d, conn, version)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s Schema) version(ctx context.Context, d Dialect, q Querier, tables []string) (int, error) {
	if !slices.Contains(tables, SchemaTable) {
		return 0, nil
	}
	var found, version int
	row := q.QueryRowContext(ctx, "SELECT count(*), coalesce(max(version), 0) FROM "+d.Table(SchemaTable)+" WHERE name = '"+s.Name+"'")
	if err := row.Scan(&found, &version); err != nil {
		if d.Class(err) == Other {
			return 0, refuse("move that table away, or use another database",
				"the table %s exists, but no lastword has made it: %v", SchemaTable, err)
		}
		return 0, err
	}
	if version > len(s.Steps) {
		return 0, refuse("use the version of lastword that wrote it, or a newer one",
			"the schema %s has version %d, this lastword knows versions up to %d", s.Name, version, len(s.Steps))
	}
	return version, nil
}

func (s Schema) step(ctx context.Context, d Dialect, q Querier, version int) error {
	statements := slices.Clone(s.Steps[version])
	record := fmt.Sprintf("UPDATE %s SET version = %d WHERE name = '%s' AND version = %d", d.Table(SchemaTable), version+1, s.Name, version)
	if version == 0 {
		statements = append([]string{"CREATE TABLE IF NOT EXISTS " + d.Table(SchemaTable) + " (name VARCHAR(64) NOT NULL PRIMARY KEY, version INTEGER NOT NULL)"}, statements...)
		record = fmt.Sprintf("INSERT INTO %s (name, version) VALUES ('%s', 1)", d.Table(SchemaTable), s.Name)
	}
	for _, statement := range statements {
		if _, err := q.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("migration of %s to version %d: %w", s.Name, version+1, err)
		}
	}
	result, err := q.ExecContext(ctx, record)
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if rows != 1 {
		return fmt.Errorf("migration of %s to version %d changed %d rows of %s", s.Name, version+1, rows, SchemaTable)
	}
	return nil
}

func (s Schema) onlyOurs(tables []string) error {
	for _, table := range tables {
		switch {
		case !strings.HasPrefix(table, Prefix):
			return refuse("use a file of its own", "it is another program's database: it has a table %q", table)
		case table != SchemaTable && !slices.Contains(s.Tables, table):
			return refuse("use a file of its own", "the database holds another part of lastword: it has the table %s", table)
		}
	}
	return nil
}

func refuse(hint, format string, args ...any) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Message: fmt.Sprintf(format, args...), Hint: hint}
}
