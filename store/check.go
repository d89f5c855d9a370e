package store

import (
	"fmt"
	"math"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Tick is a value of the store's elapsed-time counter (R8).
type Tick = core.Tick

// Span is a length of elapsed time in nanoseconds.
type Span = core.Span

// MaxNumber is the largest number that every engine keeps exactly; a database's
// integers have a sign.
const MaxNumber uint64 = math.MaxInt64

// Check reports whether steps obey the contract of [Step]: a record has a resource
// and a revision from 1, request records come with their record, Create comes with a
// header, no number is above [MaxNumber]. Its error has [lastword.CodeInternal].
// Every implementation calls it before it writes anything.
func Check(steps ...Step) error {
	for i := range steps {
		if why := steps[i].fault(); why != "" {
			return &lastword.Error{Code: lastword.CodeInternal, Op: "commit", Message: fmt.Sprintf("step %d: %s", i+1, why)}
		}
	}
	return nil
}

func (s *Step) fault() string {
	switch {
	case s.Create && s.Header == nil:
		return "it creates a store without a header"
	case s.Header != nil && !s.Header.Exists:
		return "its header says that there is none"
	case s.Record == nil && len(s.Requests)+len(s.Forget) > 0:
		return "it has request records without their record"
	case s.Header != nil && max(uint64(s.Header.Tick), uint64(s.Header.HoldUntil)) > MaxNumber:
		return "a tick of the header is out of range"
	case s.Record != nil && s.Record.Resource == "":
		return "its record has no resource"
	case s.Record != nil && s.Record.Revision == 0:
		return "its record has no revision"
	case s.Record != nil && largest(s.Record) > MaxNumber:
		return "a number of the record is out of range"
	}
	for i := range s.Requests {
		if max(uint64(s.Requests[i].Fence), uint64(s.Requests[i].EndedTick)) > MaxNumber {
			return "a number of a request record is out of range"
		}
	}
	return ""
}

func largest(r *Record) uint64 {
	l := &r.Lease
	return max(r.Revision, r.Counter, uint64(l.Fence), l.PolicyGeneration, uint64(l.Ticks),
		uint64(l.Deadline), l.GrantedRevision, uint64(l.EndedTick), uint64(r.Previous.Fence))
}
