package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
)

func TestALateOwnerDoesNotOverwriteTheNewOnesWrite(t *testing.T) { // P1: 41, 42, 41
	db, _ := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	a, b := s.holder("report", "a", 41), s.holder("report", "b", 42)
	mustPut(t, f, a, "report", "a1", "from a")
	mustPut(t, f, b, "report", "b1", "from b")

	_, err := put(t.Context(), f, a, "report", "a2", "late")
	var e *lastword.Error
	if !errors.Is(err, lastword.ErrStale) || !errors.As(err, &e) || e.Fence != 42 || e.Resource != "report" {
		t.Errorf("the late write: %v", err)
	}
	if got := value(t, db, "report"); got != "from b" {
		t.Errorf("the value is %q", got)
	}
	in, err := f.Inspect(t.Context(), "report")
	if err != nil || in.Record.Fence != 42 || in.Refusals[lastword.StaleOwner] != 1 {
		t.Errorf("inspect: %+v %v", in, err)
	}
	verify(t, db)
}

func TestWhatWasStoredComesBackExactly(t *testing.T) {
	db, path := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	before := time.Now().Add(-time.Second)
	want := mustPut(t, f, s.holder("r/ü", "öwner", 7), "r/ü", "op 1", "v")
	got, found, err := f.Lookup(t.Context(), "r/ü", "op 1")
	if err != nil || !found || got.Verdict != lastword.Replayed {
		t.Fatalf("lookup: %v %v %v", got, found, err)
	}
	if !got.AppliedAt.Equal(want.AppliedAt) || got.AppliedAt.Before(before) {
		t.Errorf("applied at %v, want %v", got.AppliedAt, want.AppliedAt)
	}
	want.Verdict, want.AppliedAt, got.AppliedAt = lastword.Replayed, time.Time{}, time.Time{}
	if got.Payload != want.Payload || got.Fence != 7 || got.Seq != 1 || got.Owner != "öwner" || got.LeaseID != want.LeaseID || got.GrantDigest != want.GrantDigest {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if name := f.Place().Name(); !strings.HasPrefix(name, "sqlite:/") || !strings.HasSuffix(path, strings.TrimPrefix(name, "sqlite:")) {
		t.Errorf("the place is called %q", name)
	}
}

func TestAResultOfTheEffectIsKeptInTheReceipt(t *testing.T) {
	db, _ := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	call := fence.Call{Mutation: lastword.Mutation{Grant: s.grant("r", "a", 1), Operation: "op"}, Content: []byte("v")}
	for _, want := range []lastword.Verdict{lastword.Applied, lastword.Replayed} {
		r, err := fence.Apply(t.Context(), f.Gate(), f.Place(), call, func(ctx context.Context, tx *sqlfence.Tx) ([]byte, error) {
			return []byte("number 17"), write(ctx, tx.SQL(), "r", "op", "v")
		})
		if err != nil || r.Verdict != want || string(r.Result) != "number 17" {
			t.Errorf("%v: %+v %v", want, r, err)
		}
	}
}

func TestAFailedEffectLeavesNothingBehind(t *testing.T) { // KF-32 (6)
	db, _ := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	h := s.holder("r", "a", 1)
	broken := errors.New("no stock")
	_, err := f.Apply(t.Context(), h, "op", []byte("v"), func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(write(ctx, tx, "r", "op", "v"), broken)
	})
	if !errors.Is(err, broken) || errors.Is(err, lastword.ErrUnknownOutcome) {
		t.Errorf("apply: %v", err)
	}
	for _, table := range []string{"doc", "effect", "lastword_fence", "lastword_receipt"} {
		if n := count(t, db, "SELECT count(*) FROM "+table); n != 0 {
			t.Errorf("%s has %d rows", table, n)
		}
	}
	mustPut(t, f, h, "r", "op", "v") // executed once, by the retry
	verify(t, db)
}

