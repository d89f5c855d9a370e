package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
)

const advanceLong = `Begins a new issuer epoch: what is granted from then on outranks everything that was
granted before, whatever its number.

While an authority serves the store, it is asked for the next epoch, through its key
ring, and takes it within a second; leases go on.

While none does, the new epoch is 1 + the largest that store, witness, key ring, the
records of --record and --above know. If the store is not where the witness saw it last
(it was restored, cloned or exchanged), this is the confirmation for which 'lastword
serve' waits: the leases in the store end, and nothing is granted until the longest lease
that may have been lost is over, counted while an authority runs. Look first whether it
is the right store. --restored says that it was put back although it does not look so: a
raw copy from within the last run. Where the witness is lost or went back, nobody knows the longest
lease, and the wait is that of the longest possible one, 24 h, unless you know better
(--longest-ttl).

It asks on a terminal and needs --yes elsewhere. Who did it and why is kept in the audit
log before anything is done.`

// advancing is one epoch advance.
type advancing struct {
	*operating
	request authority.AdvanceRequest
	above   int64
	bundle  string
	records []string
	timeout time.Duration
}

func (a *app) epochCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "advance --store sqlite:PATH --reason TEXT", Short: "begin a new issuer epoch, and confirm a regression", Long: advanceLong, Args: want(),
		Example: "  lastword epoch advance --store sqlite:lastword.db --witness file:/mnt/other/witness --reason 'restored from Monday'",
	}
	o := &advancing{operating: a.operatorFlags(cmd), above: -1, timeout: 30 * time.Second}
	o.witnessFlag("the witness")
	o.keyFlag()
	o.domainFlag()
	o.yesFlag()
	f := cmd.Flags()
	f.Int64Var(&o.above, "above", -1, "an issuer `EPOCH` that was found elsewhere; the new one is larger")
	f.Lookup("above").DefValue = ""
	f.StringVar(&o.bundle, "bundle", "", "a trust bundle `FILE` that a resource has; the new epoch is larger than its")
	f.StringArrayVar(&o.records, "record", nil, "`sqlite:PATH` of a guarded database; the new epoch is larger than all in it (repeatable)")
	f.Var(&durationFlag{value: &o.request.LongestTTL, most: 24 * time.Hour}, "longest-ttl", "the longest TTL ever granted, if the witness that knows it is lost or went back (default then: 24h)")
	f.Lookup("longest-ttl").DefValue = ""
	f.BoolVar(&o.request.Restored, "restored", false, "the store was put back, whatever it looks like")
	f.Var(&durationFlag{value: &o.timeout, least: time.Millisecond, most: time.Hour}, "timeout", "how long to wait for an authority that runs")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.resolve(); err != nil {
			return err
		}
		if err := o.evidence(cmd.Context()); err != nil {
			return err
		}
		by, err := o.InUse()
		if err != nil {
			return named(err, authority.ActionAdvance, "")
		}
		if by != "" {
			return o.running(cmd.Context(), by)
		}
		return o.stopped(cmd.Context())
	}
	return group("epoch", "the issuer epoch", cmd)
}

// evidence collects the epochs that others than store and witness know.
func (o *advancing) evidence(ctx context.Context) error {
	if o.cmd.Flags().Changed("above") {
		if o.above < 0 || o.above > int64(lastword.MaxEpoch) {
			return usage(o.cmd, "--above: want an epoch from 0 to %d", lastword.MaxEpoch)
		}
		o.request.Above = append(o.request.Above, uint32(o.above))
	}
	if o.bundle != "" {
		b, err := readBundle(o.bundle)
		if err != nil {
			return named(err, authority.ActionAdvance, "")
		}
		o.request.Above = append(o.request.Above, b.CurrentEpoch())
	}
	for _, dsn := range o.records {
		path, err := databasePath(o.cmd, dsn)
		if err != nil {
			return err
		}
		fence, err := highestFence(ctx, path, o.Domain)
		if err != nil {
			return named(err, authority.ActionAdvance, "")
		}
		if fence > 0 {
			o.request.Above = append(o.request.Above, fence.Epoch())
		}
	}
	return nil
}

