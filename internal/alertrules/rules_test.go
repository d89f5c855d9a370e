package alertrules_test

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// rules is the rule file, as Prometheus itself reads it.
func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	content, err := os.ReadFile("../../docs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(content, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if len(errs) > 0 {
		t.FailNow()
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// trouble is a history, a sample a minute, in which these alerts fire and no other.
var trouble = []struct {
	name, history string
	fire          []string
}{
	{
		"all is well", `
			lastword_fence_oldest_unsettled_age_seconds{instance="a"} 0x60
			lastword_fence_calls_total{outcome="APPLIED",place="p"} 0+100x60
			lastword_fence_calls_total{outcome="STALE_OWNER",place="p"} 7x60
			lastword_authority_stopped 0x60
			lastword_authority_witness_missing 0x60
			lastword_authority_epoch 917503x60
			lastword_authority_highest_counter 7516192767x60
			lastword_authority_witness_failures_total 3x60
			lastword_authority_oldest_waiter_age_seconds 5x60
			lastword_client_leases_ended_total{cause="released"} 0+50x60
			lastword_client_leases_ended_total{cause="expired"} 2x60
			lastword_authority_commit_duration_seconds_bucket{code="OK",le="0.005"} 0+100x60
			lastword_authority_commit_duration_seconds_bucket{code="OK",le="0.25"} 0+100x60
			lastword_authority_commit_duration_seconds_bucket{code="OK",le="+Inf"} 0+100x60
			lastword_authority_commit_duration_seconds_count{code="OK"} 0+100x60
			lastword_authority_reports_dropped_total 0x60
			lastword_client_reports_dropped_total 0x60`, nil,
	},
	{"R24: unknown for 6 minutes", `lastword_fence_oldest_unsettled_age_seconds 0x53 0+60x7`, []string{"LastwordOutcomeUnsettled"}},
	{
		"R24: unknown for 16 minutes", `lastword_fence_oldest_unsettled_age_seconds 0x43 0+60x16`,
		[]string{"LastwordOutcomeUnsettled", "LastwordOutcomeUnsettledTooLong"},
	},
	{"a receipt that was pruned", `lastword_fence_calls_total{outcome="RECEIPT_EXPIRED"} 0x55 1x5`, []string{"LastwordReceiptExpired"}},
	{"a receipt that was pruned, the first call of all", `lastword_fence_calls_total{outcome="RECEIPT_EXPIRED"} _x55 1x5`, []string{"LastwordReceiptExpired"}},
	{"a record that is frozen", `lastword_fence_calls_total{outcome="FENCE_REGRESSION"} 0x55 1x5`, []string{"LastwordFenceRegression"}},
	{"a record that is frozen, at the first call", `lastword_fence_calls_total{outcome="FENCE_REGRESSION"} _x55 1x5`, []string{"LastwordFenceRegression"}},
	{"an authority that stopped", `lastword_authority_stopped 0x58 1x2`, []string{"LastwordAuthorityStopped"}},
	{"T21: few epochs are left", `lastword_authority_epoch 917504x60`, []string{"LastwordEpochsNearlyUsed"}},
	{"T21: few fences are left", `lastword_authority_highest_counter 7516192767x58 7516192768x2`, []string{"LastwordCounterNearlyUsed"}},
	{"no witness", `lastword_authority_witness_missing 0x58 1x2`, []string{"LastwordWitnessTrouble"}},
	{"a witness that fails", `lastword_authority_witness_failures_total 0x57 0+5x3`, []string{"LastwordWitnessTrouble"}},
	{"somebody starves", `lastword_authority_oldest_waiter_age_seconds 0x48 0+60x12`, []string{"LastwordWaiterStarves"}},
	{"a holder that lost its lease", `lastword_client_leases_ended_total{cause="unknown_too_long"} 0x55 1x5`, []string{"LastwordLeasesLost"}},
	{"a holder that held long enough", `lastword_client_leases_ended_total{cause="max_hold"} 0x55 1x5`, nil},
	{"a stale write", `lastword_fence_calls_total{outcome="STALE_OWNER",place="p"} 0x55 1x5`, []string{"LastwordStaleWrites"}},
	{"a stale write, the first", `lastword_fence_calls_total{outcome="STALE_OWNER",place="p"} _x55 1x5`, []string{"LastwordStaleWrites"}},
	{"a stale write of long ago", `lastword_fence_calls_total{outcome="STALE_OWNER",place="p"} _x5 1x55`, nil},
	{
		"a slow disk", `
			lastword_authority_commit_duration_seconds_bucket{code="OK",le="0.25"} 0+90x60
			lastword_authority_commit_duration_seconds_bucket{code="OK",le="0.5"} 0+100x60
			lastword_authority_commit_duration_seconds_bucket{code="OK",le="+Inf"} 0+100x60`, []string{"LastwordCommitsSlow"},
	},
	{"commits without an answer", `lastword_authority_commit_duration_seconds_count{code="UNKNOWN"} 0x57 0+1x3`, []string{"LastwordCommitsWithoutAnswer"}},
	{"a commit without an answer, the first", `lastword_authority_commit_duration_seconds_count{code="UNKNOWN"} _x57 1x3`, []string{"LastwordCommitsWithoutAnswer"}},
	{"an observer that is stuck", `lastword_authority_reports_dropped_total 0x55 9x5`, []string{"LastwordMetricsIncomplete"}},
	{"an observer of clients that is stuck", `lastword_client_reports_dropped_total 0x55 9x5`, []string{"LastwordMetricsIncomplete"}},
}

// TestRulesFireWhenTheyShould, each at least once, and not otherwise. How long a
// condition has to last (for) is not part of it.
func TestRulesFireWhenTheyShould(t *testing.T) {
	all := rules(t)
	fired := map[string]bool{}
	for _, c := range trouble {
		t.Run(c.name, func(t *testing.T) {
			storage := promqltest.LoadedStorage(t, "load 1m\n"+strings.ReplaceAll(strings.TrimSpace(c.history), "\t", " "))
			defer storage.Close()
			engine := promqltest.NewTestEngine(t, false, 0, 1_000_000)
			var fire []string
			for _, r := range all {
				q, err := engine.NewInstantQuery(context.Background(), storage, nil, r.Expr, time.Unix(60*60, 0))
				if err != nil {
					t.Fatalf("%s: %v", r.Alert, err)
				}
				defer q.Close()
				result := q.Exec(context.Background())
				if result.Err != nil {
					t.Fatalf("%s: %v", r.Alert, result.Err)
				}
				vector, err := result.Vector()
				if err != nil {
					t.Fatalf("%s: %v", r.Alert, err)
				}
				if len(vector) > 0 {
					fire = append(fire, r.Alert)
					fired[r.Alert] = true
				}
			}
			if !slices.Equal(fire, c.fire) {
				t.Errorf("fired: %q, want %q", fire, c.fire)
			}
		})
	}
	for _, r := range all {
		if !fired[r.Alert] {
			t.Errorf("no history in which %s fires", r.Alert)
		}
	}
}
