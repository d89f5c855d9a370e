package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/server"
)

// spread times the refresh hint is how long a resource may go on with an old trust
// bundle (R13).
const spread = 2

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

func (a *app) keysCommand() *cobra.Command {
	return group("keys", "the signing keys and the trust bundle",
		a.keysListCommand(), a.keysRotateCommand(), a.keysRevokeCommand(), a.keysExportCommand())
}

// ringFlagsToo say where the ring is, and what remembers it.
func (o *operating) ringFlagsToo() {
	o.keyFlag()
	o.witnessFlag("the witness, beside which is remembered what the ring must not go back behind")
	o.ringOnly = true
}

// ringFlags are the flags of a command that only reads the ring.
func (a *app) ringFlags(cmd *cobra.Command) *operating {
	o := a.placeFlags(cmd)
	o.ringFlagsToo()
	return o
}

const keysListLong = `Shows the keys of the authority by their ids, with the issuer epochs that each may sign
for, and what the trust bundle says. No private key is shown by any command.`

type keyJSON struct {
	ID         string  `json:"kid"`
	Algorithm  string  `json:"alg"`
	State      string  `json:"state"`
	FirstEpoch uint32  `json:"first_epoch"`
	LastEpoch  *uint32 `json:"last_epoch"`
}

type keysJSON struct {
	Domain       string    `json:"domain"`
	Sequence     uint64    `json:"sequence,string"`
	CurrentEpoch uint32    `json:"current_epoch"`
	MinimumEpoch uint32    `json:"minimum_epoch"`
	NextEpoch    uint32    `json:"next_epoch"`
	Keys         []keyJSON `json:"keys"`
	Revoked      []string  `json:"revoked"`
}

func keyState(k grant.KeyInfo) string {
	switch {
	case k.Signing:
		return "signs"
	case k.Epochs.Last != nil:
		return "retired"
	case k.Used:
		return "has signed"
	}
	return "published"
}

func (a *app) keysListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list --store sqlite:PATH", Short: "the keys and what the trust bundle says", Long: keysListLong, Args: want()}
	o := a.ringFlags(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := o.resolve(); err != nil {
			return err
		}
		ring, err := o.Keys()
		if err != nil {
			return named(err, "keys list", "")
		}
		return a.showKeys(ring.Info())
	}
	return cmd
}

func (a *app) showKeys(info grant.RingInfo) error {
	out := keysJSON{info.Domain, info.Sequence, info.CurrentEpoch, info.MinimumEpoch, info.NextEpoch, []keyJSON{}, info.Revoked}
	if out.Revoked == nil {
		out.Revoked = []string{}
	}
	rows := []row{
		{"domain", info.Domain}, {"sequence", strconv.FormatUint(info.Sequence, 10)},
		{"epoch", fmt.Sprintf("%d, of which %d and later are believed", info.CurrentEpoch, info.MinimumEpoch)},
	}
	if info.NextEpoch > info.CurrentEpoch {
		rows = append(rows, row{"wanted", fmt.Sprintf("epoch %d; the authority begins it when it runs", info.NextEpoch)})
	}
	for _, k := range info.Keys {
		out.Keys = append(out.Keys, keyJSON{k.ID, k.Algorithm, keyState(k), k.Epochs.First, k.Epochs.Last})
		epochs := fmt.Sprintf("epochs from %d", k.Epochs.First)
		if k.Epochs.Last != nil {
			epochs = fmt.Sprintf("epochs %d to %d", k.Epochs.First, *k.Epochs.Last)
		}
		rows = append(rows, row{k.ID, keyState(k) + ", " + epochs})
	}
	for _, kid := range info.Revoked {
		rows = append(rows, row{kid, "revoked"})
	}
	return a.answer(out, rows...)
}

const keysRotateLong = `Rotates the signing key by overlap (R13), in safe steps: a new key is published; after
--overlap, in which every resource fetches the trust bundle, it signs; the old one is
retired, which means that what it signed stays good and it is believed for no later
epoch. No lease is lost. Authorities that run follow within a second.

The overlap is twice the refresh hint of the trust bundle unless you say more; bundles
that are carried by hand need their own time. Ctrl-C, or a crash, leaves the new key
published, which harms nothing: run it again to go on.

A key that may be in wrong hands is not for rotation: 'lastword keys revoke'.`

