package rpc_test

import (
	"context"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
)

// Messages on both sides of the size at which buffers change arrive as they were sent.
func TestLargeAnswersArriveWhole(t *testing.T) {
	f := granting()
	var result []byte
	f.status = func(_ context.Context, q lastword.StatusQuery) (lastword.Status, error) {
		return lastword.Status{
			Resource: q.Resource, State: lastword.StateReleased, Asked: lastword.StateReleased, AskedCompleted: true, AskedResult: result,
			Last: lastword.Ending{State: lastword.StateReleased, Fence: 1, LeaseID: "l", Owner: "o", Completed: true, Result: result},
		}, nil
	}
	addr, _ := serve(t, f, rpc.ServerConfig{})
	for _, oneByOne := range []bool{false, true} {
		c, err := rpc.Dial(addr, rpc.ClientConfig{OneByOne: oneByOne})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		for _, size := range []int{0, 1, 15_000, 16_100, lastword.MaxResultBytes} {
			result = make([]byte, size)
			for i := range result {
				result[i] = byte(i * 7)
			}
			st, err := c.Status(t.Context(), lastword.StatusQuery{Resource: "doc/a", LeaseID: "l"})
			if err != nil || string(st.AskedResult) != string(result) || string(st.Last.Result) != string(result) {
				t.Errorf("%d bytes: %d and %d came, %v", size, len(st.AskedResult), len(st.Last.Result), err)
			}
		}
	}
}
