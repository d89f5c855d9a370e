package main

import (
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lastword/lastword/grant"
)

// Commands of scripts about operators.

func ringInfo(ts *testscript.TestScript) grant.RingInfo {
	ring, err := grant.OpenRing(grant.RingConfig{Dir: ts.MkAbs("s.db.key.ring")})
	ts.Check(err)
	return ring.Info()
}

// signingScript sets VARIABLE to the id of the key that signs for the store s.db.
func signingScript(ts *testscript.TestScript, _ bool, args []string) {
	for _, k := range ringInfo(ts).Keys {
		if k.Signing {
			ts.Setenv(args[0], k.ID)
			return
		}
	}
	ts.Fatalf("no key signs")
}

// publishedScript waits until the ring of s.db has N keys.
func publishedScript(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	until(ts, args[0]+" keys are published", func() bool {
		time.Sleep(10 * time.Millisecond)
		return len(ringInfo(ts).Keys) == want
	})
}
