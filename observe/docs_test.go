package observe_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastword/lastword/observe"
)

// described are name and labels of every metric, as its description says.
func described(t *testing.T) map[string]string {
	t.Helper()
	var all []prometheus.Collector
	if _, err := observe.NewMetrics(catcher{&all}); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	form := regexp.MustCompile(`fqName: "([^"]+)", help: "([^"]+)", unit: "", constLabels: \{\}, variableLabels: \{([^}]*)\}`)
	for _, c := range all {
		descs := make(chan *prometheus.Desc)
		go func() {
			c.Describe(descs)
			close(descs)
		}()
		for d := range descs {
			parts := form.FindStringSubmatch(d.String())
			if parts == nil {
				t.Fatalf("a description that cannot be read: %s", d)
			}
			found[parts[1]] = parts[3]
		}
	}
	return found
}

type catcher struct{ all *[]prometheus.Collector }

func (c catcher) Register(m prometheus.Collector) error {
	*c.all = append(*c.all, m)
	return nil
}
func (c catcher) MustRegister(...prometheus.Collector) {}
func (c catcher) Unregister(prometheus.Collector) bool { return false }

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestTheTableIsComplete: every metric is in docs/observe.md with its type and its
// labels, and the reverse.
func TestTheTableIsComplete(t *testing.T) {
	page := read(t, "../docs/observe.md")
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(lastword_\\w+)` \\| (\\w+) \\| ([^|]*)\\|").FindAllStringSubmatch(page, -1) {
		rows[m[1]] = strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(m[3]), "`", ""), ", ", ",")
		if isCounter := strings.HasSuffix(m[1], "_total"); isCounter != (m[2] == "counter") {
			t.Errorf("%s is said to be a %s", m[1], m[2])
		}
	}
	metrics := described(t)
	if len(metrics) < 20 {
		t.Fatalf("only %d metrics were found", len(metrics))
	}
	for name, labels := range metrics {
		if row, ok := rows[name]; !ok || row != labels {
			t.Errorf("%s{%s} is in docs/observe.md as %q, %v", name, labels, row, ok)
		}
	}
	for name := range rows {
		if _, ok := metrics[name]; !ok {
			t.Errorf("docs/observe.md has %s, which does not exist", name)
		}
	}
}

// TestQuestionsAndAlertsNameMetricsThatExist, and R24 has its rule.
func TestQuestionsAndAlertsNameMetricsThatExist(t *testing.T) {
	metrics := described(t)
	rules := read(t, "../docs/alerts.yml")
	for _, name := range regexp.MustCompile(`lastword_\w+`).FindAllString(read(t, "../docs/observe.md")+rules, -1) {
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if _, ok := metrics[base]; !ok {
			t.Errorf("%s is named and does not exist", name)
		}
	}
	if !strings.Contains(rules, "lastword_fence_oldest_unsettled_age_seconds) > 900") {
		t.Error("no rule for what has been unknown for 15 minutes")
	}
}

// TestNamesThatAreTaken: nothing is registered twice, and nothing in part.
func TestNamesThatAreTaken(t *testing.T) {
	r := prometheus.NewRegistry()
	taken := prometheus.NewGauge(prometheus.GaugeOpts{Name: "lastword_client_held_leases", Help: "taken"})
	r.MustRegister(taken)
	if _, err := observe.NewMetrics(r); err == nil || !strings.Contains(err.Error(), "INVALID") {
		t.Fatalf("got %v, want INVALID", err)
	}
	if got := gathered(t, r); len(got) != 1 {
		t.Errorf("part of it was registered: %v", got)
	}
}

func TestTwoAuthoritiesShareARegistryByALabel(t *testing.T) {
	r := prometheus.NewRegistry()
	for _, d := range []string{"a", "b"} {
		if _, err := observe.NewMetrics(prometheus.WrapRegistererWith(prometheus.Labels{"domain": d}, r)); err != nil {
			t.Fatal(err)
		}
	}
	var domains []string
	for name := range gathered(t, r) {
		if strings.HasPrefix(name, "lastword_authority_epoch") {
			domains = append(domains, name)
		}
	}
	slices.Sort(domains)
	if want := []string{"lastword_authority_epoch{domain=a}", "lastword_authority_epoch{domain=b}"}; !slices.Equal(domains, want) {
		t.Errorf("got %q, want %q", domains, want)
	}
}