func TestAPanicInTheEffectRollsBackAndGivesTheConnectionBack(t *testing.T) {
	db, _ := database(t)
	db.SetMaxOpenConns(1)
	s := newSeal(t)
	f := guard(t, db, s.config())
	h := s.holder("r", "a", 1)
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic did not come through")
			}
		}()
		_, _ = f.Apply(t.Context(), h, "op", []byte("v"), func(ctx context.Context, tx *sql.Tx) error {
			if err := write(ctx, tx, "r", "op", "v"); err != nil {
				t.Error(err)
			}
			panic("boom")
		})
	}()
	if n := count(t, db, `SELECT (SELECT count(*) FROM effect) + (SELECT count(*) FROM lastword_fence)`); n != 0 {
		t.Errorf("%d rows stayed", n)
	}
	mustPut(t, f, h, "r", "op", "v")
}

func TestOneOperationIdHasOneEffectOverContentsPlacesAndTenures(t *testing.T) { // KF-32, P4
	db, _ := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	old, young := s.holder("r1", "a", 5), s.holder("r1", "b", 6)
	first := mustPut(t, f, old, "r1", "K", `{"amount":1.0}`)

	r, err := put(t.Context(), f, old, "r1", "K", `{"amount":1.0}`)
	if err != nil || r.Verdict != lastword.Replayed || r.Seq != first.Seq || r.Fence != 5 {
		t.Errorf("the same again: %+v %v", r, err)
	}
	for _, other := range []string{`{"amount":2.0}`, `{"amount":1}`, `{"amount": 1.0}`} {
		if _, err := put(t.Context(), f, old, "r1", "K", other); !errors.Is(err, lastword.ErrConflict) {
			t.Errorf("%s: %v", other, err)
		}
	}
	mustPut(t, f, s.holder("r2", "a", 1), "r2", "K", "elsewhere") // a scope of its own

	r, err = put(t.Context(), f, young, "r1", "K", `{"amount":1.0}`)
	if err != nil || r.Verdict != lastword.Replayed || r.Fence != 5 {
		t.Errorf("replay by the next tenure: %+v %v", r, err)
	}
	if in, err := f.Inspect(t.Context(), "r1"); err != nil || in.Record.Fence != 5 {
		t.Errorf("the replay raised the fence: %+v %v", in.Record, err)
	}
	if _, err := put(t.Context(), f, young, "r1", "K", "other"); !errors.Is(err, lastword.ErrConflict) {
		t.Errorf("other content by the next tenure: %v", err)
	}
	mustPut(t, f, young, "r1", "K2", "next") // seq 1 of the new tenure: the replay took none
	in, err := f.Inspect(t.Context(), "r1")
	if err != nil || in.Refusals[lastword.Conflict] != 4 || len(in.Quarantine) != 3 {
		t.Fatalf("evidence: %+v %v", in, err)
	}
	// Of a: the first and the last of three; of b: one.
	for i, want := range []string{`{"amount":2.0}`, `{"amount": 1.0}`, "other"} {
		q := in.Quarantine[i].Quarantine
		if string(q.Content) != want || q.Operation != "K" || q.Payload != lastword.DigestOf([]byte(want)) {
			t.Errorf("quarantine %d: %s %+v", i, q.Content, q)
		}
	}
	if n := count(t, db, `SELECT times FROM lastword_quarantine WHERE claimant = 'a' AND place = 'first'`); n != 3 {
		t.Errorf("counted %d of three", n)
	}
	verify(t, db)
}

func TestTwoEqualRequestsAtOnceHaveOneEffect(t *testing.T) { // KF-32 (5)
	db, _ := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	inside, goOn := make(chan struct{}), make(chan struct{})
	verdicts := make(chan lastword.Verdict, 2)
	apply := func(hold bool) {
		m := lastword.Mutation{Grant: s.grant("r", "a", 1), Operation: "op", Payload: lastword.DigestOf([]byte("v"))}
		r, err := f.ApplyMutation(t.Context(), "r", m, func(ctx context.Context, tx *sql.Tx) error {
			if hold {
				close(inside)
				<-goOn
			}
			return write(ctx, tx, "r", "op", "v")
		})
		if err != nil {
			t.Error(err)
		}
		verdicts <- r.Verdict
	}
	go apply(true)
	<-inside
	go apply(false)
	close(goOn)
	if a, b := <-verdicts, <-verdicts; (a == lastword.Applied) == (b == lastword.Applied) {
		t.Errorf("%s and %s", a, b)
	}
	verify(t, db)
}

