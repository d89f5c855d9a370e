package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/store/sqlstore"
)

// Operator is an operator at the files of an embedded authority. Store is required, and
// so are Name and Reason for whatever is kept in the audit log.
type Operator struct {
	// Store, KeyFile, Witness and Audit are as in [Config].
	Store, KeyFile, Witness, Audit string
	// Domain is needed where the store does not know it: an empty one.
	Domain string
	Name   string // who it is
	Reason string // why
	Logger *slog.Logger
}

// files are those of a server with this configuration.
func (o Operator) files() (Files, error) {
	c := Config{Store: o.Store, Domain: "any", KeyFile: o.KeyFile, Witness: o.Witness, Audit: o.Audit}
	_, files, err := c.check()
	return files, err
}

// offline is a store that this process has to itself, and what belongs to it.
type offline struct {
	files   Files
	store   *sqlstore.Store
	witness witness
	signer  *grant.Signer // nil if the keys are gone
	cfg     authority.Config
}

// open takes the store's lock: nobody serves it until close.
func (o Operator) open(ctx context.Context) (x *offline, err error) {
	x = &offline{}
	if x.files, err = o.files(); err != nil {
		return nil, err
	}
	if err := there(x.files.Store); err != nil {
		return nil, err
	}
	if x.store, err = sqlstore.Open(ctx, x.files.Store, sqlstore.Config{}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.close())
		}
	}()
	if x.witness, err = openWitness(o.Witness, x.files.Store); err != nil {
		return x, err
	}
	view, err := x.store.Read(ctx)
	if err != nil {
		return x, err
	}
	domain := view.Header.Domain
	if domain == "" {
		domain = o.Domain
	}
	if o.Domain != "" && o.Domain != domain {
		return x, invalid("the store issues the fences of domain %q, not of %q", domain, o.Domain)
	}
	if domain == "" {
		return x, invalid("the store is empty and does not know its domain: name it")
	}
	if haveKeys(x.files.Key) {
		ring, err := openRing(x.files.Key, x.files.memory(o.Witness != ""), domain)
		if err != nil {
			return x, err
		}
		x.signer = ring.Signer()
	}
	x.cfg = authority.Config{
		Domain: domain, Witness: x.witness, Witnessed: o.Witness != "",
		Audit: newAuditor(x.files.Audit), Logger: o.Logger,
	}
	return x, nil
}

func (x *offline) close() error {
	var errs []error
	if x.store != nil {
		errs = append(errs, x.store.Close())
	}
	if x.witness.close != nil {
		errs = append(errs, x.witness.close())
	}
	return errors.Join(errs...)
}

// mayBegin refuses to begin a witness while the store has another one that it was not
// told of ([mayAdopt]).
func (x *offline) mayBegin(ctx context.Context, url string) error {
	mark, err := x.witness.Load(ctx)
	if err != nil {
		return err
	}
	view, err := x.store.Read(ctx)
	if err != nil {
		return err
	}
	return mayAdopt(ctx, x.files, url, mark, view.Header)
}

