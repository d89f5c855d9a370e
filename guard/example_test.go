package guard_test

import (
	"context"
	"fmt"
	"os"

	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/guard"
	"github.com/lastword/lastword/store/memstore"
)

// The authority lives in this very process, so that the example needs no other one.
func ExampleRun() {
	ctx := context.Background()
	key, err := grant.NewKey()
	if err != nil {
		panic(err)
	}
	signer, err := grant.NewSigner("demo", key)
	if err != nil {
		panic(err)
	}
	a, err := authority.Open(ctx, memstore.New().Open(), signer, authority.Config{Domain: "demo"})
	if err != nil {
		panic(err)
	}
	defer a.Close()
	c, err := client.New(a, client.Config{})
	if err != nil {
		panic(err)
	}
	defer c.Close()

	exit, err := guard.Run(ctx, c, guard.Options{
		Resource: "nightly/report",
		Command:  []string{"sh", "-c", `echo "$LASTWORD_RESOURCE under fence $LASTWORD_FENCE"; exit 3`},
		Stdout:   os.Stdout,
	})
	fmt.Println("exit code", exit.Code, err)
	// Output:
	// nightly/report under fence 1
	// exit code 3 <nil>
}
