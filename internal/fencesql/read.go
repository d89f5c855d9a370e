package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

// Find is the receipt of an operation. It moves nothing (R21): it is one SELECT.
func Find(ctx context.Context, e Engine, c Conn, key fence.Key, operation string) (r lastword.Receipt, found bool, err error) {
	row := c.Row(ctx, e.text().Receipt, key.Domain, string(key.Resource), operation)
	r, err = scanReceipt(row, key, operation)
	if errors.Is(err, sql.ErrNoRows) {
		return lastword.Receipt{}, false, nil
	}
	return r, err == nil, err
}

// Look is the record, and what is known of an operation, as they were committed last:
// one statement, which locks nothing and opens nothing.
func Look(ctx context.Context, e Engine, c Conn, key fence.Key, operation string) (fence.Record, fence.Known, error) {
	l, err := e.look(ctx, c, key, operation)
	return l.record, l.known, err
}

// Inspect reads the record and what was noted beside it. It is all of one moment if c
// is a transaction that sees one.
func Inspect(ctx context.Context, e Engine, c Conn, key fence.Key) (found fence.Inspection, err error) {
	if found.Record, _, err = Look(ctx, e, c, key, ""); err != nil {
		return found, err
	}
	found.Refusals = map[lastword.Verdict]uint64{}
	err = each(ctx, c, func(rows Rows) error {
		var verdict string
		var times int64
		err := rows.Scan(&verdict, &times)
		found.Refusals[lastword.Verdict(verdict)] += uint64(times)
		return err
	}, e.text().Refusals, key.Domain, string(key.Resource))
	if _, ok := e.(PostgreSQL); err == nil && ok {
		err = c.Row(ctx, postgresEstimated, key.Domain).Scan(&found.Estimated)
	}
	if err != nil {
		return found, err
	}
	err = each(ctx, c, func(rows Rows) error {
		e, err := scanQuarantined(rows)
		found.Quarantine = append(found.Quarantine, e)
		return err
	}, e.text().Quarantine, key.Domain, string(key.Resource))
	if err != nil {
		return found, err
	}
	err = each(ctx, c, func(rows Rows) error {
		a, err := scanAct(rows)
		found.Acts = append(found.Acts, a)
		return err
	}, e.text().Acts, key.Domain, string(key.Resource), int64(fence.MaxActs))
	return found, err
}

// Records are the resources of domain that have a record, in byte order.
func Records(ctx context.Context, e Engine, c Conn, domain string, after lastword.Resource, limit int) (found []lastword.Resource, err error) {
	err = each(ctx, c, func(rows Rows) error {
		var r string
		err := rows.Scan(&r)
		found = append(found, lastword.Resource(r))
		return err
	}, e.text().Records, domain, string(after), int64(limit))
	return found, err
}

// Domains are the domains of which the database has something of a resource.
func Domains(ctx context.Context, e Engine, c Conn, r lastword.Resource) ([]string, error) {
	return list(ctx, c, e.text().Domains, string(r))
}

// Windows are the domains in which a window after a restore is open (R20).
func Windows(ctx context.Context, e Engine, c Conn) ([]string, error) {
	return list(ctx, c, e.text().Windows)
}

func list(ctx context.Context, c Conn, query string, args ...any) (found []string, err error) {
	err = each(ctx, c, func(rows Rows) error {
		var d string
		err := rows.Scan(&d)
		found = append(found, d)
		return err
	}, query, args...)
	return found, err
}

// each hands every row to scan.
func each(ctx context.Context, c Conn, scan func(Rows) error, query string, args ...any) (err error) {
	rows, err := c.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func scanQuarantined(row Row) (fence.Evidence, error) {
	var e fence.Evidence
	var q fence.Quarantined
	var token, seq int64
	var verdict, payload, at string
	err := row.Scan(&e.Claimant, &verdict, &e.Why, &token, &e.LeaseID, &q.Operation, &seq, &payload, &q.Content, &at)
	if err != nil {
		return e, err
	}
	if e.At, err = readTime(at); err != nil {
		return e, err
	}
	e.Verdict, e.Fence, q.Seq, e.Quarantine = lastword.Verdict(verdict), lastword.Token(token), uint64(seq), &q
	return e, parseDigest(&q.Payload, payload)
}

func scanAct(row Row) (a fence.Act, err error) {
	var before, after, mark int64
	var kind, at string
	if err := row.Scan(&kind, &a.Operator, &a.Reason, &before, &after, &mark, &at); err != nil {
		return a, err
	}
	a.Kind, a.Before, a.After, a.Mark = fence.ActKind(kind), lastword.Token(before), lastword.Token(after), uint64(mark)
	a.At, err = readTime(at)
	return a, err
}

func readTime(text string) (time.Time, error) {
	at, err := time.Parse(TimeLayout, text)
	if err != nil {
		return at, &lastword.Error{Code: lastword.CodeInternal, Message: "a time in the tables of the fence is damaged", Err: err}
	}
	return at, nil
}
