package fencesql_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/postgrestest"
)

// commit is the statement on the wire, which no setting's name is.
const commit = "commit\x00"

// eachClient runs a test for every driver and form, at a database of its own, behind a
// proxy of its own.
func eachClient(t *testing.T, test func(t *testing.T, c client, dsn string, proxy *postgrestest.Proxy)) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			test(t, c, database(t), postgrestest.NewProxy(t, postgrestest.Server(t).Addr))
		})
	}
}

func TestAnAnswerToCommitThatIsLostIsUnknownAndSettledByTheSameOperation(t *testing.T) { // KF-01 (SQL form), R22, P5, X9, X29
	for name, there := range map[string]bool{"before": false, "after": true} {
		fate := map[bool]postgrestest.Fate{false: postgrestest.CutBefore, true: postgrestest.CutAfter}[there]
		t.Run(name, func(t *testing.T) {
			eachClient(t, func(t *testing.T, c client, dsn string, proxy *postgrestest.Proxy) {
				db, s := openDB(t, dsn), newSeal(t)
				g := c.guard(t, through(t, dsn, proxy.Addr), s, 2)
				h := s.holder("r", "a", 1)
				if _, err := g.write(t.Context(), h, "r", "first", "v"); err != nil {
					t.Fatal(err)
				}
				fired := proxy.Once(commit, fate)
				r, err := g.write(t.Context(), h, "r", "op", "w")
				select {
				case <-fired:
				default:
					t.Fatal("the fault did not fire")
				}
				if !errors.Is(err, lastword.ErrUnknownOutcome) {
					t.Fatalf("the answer to COMMIT was lost: %+v %v", r, err)
				}
				await(t, func() bool { return effects(t, db, "op") == map[bool]int{true: 1}[there] })
				if _, err := g.write(t.Context(), h, "r", "other", "x"); !errors.Is(err, lastword.ErrOutOfOrder) {
					t.Errorf("another operation took the number of the one that is open: %v", err)
				}
				_, found, err := g.lookup(t.Context(), "r", "op")
				if err != nil || found != there {
					t.Errorf("lookup: %v %v", found, err)
				}
				want := map[bool]lastword.Verdict{false: lastword.Applied, true: lastword.Replayed}[there]
				if r, err = g.write(t.Context(), h, "r", "op", "w"); err != nil || r.Verdict != want || r.Seq != 2 {
					t.Errorf("submitted again: %+v %v", r, err)
				}
				if n := effects(t, db, "op"); n != 1 {
					t.Errorf("%d effects", n)
				}
				verify(t, db)
			})
		})
	}
}

// await waits until something that another process does is done.
func await(tb testing.TB, done func() bool) {
	tb.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatal("it never came to be")
		}
	}
}

func TestAConnectionLostBeforeCommitIsNeverUnknown(t *testing.T) { // X28, X29, R16
	eachClient(t, func(t *testing.T, c client, dsn string, proxy *postgrestest.Proxy) {
		if c.name == "pgx send" {
			t.Skip("COMMIT is in its only round trip")
		}
		db, s := openDB(t, dsn), newSeal(t)
		g := c.guard(t, through(t, dsn, proxy.Addr), s, 2)
		h := s.holder("r", "a", 1)
		for i, at := range []string{"begin", "lastword.load", "INTO doc", "INTO effect"} {
			for j, fate := range []postgrestest.Fate{postgrestest.CutBefore, postgrestest.CutAfter} {
				fired := proxy.Once(at, fate)
				op := at + string(rune('0'+j))
				r, err := g.write(t.Context(), h, "r", op, "v")
				select {
				case <-fired:
				default:
					t.Fatalf("%s: the fault did not fire", at)
				}
				if err != nil || r.Verdict != lastword.Applied || effects(t, db, op) != 1 {
					t.Errorf("%s, %d: %+v %v", at, i, r, err)
				}
			}
		}
		verify(t, db)
	})
}

func TestIdleConnectionsThatWereCutAreReplaced(t *testing.T) { // X29: what drivers do by themselves carries the same operation
	eachClient(t, func(t *testing.T, c client, dsn string, proxy *postgrestest.Proxy) {
		db, s := openDB(t, dsn), newSeal(t)
		g := c.guard(t, through(t, dsn, proxy.Addr), s, 2)
		h := s.holder("r", "a", 1)
		for _, op := range []string{"one", "two", "three"} {
			r, err := g.write(t.Context(), h, "r", op, "v")
			if errors.Is(err, lastword.ErrUnknownOutcome) && c.name == "pgx send" { // the dead connection took all of it
				r, err = g.write(t.Context(), h, "r", op, "v")
			}
			if err != nil || effects(t, db, op) != 1 {
				t.Errorf("%s: %+v %v", op, r, err)
			}
			proxy.Cut()
		}
		verify(t, db)
	})
}

