package main

import (
	"strconv"

	"github.com/spf13/cobra"
)

const restoreLong = `Puts a backup in the place of the store, while no authority serves it. The new file is
whole, checked and on the disk before anything is moved; what was there is kept beside
it, log included, as PATH.before-restore.N. If the command dies on the way, nobody can
open the store until it has been run again.

It is marked as restored: 'lastword serve' refuses to start on it (exit code 124) until
'lastword epoch advance' has confirmed that it is the right one. Neither witness nor
keys are touched. What was granted after the backup is in nobody's memory but the
witness's; docs/restore.md has the whole way.`

func (a *app) restoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "restore FILE --store sqlite:PATH --reason TEXT", Short: "put a backup in the place of a store", Long: restoreLong, Args: want("FILE"),
		Example: "  lastword restore /backup/lastword.db --store sqlite:lastword.db --reason 'disk failed'",
	}
	o := a.operatorFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.resolve(); err != nil {
			return err
		}
		done, err := o.Restore(cmd.Context(), args[0])
		if err != nil {
			return named(err, "restore", "")
		}
		next := "lastword epoch advance --store " + quoted(o.Store)
		return told(a.answer(struct {
			Restored  string `json:"restored"`
			Backup    string `json:"backup"`
			Aside     string `json:"aside"`
			Domain    string `json:"domain"`
			Epoch     uint32 `json:"epoch"`
			Resources int    `json:"resources"`
			Requests  int    `json:"requests"`
			Bytes     string `json:"bytes"`
		}{done.Store, done.File, done.Aside, done.Header.Domain, done.Header.Epoch, done.Resources, done.Requests, strconv.FormatInt(done.Bytes, 10)},
			row{"restored", done.Store}, row{"from", done.File}, row{"before", done.Aside}, row{"domain", done.Header.Domain},
			row{"epoch", strconv.FormatUint(uint64(done.Header.Epoch), 10)}, row{"resources", number(done.Resources)}, row{"next", next}),
			"restore: restored %s", done.Store)
	}
	return cmd
}