func TestNamesThatDifferInOneByteAreDifferentNames(t *testing.T) { // KF-28
	db, _ := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	names := []string{"Report", "report", "report ", "rep\u00f3rt", "repo\u0301rt", "straße", "strasse", "📄"}
	for i, resource := range names {
		h := s.holder(lastword.Resource(resource), names[i], lastword.Token(i+1))
		for _, operation := range names {
			mustPut(t, f, h, lastword.Resource(resource), operation, resource+"|"+operation)
		}
		r, err := put(t.Context(), f, h, lastword.Resource(resource), names[0], resource+"|"+names[0])
		if err != nil || r.Verdict != lastword.Replayed || r.Seq != 1 || r.Owner != resource {
			t.Errorf("retry on %q: %+v %v", resource, r, err)
		}
	}
	for i, resource := range names {
		in, err := f.Inspect(t.Context(), lastword.Resource(resource))
		if err != nil || in.Record.Fence != lastword.Token(i+1) || in.Record.LastSeq != uint64(len(names)) {
			t.Errorf("%q: %+v %v", resource, in.Record, err)
		}
		if got := value(t, db, lastword.Resource(resource)); got != resource+"|"+names[len(names)-1] {
			t.Errorf("%q has the value %q", resource, got)
		}
	}
	verify(t, db)
}

