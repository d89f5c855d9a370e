//go:build linux || darwin

package early_test

import (
	"strings"
	"testing"

	"github.com/lastword/lastword/internal/early"
)

func TestTheCommandIsFoundBehindFlags(t *testing.T) {
	for line, want := range map[string]string{
		"":                                 "",
		"exec doc/a -- true":               "exec",
		"-o json exec doc/a -- true":       "exec",
		"--output json exec doc/a -- true": "exec",
		"-ojson exec doc/a":                "exec",
		"--output=json exec doc/a":         "exec",
		"-o exec serve":                    "serve",
		"acquire exec":                     "acquire",
		"help exec":                        "help",
		"-o":                               "",
		"--version":                        "",
	} {
		if got := early.Command(strings.Fields(line)); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
	if early.Signals() != nil {
		t.Error("signals are caught in a process that is no exec")
	}
}
