package rpc

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lastword/lastword"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// TenureMessage is t in the schema's words, for who prints answers as the wire's
// JSON. It holds the grant.
func TenureMessage(t lastword.Tenure) *wire.Tenure { return tenureMessage(t) }

// StatusMessage is s in the schema's words.
func StatusMessage(s lastword.Status) *wire.Status { return statusMessage(s) }

// RefusalMessage is e in the schema's words, whole and without its cause.
func RefusalMessage(e *lastword.Error) *wire.Refusal {
	m := &wire.Refusal{
		Reason: string(e.Code), Op: e.Op, Resource: string(e.Resource), Message: e.Message, Hint: e.Hint,
		Holder: e.Holder, Fence: uint64(e.Fence), Waiters: count(e.Waiters), Ended: endingMessage(e.Ended),
	}
	if e.Remaining > 0 {
		m.Remaining = durationpb.New(e.Remaining)
	}
	return m
}
