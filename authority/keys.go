package authority

import (
	"context"
	"errors"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

// Reload takes in what has changed in the signer's key ring, and does what follows from
// it: the trust bundle and the signing key are the new ones at once; a revocation that
// wants a new issuer epoch gets one; tenures whose grants nobody believes any more, since
// their key or their epoch was revoked, end as REVOKED, so that their holders can acquire
// again. Without a ring, and without a change, it costs next to nothing. Call it when the
// ring may have changed, and every second or so; one call runs at a time.
func (a *Authority) Reload(ctx context.Context) error {
	ring := a.signer.Ring()
	if ring == nil {
		return nil
	}
	a.reloading.Lock()
	defer a.reloading.Unlock()
	epoch, err := a.loop.epoch()
	if err != nil {
		return named(err, opReload, "")
	}
	if _, err := a.signer.Publish(epoch, a.cfg.RefreshHint); err != nil {
		return named(err, opReload, "")
	}
	if info := ring.Info(); info.NextEpoch > info.CurrentEpoch {
		a.cfg.Logger.Warn("the key ring wants a new issuer epoch: beginning one", "wanted", info.NextEpoch)
		if _, err := a.NewEpoch(ctx); err != nil {
			return err
		}
	}
	return a.endRevoked(ctx, ring.Info())
}

const opReload = "reload keys"

// NewEpoch begins a new issuer epoch, as another start of the authority on this store
// would (R10): what is granted from now on outranks everything that was granted before.
// Tenures go on, unless their epoch is revoked. It is safe to repeat; each call takes an
// epoch of its own.
func (a *Authority) NewEpoch(ctx context.Context) (uint32, error) {
	cfg := a.cfg
	cfg.OnRegression = Stop // nothing is confirmed here that an operator has to look at
	run, err := start(ctx, a.store, cfg, evidence{signer: a.signer})
	if err == nil {
		_, err = a.signer.Publish(run.header.Epoch, a.cfg.RefreshHint)
	}
	if err != nil {
		return 0, named(err, "begin epoch", "")
	}
	return run.header.Epoch, nil
}

// swept is what the tenures were looked through for the last time.
type swept struct {
	revoked int
	minimum uint32
}

// endRevoked ends the tenures whose grants nobody believes any more.
func (a *Authority) endRevoked(ctx context.Context, info grant.RingInfo) error {
	now := swept{len(info.Revoked), info.MinimumEpoch}
	if now == a.swept {
		return nil
	}
	const page = 512
	var after lastword.Resource
	for {
		records, err := a.store.List(ctx, "", after, page)
		if err != nil {
			return named(err, opReload, "")
		}
		for i := range records {
			after = records[i].Resource
			if err := a.endUnbelieved(ctx, records[i], info.MinimumEpoch); err != nil {
				return err
			}
		}
		if len(records) < page {
			a.swept = now
			return nil
		}
	}
}

func (a *Authority) endUnbelieved(ctx context.Context, rec core.Record, minimum uint32) error {
	l := rec.Lease
	why := ""
	switch {
	case l.State != lastword.StateHeld && l.State != lastword.StatePending:
		return nil
	case !a.signer.Has(l.KeyID):
		why = "the key that signed its grant was revoked"
	case l.Fence.Epoch() < minimum:
		why = "its issuer epoch was revoked"
	default:
		return nil
	}
	err := a.revoke(ctx, revocation{rec.Resource, l.Fence, "key ring", why})
	if errors.Is(err, lastword.ErrNotHolder) {
		return nil // it is over already
	}
	return err
}

// keyGone is the answer to the holder of a tenure whose grant cannot be signed again,
// since its key is not there any more: definite, whatever the tenure's state.
func keyGone(l core.Lease) error {
	return &lastword.Error{
		Code: lastword.CodeNotHolder, Message: "the key that signed the grant of this tenure was revoked, so nobody believes it any more",
		Ended: lastword.Ending{State: lastword.StateRevoked, Fence: l.Fence, LeaseID: l.ID, Owner: l.Owner},
		Hint:  "acquire again with a new request id",
	}
}

// asEnded is keyGone as an acquire tells it.
func asEnded(err error) error {
	var e *lastword.Error
	if errors.As(err, &e) && e.Code == lastword.CodeNotHolder {
		e.Code = lastword.CodeTenureEnded
	}
	return err
}

// defaultProofLife is how long a status proof lives if its asker does not say.
const defaultProofLife = 10 * time.Second

// Proof is Status, and, if the tenure that q names by its lease is HELD or PENDING, a
// signed status proof of it that lives for life, rounded down to seconds: 0 is 10 s, and
// never more than [grant.MaxStatusLife] or, beyond one second, than the tenure's TTL. Of
// any other tenure the proof is "". It tells no more than Status does: whoever names the
// lease may ask.
func (a *Authority) Proof(ctx context.Context, q lastword.StatusQuery, life time.Duration) (lastword.Status, string, error) {
	const op = "status proof"
	if q.LeaseID == "" || life < 0 {
		return lastword.Status{}, "", named(invalid("want a lease id, and no negative life"), op, q.Resource)
	}
	issued := a.cfg.Now() // before the question: a proof is never younger than its answer
	st, res, err := a.look(ctx, q)
	if err != nil {
		return lastword.Status{}, "", err
	}
	l := res.record.Lease
	if !open(l.State) || l.ID != q.LeaseID || st.Digest.IsZero() {
		return st, "", nil
	}
	if life == 0 {
		life = defaultProofLife
	}
	life = max(min(life, grant.MaxStatusLife, time.Duration(l.TTL)).Truncate(time.Second), time.Second)
	at := time.Unix(max(0, issued.Unix()), 0).UTC()
	proof, err := a.signer.SignStatus(grant.StatusClaims{
		Domain: a.cfg.Domain, Resource: res.record.Resource, LeaseID: l.ID, Fence: l.Fence, GrantDigest: st.Digest,
		State: l.State, Epoch: res.header.Epoch, Revision: res.record.Revision, IssuedAt: at, Expires: at.Add(life),
	})
	if err != nil {
		return lastword.Status{}, "", named(err, op, q.Resource)
	}
	return st, proof, nil
}

// proven adds a status proof to a tenure, if one was asked for. It takes a look of its
// own: several calls of one round share a revision, and what the last of them did to the
// tenure has the revision that the answers of the others show, too. Without a proof the
// answer is as good; the holder asks for it again.
func (a *Authority) proven(ctx context.Context, t lastword.Tenure, life time.Duration) lastword.Tenure {
	if life <= 0 {
		return t
	}
	_, proof, err := a.Proof(ctx, lastword.StatusQuery{Resource: t.Resource, LeaseID: t.LeaseID}, life)
	if err != nil {
		a.cfg.Logger.WarnContext(ctx, "no status proof could be made", "resource", t.Resource, "error", err)
	}
	t.StatusProof = proof
	return t
}

// RenewProof is [Authority.Renew], and a status proof in the answer that lives for life,
// as [Authority.Proof] rounds and bounds it; 0 is none.
func (a *Authority) RenewProof(ctx context.Context, ref lastword.TenureRef, life time.Duration) (t lastword.Tenure, err error) {
	seen := a.begin(OpRenew, ref.Resource, ref.Fence)
	defer seen.end(ctx, &err)
	if life < 0 {
		return lastword.Tenure{}, named(invalid("proof life %v is negative", life), "renew", ref.Resource)
	}
	res, err := a.step(ctx, "renew", ref, a.stillAdmitting(ref, func(rec core.Record, _ *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer) {
		return core.Renew(rec, h, c, ref)
	}))
	if err != nil {
		return lastword.Tenure{}, err
	}
	t, err = a.tenure(res, a.signer.SignAgain)
	if err != nil {
		return lastword.Tenure{}, named(err, "renew", ref.Resource)
	}
	return a.proven(ctx, t, life), nil
}

// look asks the loop for what Status and Proof tell.
func (a *Authority) look(ctx context.Context, q lastword.StatusQuery) (lastword.Status, result, error) {
	if _, err := lastword.ParseResource(string(q.Resource)); err != nil {
		return lastword.Status{}, result{}, named(err, "status", "")
	}
	if (q.Owner == "") != (q.RequestID == "") {
		return lastword.Status{}, result{}, named(invalid("a request id is named together with its owner"), "status", q.Resource)
	}
	c := newLook(q.Resource)
	c.owner, c.query = q.Owner, store.Query{Resource: q.Resource, Owner: q.Owner, RequestID: q.RequestID, LeaseID: q.LeaseID}
	res, err := a.loop.submit(ctx, c, 0)
	if err == nil {
		var st lastword.Status
		if st, err = a.status(res, q); err == nil {
			return st, res, nil
		}
	}
	return lastword.Status{}, result{}, named(err, "status", q.Resource)
}
