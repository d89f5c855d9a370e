package history_test

import (
	"fmt"
	"time"

	"github.com/lastword/lastword/lab/history"
)

func ExampleVerify() {
	const ms = time.Millisecond
	found := history.Verify([]history.Fact{
		{Op: "acquire", Resource: "doc", Owner: "a", RequestID: "1", LeaseID: "x", Fence: 1, Remaining: 100 * ms, Sent: 0, Heard: 1 * ms},
		{Op: "acquire", Resource: "doc", Owner: "b", RequestID: "1", LeaseID: "y", Fence: 2, Remaining: 100 * ms, Sent: 50 * ms, Heard: 60 * ms},
	})
	fmt.Println(len(found), "contradiction")
	// Output: 1 contradiction
}
