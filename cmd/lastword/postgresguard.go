package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lastword/lastword"
)

// Before the texts of --sql and after them, in the transaction of the write.
const (
	// postgresWritten is everything that this transaction has written, or tried to, to the
	// tables of the fence, in whatever words: the server counts it, also what was undone or
	// rolled back to a savepoint. What is counted in a roll-out is the exception. It is asked
	// with a search path that nobody can have put anything into.
	postgresWritten = `SELECT pg_catalog.current_setting('track_counts') = 'on', coalesce(pg_catalog.string_agg(pg_catalog.concat_ws(':', c.oid, c.relfilenode,
	pg_catalog.pg_stat_get_xact_tuples_inserted(c.oid), pg_catalog.pg_stat_get_xact_tuples_updated(c.oid),
	pg_catalog.pg_stat_get_xact_tuples_deleted(c.oid)), ' ' ORDER BY c.oid), '')
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'lastword' AND c.relkind = 'r' AND c.relname <> 'bypass'`

	// postgresShape is what in the catalogues makes the fence and the protected tables what
	// they are, and in which versions of their rows: what was changed and changed back is
	// another version. A table that gets its first heir is one, too; one that has heirs, or
	// has had some since its last ANALYZE, is told by itself.
	postgresShape = `WITH ours AS (SELECT c.oid, c.relname FROM pg_catalog.pg_class AS c
	WHERE c.relnamespace = 'lastword'::pg_catalog.regnamespace OR EXISTS (
		SELECT 1 FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
		WHERE t.tgrelid = c.oid AND p.pronamespace = 'lastword'::pg_catalog.regnamespace))
SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class AS c WHERE c.relnamespace = 'lastword'::pg_catalog.regnamespace AND c.relhassubclass),
	pg_catalog.concat_ws(' ', pg_catalog.txid_current(),
	(SELECT pg_catalog.string_agg(pg_catalog.concat_ws(':', c.oid, c.xmin, c.ctid, c.relfilenode), ' ' ORDER BY c.oid) FROM pg_catalog.pg_class AS c JOIN ours ON ours.oid = c.oid),
	(SELECT pg_catalog.string_agg(pg_catalog.concat_ws(':', t.oid, t.xmin, t.ctid), ' ' ORDER BY t.oid) FROM pg_catalog.pg_trigger AS t JOIN ours ON ours.oid = t.tgrelid),
	(SELECT pg_catalog.string_agg(pg_catalog.concat_ws(':', p.oid, p.xmin, p.ctid), ' ' ORDER BY p.oid) FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = 'lastword'::pg_catalog.regnamespace))`

	// postgresDeferrable is a trigger that can be left to COMMIT, on a table that this
	// transaction has written to: a trigger may run SET CONSTRAINTS, and so leave another one
	// behind [postgresNoneDeferred]. Those of the server's own that execute nobody's text are
	// the exception.
	postgresDeferrable = `SELECT pg_catalog.format('%I on %I.%I', t.tgname, n.nspname, c.relname)
FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_constraint AS o ON o.oid = t.tgconstraint
WHERE t.tgdeferrable AND (p.pronamespace <> 'pg_catalog'::pg_catalog.regnamespace OR o.contype = 'x') AND
	pg_catalog.pg_stat_get_xact_tuples_inserted(c.oid) + pg_catalog.pg_stat_get_xact_tuples_updated(c.oid) + pg_catalog.pg_stat_get_xact_tuples_deleted(c.oid) > 0
ORDER BY 1 LIMIT 1`

	// postgresOurPath is for what comes after the texts, the write of the record among it.
	postgresOurPath = `SET LOCAL search_path = pg_catalog, pg_temp`

	// Nothing of the texts is left to be executed at COMMIT: a deferred trigger is executed
	// by the first, and the query of a cursor WITH HOLD, which COMMIT reads to its end, is
	// given up by the second.
	postgresNoneDeferred = `SET CONSTRAINTS ALL IMMEDIATE`
	postgresNoCursors    = `CLOSE ALL`

	postgresTimeout    = `SELECT setting FROM pg_catalog.pg_settings WHERE name = 'statement_timeout'`
	postgresSetTimeout = `SELECT pg_catalog.set_config('statement_timeout', $1, TRUE)`
)

// runPostgres executes the texts of --sql inside tx, in order, and returns for each how
// many rows its last statement changed. Each runs as a part of a block of the database's
// own language, in which no transaction can be ended or begun. A change of the fence's
// tables is refused, whatever the texts look like: see [postgresWritten].
func runPostgres(ctx context.Context, tx *sql.Tx, texts []string) ([]byte, error) {
	for i, text := range texts { // early, before anything runs
		if strings.Contains(strings.ToLower(text), "lastword.") {
			return nil, statementError(whichText(i, len(texts)), "the fence's own schema", nil)
		}
	}
	before, err := writtenPostgres(ctx, tx)
	if err != nil {
		return nil, err
	}
	shape, err := shapePostgres(ctx, tx)
	if err != nil {
		return nil, err
	}
	unbound, err := boundPostgres(ctx, tx)
	if err != nil {
		return nil, err
	}
	rows := make([]int64, len(texts))
	for i, text := range texts {
		if rows[i], err = runText(ctx, tx, text); err != nil {
			return nil, explainPostgres(whichText(i, len(texts)), err)
		}
	}
	if err := settlePostgres(ctx, tx); err != nil {
		return nil, err
	}
	after, err := writtenPostgres(ctx, tx)
	switch {
	case err != nil:
		return nil, err
	case after != before:
		return nil, statementError("--sql", "a change of the fence's own tables", nil)
	}
	if err := unchangedPostgres(ctx, tx, shape); err != nil {
		return nil, err
	}
	if err := unbound(); err != nil {
		return nil, err
	}
	return json.Marshal(rows)
}