func (a *app) keysRotateCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "rotate --store sqlite:PATH --reason TEXT", Short: "let a new key sign", Long: keysRotateLong, Args: want()}
	o := a.operatorFlags(cmd)
	o.ringFlagsToo()
	overlap := time.Duration(-1)
	cmd.Flags().Var(&durationFlag{value: &overlap, most: 30 * 24 * time.Hour}, "overlap", "time between publishing a key and signing with it (default: twice the refresh hint)")
	cmd.Flags().Lookup("overlap").DefValue = ""
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.resolve(); err != nil {
			return err
		}
		ring, err := o.Keys()
		if err == nil && overlap < 0 {
			overlap, err = spreadOf(ring)
		}
		if err != nil {
			return named(err, server.ActionRotateKey, "")
		}
		step := func(what string, k grant.KeyInfo) {
			if !a.json {
				_, _ = fmt.Fprintf(a.stdout, "%-12s %s\n", what, k.ID) // the outcome is told once more
			}
		}
		if err := o.RotateKey(cmd.Context(), overlap, step); err != nil {
			return named(err, server.ActionRotateKey, "")
		}
		if err := ring.Reload(); err != nil {
			return told(err, "keys rotate: rotated")
		}
		return told(a.showKeys(ring.Info()), "keys rotate: rotated")
	}
	return cmd
}

// spreadOf is within which time a change has reached every resource that fetches.
func spreadOf(ring *grant.Ring) (time.Duration, error) {
	b, err := ring.Bundle()
	return spread * b.RefreshHint(), err
}

const keysRevokeLong = `Takes a key that may be in wrong hands out of the trust bundle, at once and for ever. What
it signed is refused wherever the new bundle has arrived, which is everywhere within twice
its refresh hint; the leases that it signed end, and their holders acquire again. If it
could sign for the present issuer epoch, the authority begins another one, which outranks
all that a thief could have made with it.

With --epochs-below instead of a key, the grants of all issuer epochs below it are
refused. The one after the present one is begun by the authority; a later one is not
taken, since nothing takes it back: 'lastword epoch advance --above'.

Of the present epoch all is refused when the authority has begun the next one. If one
serves the store and has not done so within 10 s, the exit code is 123: it was revoked,
and the rest follows.

It asks on a terminal and needs --yes elsewhere. Authorities that run follow within a
second, others when they start. An id that begins with - stands behind --.`

func (a *app) keysRevokeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "revoke KID|--epochs-below EPOCH --store sqlite:PATH --reason TEXT", Short: "refuse what a key, or old epochs, signed",
		Long: keysRevokeLong, Args: cobra.MaximumNArgs(1),
	}
	o := a.operatorFlags(cmd)
	o.ringFlagsToo()
	o.yesFlag()
	below := int64(-1)
	cmd.Flags().Int64Var(&below, "epochs-below", -1, "the lowest issuer `EPOCH` that is still believed")
	cmd.Flags().Lookup("epochs-below").DefValue = ""
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		epochs := cmd.Flags().Changed("epochs-below")
		switch {
		case len(args) == 0 && !epochs:
			return usage(cmd, "no KID and no --epochs-below EPOCH given: 'lastword keys list' shows them")
		case len(args) > 0 && epochs:
			return usage(cmd, "want KID or --epochs-below, not both")
		case len(args) > 0 && args[0] == "": // a variable that nobody has set
			return usage(cmd, "the KID is empty: 'lastword keys list' shows them")
		case epochs && (below < 0 || below > int64(lastword.MaxEpoch)):
			return usage(cmd, "--epochs-below: want an epoch from 0 to %d", lastword.MaxEpoch)
		}
		if err := o.resolve(); err != nil {
			return err
		}
		return named(o.revokeKey(cmd.Context(), strings.Join(args, ""), below), server.ActionRevokeKey, "")
	}
	return cmd
}