func TestACommitThatTakesTooLongIsUnknownAndFoundLater(t *testing.T) { // X27
	eachClient(t, func(t *testing.T, c client, dsn string, proxy *postgrestest.Proxy) {
		db, s := openDB(t, dsn), newSeal(t)
		g := c.guard(t, through(t, dsn, proxy.Addr), s, 2)
		h := s.holder("r", "a", 1)
		if _, err := g.write(t.Context(), h, "r", "first", "v"); err != nil {
			t.Fatal(err)
		}
		fired := proxy.Once(commit, postgrestest.Hold)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := g.write(ctx, h, "r", "op", "w")
		took := time.Since(began)
		<-fired
		if !errors.Is(err, lastword.ErrUnknownOutcome) || took > 5*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		proxy.Release()
		await(t, func() bool {
			_, found, err := g.lookup(t.Context(), "r", "op")
			return err == nil && found
		})
		verify(t, db)
	})
}

func TestALockOfAnotherSessionEndsWithTheDeadline(t *testing.T) { // X27
	eachClient(t, func(t *testing.T, c client, dsn string, _ *postgrestest.Proxy) {
		db, s := openDB(t, dsn), newSeal(t)
		g := c.guard(t, dsn, s, 2)
		h := s.holder("r", "a", 1)
		if _, err := g.write(t.Context(), h, "r", "first", "v"); err != nil {
			t.Fatal(err)
		}
		for op, lock := range map[string]string{"record": `UPDATE lastword.fence SET step = step`, "row": `UPDATE doc SET value = value`} {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(lock); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			_, err = g.write(ctx, h, "r", op, "w")
			cancel()
			// COMMIT is behind the lock in the only round trip of a Send: nobody knows.
			if unknown := errors.Is(err, lastword.ErrUnknownOutcome); err == nil || unknown != (c.name == "pgx send") {
				t.Errorf("%s: %v", lock, err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if r, err := g.write(t.Context(), h, "r", op, "w"); err != nil || effects(t, db, op) != 1 {
				t.Errorf("settled: %+v %v", r, err)
			}
		}
		verify(t, db)
	})
}

func TestANewerTenureSettlesByAdvanceAndLookup(t *testing.T) { // R22, R16a
	eachClient(t, func(t *testing.T, c client, dsn string, proxy *postgrestest.Proxy) {
		db, s := openDB(t, dsn), newSeal(t)
		g, next := c.guard(t, through(t, dsn, proxy.Addr), s, 2), c.guard(t, dsn, s, 2)
		h := s.holder("r", "a", 1)
		if _, err := g.write(t.Context(), h, "r", "first", "v"); err != nil {
			t.Fatal(err)
		}
		proxy.Once(commit, postgrestest.CutBefore)
		if _, err := g.write(t.Context(), h, "r", "op", "w"); !errors.Is(err, lastword.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		newer := s.holder("r", "b", 2)
		if _, err := next.advance(t.Context(), "r", newer); err != nil {
			t.Fatal(err)
		}
		if _, found, err := next.lookup(t.Context(), "r", "op"); err != nil || found {
			t.Fatalf("lookup: %v %v", found, err)
		}
		if _, err := g.write(t.Context(), h, "r", "op", "w"); !errors.Is(err, lastword.ErrStale) {
			t.Errorf("the old tenure: %v", err)
		}
		if r, err := next.write(t.Context(), newer, "r", "op", "w"); err != nil || r.Verdict != lastword.Applied || effects(t, db, "op") != 1 {
			t.Errorf("done again under the new fence: %+v %v", r, err)
		}
		verify(t, db)
	})
}

// over is a holder whose tenure can end.
type over struct {
	*holder
	ended atomic.Bool
}

func (h *over) State() lastword.HolderState {
	if h.ended.Load() {
		return lastword.HolderExpired
	}
	return lastword.HolderHeld
}

func TestATenureThatEndsWhileTheRecordIsLockedStartsNoEffect(t *testing.T) { // R26
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			dsn := database(t)
			db, s := openDB(t, dsn), newSeal(t)
			g := c.guard(t, dsn, s, 2)
			if g.apply == nil {
				t.Skip("the statements follow the check in one round trip")
			}
			h := &over{holder: s.holder("r", "a", 1)}
			if _, err := g.write(t.Context(), h, "r", "first", "v"); err != nil { // the place remembers the record
				t.Fatal(err)
			}
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), `SELECT 1 FROM lastword.fence FOR UPDATE`); err != nil {
				t.Fatal(err)
			}
			done, ran := make(chan error, 1), false
			go func() {
				_, err := g.apply(t.Context(), h, "op", []byte("w"), func(context.Context, exec) error { ran = true; return nil })
				done <- err
			}()
			await(t, func() bool {
				return count(t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
			})
			h.ended.Store(true)
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; !errors.Is(err, lastword.ErrNotHolder) || ran {
				t.Errorf("the tenure ended while its write waited: %v, ran %v", err, ran)
			}
		})
	}
}