// PlanAdvance tells what [Operator.AdvanceEpoch] would do. The store must not be served.
func (o Operator) PlanAdvance(ctx context.Context, r authority.AdvanceRequest) (told authority.Advanced, err error) {
	x, err := o.open(ctx)
	if err != nil {
		return told, err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	if err := x.mayBegin(ctx, o.Witness); err != nil {
		return told, err
	}
	return authority.PlanAdvance(ctx, x.store, x.signer, x.cfg, r)
}

// AdvanceEpoch begins a new issuer epoch on a store that is not served, over a regression
// if there is one ([authority.AdvanceEpoch]).
func (o Operator) AdvanceEpoch(ctx context.Context, r authority.AdvanceRequest) (told authority.Advanced, err error) {
	x, err := o.open(ctx)
	if err != nil {
		return told, err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	if err := x.mayBegin(ctx, o.Witness); err != nil {
		return told, err
	}
	r.Operator, r.Reason = o.Name, o.Reason
	return authority.AdvanceEpoch(ctx, x.store, x.signer, x.cfg, r)
}

// InitWitness makes the witness of a store that is not served: from is the URL of the
// one to move, "" adopts the store as it stands ([authority.InitWitness]).
func (o Operator) InitWitness(ctx context.Context, from string) (mark authority.Mark, file string, err error) {
	x, err := o.open(ctx)
	if err != nil {
		return mark, "", err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	if from == "" {
		if err := x.mayBegin(ctx, o.Witness); err != nil {
			return mark, "", err
		}
		mark, err = authority.InitWitness(ctx, x.store, x.signer, x.cfg, nil, o.Name, o.Reason)
		return mark, x.witness.path, err
	}
	source, err := openWitness(from, x.files.Store)
	if err != nil {
		return mark, "", err
	}
	defer func() { err = errors.Join(err, source.close()) }()
	if source.path == x.witness.path {
		return mark, "", invalid("the witness is to be moved to where it is, %s", source.path)
	}
	if err := grant.MoveMemory(ringMemory(source.path), ringMemory(x.witness.path)); err != nil {
		return mark, "", err
	}
	mark, err = authority.InitWitness(ctx, x.store, x.signer, x.cfg, source, o.Name, o.Reason)
	if old := ringMemory(source.path); err == nil && exists(old) {
		err = os.Rename(old, old+".moved")
	}
	return mark, x.witness.path, err
}

// The names of actions that this package keeps, beside those of package authority.
const (
	ActionRestore      = "restore"
	ActionRotateKey    = "keys rotate"
	ActionRevokeKey    = "keys revoke"
	ActionRevokeEpochs = "keys revoke epochs"
	ActionNewRing      = "keys begin anew"
)

// Restore puts a backup in the place of a store that is not served ([sqlstore.Restore]).
func (o Operator) Restore(ctx context.Context, file string) (done sqlstore.Restored, err error) {
	files, err := o.files()
	if err != nil {
		return done, err
	}
	err = o.kept(ctx, files.Audit, ActionRestore, map[string]string{"backup": file, "store": files.Store}, func() (string, error) {
		done, err = sqlstore.Restore(ctx, file, files.Store, sqlstore.RestoreConfig{})
		return fmt.Sprintf("domain %s, epoch %d, before: %s", done.Header.Domain, done.Header.Epoch, done.Aside), err
	})
	return done, err
}

// kept does something between its two lines in the audit log. done tells more of what
// was done.
func (o Operator) kept(ctx context.Context, path, action string, details map[string]string, do func() (done string, err error)) error {
	for _, text := range []struct{ what, value string }{{"operator", o.Name}, {"reason", o.Reason}} {
		if err := lastword.CheckID(text.what, text.value); err != nil {
			return err
		}
	}
	ended, err := newAuditor(path).Begin(ctx, authority.Action{Name: action, Operator: o.Name, Reason: o.Reason, Details: details})
	if err != nil {
		return err
	}
	done, err := do()
	outcome := authority.OutcomeDone
	var known *lastword.Error
	switch {
	case errors.As(err, &known):
		outcome = string(known.Code)
	case err != nil:
		outcome = string(lastword.CodeInternal)
	case done != "":
		outcome += ": " + done
	}
	return errors.Join(err, ended(outcome))
}

// AuditLog is the file of the audit log.
func (o Operator) AuditLog() (string, error) {
	files, err := o.files()
	return files.Audit, err
}

// InUse names the process that serves the store, "" if none does.
func (o Operator) InUse() (by string, err error) {
	files, err := o.files()
	if err != nil {
		return "", err
	}
	return sqlstore.InUse(files.Store)
}

// Keys opens the key ring. It makes no key, and is not for a store whose authority was
// never started.
func (o Operator) Keys() (*grant.Ring, error) {
	files, err := o.files()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(ringOf(files.Key)); errors.Is(err, fs.ErrNotExist) && !exists(ringMemory(files.Witness)) {
		return nil, &lastword.Error{
			Code: lastword.CodeInvalid, Message: "there are no keys at " + ringOf(files.Key),
			Hint: "name the store, or the key file, as 'lastword serve' has it; its first start makes the keys",
		}
	}
	return grant.OpenRing(grant.RingConfig{Dir: ringOf(files.Key), Domain: o.Domain, Memory: files.memory(o.Witness != "")})
}

// RotateKey publishes a key, waits until it has spread, lets it sign, and retires the one
// before, and any other that does not sign any more (R13). A key that is published and has never signed, such as that of a rotation
// which was interrupted, is used; else one is made. Interrupted by its context it leaves
// the new key published, which harms nothing. step is told what was done.
func (o Operator) RotateKey(ctx context.Context, overlap time.Duration, step func(what string, k grant.KeyInfo)) (err error) {
	files, err := o.files()
	if err != nil {
		return err
	}
	ring, err := o.Keys()
	if err != nil {
		return err
	}
	return o.kept(ctx, files.Audit, ActionRotateKey, map[string]string{"overlap": overlap.String()}, func() (string, error) {
		return rotate(ctx, ring, overlap, step)
	})
}

func rotate(ctx context.Context, ring *grant.Ring, overlap time.Duration, step func(string, grant.KeyInfo)) (string, error) {
	var next grant.KeyInfo
	for _, k := range ring.Info().Keys {
		if !k.Signing && !k.Used && k.Epochs.Last == nil {
			next = k
		}
	}
	if next.ID == "" {
		var err error
		if next, err = ring.Add(grant.Key{}); err != nil {
			return "", err
		}
		step("published", next)
	} else {
		step("goes on with", next)
	}
	timer := time.NewTimer(overlap) //nolint:forbidigo // how long resources have to fetch the bundle; nothing is decided by it
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return "", &lastword.Error{
			Code: lastword.CodeCanceled, Message: "the key " + next.ID + " is published and does not sign yet",
			Hint: "nothing is lost; run it again to go on",
		}
	}
	if err := ring.Use(next.ID); err != nil && !has(ring, next.ID, func(k grant.KeyInfo) bool { return k.Used }) {
		return "", err // else another rotation has used it, and maybe one after that retired it
	}
	step("signs", next)
	return retireOld(ring, step)
}

// has reports whether the ring has this key by now, and it is so.
func has(ring *grant.Ring, kid string, so func(grant.KeyInfo) bool) bool {
	return ring.Reload() == nil && slices.ContainsFunc(ring.Info().Keys, func(k grant.KeyInfo) bool { return k.ID == kid && so(k) })
}

// retireOld retires every key that has signed and does not any more: the one before, and
// those of rotations that died in between or ran at the same time.
func retireOld(ring *grant.Ring, step func(string, grant.KeyInfo)) (done string, err error) {
	for _, k := range ring.Info().Keys {
		switch {
		case k.Signing:
			done = k.ID + " signs" + done
		case k.Used && k.Epochs.Last == nil:
			if err := ring.Retire(k.ID); err != nil {
				if has(ring, k.ID, func(k grant.KeyInfo) bool { return k.Signing }) {
					continue // for another rotation, which retires the others
				}
				return "", err
			}
			step("retired", k)
			done += ", " + k.ID + " is retired"
		}
	}
	return done, nil
}

// RevokeKey takes a key out of the trust bundle for ever (R13). What follows from it, an
// authority that runs does within a second, and another one when it starts.
func (o Operator) RevokeKey(ctx context.Context, kid string) (grant.RingInfo, error) {
	return o.revoke(ctx, ActionRevokeKey, map[string]string{"kid": kid}, func(r *grant.Ring) error { return r.Revoke(kid) })
}

// CheckMinimum refuses a minimum issuer epoch that is not within reach: the authority would
// begin one epoch after the other to get there, and nothing takes that back.
func CheckMinimum(info grant.RingInfo, minimum uint32) error {
	if minimum <= info.CurrentEpoch+1 {
		return nil
	}
	e := &lastword.Error{
		Code: lastword.CodeInvalid, Message: fmt.Sprintf("the issuer epoch is %d: no minimum above %d is taken, and %d is", info.CurrentEpoch, info.CurrentEpoch+1, minimum),
	}
	if e.Hint = fmt.Sprintf("if it is meant, begin that epoch first: stop the authority, and 'lastword epoch advance --above %d'", minimum-1); minimum > lastword.MaxEpoch {
		e.Hint = "'lastword keys list' shows the present one"
	}
	return e
}

// RevokeEpochs raises the minimum issuer epoch (T27), to the one after the present one at
// most ([CheckMinimum]).
func (o Operator) RevokeEpochs(ctx context.Context, minimum uint32) (grant.RingInfo, error) {
	ring, err := o.Keys()
	if err == nil {
		err = CheckMinimum(ring.Info(), minimum)
	}
	if err != nil {
		return grant.RingInfo{}, err
	}
	return o.revoke(ctx, ActionRevokeEpochs, map[string]string{"minimum_epoch": fmt.Sprint(minimum)},
		func(r *grant.Ring) error { return r.RevokeEpochs(minimum) })
}

func (o Operator) revoke(ctx context.Context, action string, details map[string]string, do func(*grant.Ring) error) (info grant.RingInfo, err error) {
	files, err := o.files()
	if err != nil {
		return info, err
	}
	ring, err := o.Keys()
	if err != nil {
		return info, err
	}
	err = o.kept(ctx, files.Audit, action, details, func() (string, error) {
		if err := do(ring); err != nil {
			return "", err
		}
		info = ring.Info()
		if err := dropRevoked(files.Key, info); err != nil {
			return "", err
		}
		return fmt.Sprintf("bundle sequence %d, minimum epoch %d", info.Sequence, info.MinimumEpoch), nil
	})
	return info, err
}

// RequestEpoch asks the authority that serves the store for a new issuer epoch, and waits
// until it has begun it or ctx ends. Tenures go on. An authority that has stopped with
// FENCE_REGRESSION does not begin one.
func (o Operator) RequestEpoch(ctx context.Context) (epoch uint32, err error) {
	files, err := o.files()
	if err != nil {
		return 0, err
	}
	ring, err := o.Keys()
	if err != nil {
		return 0, err
	}
	err = o.kept(ctx, files.Audit, authority.ActionAdvance, map[string]string{"how": "asked of the authority that runs"}, func() (string, error) {
		wanted, err := ring.BeginEpoch()
		if err != nil {
			return "", err
		}
		epoch, err = AwaitEpoch(ctx, ring, wanted)
		return fmt.Sprintf("epoch %d", epoch), err
	})
	return epoch, err
}

// AwaitEpoch waits until the ring has reached an issuer epoch, or ctx ends.
func AwaitEpoch(ctx context.Context, ring *grant.Ring, wanted uint32) (uint32, error) {
	const look = 50 * time.Millisecond
	ticker := time.NewTicker(look) //nolint:forbidigo // how often to look; nothing is decided by it
	defer ticker.Stop()
	for {
		if err := ring.Reload(); err != nil {
			return 0, err
		}
		if now := ring.Info().CurrentEpoch; now >= wanted {
			return now, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return 0, &lastword.Error{
				Code: lastword.CodeUnknown, Message: fmt.Sprintf("issuer epoch %d is asked for, and the authority has not begun it yet", wanted),
				Hint: "it does so within a second, or when it is started; if it has stopped with FENCE_REGRESSION, stop it and run this again",
			}
		}
	}
}
