package observe_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/observe"
	"github.com/lastword/lastword/store/memstore"
)

// An authority with metrics, and what a scrape of them says.
func Example() {
	registry := prometheus.NewRegistry()
	metrics, err := observe.NewMetrics(registry)
	if err != nil {
		fmt.Println(err)
		return
	}
	a, err := embedded(metrics.Authority)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()
	ctx := context.Background()
	for _, owner := range []string{"worker-a", "worker-b"} {
		_, err := a.Acquire(ctx, lastword.AcquireRequest{Resource: "batch", Owner: owner, RequestID: "1", TTL: time.Minute})
		fmt.Println(owner, err == nil)
	}

	scrape := httptest.NewRecorder()
	observe.Handler(registry).ServeHTTP(scrape, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil))
	page, _ := io.ReadAll(scrape.Body)
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "lastword_authority_call_duration_seconds_count") {
			fmt.Print(line)
		}
	}
	// Output:
	// worker-a true
	// worker-b false
	// lastword_authority_call_duration_seconds_count{code="HELD",op="acquire"} 1
	// lastword_authority_call_duration_seconds_count{code="OK",op="acquire"} 1
}

func embedded(o authority.Observer) (*authority.Authority, error) {
	key, err := grant.NewKey()
	if err != nil {
		return nil, err
	}
	signer, err := grant.NewSigner("demo", key)
	if err != nil {
		return nil, err
	}
	return authority.Open(context.Background(), memstore.New().Open(), signer, authority.Config{Domain: "demo", Observer: o})
}