func TestWithoutACompleteProofNothingMoves(t *testing.T) { // KF-24, P3
	db, _ := database(t)
	s, stranger := newSeal(t), newSeal(t)
	f := guard(t, db, s.config())
	mustPut(t, f, s.holder("r", "a", 5), "r", "op", "v")
	for name, tc := range map[string]struct {
		grant string
		want  error
	}{
		"no grant":                  {"", lastword.ErrFenceRequired},
		"rubbish":                   {"42", lastword.ErrUnverified},
		"a number":                  {"9223372036854775807", lastword.ErrUnverified},
		"a stranger's seal":         {stranger.grant("r", "a", 1<<40), lastword.ErrUnverified},
		"another resource's grant":  {s.grant("other", "a", 9), lastword.ErrUnverified},
		"a grant without signature": {strings.TrimRight(s.grant("r", "a", 9), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"), lastword.ErrUnverified},
	} {
		m := lastword.Mutation{Grant: tc.grant, Operation: "new", Payload: lastword.DigestOf([]byte("x"))}
		ran := false
		_, err := f.ApplyMutation(t.Context(), "r", m, func(context.Context, *sql.Tx) error { ran = true; return nil })
		if !errors.Is(err, tc.want) || ran {
			t.Errorf("%s: apply: %v, ran %v", name, err, ran)
		}
		if _, err := f.AdvanceMutation(t.Context(), "r", m); !errors.Is(err, tc.want) {
			t.Errorf("%s: advance: %v", name, err)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WithinMutation(t.Context(), tx, "r", m); !errors.Is(err, tc.want) {
			t.Errorf("%s: within: %v", name, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	in, err := f.Inspect(t.Context(), "r")
	if err != nil || in.Record.Fence != 5 || in.Record.LastSeq != 1 || value(t, db, "r") != "v" {
		t.Errorf("something moved: %+v %v", in.Record, err)
	}
	verify(t, db)
}

func TestARegisteredFenceShutsTheOldOwnerOut(t *testing.T) { // R16a
	db, _ := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	old, young := s.holder("r", "a", 5), s.holder("r", "b", 6)
	mustPut(t, f, old, "r", "a1", "v")
	rec, err := f.Advance(t.Context(), "r", young)
	if err != nil || rec.Fence != 6 || rec.LastSeq != 0 {
		t.Fatalf("advance: %+v %v", rec, err)
	}
	if _, err := put(t.Context(), f, old, "r", "a2", "late"); !errors.Is(err, lastword.ErrStale) {
		t.Errorf("the old owner: %v", err)
	}
	if _, err := f.Advance(t.Context(), "r", old); !errors.Is(err, lastword.ErrStale) {
		t.Errorf("the old owner registers: %v", err)
	}
	mustPut(t, f, young, "r", "b1", "w")
	verify(t, db)
}

func TestTwoLeasesWithOneFenceFreezeTheRecord(t *testing.T) { // FENCE_REGRESSION, R16b
	db, _ := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	a, b := s.holder("r", "a", 5), s.holder("r", "b", 5)
	mustPut(t, f, a, "r", "a1", "v")
	if _, err := put(t.Context(), f, b, "r", "b1", "w"); !errors.Is(err, lastword.ErrRegression) {
		t.Fatalf("the twin: %v", err)
	}
	in, err := f.Inspect(t.Context(), "r")
	if err != nil || !in.Record.Frozen || in.Record.Fence != 5 || in.Refusals[lastword.FenceRegression] != 1 {
		t.Errorf("the record: %+v %v", in, err)
	}
	if _, err := put(t.Context(), f, a, "r", "a2", "x"); !errors.Is(err, lastword.ErrRegression) {
		t.Errorf("a frozen record admitted: %v", err)
	}
	verify(t, db)
}

func TestLookingMovesNothing(t *testing.T) { // R21
	db, path := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	mustPut(t, f, s.holder("r", "a", 5), "r", "op", "v")
	looking := openDB(t, path, "mode=ro&"+durable)
	p, err := sqlfence.OpenPlace(t.Context(), looking, "")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	before := count(t, looking, "PRAGMA data_version")
	key := fence.Key{Domain: domain, Resource: "r"}
	if _, found, err := p.Find(t.Context(), key, "op"); err != nil || !found {
		t.Errorf("find: %v %v", found, err)
	}
	if _, found, err := p.Find(t.Context(), key, "other"); err != nil || found {
		t.Errorf("find another: %v %v", found, err)
	}
	if in, err := p.Inspect(t.Context(), key); err != nil || in.Record.Fence != 5 {
		t.Errorf("inspect: %+v %v", in, err)
	}
	if in, err := p.Inspect(t.Context(), fence.Key{Domain: domain, Resource: "none"}); err != nil || in.Record.Exists {
		t.Errorf("inspect nothing: %+v %v", in, err)
	}
	if after := count(t, looking, "PRAGMA data_version"); after != before {
		t.Error("something was written")
	}
}

func TestTheTablesRefuseALoweredFenceFromAnybody(t *testing.T) { // P1, R19
	db, _ := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	mustPut(t, f, s.holder("r", "a", 5), "r", "op", "v")
	for _, statement := range []string{
		`UPDATE lastword_fence SET fence = 4`, `DELETE FROM lastword_fence`, `UPDATE lastword_fence SET resource = 'x'`,
		`INSERT INTO lastword_fence SELECT * FROM lastword_fence`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err == nil {
			t.Errorf("went through: %s", statement)
		}
	}
}

func TestANumberThatDoesNotFitIsRefused(t *testing.T) {
	db, _ := database(t)
	f := guard(t, db, newSeal(t).config())
	key := fence.Key{Domain: domain, Resource: "r"}
	for _, tc := range []struct {
		n  uint64
		ok bool
	}{{math.MaxInt64, true}, {math.MaxInt64 + 1, false}} {
		var back fence.Record
		next := fence.Record{Exists: true, Fence: 1, LeaseID: "l", LastSeq: tc.n, Policy: fence.Latest, Status: fence.Query, Step: 3, BundleSequence: 4, MinEpoch: 5, MinPolicyGeneration: 6, Frozen: true}
		err := f.Place().Transact(t.Context(), key, func(ctx context.Context, tx *sqlfence.Tx) error {
			if err := tx.Store(ctx, key, fence.Record{}, next, nil); err != nil {
				return err
			}
			var err error
			back, _, err = tx.Load(ctx, key, "")
			return errors.Join(err, errors.New("enough"))
		})
		if tc.ok && back != next {
			t.Errorf("got %+v, want %+v", back, next)
		}
		if !tc.ok && !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%d: %v", tc.n, err)
		}
	}
}
