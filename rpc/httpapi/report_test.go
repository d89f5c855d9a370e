package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc/httpapi"
)

// reporting is a fake that takes reports and gives proofs.
type reporting struct{ *fake }

func (reporting) Report(_ context.Context, r lastword.Report) (lastword.ReportAnswer, error) {
	if r.Grant != "e30.e30.AA" || r.Reporter != "db-1" {
		return lastword.ReportAnswer{}, &lastword.Error{Code: lastword.CodeUnverified, Message: "the grant is not believed"}
	}
	return lastword.ReportAnswer{Counted: true, Fence: lastword.MaxToken}, nil
}

func (reporting) Resume(_ context.Context, _ lastword.Resource, reported lastword.Token, _, _ string) (lastword.Token, error) {
	return reported + 1, nil
}

func (reporting) Proof(_ context.Context, q lastword.StatusQuery, life time.Duration) (lastword.Status, string, error) {
	return lastword.Status{Resource: q.Resource, State: lastword.StateHeld, Asked: lastword.StateHeld}, "proof of " + life.String(), nil
}

// R10, R12: reports, resumes and status proofs over HTTP.
func TestReportsResumesAndProofsTravel(t *testing.T) {
	d := open(t, reporting{granting()}, httpapi.Config{})
	for _, c := range []struct{ path, body, want string }{
		{"/v1/report", `{"resource":"doc/a","grant":"e30.e30.AA","reporter":"db-1"}`, `"counted":true`},
		{"/v1/report", `{"resource":"doc/a","grant":"e30.e30.AA","reporter":"db-1"}`, `"reported":"9007199254740991"`},
		{"/v1/resume", `{"resource":"doc/a","reported":"41","operator":"anna","reason":"seen"}`, `"next_fence":"42"`},
	} {
		if a := d.post(c.path, c.body); a.status != http.StatusOK || !strings.Contains(a.text, c.want) {
			t.Errorf("%s %s: %s, want %s", c.path, c.body, a, c.want)
		}
	}
	if a := d.get("/v1/status?resource=doc/a&lease_id=l&proof_life=9s"); a.status != http.StatusOK || !strings.Contains(a.text, `"status_proof":"proof of 9s"`) {
		t.Errorf("a status with a proof: %s", a)
	}
	wantProblem(t, d.post("/v1/report", `{"resource":"doc/a","grant":"e30.e30.AB","reporter":"db-1"}`), http.StatusForbidden, "UNVERIFIED", "not_done")
	wantProblem(t, d.post("/v1/report", `{"resource":"doc/a","reporter":"db-1"}`), http.StatusBadRequest, "INVALID", "not_done")
	wantProblem(t, d.post("/v1/resume", `{"resource":"doc/a","reported":"0","operator":"anna","reason":"seen"}`), http.StatusBadRequest, "INVALID", "not_done")
	wantProblem(t, d.get("/v1/status?resource=doc/a&proof_life=9s"), http.StatusBadRequest, "INVALID", "not_done")
}
