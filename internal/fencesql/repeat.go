package fencesql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/sqldb"
)

// again is how often a transaction is repeated, besides for a busy database, because
// its connection broke before COMMIT (as often as database/sql does) or because the
// record changed under it.
const again = 3

// Repeat runs a whole transaction again and again while others are in its way, until ctx
// ends. What leaves the outcome open, whatever its cause, is never done again.
func Repeat(ctx context.Context, e Engine, key fence.Key, attempt func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return Fail(e, "begin", key, err)
	}
	var undecided error
	err := sqldb.Backoff{}.Retry(ctx, e, func(ctx context.Context) (err error) {
		for range again {
			err = attempt(ctx)
			if Open(err) {
				undecided = err
				return nil
			}
			if ctx.Err() != nil || !lost(e, err) && !errors.Is(err, ErrChanged) {
				return err
			}
		}
		return err
	})
	if undecided != nil {
		return undecided
	}
	if err != nil && ctx.Err() != nil && e.Class(err) == sqldb.Busy {
		// What stood in the way until the end may be an error that is already explained.
		return &lastword.Error{Code: lastword.CodeUnavailable, Op: "transact", Resource: key.Resource, Err: err,
			Message: "the database was busy until the time was over", Hint: "nothing was written; try again"}
	}
	return err
}

// lost: the connection broke. Before COMMIT that proves that nothing happened. A
// server that lets nobody in is not asked again at once.
func lost(e Engine, err error) bool {
	var network net.Error
	var unsent interface{ SafeToRetry() bool }
	switch {
	case errors.As(err, &unsent) && unsent.SafeToRetry(): // no byte has left
		return !errors.Is(err, context.DeadlineExceeded)
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case errors.As(err, &network):
		return !network.Timeout()
	case err != nil && unnamed(err, "conn closed"): // pgx, of a connection that broke under a statement
		return true
	}
	state := sqldb.SQLState(err)
	return e.Class(err) == sqldb.Unreachable && state != "53300" && state != "57P03"
}

// AfterEnd calls fn a while after ctx has ended, unless what it returns was called
// before.
func AfterEnd(ctx context.Context, grace time.Duration, fn func()) (release func()) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(grace) //nolint:forbidigo // it bounds a wait for a network and decides nothing
		defer t.Stop()
		select {
		case <-t.C:
			fn()
		case <-over:
		}
	})
	return func() {
		stop()
		close(over)
	}
}

// Identity names a PostgreSQL server and the database, for [fence.Place.Name]: not by an
// address, of which a server may have several.
func Identity(ctx context.Context, c Conn) (string, error) {
	var database, system string
	err := c.Row(ctx, "SELECT current_database(), (SELECT system_identifier::text FROM pg_control_system())").Scan(&database, &system)
	if sqldb.SQLState(err) == "42501" { // some hosts keep that to themselves
		err = c.Row(ctx, "SELECT current_database(), coalesce(inet_server_addr()::text, '') || ':' || coalesce(inet_server_port()::text, '')").Scan(&database, &system)
	}
	return fmt.Sprintf("postgresql:%s/%s", system, database), err
}
