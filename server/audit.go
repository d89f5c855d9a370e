package server

import (
	"context"
	"time"

	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/internal/auditlog"
)

// auditor keeps what operators do in a file.
type auditor struct{ log *auditlog.Log }

func newAuditor(path string) auditor {
	return auditor{auditlog.New(path, time.Now)} //nolint:forbidigo // for people; nothing is decided by it
}

// Begin implements [authority.Auditor].
func (a auditor) Begin(_ context.Context, what authority.Action) (func(outcome string) error, error) {
	return a.log.Begin(auditlog.Entry{
		Action: what.Name, Operator: what.Operator, Reason: what.Reason,
		Resource: string(what.Resource), Fence: uint64(what.Fence), Details: what.Details,
	})
}

// defaultAudit is the audit log of a store if none is named.
func defaultAudit(store string) string { return store + ".audit" }
