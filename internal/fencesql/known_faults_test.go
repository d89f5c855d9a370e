package fencesql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

// everywhere runs a case at every database, through every driver and form.
func everywhere(t *testing.T, test func(t *testing.T, g *guarded, s *seal, db *sql.DB)) {
	for _, c := range allClients() {
		t.Run(c.name, func(t *testing.T) {
			dsn, db := c.place(t)
			s := newSeal(t)
			test(t, c.guard(t, dsn, s, 3), s, db)
		})
	}
}

func wantVerdict(t *testing.T, r lastword.Receipt, err error, want lastword.Verdict, seq uint64) {
	t.Helper()
	if code := want.Code(); code != "" {
		var e *lastword.Error
		if !errors.As(err, &e) || e.Code != code {
			t.Errorf("got %s, %v, want %s", r.Verdict, err, want)
		}
		return
	}
	if err != nil || r.Verdict != want || r.Seq != seq {
		t.Errorf("got %s with seq %d, %v, want %s with seq %d", r.Verdict, r.Seq, err, want, seq)
	}
}

// A write whose value equals the present one changes no row in some drivers' counting.
func TestAWriteThatChangesNoValueIsAWrite(t *testing.T) { // KF-21 (b) to (d), R15
	everywhere(t, func(t *testing.T, g *guarded, s *seal, _ *sql.DB) {
		a, b := s.holder("r", "a", 1), s.holder("r", "b", 2)
		r, err := g.write(t.Context(), a, "r", "old", "v")
		wantVerdict(t, r, err, lastword.Applied, 1)
		for seq := uint64(1); seq <= 3; seq++ {
			r, err := g.write(t.Context(), b, "r", fmt.Sprint("op-", seq), "v")
			wantVerdict(t, r, err, lastword.Applied, seq)
		}
		r, err = g.write(t.Context(), b, "r", "op-3", "v")
		wantVerdict(t, r, err, lastword.Replayed, 3)
		r, err = g.write(t.Context(), a, "r", "late", "v")
		wantVerdict(t, r, err, lastword.StaleOwner, 0)
		// A registration that changes nothing is one, too.
		for range 2 {
			if rec, err := g.advance(t.Context(), "r", b); err != nil || rec.Fence != 2 || rec.LastSeq != 3 {
				t.Errorf("registered again: %+v, %v", rec, err)
			}
		}
	})
}

func TestNamesThatDifferInOneByteAreDifferentEverywhere(t *testing.T) { // KF-28
	names := []string{"Report", "report", "report ", " report", "repórt", "repo\u0301rt", "straße", "strasse", "r\U0001f600", "report%", "r_port"}
	everywhere(t, func(t *testing.T, g *guarded, s *seal, db *sql.DB) {
		for i, name := range names {
			resource := lastword.Resource("doc/" + name)
			h := s.holder(resource, "owner "+name, lastword.Token(i+1))
			for range 2 { // each retries its operation
				r, err := g.write(t.Context(), h, resource, "op "+name, "v "+name)
				if err != nil || r.Operation != "op "+name || r.Resource != resource || r.Owner != "owner "+name || r.Seq != 1 {
					t.Errorf("%q: %+v, %v", name, r, err)
				}
			}
		}
		if n := count(t, db, `SELECT count(*) FROM effect`); n != len(names) {
			t.Errorf("%d effects of %d names", n, len(names))
		}
		for _, name := range names {
			for _, other := range names {
				_, found, err := g.lookup(t.Context(), lastword.Resource("doc/"+name), "op "+other)
				if err != nil || found != (name == other) {
					t.Errorf("operation of %q at %q: %v, %v", other, name, found, err)
				}
			}
		}
	})
}

