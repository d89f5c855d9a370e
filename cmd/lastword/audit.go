package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/auditlog"
)

const auditLong = `Shows what operators did at this store, the oldest first: revocations of leases, keys and
epochs, epoch advances, moves of the witness, restores, rotations. Each action has a line
from before it was done and one with its outcome. One that has no outcome was interrupted
and may have been done.`

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list --store sqlite:PATH", Short: "what operators did", Long: auditLong, Args: want(),
	}
	o := a.placeFlags(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := o.resolve(); err != nil {
			return err
		}
		path, err := o.AuditLog()
		if err != nil {
			return named(err, "audit list", "")
		}
		if err := o.mayBeEmpty(path); err != nil {
			return named(err, "audit list", "")
		}
		damaged := 0
		err = auditlog.Read(path, func(l auditlog.Line) error {
			if l.Damaged {
				damaged++
				return nil
			}
			if a.json {
				return a.object(l.Entry)
			}
			_, err := fmt.Fprintln(a.stdout, auditText(l.Entry))
			return err
		})
		if err != nil {
			return named(err, "audit list", "")
		}
		if damaged > 0 {
			return &lastword.Error{
				Code: lastword.CodeInternal, Op: "audit list", Message: fmt.Sprintf("%d lines of %s are no entries: cut short by a crash, or changed", damaged, path),
			}
		}
		return nil
	}
	return group("audit", "the audit log", cmd)
}

// mayBeEmpty refuses a log that is not there, unless it is the usual one of a store that
// is there: nobody has done anything at that one yet.
func (o *operating) mayBeEmpty(log string) error {
	if _, err := os.Lstat(log); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	store, _ := strings.CutPrefix(o.Store, "sqlite:")
	if _, err := os.Stat(store); err == nil && o.Audit == "" {
		return nil
	}
	return &lastword.Error{Code: lastword.CodeInvalid, Message: "there is no audit log at " + log, Hint: "name the store, or the log, as 'lastword serve' has it"}
}

func auditText(e auditlog.Entry) string {
	const shown = 6 // letters of an id, to find the two lines of one action
	parts := []string{e.At.Format(time.RFC3339), e.ID[:min(shown, len(e.ID))], e.Action}
	if e.Outcome != "" {
		return strings.Join(append(parts, "→ "+printable(e.Outcome)), "  ")
	}
	if e.Resource != "" {
		parts = append(parts, printable(e.Resource))
	}
	if e.Fence != 0 {
		parts = append(parts, "fence "+lastword.Token(e.Fence).Text())
	}
	for _, name := range sortedKeys(e.Details) {
		parts = append(parts, name+"="+printable(e.Details[name]))
	}
	return strings.Join(append(parts, "by "+printable(e.Operator)+": "+printable(e.Reason)), "  ")
}