// runText executes one text.
func runText(ctx context.Context, tx *sql.Tx, text string) (rows int64, err error) {
	tag := "lw" + rand.Text()
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(`DO $%[1]s$ DECLARE n bigint; BEGIN EXECUTE $%[1]sx$%[2]s$%[1]sx$; GET DIAGNOSTICS n = ROW_COUNT;
	PERFORM set_config('lastword.rows', n::text, TRUE); END $%[1]s$`, tag, text)); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, `SELECT pg_catalog.current_setting('lastword.rows')::pg_catalog.int8`).Scan(&rows)
	return rows, err
}

// settlePostgres executes what the texts have left for COMMIT.
func settlePostgres(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, postgresNoneDeferred)
	switch {
	case strings.HasPrefix(sqlState(err), "23"):
		return &lastword.Error{Code: lastword.CodeInvalid, Op: opStatement, Message: "--sql: it breaks a constraint that is checked at COMMIT", Err: err}
	case err != nil:
		return explainPostgres("--sql", err)
	}
	for _, query := range []string{postgresNoCursors, postgresOurPath} {
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

// writtenPostgres is [postgresWritten].
func writtenPostgres(ctx context.Context, tx *sql.Tx) (all string, err error) {
	var counted bool
	if err := tx.QueryRowContext(ctx, postgresWritten).Scan(&counted, &all); err != nil {
		return "", err
	}
	if !counted {
		return "", &lastword.Error{Code: lastword.CodeInvalid, Op: opStatement,
			Message: "the server has track_counts = off: a change of the fence's own tables would not be noticed", Hint: "set track_counts = on"}
	}
	return all, nil
}

// shapePostgres is [postgresShape].
func shapePostgres(ctx context.Context, tx *sql.Tx) (shape string, err error) {
	var heirs bool
	if err := tx.QueryRowContext(ctx, postgresShape).Scan(&heirs, &shape); err != nil {
		return "", err
	}
	if heirs {
		return "", &lastword.Error{Code: lastword.CodeInvalid, Op: opStatement, Message: "a table of the schema lastword has heirs, or had some: they would count as part of it",
			Hint: "nothing was written; drop them, and ANALYZE the tables of the schema"}
	}
	return shape, nil
}

// unchangedPostgres refuses another shape than before, and what may be left to COMMIT.
func unchangedPostgres(ctx context.Context, tx *sql.Tx, before string) error {
	after, err := shapePostgres(ctx, tx)
	switch {
	case err != nil:
		return err
	case after != before:
		return statementError("--sql", "a change of the schema of the fence or of a protected table", nil)
	}
	var trigger string
	err = tx.QueryRowContext(ctx, postgresDeferrable).Scan(&trigger)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return statementError("--sql", "a write to a table with a deferrable trigger, "+trigger+", which could leave something to COMMIT,", nil)
}

// boundPostgres makes the server end each statement by itself when the time of the command
// is over, also where nobody is left to cancel it. unbound takes that back: a COMMIT that
// waits for a standby must not be told that it is done because its time is over.
func boundPostgres(ctx context.Context, tx *sql.Tx) (unbound func() error, err error) {
	end, ok := ctx.Deadline()
	if !ok {
		return func() error { return nil }, nil
	}
	var was int64 // ms
	if err := tx.QueryRowContext(ctx, postgresTimeout).Scan(&was); err != nil {
		return nil, err
	}
	set := func(ms int64) error {
		_, err := tx.ExecContext(ctx, postgresSetTimeout, strconv.FormatInt(ms, 10))
		return err
	}
	// Whoever is still there is told by this program, not by the server.
	left := (time.Until(end) + cancelGrace).Milliseconds()
	if was > 0 && was <= left {
		return func() error { return nil }, nil
	}
	return func() error { return set(was) }, set(left)
}

// explainPostgres is the error of a text of --sql.
func explainPostgres(which string, err error) error {
	if state := sqlState(err); state == "2D000" || state == "0A000" && strings.Contains(err.Error(), "transaction") {
		return statementError(which, "a statement that ends or begins a transaction", err)
	}
	return explainText(which, err)
}

// explainText is the error of a text of --sql on every engine. What a trigger of a protected
// table refuses is a verdict.
func explainText(which string, err error) error {
	if strings.Contains(err.Error(), "lastword: FENCE_REQUIRED") {
		return &lastword.Error{Code: lastword.CodeFenceRequired, Op: opStatement, Message: which, Err: err,
			Hint: "nothing was written; a write changes what belongs to its own resource"}
	}
	return fmt.Errorf("%s: %w", which, err)
}

// whichText names one text of n.
func whichText(i, n int) string {
	if n == 1 {
		return "--sql"
	}
	return fmt.Sprintf("--sql number %d", i+1)
}