func (o *operating) revokeKey(ctx context.Context, kid string, below int64) error {
	ring, err := o.Keys()
	if err != nil {
		return err
	}
	within, err := spreadOf(ring)
	if err == nil && kid == "" {
		err = server.CheckMinimum(ring.Info(), uint32(below)) //nolint:gosec // it was checked
	}
	if err != nil {
		return err
	}
	what := "the key " + kid
	if kid == "" {
		what = fmt.Sprintf("all issuer epochs below %d", below)
	}
	if err := o.confirm(ctx, "revoke "+what+": what was signed is refused, and the leases end"); err != nil {
		return err
	}
	began := time.Now()
	var info grant.RingInfo
	if kid != "" {
		info, err = o.RevokeKey(ctx, kid)
	} else {
		info, err = o.RevokeEpochs(ctx, uint32(below)) //nolint:gosec // it was checked
	}
	if err != nil {
		return err
	}
	follows, err := o.followed(ctx, ring, info, began)
	if err != nil {
		return told(err, "keys revoke: revoked")
	}
	info = ring.Info()
	refused, seconds := "everywhere within "+spanText(within)+", twice the refresh hint", strconv.FormatFloat(within.Seconds(), 'f', -1, 64)+"s"
	if info.NextEpoch > info.CurrentEpoch {
		refused, seconds = fmt.Sprintf("%s, and all of it when the authority has begun epoch %d", refused, info.NextEpoch), ""
	}
	return told(o.app.answer(struct {
		Revoked       string `json:"revoked"`
		Sequence      uint64 `json:"sequence,string"`
		CurrentEpoch  uint32 `json:"current_epoch"`
		MinimumEpoch  uint32 `json:"minimum_epoch"`
		NextEpoch     uint32 `json:"next_epoch"`
		RefusedWithin string `json:"refused_within"`
	}{what, info.Sequence, info.CurrentEpoch, info.MinimumEpoch, info.NextEpoch, seconds},
		row{"revoked", what}, row{"sequence", strconv.FormatUint(info.Sequence, 10)},
		row{"epoch", fmt.Sprintf("%d, of which %d and later are believed", info.CurrentEpoch, info.MinimumEpoch)},
		row{"authority", follows}, row{"refused", refused}, row{"operator", o.Name}),
		"keys revoke: revoked %s", what)
}

// followed waits for an authority that runs to begin the epoch that a revocation wants.
func (o *operating) followed(ctx context.Context, ring *grant.Ring, info grant.RingInfo, began time.Time) (string, error) {
	const patience = 10 * time.Second
	if info.NextEpoch <= info.CurrentEpoch {
		return "goes on in its epoch", ring.Reload()
	}
	if by, err := o.InUse(); err != nil || by == "" {
		return fmt.Sprintf("does not run here; begins epoch %d when it starts", info.NextEpoch), ring.Reload()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	epoch, err := server.AwaitEpoch(ctx, ring, info.NextEpoch)
	if err != nil {
		return "", named(err, server.ActionRevokeKey, "")
	}
	return fmt.Sprintf("began epoch %d after %s", epoch, spanText(time.Since(began).Round(time.Millisecond))), nil
}

const keysExportLong = `Writes the trust bundle to FILE, which everybody may read: whole and on the disk. An
earlier bundle of the same domain and an empty file are replaced, and nothing else. It is
what the authority serves at /.well-known/lastword/bundle.json, for resources that cannot
reach it: 'lastword fence apply --bundle FILE'.

Resources refuse a bundle file that is older than twice its refresh hint, unless they are
told to wait longer. --every keeps it fresh until Ctrl-C.`

func (a *app) keysExportCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "export FILE --store sqlite:PATH", Short: "write the trust bundle to a file", Long: keysExportLong, Args: want("FILE")}
	o := a.ringFlags(cmd)
	var every time.Duration
	cmd.Flags().Var(&durationFlag{value: &every, least: 100 * time.Millisecond, most: 24 * time.Hour}, "every", "write it again and again, until Ctrl-C")
	cmd.Flags().Lookup("every").DefValue = ""
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.resolve(); err != nil {
			return err
		}
		ring, err := o.Keys()
		if err == nil {
			err = ring.Export(args[0])
		}
		if err != nil {
			return named(err, "keys export", "")
		}
		b, err := ring.Bundle()
		if err == nil {
			err = a.answer(struct {
				Exported string `json:"exported"`
				Domain   string `json:"domain"`
				Sequence uint64 `json:"sequence,string"`
				Epoch    uint32 `json:"epoch"`
			}{args[0], b.Domain(), b.Sequence(), b.CurrentEpoch()}, row{"exported", args[0]}, row{"domain", b.Domain()},
				row{"sequence", strconv.FormatUint(b.Sequence(), 10)}, row{"good for", spanText(spread*b.RefreshHint()) + " from now"})
		}
		if err != nil || every == 0 {
			return told(err, "keys export: wrote %s", args[0])
		}
		return keepFresh(cmd.Context(), ring, args[0], every)
	}
	return cmd
}

// keepFresh exports until ctx ends, which is the end that was meant.
func keepFresh(ctx context.Context, ring *grant.Ring, path string, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := ring.Export(path); err != nil {
				return named(err, "keys export", "")
			}
		}
	}
}
