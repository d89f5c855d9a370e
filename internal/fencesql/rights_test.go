package fencesql_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/fencesql"
	"github.com/lastword/lastword/internal/postgrestest"
	"github.com/lastword/lastword/internal/realservers"
)

// What the documentation lists is enough, and what is missing of it is named at the start.
func TestTheLeastRightsAreEnoughAndAMissingOneIsNamed(t *testing.T) {
	dsn := database(t)
	db, s := openDB(t, dsn), newSeal(t)
	role := "app_" + postgrestest.Name(dsn)
	mustExec(t, db, `CREATE ROLE `+role+` LOGIN; GRANT SELECT, INSERT, UPDATE ON doc, effect TO `+role)
	asRole := strings.Replace(dsn, "postgres@", role+"@", 1)
	grants := fencesql.Grants(role)
	for _, grant := range grants {
		if strings.Contains(grant, "ON FUNCTION") { // which everybody may call, unless it was taken away
			continue
		}
		right := strings.Fields(grant)[1]
		object := strings.Fields(grant)[4]
		for _, c := range clients[:2] {
			_, done, err := c.open(t.Context(), asRole, s.config(), 2)
			if err == nil {
				done()
			}
			if !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(fmt.Sprint(err), right+" on the") || !strings.Contains(fmt.Sprint(err), object) {
				t.Errorf("%s: without %s: %v", c.name, grant, err)
			}
		}
		mustExec(t, db, grant)
	}
	for _, c := range clients {
		resource := lastword.Resource(c.name)
		g := c.guard(t, asRole, s, 2)
		h := s.holder(resource, "a", 1)
		for _, op := range []string{"one", "two"} {
			if _, err := g.write(t.Context(), h, resource, c.name+op, "v"); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if _, err := g.write(t.Context(), h, resource, c.name+"one", "w"); !errors.Is(err, lastword.ErrConflict) {
			t.Errorf("%s: the evidence of a refusal: %v", c.name, err)
		}
		if _, err := g.advance(t.Context(), resource, s.holder(resource, "b", 2)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	verify(t, db)
}

// X14: whatever the clock of the server does, and however often, no decision changes.
func TestTheClockOfTheServerDecidesNothing(t *testing.T) {
	const library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
	if _, err := os.Stat(library); err != nil {
		t.Fatal("libfaketime is not there: apt-get install faketime")
	}
	file, err := os.CreateTemp("", "lastword-clock-*") //nolint:usetesting // the server runs as another user
	if err != nil {
		t.Fatal(err)
	}
	offset := file.Name()
	t.Cleanup(func() { _ = file.Close(); _ = os.Remove(offset) })
	jump := func(by string) {
		if err := os.WriteFile(offset, []byte(by+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(offset, 0o644); err != nil {
		t.Fatal(err)
	}
	jump("+0")
	for name, value := range map[string]string{"LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": offset, "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"} {
		t.Setenv(name, value)
	}
	server, err := realservers.PostgreSQL(t.Context(), realservers.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	os.Unsetenv("LD_PRELOAD")
	db, s := openDB(t, server.DSN), newSeal(t)
	if err := prepare(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	felt := map[string]bool{}
	for _, c := range clients {
		g := c.guard(t, server.DSN, s, 2)
		resource := lastword.Resource(c.name)
		for i, by := range []string{"+0", "+3600", "-86400", "+86400", "-3600", "+0"} {
			jump(by)
			var now time.Time
			if err := db.QueryRowContext(t.Context(), `SELECT clock_timestamp()`).Scan(&now); err != nil {
				t.Fatal(err)
			}
			if off := time.Until(now).Abs(); off > 30*time.Minute {
				felt[by] = true
			}
			h, old := s.holder(resource, "a", lastword.Token(2*i+2)), s.holder(resource, "b", lastword.Token(2*i+1))
			op := fmt.Sprintf("%s-%d", c.name, i)
			if r, err := g.write(t.Context(), h, resource, op, "v"); err != nil || r.Verdict != lastword.Applied {
				t.Errorf("%s, %s: %+v %v", c.name, by, r, err)
			}
			if r, err := g.write(t.Context(), h, resource, op, "v"); err != nil || r.Verdict != lastword.Replayed {
				t.Errorf("%s, %s: again: %+v %v", c.name, by, r, err)
			}
			if _, err := g.write(t.Context(), old, resource, op+"-late", "v"); !errors.Is(err, lastword.ErrStale) {
				t.Errorf("%s, %s: an older owner: %v", c.name, by, err)
			}
		}
	}
	if len(felt) != 4 {
		t.Errorf("the server has felt %v", felt)
	}
	jump("+0")
	verify(t, db)
}
