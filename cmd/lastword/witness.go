package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword/authority"
)

const witnessLong = `Makes the witness of a store, while no authority serves it, and marks the store: from
then on a start that does not find this witness is refused.

With --from the witness that the store has is moved: it is made at the new place first
and then taken away from the old one, where a file is kept with .moved added to its name.
Run it again if it was interrupted. From then on serve needs --witness with the new
place.

Without --from the store is adopted as it stands. That is for a store that never had a
witness outside; one that has lost it wants 'lastword epoch advance'.`

func (a *app) witnessCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "init --store sqlite:PATH --witness URL [--from URL] --reason TEXT", Short: "make or move the witness of a store", Long: witnessLong, Args: want(),
		Example: "  lastword witness init --store sqlite:lastword.db --witness file:/mnt/other/witness --from file:lastword.db.witness --reason 'other volume'",
	}
	o := a.operatorFlags(cmd)
	o.witnessFlag("where it is to be")
	o.keyFlag()
	var from string
	cmd.Flags().StringVar(&from, "from", "", "where it is: file:`PATH` or sqlite:PATH")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.resolve(); err != nil {
			return err
		}
		if o.Witness == "" {
			return usage(cmd, "no --witness URL given")
		}
		mark, file, err := o.InitWitness(cmd.Context(), from)
		if err != nil {
			return named(err, authority.ActionInitWitness, "")
		}
		longest := time.Duration(mark.Longest)
		return told(a.answer(struct {
			Initialized bool   `json:"initialized"`
			Witness     string `json:"witness"`
			From        string `json:"from"`
			Epoch       uint32 `json:"epoch"`
			LongestTTL  string `json:"longest_ttl"`
		}{true, file, from, mark.Current, strconv.FormatFloat(longest.Seconds(), 'f', -1, 64) + "s"},
			row{"witness", file}, row{"moved from", from}, row{"epoch", strconv.FormatUint(uint64(mark.Current), 10)},
			row{"longest ttl", spanText(longest)}, row{"next", "serve with --witness " + quoted(o.Witness)}), "witness init: made %s", file)
	}
	return group("witness", "the witness of a store", cmd)
}
