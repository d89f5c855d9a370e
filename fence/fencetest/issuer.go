package fencetest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

const domain = "fencetest.example"

// otherDomain is in the same place. It comes first in every order.
const otherDomain = "another.example"

// issuer plays the authority: it signs real grants and answers real questions. What
// a real one never does (two grants of one fence, a counter that goes back) it does
// when a case asks for it.
type issuer struct {
	domain   string
	signer   *grant.Signer
	stranger *grant.Signer // a key that nobody trusts

	mu       sync.Mutex
	bundle   grant.Bundle
	info     grant.BundleInfo
	counters map[lastword.Resource]uint64
	current  map[lastword.Resource]*tenure
	states   map[string]lastword.State // by lease id
	leases   int
	down     bool
	asked    int
}

func newIssuer(domain string) (*issuer, error) {
	key, err := grant.NewKey()
	if err != nil {
		return nil, err
	}
	other, err := grant.NewKey()
	if err != nil {
		return nil, err
	}
	i := &issuer{
		domain: domain, counters: map[lastword.Resource]uint64{}, current: map[lastword.Resource]*tenure{},
		states: map[string]lastword.State{},
	}
	if i.signer, err = grant.NewSigner(domain, key); err != nil {
		return nil, err
	}
	if i.stranger, err = grant.NewSigner(domain, other); err != nil {
		return nil, err
	}
	return i, i.publish(func(*grant.BundleInfo) {})
}

// publish changes what the trust bundle says, under the next sequence.
func (i *issuer) publish(change func(*grant.BundleInfo)) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(&i.info)
	i.info.Sequence++
	b, err := i.signer.Bundle(i.info)
	i.bundle = b
	return err
}

// Bundle implements grant.BundleSource.
func (i *issuer) Bundle(context.Context, bool) (grant.Bundle, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.bundle, nil
}

// setCounter makes n the counter of a resource: the next grant has n + 1.
func (i *issuer) setCounter(r lastword.Resource, n uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.counters[r] = n
}

func (i *issuer) setDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

func (i *issuer) questions() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked
}

// acquire ends the resource's tenure, if there is one, and starts the next.
func (i *issuer) acquire(r lastword.Resource, owner string, change func(*grant.Claims)) (*tenure, error) {
	i.mu.Lock()
	i.counters[r]++
	f, err := lastword.MakeToken(i.info.CurrentEpoch, i.counters[r])
	i.mu.Unlock()
	if err != nil {
		return nil, err
	}
	t, err := i.issue(r, owner, f, change)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if before := i.current[r]; before != nil && i.live(before) {
		i.states[before.claims.LeaseID] = lastword.StateExpired
	}
	i.current[r] = t
	i.states[t.claims.LeaseID] = lastword.StateHeld
	return t, nil
}

// issue signs a grant and tells nobody.
func (i *issuer) issue(r lastword.Resource, owner string, f lastword.Token, change func(*grant.Claims)) (*tenure, error) {
	i.mu.Lock()
	i.leases++
	n := i.leases
	i.mu.Unlock()
	c := grant.Claims{
		Domain: i.domain, Resource: r, Owner: owner,
		RequestID: fmt.Sprintf("request-%d", n), LeaseID: fmt.Sprintf("lease-%d", n),
		Fence: f, Revision: uint64(n), PolicyGeneration: 1, Class: lastword.ClassWrite,
		Root: lastword.DigestOf([]byte("work on " + string(r))),
		TTL:  30 * time.Second, IssuedAt: time.Unix(1_800_000_000, 0).UTC(),
	}
	if change != nil {
		change(&c)
	}
	g, d, err := i.signer.Sign("", c)
	return &tenure{claims: c, grant: g, digest: d}, err
}

func (i *issuer) live(t *tenure) bool {
	s := i.states[t.claims.LeaseID]
	return s == lastword.StateHeld || s == lastword.StatePending
}

// set says what the authority answers about a tenure from now on.
func (i *issuer) set(t *tenure, s lastword.State) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.states[t.claims.LeaseID] = s
}

// Status implements fence.StatusSource.
func (i *issuer) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked++
	if err := ctx.Err(); err != nil {
		return lastword.Status{}, err
	}
	if i.down {
		return lastword.Status{}, &lastword.Error{Code: lastword.CodeUnknown, Op: "status", Err: errors.New("no answer")}
	}
	st := lastword.Status{Resource: q.Resource, State: lastword.StateFree, Asked: lastword.StateFree}
	if next, err := lastword.MakeToken(i.info.CurrentEpoch, i.counters[q.Resource]+1); err == nil {
		st.NextFence = next // used up: there is none
	}
	if s, known := i.states[q.LeaseID]; known {
		st.Asked = s
	}
	if t := i.current[q.Resource]; t != nil {
		st.State = i.states[t.claims.LeaseID]
		if i.live(t) {
			st.Digest = t.digest
			st.Holder = lastword.TenureRef{
				Resource: q.Resource, Owner: t.claims.Owner, RequestID: t.claims.RequestID,
				LeaseID: t.claims.LeaseID, Fence: t.claims.Fence,
			}
		}
	}
	return st, nil
}

// tenure is one grant and, as a lastword.Holder, the numbering of its writes.
type tenure struct {
	claims grant.Claims
	grant  string
	digest lastword.Digest

	mu      sync.Mutex
	numbers map[string]*numbers
}

type numbers struct {
	turn chan struct{}
	seq  lastword.Sequence
}

// Grant implements lastword.Holder.
func (t *tenure) Grant() string { return t.grant }

// State implements lastword.Holder.
func (t *tenure) State() lastword.HolderState { return lastword.HolderHeld }

// Sequence implements lastword.Holder.
func (t *tenure) Sequence(ctx context.Context, record string) (*lastword.Sequence, func(), error) {
	t.mu.Lock()
	n := t.numbers[record]
	if n == nil {
		n = &numbers{turn: make(chan struct{}, 1)}
		if t.numbers == nil {
			t.numbers = map[string]*numbers{}
		}
		t.numbers[record] = n
	}
	t.mu.Unlock()
	select {
	case n.turn <- struct{}{}:
		return &n.seq, func() { <-n.turn }, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// altered is the grant with changed claims under the old signature.
func altered(g, old, replacement string) string {
	part := strings.Split(g, ".")
	claims, err := base64.RawURLEncoding.DecodeString(part[1])
	if err != nil {
		return "altered"
	}
	changed := strings.Replace(string(claims), old, replacement, 1)
	return part[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(changed)) + "." + part[2]
}
