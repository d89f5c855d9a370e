package core_test

import (
	"fmt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// The newest holder has the last word.
func Example() {
	header := core.Header{Exists: true, TickSpan: 1e8}
	record := core.Record{Resource: "invoices/4711"}
	acquire := func(owner string, now core.Tick) core.Lease {
		change, answer := core.Acquire(record, nil, header, core.Clock{Tick: now}, core.AcquireInput{
			Owner: owner, RequestID: "r1", LeaseID: owner + "-1", TTL: 1e9, Ticks: core.Ticks(1e9, header.TickSpan),
		})
		record = change.Record // durable before the answer leaves
		return answer.Lease
	}
	guarded := core.FenceRecord{}
	write := func(l core.Lease, operation string) {
		d := core.Admit(guarded, core.KnownOperation{}, core.Attempt{
			Fence: l.Fence, LeaseID: l.ID, Operation: operation, Payload: lastword.DigestOf([]byte(operation)),
			Status: core.FenceOnly, Heard: core.Heard{Mode: core.FenceOnly},
		})
		if d.Write {
			guarded = d.Record // in the transaction of the effect
		}
		fmt.Println(operation, l.Fence, d.Verdict)
	}

	a := acquire("a", 0)
	write(a, "draft")
	b := acquire("b", a.Deadline)
	write(b, "final")
	write(a, "late")
	// Output:
	// draft 1 APPLIED
	// final 2 APPLIED
	// late 1 STALE_OWNER
}

func ExampleTicks() {
	fmt.Println(core.Ticks(30e9, 1e8), "ticks of 100 ms for 30 s")
	// Output: 301 ticks of 100 ms for 30 s
}

func ExampleVerdictTable() {
	rows, err := core.VerdictTable()
	fmt.Println(rows[0].Name, rows[0].Want.Verdict, err)
	// Output: first write of a new record APPLIED <nil>
}
