package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc/httpapi"
)

// statusTable is the table of reasons in docs/http.md.
func statusTable(t *testing.T) map[lastword.Code]int {
	t.Helper()
	b, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	table := map[lastword.Code]int{}
	for _, m := range regexp.MustCompile("(?m)^\\| <a id=\"([a-z-]+)\"></a>`([A-Z_]+)` \\| ([0-9]{3}) \\|").FindAllStringSubmatch(string(b), -1) {
		var status int
		if _, err := fmt.Sscan(m[3], &status); err != nil {
			t.Fatal(err)
		}
		table[lastword.Code(m[2])] = status
	}
	return table
}

var reasons = []lastword.Code{
	lastword.CodeInvalid, lastword.CodeHeld, lastword.CodeNotHolder, lastword.CodeRequestConflict, lastword.CodeTenureEnded,
	lastword.CodeCanceled, lastword.CodeExhausted, lastword.CodeQuota, lastword.CodeUnavailable, lastword.CodeUnknown,
	lastword.CodeInternal, lastword.CodeConflict, lastword.CodeStaleOwner, lastword.CodeReceiptExpired, lastword.CodeOutOfOrder,
	lastword.CodeRootMismatch, lastword.CodeFenceRegression, lastword.CodeFenceJump, lastword.CodeUnverified,
	lastword.CodeStatusUnavailable, lastword.CodeFenceRequired, lastword.CodeMutationUnknown,
}

func TestEveryReasonHasTheStatusThatThePageSays(t *testing.T) {
	t.Parallel()
	var says error
	f := granting()
	f.release = func(context.Context, lastword.TenureRef) error { return says }
	d := open(t, f, httpapi.Config{})
	table := statusTable(t)
	if len(table) != len(reasons) {
		t.Errorf("the page has %d reasons, want %d", len(table), len(reasons))
	}
	for _, code := range reasons {
		says = &lastword.Error{Code: code, Message: "it was so", Hint: "do this"}
		a := d.post("/v1/release", renewBody)
		outcome := "not_done"
		if errors.Is(says, lastword.ErrUnknownOutcome) {
			outcome = "unknown"
		}
		wantProblem(t, a, table[code], string(code), outcome)
		if a.object["detail"] != "it was so" || a.object["hint"] != "do this" || a.object["op"] != "release" || a.object["resource"] != "doc/a" {
			t.Errorf("%s: %s", code, a.text)
		}
		retry := table[code] == http.StatusServiceUnavailable || table[code] == http.StatusTooManyRequests
		if (a.header.Get("Retry-After") != "") != retry {
			t.Errorf("%s: Retry-After %q", code, a.header.Get("Retry-After"))
		}
	}
}

func TestARefusalSaysWhoHoldsAndHowATenureEnded(t *testing.T) {
	t.Parallel()
	f := granting()
	f.acquire = func(_ context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
		if r.RequestID == "r1" {
			return lastword.Tenure{}, &lastword.Error{Code: lastword.CodeHeld, Holder: "w2", Fence: lastword.MaxToken, Remaining: 1500 * time.Millisecond, Waiters: 3}
		}
		return lastword.Tenure{}, &lastword.Error{Code: lastword.CodeTenureEnded, Ended: lastword.Ending{
			State: lastword.StateReleased, Fence: 7, LeaseID: "l", Owner: "w1", Completed: true, Result: []byte("done"),
		}}
	}
	d := open(t, f, httpapi.Config{})
	a := d.post("/v1/acquire", acquireBody)
	wantProblem(t, a, http.StatusConflict, "HELD", "not_done")
	if o := a.object; o["holder"] != "w2" || o["fence"] != "9007199254740991" || o["remaining"] != "1.500s" || o["waiters"] != 3.0 {
		t.Errorf("HELD: %s", a.text)
	}
	a = d.post("/v1/acquire", `{"resource":"doc/a","owner":"w1","request_id":"r2","ttl":"30s"}`)
	wantProblem(t, a, http.StatusGone, "TENURE_ENDED", "not_done")
	ended, _ := a.object["ended"].(map[string]any)
	if ended["fence"] != "7" || ended["result"] != "ZG9uZQ==" || ended["completed"] != true {
		t.Errorf("TENURE_ENDED: %s", a.text)
	}
}

// "The authority said so" and "nobody heard" are never one answer (P5).
func TestWhatTheAuthorityDidNotSayIsUnknownIfItCouldHaveBeenDone(t *testing.T) {
	t.Parallel()
	f := granting()
	f.release = func(context.Context, lastword.TenureRef) error { return errors.New("disk /secret is gone") }
	f.renew = func(context.Context, lastword.TenureRef) (lastword.Tenure, error) { panic("broken") }
	f.status = func(context.Context, lastword.StatusQuery) (lastword.Status, error) {
		return lastword.Status{}, errors.New("disk /secret is gone")
	}
	d := open(t, f, httpapi.Config{})
	for path, body := range map[string]string{"/v1/release": renewBody, "/v1/renew": renewBody} {
		wantProblem(t, d.post(path, body), http.StatusServiceUnavailable, "UNKNOWN", "unknown")
	}
	a := d.get("/v1/status?resource=doc/a")
	wantProblem(t, a, http.StatusInternalServerError, "INTERNAL", "not_done")
	if a = d.post("/v1/release", renewBody); regexp.MustCompile("secret|goroutine").MatchString(a.text) {
		t.Errorf("it tells what it must not: %s", a.text)
	}
}
