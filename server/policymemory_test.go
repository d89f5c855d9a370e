package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/lastword/lastword/identity"
)

// The generation of a policy is remembered at two places: losing either of them makes no
// lower one acceptable.
func TestAPolicyDoesNotGoBackWhenOneMemoryIsLost(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"state", "copy"} {
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		cfg := identity.PolicyConfig{File: at("policy"), State: at("state"), Copy: at("copy")}
		put := func(generation string) {
			write(t, cfg.File, "generation: "+generation+"\nrules: []\n", 0o600)
		}
		put("5")
		if _, err := identity.OpenPolicy(cfg); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(at(lost)); err != nil {
			t.Fatal(err)
		}
		put("4")
		if _, err := identity.OpenPolicy(cfg); err == nil {
			t.Errorf("without %s a lower generation was taken", lost)
		}
		put("5")
		_, err := identity.OpenPolicy(cfg)
		if _, gone := os.Stat(at(lost)); errors.Join(err, gone) != nil {
			t.Errorf("%s was not made anew: %v, %v", lost, err, gone)
		}
	}
}
