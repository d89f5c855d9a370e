package soak

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/lab/history"
)

// lateness draws how late bytes are: most a little, some up to three TTLs.
func lateness(seed uint64, ttl time.Duration) func() time.Duration {
	random, mu := rand.New(rand.NewPCG(seed, 2)), sync.Mutex{}
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(8) == 0 {
			return time.Duration(random.Int64N(int64(3 * ttl)))
		}
		return time.Duration(random.Int64N(int64(ttl / 6)))
	}
}

// turn does something to the authority, while the rounds go on.
func (r *run) turn(ctx context.Context, t turn) (err error) {
	name := string(t.Kind)
	r.mu.Lock()
	r.turned = append(r.turned, turnedTo{t.Kind, history.Clock(), math.MaxInt64})
	mine := len(r.turned) - 1
	r.mu.Unlock()
	switch t.Kind {
	case killAuthority:
		err = r.turnKill(ctx, name)
	case freezeAuthority:
		err = r.turnFreeze(ctx, name, time.Duration(t.Pause*float64(ttls[1])))
	case bumpPolicy:
		err = r.turnPolicy(ctx, name)
	case rotateKey:
		err = r.turnRotate(ctx, name)
	case revokeKey:
		err = r.turnRevoke(ctx, name)
	case bumpEpoch:
		err = r.turnEpoch(ctx, name)
	}
	r.mu.Lock()
	r.turned[mine].ended = history.Clock()
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// turnKill is X3: a number is not issued twice, and grants go on within two seconds.
func (r *run) turnKill(ctx context.Context, name string) error {
	before := r.keeper.epochNow()
	down, err := r.keeper.kill(ctx)
	if err != nil {
		return err
	}
	r.tally.fired(name)
	r.most("authority_restart_ms", int(down.Milliseconds()))
	t, err := r.probe(ctx)
	if err != nil {
		return err
	}
	r.tally.effect(t.Fence.Epoch() > before, name)
	return nil
}

// turnFreeze is X4: what was asked meanwhile is answered after the thaw.
func (r *run) turnFreeze(ctx context.Context, name string, length time.Duration) error {
	p := r.keeper.process()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	stopped, err := awaitStop(p.ID())
	if err != nil || !stopped {
		return errors.Join(errors.New("the authority should be stopped"), err)
	}
	r.tally.fired(name)
	asked := history.Clock()
	answered := make(chan time.Duration, 1)
	go func() {
		_, _ = r.keeper.client.Status(ctx, lastword.StatusQuery{Resource: probed})
		answered <- since(asked)
	}()
	pause(ctx, length)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	r.tally.effect(<-answered >= length, name)
	_, err = r.probe(ctx)
	return err
}

// probed is the resource with which the run looks at the authority itself.
const probed = lastword.Resource("probe/authority")

// probe acquires and releases, again until it works, and returns the tenure.
func (r *run) probe(ctx context.Context) (lastword.Tenure, error) {
	w := witnessed{r.keeper.client, r.keeper.diary}
	for began := history.Clock(); ; {
		t, err := w.Acquire(ctx, lastword.AcquireRequest{
			Resource: probed, RequestID: fmt.Sprintf("probe-%d", r.nextProbe()), Owner: keeperName, TTL: time.Second, Wait: 2 * time.Second,
		})
		if err == nil {
			return t, giveBack(ctx, w, t.TenureRef)
		}
		if since(began) > patience || ctx.Err() != nil {
			return t, err
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// giveBack releases, again until somebody has answered: the authority may be away.
func giveBack(ctx context.Context, a witnessed, ref lastword.TenureRef) error {
	for began := history.Clock(); ; pause(ctx, 10*time.Millisecond) {
		err := a.Release(ctx, ref)
		if err == nil || errors.Is(err, lastword.ErrNotHolder) {
			return nil
		}
		if since(began) > patience || ctx.Err() != nil {
			return err
		}
	}
}

// turnPolicy raises the generation of the policy: new grants carry it, a resource that
// wants it refuses the old ones, and the authority does not go back.
func (r *run) turnPolicy(ctx context.Context, name string) error {
	old, err := r.probe(ctx)
	if err != nil {
		return err
	}
	generation := old.PolicyGeneration + 1
	if err := r.keeper.writePolicy(generation); err != nil {
		return err
	}
	r.tally.fired(name)
	next, err := r.probeUntil(ctx, func(t lastword.Tenure) bool { return t.PolicyGeneration >= generation })
	if err != nil {
		return err
	}
	refused, err := r.refuses(ctx, old.Grant, func(c *fence.Config) { c.MinPolicyGeneration = generation })
	if err != nil {
		return err
	}
	if err := r.keeper.writePolicy(generation - 1); err != nil { // a roll-back, which must not count
		return err
	}
	pause(ctx, 1500*time.Millisecond) // in which the file is read
	after, err := r.probe(ctx)
	if err != nil {
		return err
	}
	if after.PolicyGeneration < generation {
		r.broke("policy_went_back", fmt.Sprintf("generation %d after %d", after.PolicyGeneration, generation))
	}
	r.tally.effect(refused && next.PolicyGeneration == generation, name)
	return r.keeper.writePolicy(generation)
}

func (r *run) probeUntil(ctx context.Context, ok func(lastword.Tenure) bool) (t lastword.Tenure, err error) {
	for began := history.Clock(); ; pause(ctx, 20*time.Millisecond) {
		t, err = r.probe(ctx)
		if err != nil || ok(t) {
			return t, err
		}
		if since(began) > patience {
			return t, errors.New("the authority does not notice the change")
		}
	}
}

// refuses asks a gate of its own, with a fresh trust bundle, about a grant. Its record is
// made by nobody else.
func (r *run) refuses(ctx context.Context, g string, change func(*fence.Config)) (bool, error) {
	v, err := grant.NewVerifier(Domain, grant.FetchBundle(r.keeper.client.Bundle), grant.VerifierConfig{})
	if err != nil {
		return false, err
	}
	c := fence.Config{Domain: Domain, Verifier: v, Mode: fence.FenceOnly}
	if change != nil {
		change(&c)
	}
	f, err := sqlfence.New(ctx, r.side, sqlfence.Config{Config: c})
	if err != nil {
		return false, err
	}
	_, err = f.AdvanceMutation(ctx, probed, lastword.Mutation{Grant: g})
	if err := errors.Join(f.Close()); err != nil {
		return false, err
	}
	var e *lastword.Error
	if err != nil && !errors.As(err, &e) {
		return false, err
	}
	return err != nil && e.Code == lastword.CodeUnverified, nil
}

func kid(t lastword.Tenure) string {
	u, err := grant.Inspect(t.Grant)
	if err != nil {
		return ""
	}
	return u.KeyID
}

// turnRotate gives the authority a new key: grants signed by both are believed.
func (r *run) turnRotate(ctx context.Context, name string) error {
	old, err := r.probe(ctx)
	if err != nil {
		return err
	}
	r.tally.fired(name)
	if err := r.keeper.operator().RotateKey(ctx, 300*time.Millisecond, func(string, grant.KeyInfo) {}); err != nil {
		return err
	}
	next, err := r.probeUntil(ctx, func(t lastword.Tenure) bool { return kid(t) != kid(old) })
	if err != nil {
		return err
	}
	oldRefused, err := r.refuses(ctx, old.Grant, nil)
	if err != nil {
		return err
	}
	newRefused, err := r.refuses(ctx, next.Grant, nil)
	if err != nil {
		return err
	}
	r.retiredKey, r.retiredGrant = kid(old), old.Grant
	r.tally.effect(!oldRefused && !newRefused, name)
	return nil
}

// turnRevoke takes the key that was rotated last out of the trust bundle.
func (r *run) turnRevoke(ctx context.Context, name string) error {
	if r.retiredKey == "" {
		if err := r.turnRotate(ctx, string(rotateKey)); err != nil {
			return err
		}
	}
	r.tally.fired(name)
	if _, err := r.keeper.operator().RevokeKey(ctx, r.retiredKey); err != nil {
		return err
	}
	for began := history.Clock(); ; pause(ctx, 50*time.Millisecond) {
		refused, err := r.refuses(ctx, r.retiredGrant, nil)
		if err != nil {
			return err
		}
		if refused {
			break
		}
		if since(began) > patience {
			return errors.New("the revoked key is still believed")
		}
	}
	r.retiredKey = ""
	_, err := r.probe(ctx)
	r.tally.effect(err == nil, name)
	return err
}

// turnEpoch begins a new issuer epoch while tenures go on.
func (r *run) turnEpoch(ctx context.Context, name string) error {
	old, err := r.probe(ctx)
	if err != nil {
		return err
	}
	r.tally.fired(name)
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	epoch, err := r.keeper.operator().RequestEpoch(limit)
	if err != nil {
		return err
	}
	next, err := r.probeUntil(ctx, func(t lastword.Tenure) bool { return t.Fence.Epoch() >= epoch })
	r.tally.effect(err == nil && next.Fence > old.Fence && epoch > old.Fence.Epoch(), name)
	return err
}