func TestOneOperationIdHasOneEffectEverywhere(t *testing.T) { // KF-32
	everywhere(t, func(t *testing.T, g *guarded, s *seal, db *sql.DB) {
		a := s.holder("r1", "a", 5)
		first, err := g.write(t.Context(), a, "r1", "K", `{"amount":1.0}`)
		wantVerdict(t, first, err, lastword.Applied, 1)
		for _, h := range []*holder{a, s.holder("r1", "b", 6)} { // also in the next tenure
			r, err := g.write(t.Context(), h, "r1", "K", `{"amount":1.0}`)
			if wantVerdict(t, r, err, lastword.Replayed, 1); r.LeaseID != first.LeaseID || !r.AppliedAt.Equal(first.AppliedAt) {
				t.Errorf("the first receipt is %+v, got %+v", first, r)
			}
			for _, other := range []string{`{"amount":2}`, `{"amount":1}`, `{ "amount":1.0}`} {
				r, err := g.write(t.Context(), h, "r1", "K", other)
				wantVerdict(t, r, err, lastword.Conflict, 0)
			}
		}
		r, err := g.write(t.Context(), s.holder("r2", "a", 5), "r2", "K", "x") // another scope
		wantVerdict(t, r, err, lastword.Applied, 1)
		var all sync.WaitGroup
		seen := make([]lastword.Verdict, 2)
		for i := range seen { // two equal requests at once
			h := s.holder("r3", "a", 5)
			all.Go(func() {
				r, err := g.write(t.Context(), h, "r3", "K", "x")
				if seen[i] = r.Verdict; err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if seen[0] == seen[1] || effects(t, db, "K") != 3 {
			t.Errorf("two at once: %v, %d effects in all", seen, effects(t, db, "K"))
		}
		if g.apply == nil {
			return
		}
		failed := errors.New("half-way") // the first fails half-way; the retry runs once
		h := s.holder("r4", "a", 5)
		_, err = g.apply(t.Context(), h, "K4", []byte("x"), func(ctx context.Context, run exec) error {
			return errors.Join(effect("r4", "K4", "x")(ctx, run), failed)
		})
		if !errors.Is(err, failed) || effects(t, db, "K4") != 0 {
			t.Errorf("half-way: %v, %d effects", err, effects(t, db, "K4"))
		}
		r, err = g.write(t.Context(), h, "r4", "K4", "x")
		if wantVerdict(t, r, err, lastword.Applied, 1); effects(t, db, "K4") != 1 {
			t.Errorf("the retry: %d effects", effects(t, db, "K4"))
		}
	})
}

func TestWithoutACompleteProofNothingMovesAnywhere(t *testing.T) { // KF-24, P3
	everywhere(t, func(t *testing.T, g *guarded, s *seal, db *sql.DB) {
		good := s.holder("r", "a", 5)
		r, err := g.write(t.Context(), good, "r", "op", "v")
		wantVerdict(t, r, err, lastword.Applied, 1)
		other := newSeal(t)
		for name, bad := range map[string]struct {
			h    *holder
			want lastword.Verdict
		}{
			"no grant":          {&holder{seq: map[string]*lastword.Sequence{}}, lastword.FenceRequired},
			"another key":       {other.holder("r", "a", 9_007_199_254_740_991), lastword.Unverified},
			"a cut grant":       {&holder{grant: good.grant[:len(good.grant)-9], seq: map[string]*lastword.Sequence{}}, lastword.Unverified},
			"a text":            {&holder{grant: "Bearer old-client", seq: map[string]*lastword.Sequence{}}, lastword.Unverified},
			"an alg of its own": {&holder{grant: "eyJhbGciOiJub25lIn0.e30.", seq: map[string]*lastword.Sequence{}}, lastword.Unverified},
			"an epoch to come":  {s.holder("r", "a", 1<<40), lastword.Unverified},
		} {
			_, err := g.write(t.Context(), bad.h, "r", "bad", "x")
			var e *lastword.Error
			if !errors.As(err, &e) || e.Code != bad.want.Code() {
				t.Errorf("%s: %v, want %s", name, err, bad.want)
			}
		}
		if n := effects(t, db, "bad"); n != 0 {
			t.Errorf("%d effects of writers without a proof", n)
		}
		r, err = g.write(t.Context(), good, "r", "next", "w") // the high-water is where it was
		wantVerdict(t, r, err, lastword.Applied, 2)
	})
}

// Whatever the zone of a session is, nothing is decided by it, and what a receipt shows
// to people is UTC.
func TestTimeZonesOfSessionsChangeNothing(t *testing.T) { // KF-09
	for _, zone := range []string{"Pacific/Honolulu", "Europe/Amsterdam"} {
		t.Setenv("TZ", zone)
		for _, c := range clients {
			t.Run(c.name+" "+zone, func(t *testing.T) {
				dsn := database(t)
				db, s := openDB(t, dsn), newSeal(t)
				mustExec(t, db, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET TimeZone = ''`+zone+`''', current_database()); END $$`)
				mustExec(t, db, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET DateStyle = ''SQL, DMY''', current_database()); END $$`)
				g := c.guard(t, dsn, s, 1)
				h := s.holder("r", "a", 1)
				written, err := g.write(t.Context(), h, "r", "op", "v")
				wantVerdict(t, written, err, lastword.Applied, 1)
				read, found, err := g.lookup(t.Context(), "r", "op")
				if err != nil || !found || !read.AppliedAt.Equal(written.AppliedAt) || read.AppliedAt.Location().String() != "UTC" {
					t.Errorf("read back %v, %v, want %v", read.AppliedAt, err, written.AppliedAt)
				}
				now := written.AppliedAt
				if n, err := g.prune(t.Context(), fence.Key{Domain: domain, Resource: "r"}, fence.Retention{Before: now, At: now}); err != nil || n != 0 {
					t.Errorf("%d receipts of this moment were pruned, %v", n, err)
				}
			})
		}
	}
}
