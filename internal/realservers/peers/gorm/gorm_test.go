package gorm_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

// Doc is a row.
type Doc struct {
	ID   string `gorm:"primaryKey"`
	Body string
}

func TestGORMIsRefusedByAProtectedTable(t *testing.T) { // R17
	for name, open := range map[string]func(t *testing.T) gorm.Dialector{
		"sqlite": func(t *testing.T) gorm.Dialector {
			return sqlite.Open("file:" + filepath.Join(t.TempDir(), "app.db") + "?_pragma=busy_timeout(2000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=foreign_keys(1)")
		},
		"postgresql": func(t *testing.T) gorm.Dialector { return postgres.Open(postgrestest.New(t, "gorm", nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			db, err := gorm.Open(open(t), &gorm.Config{Logger: logger.Discard})
			if err != nil {
				t.Fatal(err)
			}
			pool, err := db.DB()
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			if err := db.AutoMigrate(&Doc{}); err != nil {
				t.Fatal(err)
			}
			if err := db.Create(&[]Doc{{"a", "old"}, {"b", "old"}}).Error; err != nil {
				t.Fatal(err)
			}
			f, held := guarded(t, pool)
			bypass(t, db)
			through(t, db, f, held)
			bypass(t, db)
			if err := db.AutoMigrate(&Doc{}); err != nil { // which has nothing to do
				t.Error(err)
			}
		})
	}
}

func guarded(t *testing.T, pool *sql.DB) (*sqlfence.Fence, string) {
	t.Helper()
	key, err := grant.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := grant.NewSigner("test", key)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := signer.Bundle(grant.BundleInfo{Sequence: 1})
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := grant.NewVerifier("test", grant.StaticBundle(bundle), grant.VerifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	held, _, err := signer.Sign("", grant.Claims{
		Domain: "test", Resource: "doc/a", Owner: "w", RequestID: "r", LeaseID: "lease", Fence: 1,
		Class: lastword.ClassWrite, TTL: time.Minute, IssuedAt: time.Unix(1_800_000_000, 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlfence.Init(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	f, err := sqlfence.New(t.Context(), pool, sqlfence.Config{Config: fence.Config{Domain: "test", Verifier: verifier, Mode: fence.FenceOnly}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	act := fence.Act{Operator: "anna", Reason: "tables are closed", At: time.Unix(1_800_000_000, 0)}
	if _, err := f.Place().Protect(t.Context(), sqlfence.Protection{Domain: "test", Table: "docs", Template: "doc/{id}"}, act); err != nil {
		t.Fatal(err)
	}
	return f, held
}

// bypass is what an ORM does all day.
func bypass(t *testing.T, db *gorm.DB) {
	t.Helper()
	for name, err := range map[string]error{
		"Create":      db.Create(&Doc{"c", "x"}).Error,
		"Save":        db.Save(&Doc{"a", "x"}).Error,
		"Updates":     db.Model(&Doc{ID: "a"}).Updates(Doc{Body: "x"}).Error,
		"Update all":  db.Model(&Doc{}).Where("1 = 1").Update("body", "x").Error,
		"Delete":      db.Delete(&Doc{ID: "a"}).Error,
		"upsert":      db.Clauses(clause.OnConflict{UpdateAll: true}).Create(&Doc{"a", "x"}).Error,
		"transaction": db.Transaction(func(tx *gorm.DB) error { return tx.Save(&Doc{"b", "x"}).Error }),
		"Exec":        db.Exec("UPDATE docs SET body = 'x'").Error,
	} {
		if err == nil || !strings.Contains(err.Error(), "FENCE_REQUIRED") {
			t.Errorf("%s: got %v, want FENCE_REQUIRED", name, err)
		}
	}
	var bodies []string
	if err := db.Model(&Doc{}).Where("body = 'x'").Pluck("body", &bodies).Error; err != nil || len(bodies) > 0 {
		t.Errorf("%d rows were changed, %v", len(bodies), err)
	}
}

// through is the same ORM inside the fence's transaction.
func through(t *testing.T, db *gorm.DB, f *sqlfence.Fence, held string) {
	t.Helper()
	write := func(operation string, do func(tx *gorm.DB) error) error {
		m := lastword.Mutation{Grant: held, Operation: operation, Payload: lastword.DigestOf([]byte(operation))}
		_, err := f.ApplyMutation(t.Context(), "doc/a", m, func(ctx context.Context, tx *sql.Tx) error {
			session := db.Session(&gorm.Session{SkipDefaultTransaction: true, Context: ctx})
			session.Statement.ConnPool = tx
			return do(session)
		})
		return err
	}
	if err := write("op-1", func(tx *gorm.DB) error { return tx.Save(&Doc{"a", "new"}).Error }); err != nil {
		t.Fatal(err)
	}
	if err := write("op-2", func(tx *gorm.DB) error { return tx.Save(&Doc{"b", "x"}).Error }); err == nil || !strings.Contains(err.Error(), "FENCE_REQUIRED") {
		t.Errorf("another resource's row: %v", err)
	}
	var doc Doc
	if err := db.First(&doc, "id = ?", "a").Error; err != nil || doc.Body != "new" {
		t.Errorf("got %+v, %v", doc, fmt.Sprint(err))
	}
}
