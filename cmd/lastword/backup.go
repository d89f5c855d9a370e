package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword/server"
	"github.com/lastword/lastword/store/sqlstore"
)

const backupLong = `Copies the store of an embedded authority to FILE while the authority runs, or while it
does not. It reads the store's file itself and needs the right to; the authority need
not be asked and goes on granting.

The copy is of one moment and holds everything that was acknowledged before the
command began. It is checked and on the disk before it gets its name, with mode 0600:
it tells the ids of all tenures. It holds no key and no witness: keep a copy of the key
in another place, and never a copy of the witness, whose part it is to notice that the
store went back.

A backup that is put in the place of the store is noticed, whatever run it is of:
'lastword serve' refuses to start on it (exit code 124) until an operator confirms it with
'lastword epoch advance'. The tenures in it have then ended, new fences are larger than
all before, and nothing is granted until the longest lease that may have been lost is
over. 'lastword restore' puts it there.

An existing FILE is replaced with --force only, and only if it is a backup of the same
domain that nobody has open; anything else is refused.`

func (a *app) backupCommand() *cobra.Command {
	var store string
	var force bool
	cmd := &cobra.Command{
		Use: "backup FILE --store sqlite:PATH", Short: "copy the store of an authority that runs", Long: backupLong, Args: want("FILE"),
		Example: "  lastword backup /backup/lastword-$(date +%F).db --store sqlite:lastword.db",
	}
	cmd.Flags().StringVar(&store, "store", "", "sqlite:`PATH`, as serve has it; or LASTWORD_STORE (required)")
	cmd.Flags().BoolVar(&force, "force", false, "replace an old backup of the same domain")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if v, ok := a.env("LASTWORD_STORE"); ok && !cmd.Flags().Changed("store") {
			store = v
		}
		if store == "" {
			return usage(cmd, "no --store sqlite:PATH given")
		}
		c, err := server.Backup(cmd.Context(), store, args[0], force)
		if err != nil {
			return named(err, "backup", "")
		}
		return told(a.backedUp(c), "backup: made %s", c.File)
	}
	return cmd
}

// backup is the answer of backup as JSON.
type backup struct {
	Backup    string `json:"backup"`
	Store     string `json:"store"`
	Domain    string `json:"domain"`
	Epoch     uint32 `json:"epoch"`
	Resources int    `json:"resources"`
	Requests  int    `json:"requests"`
	Bytes     string `json:"bytes"`
}

func (a *app) backedUp(c sqlstore.Copy) error {
	return a.answer(backup{c.File, c.Store, c.Header.Domain, c.Header.Epoch, c.Resources, c.Requests, strconv.FormatInt(c.Bytes, 10)},
		row{"backup", c.File}, row{"of", c.Store}, row{"domain", c.Header.Domain}, row{"epoch", strconv.FormatUint(uint64(c.Header.Epoch), 10)},
		row{"resources", number(c.Resources)}, row{"size", strconv.FormatInt(c.Bytes, 10) + " bytes"})
}
