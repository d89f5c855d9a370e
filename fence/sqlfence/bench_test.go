package sqlfence_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lastword/lastword/fence/fencetest"
	"github.com/lastword/lastword/fence/sqlfence"
)

// BenchmarkFencedWrite is W5 on SQLite: one business UPDATE in a durable transaction,
// bare and through the fence, in turns; it reports the ratio of the medians.
func BenchmarkFencedWrite(b *testing.B) {
	for name, options := range map[string]string{"deferred": durable, "immediate": "_txlock=immediate&" + durable} {
		b.Run(name, func(b *testing.B) { benchmarkFencedWrite(b, options) })
	}
}

func benchmarkFencedWrite(b *testing.B, options string) {
	db := openDB(b, b.TempDir()+"/app.db", options)
	mustExec(b, db, business+`; INSERT INTO doc VALUES ('r', '')`)
	if err := sqlfence.Init(b.Context(), db); err != nil {
		b.Fatal(err)
	}
	s := newSeal(b)
	f := guard(b, db, s.config())
	h := s.holder("r", "a", 1)
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour) // as a lease's context ends
	defer cancel()
	changes := 0
	update := func(ctx context.Context, tx *sql.Tx) error {
		changes++ // SQLite writes nothing, and syncs nothing, for a row that stays as it is
		_, err := tx.ExecContext(ctx, `UPDATE doc SET value = ? WHERE resource = 'r'`, fmt.Sprintf("some text of a business, %d", changes))
		return err
	}
	bare := func(int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := update(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	}
	fenced := func(n int) error {
		_, err := f.Apply(ctx, h, fmt.Sprintf("operation-%d", n), []byte("some text of a business"), update)
		return err
	}
	var times [2][]time.Duration
	for n := 0; b.Loop(); n++ {
		for i, run := range []func(int) error{bare, fenced} {
			start := time.Now()
			if err := run(n); err != nil {
				b.Fatal(err)
			}
			times[i] = append(times[i], time.Since(start))
		}
	}
	for i := range times {
		slices.Sort(times[i])
	}
	at := func(i, percent int) float64 { return float64(times[i][len(times[i])*percent/100].Microseconds()) }
	b.ReportMetric(at(0, 50), "bare-p50-µs")
	b.ReportMetric(at(1, 50), "fenced-p50-µs")
	b.ReportMetric(at(1, 50)/at(0, 50), "ratio-p50")
	b.ReportMetric(at(1, 99)/at(0, 99), "ratio-p99")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkSQLite(b *testing.B) { fencetest.RunBenchmarks(b, harness(durable)) }
