package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
)

// writeStatements are prepared once, on the writing connection.
type writeStatements struct {
	dataVersion, header, record, someRequests, someNames, requestByID *sql.Stmt

	begin, commit, rollback                                                    *sql.Stmt
	createHeader, updateHeader, createRecord, updateRecord, putRequest, forget command

	scratch []any // for arguments
}

// command is a statement below database/sql, which would spend as much time on the
// arguments of a record as SQLite does on the row.
type command struct {
	stmt      driver.Stmt
	execute   driver.StmtExecContext // the same
	arguments []driver.NamedValue
}

func (w *writeStatements) queries() map[**sql.Stmt]string {
	return map[**sql.Stmt]string{&w.dataVersion: sqlDataVersion, &w.header: sqlHeader, &w.record: sqlRecord,
		&w.someRequests: sqlSomeRequests, &w.someNames: sqlSomeNames, &w.requestByID: sqlRequest,
		&w.begin: dialect.Begin(), &w.commit: "COMMIT", &w.rollback: "ROLLBACK"}
}

func (w *writeStatements) commands() map[*command]string {
	return map[*command]string{&w.createHeader: sqlCreateHeader, &w.updateHeader: sqlUpdateHeader, &w.createRecord: sqlCreateRecord,
		&w.updateRecord: sqlUpdateRecord, &w.putRequest: sqlPutRequest, &w.forget: sqlForgetRequest}
}

func (w *writeStatements) prepare(ctx context.Context, conn *sql.Conn) (err error) {
	for stmt, query := range w.queries() {
		if *stmt, err = conn.PrepareContext(ctx, query); err != nil {
			return fmt.Errorf("prepare %q: %w", query, err)
		}
	}
	for command, query := range w.commands() {
		if err := conn.Raw(func(c any) error { return command.prepare(ctx, c, query) }); err != nil {
			return fmt.Errorf("prepare %q: %w", query, err)
		}
	}
	return nil
}

func (c *command) prepare(ctx context.Context, conn any, query string) (err error) {
	preparer, ok := conn.(driver.ConnPrepareContext)
	if !ok {
		return errors.New("the driver cannot prepare with a context")
	}
	if c.stmt, err = preparer.PrepareContext(ctx, query); err != nil {
		return err
	}
	if c.execute, ok = c.stmt.(driver.StmtExecContext); !ok {
		return errors.New("the driver cannot execute with a context")
	}
	c.arguments = make([]driver.NamedValue, strings.Count(query, "?")) // a driver need not know
	for i := range c.arguments {
		c.arguments[i].Ordinal = i + 1
	}
	return nil
}

// run executes the command inside [sql.Conn.Raw] and returns how many rows it
// changed. The values are int64, string, []byte or nil, one for each parameter.
func (c *command) run(ctx context.Context, values []any) (int64, error) {
	if len(values) != len(c.arguments) {
		return 0, fmt.Errorf("%d values for %d parameters", len(values), len(c.arguments))
	}
	for i, value := range values {
		c.arguments[i].Value = value
	}
	result, err := c.execute.ExecContext(ctx, c.arguments)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// ExecContext implements [sqldb.Execer] for what begins and ends a transaction.
func (w *writeStatements) ExecContext(ctx context.Context, query string, _ ...any) (sql.Result, error) {
	switch query {
	case "COMMIT":
		return w.commit.ExecContext(ctx)
	case "ROLLBACK":
		return w.rollback.ExecContext(ctx)
	case dialect.Begin():
		return w.begin.ExecContext(ctx)
	}
	return nil, fmt.Errorf("%q is not prepared", query)
}

// close ends all statements; the connection must still be open.
func (w *writeStatements) close(conn *sql.Conn) (err error) {
	for stmt := range w.queries() {
		if *stmt != nil {
			err = errors.Join(err, (*stmt).Close())
			*stmt = nil
		}
	}
	for c := range w.commands() {
		if c.stmt != nil {
			err = errors.Join(err, conn.Raw(func(any) error { return c.stmt.Close() }))
			*c = command{}
		}
	}
	return err
}
