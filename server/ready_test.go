package server_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/server"
)

// R10: while a restored store waits for what may be lost it is not ready, and page and
// refusal say why.
func TestARestoredServerIsNotReadyWhileItWaits(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir())
	s := start(t, cfg)
	if _, err := s.client.Acquire(t.Context(), request("doc/a", "r1")); err != nil {
		t.Fatal(err)
	}
	s.end(t)
	o := server.Operator{Store: cfg.Store, Name: "ann", Reason: "test"}
	if _, err := o.AdvanceEpoch(t.Context(), authority.AdvanceRequest{Restored: true, LongestTTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	s = start(t, cfg)
	const why = "the authority was restored or exchanged: nothing is granted"
	if p := s.call(t, "GET", "/readyz", ""); p.status != http.StatusServiceUnavailable || !strings.Contains(p.text, why) {
		t.Errorf("readyz: %d %s", p.status, p.text)
	}
	_, err := s.client.Acquire(t.Context(), request("doc/b", "r2"))
	e, _ := errors.AsType[*lastword.Error](err)
	if e == nil || e.Code != lastword.CodeHeld || e.Remaining <= 0 || !strings.Contains(e.Message, why) {
		t.Errorf("acquire: %v", err)
	}
	waits := request("doc/b", "r3")
	waits.Wait = time.Second
	if _, err := s.client.Acquire(t.Context(), waits); !strings.Contains(err.Error(), why) {
		t.Errorf("a waiting acquire: %v", err)
	}
	s.end(t)
}
