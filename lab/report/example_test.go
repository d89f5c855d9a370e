package report_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/lastword/lastword/lab/report"
)

func ExampleRun_HTML() {
	run := &report.Run{Kind: "real", Seed: 7, Counters: report.Counters{Rounds: 500}, Gates: []report.Gate{{Name: "stale_accepted", Want: "0", Got: "0", Holds: true}}}
	var page strings.Builder
	if err := run.HTML(&page); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	fmt.Println(strings.Contains(page.String(), "All 1 gates hold."))
	// Output: true
}