// running asks the authority that serves the store.
func (o *advancing) running(ctx context.Context, by string) error {
	if len(o.request.Above) > 0 || o.request.Restored || o.request.LongestTTL > 0 {
		return &lastword.Error{
			Code: lastword.CodeUnavailable, Op: authority.ActionAdvance, Message: "the store is in use by " + by,
			Hint: "stop it first: an authority that runs takes the next epoch only",
		}
	}
	if err := o.confirm(ctx, "ask the authority, "+by+", for a new issuer epoch"); err != nil {
		return named(err, authority.ActionAdvance, "")
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	began := time.Now()
	epoch, err := o.RequestEpoch(ctx)
	if err != nil {
		return named(err, authority.ActionAdvance, "")
	}
	return o.told(authority.Advanced{Epoch: epoch}, by, time.Since(began))
}

// stopped does it at the files.
func (o *advancing) stopped(ctx context.Context) error {
	plan, err := o.PlanAdvance(ctx, o.request)
	if err == nil {
		err = o.confirm(ctx, question(plan)+o.unused(plan))
	}
	if err != nil {
		return named(err, authority.ActionAdvance, "")
	}
	done, err := o.AdvanceEpoch(ctx, o.request)
	if err != nil {
		return named(err, authority.ActionAdvance, "")
	}
	return o.told(done, "", 0)
}

func question(p authority.Advanced) string {
	witness := fmt.Sprintf("the witness %d", p.Witness)
	if p.WitnessMissing {
		witness = "the witness is missing"
	}
	text := fmt.Sprintf("the store has issuer epoch %d, %s; the new one is %d", p.Store, witness, p.Epoch)
	if p.Regression == "" {
		return text + ", and leases go on"
	}
	return fmt.Sprintf("%s: %s; the leases in it end, and nothing is granted for %s", p.Regression, text, spanText(p.Wait))
}

// unused says that what a person knows of TTLs is not what counts.
func (o *advancing) unused(p authority.Advanced) string {
	given := o.request.LongestTTL
	switch {
	case given == 0 || given == p.Longest:
		return ""
	case p.Longest == 0:
		return "; --longest-ttl counts for nothing: nothing is waited for"
	default:
		return "; --longest-ttl " + spanText(given) + " counts for nothing: it is known that " + spanText(p.Longest) + " is the longest"
	}
}

func (o *advancing) told(p authority.Advanced, by string, took time.Duration) error {
	leases, wait, taken := "go on", "", ""
	if p.Regression != "" {
		leases, wait = "those in the store end", spanText(p.Wait)+" in which an authority runs, before the first grant"
	}
	if by != "" {
		taken = "by " + by + ", after " + spanText(took.Round(time.Millisecond))
	}
	return told(o.app.answer(struct {
		Advanced   bool   `json:"advanced"`
		Epoch      uint32 `json:"epoch"`
		Regression string `json:"regression"`
		Wait       string `json:"wait"`
		RunningBy  string `json:"running_by"`
	}{true, p.Epoch, p.Regression, strconv.FormatFloat(p.Wait.Seconds(), 'f', -1, 64) + "s", by},
		row{"epoch", strconv.FormatUint(uint64(p.Epoch), 10)}, row{"found", p.Regression}, row{"leases", leases},
		row{"wait", wait}, row{"taken", taken}, row{"operator", o.Name}),
		"epoch advance: began epoch %d", p.Epoch)
}

// highestFence is the largest fence in a guarded database, of a domain or of all.
func highestFence(ctx context.Context, path, domain string) (highest lastword.Token, err error) {
	if _, err := lookAt(authority.ActionAdvance, path, false); err != nil {
		return 0, err
	}
	g, err := openToLook(path)
	if err != nil {
		return 0, err
	}
	defer g.close()
	var n uint64
	table := "lastword_fence"
	if isPostgres(path) {
		table = "lastword.fence"
	}
	err = g.db.QueryRowContext(ctx, "SELECT coalesce(max(fence), 0) FROM "+table+" WHERE $1 = '' OR domain = $1", domain).Scan(&n)
	if err = errors.Join(err, g.unchanged()); err != nil {
		return 0, badDatabase(authority.ActionAdvance, path, err.Error(), "name a database that lastword guards")
	}
	return lastword.Token(n), nil
}
