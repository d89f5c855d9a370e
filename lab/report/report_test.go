package report_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/lastword/lastword/lab/report"
)

func TestTmp(t *testing.T) {
	f, err := os.Open(os.Getenv("SOAK_IN"))
	if err != nil {
		t.Skip()
	}
	r, err := report.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.HTML(&b); err != nil {
		t.Fatal(err)
	}
	_ = os.WriteFile("/tmp/soak.html", b.Bytes(), 0o644)
}
