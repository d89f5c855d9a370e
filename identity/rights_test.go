package identity_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
	"github.com/lastword/lastword/identity"
	"github.com/lastword/lastword/rpc"
)

// gate is what guards a place of the test; caller is who its connection belongs to.
func (w *world) gate(caller string, minimum uint64) *fence.Gate {
	w.t.Helper()
	g, err := fence.NewGate(fence.Config{
		Domain: domain, Verifier: w.verifier, Mode: fence.FenceOnly, Caller: caller, MinPolicyGeneration: minimum,
	})
	check(w.t, err)
	return g
}

func write(ctx context.Context, g *fence.Gate, p *memfence.Place, signed, operation string, class lastword.Class) error {
	_, err := fence.Apply(ctx, g, p, fence.Call{
		Content: []byte(operation), Mutation: lastword.Mutation{Grant: signed, Operation: operation, Class: class},
	}, func(_ context.Context, tx *memfence.Tx) ([]byte, error) {
		tx.Set("last", operation)
		return nil, nil
	})
	return err
}

// T1: a grant is of no use to another caller, who proved another identity over TLS.
func TestASwappedGrantIsRefusedAtTheResource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settings{})
	place := memfence.New("docs")
	grants, gates := map[string]string{}, map[string]*fence.Gate{}
	for _, id := range []string{annID, benID} {
		grants[id] = acquire(t, w.as(id), lastword.Resource("doc/of/"+id[len("spiffe://example.org/"):]), "1").Grant
		// The resource knows its caller from the certificate, as the authority does.
		peer, err := w.source.Peer(chainOf(w.ca.leaf(id)), identity.ForClient)
		check(t, err)
		caller, err := peer.ID()
		check(t, err)
		gates[id] = w.gate(caller, 0)
	}
	for caller, other := range map[string]string{annID: benID, benID: annID} {
		err := write(t.Context(), gates[caller], place, grants[other], "stolen", "")
		if !errors.Is(err, lastword.ErrUnverified) || !strings.Contains(err.Error(), "another owner") {
			t.Errorf("%s with the grant of %s: %v, want UNVERIFIED, OWNER_MISMATCH", caller, other, err)
		}
	}
	for id, g := range gates {
		check(t, write(t.Context(), g, place, grants[id], "own-"+id, ""))
	}
}

// rights is one line of the matrix: what a caller may do.
type rights struct {
	name string
	do   func(ctx context.Context, c *rpc.Client, resource lastword.Resource) error
}

// matrix is every call; signed is a grant of what is held, for the report.
func matrix(signed string) []rights {
	ref := func(r lastword.Resource) lastword.TenureRef {
		return lastword.TenureRef{Resource: r, RequestID: "none", LeaseID: "none", Fence: 1}
	}
	return []rights{
		{"acquire", func(ctx context.Context, c *rpc.Client, r lastword.Resource) error {
			_, err := c.Acquire(ctx, ask(r, "new"))
			return err
		}},
		{"acquire prune", func(ctx context.Context, c *rpc.Client, r lastword.Resource) error {
			q := ask(r, "prune")
			q.Class = "prune"
			_, err := c.Acquire(ctx, q)
			return err
		}},
		{"renew", func(ctx context.Context, c *rpc.Client, r lastword.Resource) error {
			_, err := c.Renew(ctx, ref(r))
			return err
		}},
		{"release", func(ctx context.Context, c *rpc.Client, r lastword.Resource) error { return c.Release(ctx, ref(r)) }},
		{"complete", func(ctx context.Context, c *rpc.Client, r lastword.Resource) error {
			return c.Complete(ctx, ref(r), nil)
		}},
		{"cancel", func(ctx context.Context, c *rpc.Client, r lastword.Resource) error {
			return c.Cancel(ctx, r, "", "none")
		}},
		{"status", func(ctx context.Context, c *rpc.Client, r lastword.Resource) error {
			_, err := c.Status(ctx, lastword.StatusQuery{Resource: r})
			return err
		}},
		{"list", func(ctx context.Context, c *rpc.Client, r lastword.Resource) error {
			_, err := c.List(ctx, lastword.ListQuery{Prefix: string(r) + "/"})
			return err
		}},
		{"watch", func(ctx context.Context, c *rpc.Client, r lastword.Resource) error {
			for _, err := range c.Watch(ctx, string(r)+"/") {
				return err
			}
			return nil
		}},
		{"revoke", func(ctx context.Context, c *rpc.Client, r lastword.Resource) error {
			return c.Revoke(ctx, r, 1, "", "because")
		}},
		{"report", func(ctx context.Context, c *rpc.Client, r lastword.Resource) error {
			_, err := c.Report(ctx, lastword.Report{Resource: r, Grant: signed})
			return err
		}},
		{"resume", func(ctx context.Context, c *rpc.Client, r lastword.Resource) error {
			_, err := c.Resume(ctx, r, 1, "", "because")
			return err
		}},
	}
}

// T25: who may do what, call by call. T18: what is not allowed is refused in the same
// words whether or not there is anything, and changes nothing.
func TestThePolicyMatrix(t *testing.T) {
	t.Parallel()
	policy := newPolicy(t, `
generation: 5
rules:
  - {who: spiffe://example.org/holder, acquire: [yes/, free/]}
  - {who: spiffe://example.org/worker, acquire: yes/}
  - {who: spiffe://example.org/pruner, acquire: yes/, classes: [prune]}
  - {who: spiffe://example.org/gate, status: yes/}
  - {who: spiffe://example.org/lister, list: yes/}
  - {who: spiffe://example.org/watcher, watch: yes/}
  - {who: spiffe://example.org/operator, revoke: yes/}
`)
	w := newWorld(t, settings{policy: policy.PolicyFile})
	holder := w.as("spiffe://example.org/holder")
	held := acquire(t, holder, "yes/held", "1")
	if held.PolicyGeneration != 5 {
		t.Errorf("the grant has generation %d, want 5", held.PolicyGeneration)
	}
	calls := matrix(held.Grant)
	worker := []string{"acquire", "renew", "release", "complete", "cancel", "status", "report"}
	allowed := map[string][]string{
		"worker":   worker,
		"pruner":   {"acquire prune", "renew", "release", "complete", "cancel", "status", "report"},
		"gate":     {"release", "status", "report"},
		"lister":   {"release", "list"},
		"watcher":  {"release", "watch"},
		"operator": {"release", "revoke", "resume"},
		"nobody":   {"release"}, // which only takes from the caller itself
	}
	for who, may := range allowed {
		t.Run(who, func(t *testing.T) {
			c := w.as("spiffe://example.org/" + who)
			for _, r := range calls {
				before := w.state()
				err := r.do(t.Context(), c, "yes/held")
				if refused := errors.Is(err, lastword.ErrUnverified); refused == slices.Contains(may, r.name) {
					t.Errorf("%s of what is held: %v", r.name, err)
				}
				if w.state() != before && !slices.Contains([]string{"cancel", "revoke"}, r.name) {
					t.Errorf("%s of what is held changed something", r.name)
				}
				if r.name == "revoke" && err == nil {
					acquire(t, holder, "yes/held", "2")
				}
			}
		})
	}
	t.Run("unknown or not allowed", func(t *testing.T) {
		acquire(t, w.as("spiffe://example.org/holder"), "free/there", "1")
		for _, who := range []string{"worker", "nobody", "gate"} {
			c := w.as("spiffe://example.org/" + who)
			for _, r := range calls {
				before := w.state()
				there, not := r.do(t.Context(), c, "free/there"), r.do(t.Context(), c, "free/gone!")
				if there == nil || strings.ReplaceAll(there.Error(), "free/there", "") != strings.ReplaceAll(not.Error(), "free/gone!", "") {
					t.Errorf("%s to %s: %v, and of what is not there: %v", who, r.name, there, not)
				}
				var e *lastword.Error
				if !errors.As(there, &e) || e.Holder != "" || e.Fence != 0 || e.Ended.Fence != 0 {
					t.Errorf("%s to %s: it tells of the holder: %v", who, r.name, there)
				}
				if w.state() != before {
					t.Errorf("%s to %s changed something", who, r.name)
				}
			}
		}
	})
}

// counted is a policy that a test can ask how often the store was asked beside it: T18
// wants similar times, and the same path is what gives them.
func TestWhatIsNotAllowedIsRefusedBeforeTheStoreIsAsked(t *testing.T) {
	t.Parallel()
	policy := newPolicy(t, "generation: 1\nrules: []\n")
	w := newWorld(t, settings{policy: policy.PolicyFile})
	c := w.as(annID)
	check(t, w.authority.Close()) // whoever asks it hears UNAVAILABLE from now on
	for _, r := range matrix("a grant") {
		err := r.do(t.Context(), c, "yes/held")
		if r.name == "release" {
			continue
		}
		if !errors.Is(err, lastword.ErrUnverified) {
			t.Errorf("%s: %v, want UNVERIFIED", r.name, err)
		}
	}
}

// T25, T26: a policy that changes in mid-traffic. What stays allowed loses nothing, what
// is not allowed any more is neither granted nor renewed, not even to who waited
// before; the resource's minimum refuses grants of the time before.
func TestAPolicyThatChangesInMidTraffic(t *testing.T) {
	t.Parallel()
	both := "rules:\n- {who: spiffe://example.org/ann, acquire: /}\n- {who: spiffe://example.org/ben, acquire: /}\n"
	policy := newPolicy(t, "generation: 1\n"+both)
	w := newWorld(t, settings{policy: policy.PolicyFile})
	ann, ben := w.as(annID), w.as(benID)
	tr := begin(t, ann, "busy")
	defer tr.halt()
	place := memfence.New("docs")

	old := acquire(t, ben, "doc/ben", "1")
	check(t, write(t.Context(), w.gate(benID, 1), place, old.Grant, "first", ""))
	held := acquire(t, ann, "doc/shared", "1")
	waited := make(chan error, 1)
	go func() {
		r := ask("doc/shared", "2")
		r.Wait = patience
		_, err := ben.Acquire(t.Context(), r)
		waited <- err
	}()
	until(t, "the waiter", func() bool {
		st, err := ann.Status(t.Context(), lastword.StatusQuery{Resource: "doc/shared"})
		check(t, err)
		return st.Waiters == 1
	})
	tr.goesOn(t, 20)
	policy.change(t, "generation: 2\nrules:\n- {who: spiffe://example.org/ann, acquire: /}\n")
	tr.goesOn(t, 20)
	check(t, ann.Release(t.Context(), held.TenureRef))
	if err := <-waited; !errors.Is(err, lastword.ErrUnverified) {
		t.Errorf("who waited through the change: %v, want UNVERIFIED", err)
	}
	if _, err := ben.Renew(t.Context(), old.TenureRef); !errors.Is(err, lastword.ErrUnverified) {
		t.Errorf("renewal: %v, want UNVERIFIED", err)
	}
	if _, err := ben.Acquire(t.Context(), ask("doc/ben", "1")); !errors.Is(err, lastword.ErrUnverified) {
		t.Errorf("a repetition of what was granted: %v, want UNVERIFIED", err)
	}
	// The resource that has not heard of the change admits it until its minimum is up.
	strict := w.gate(benID, 2)
	err := write(t.Context(), strict, place, old.Grant, "second", "")
	if !errors.Is(err, lastword.ErrUnverified) || !strings.Contains(err.Error(), "policy generation") {
		t.Errorf("a grant of the old generation: %v, want UNVERIFIED, POLICY_BELOW_MINIMUM", err)
	}
	fresh := acquire(t, ann, "doc/ann", "1")
	if fresh.PolicyGeneration != 2 {
		t.Errorf("the grant has generation %d, want 2", fresh.PolicyGeneration)
	}
	check(t, write(t.Context(), w.gate(annID, 2), place, fresh.Grant, "third", ""))
	// A record remembers the minimum, also at a gate that has none.
	next := acquire(t, ann, "doc/ben2", "1")
	check(t, write(t.Context(), w.gate(annID, 2), place, next.Grant, "fourth", ""))
	// The holder that may no more can let go.
	if err := ben.Release(t.Context(), old.TenureRef); err != nil {
		t.Errorf("release: %v", err)
	}
	tr.goesOn(t, 20)
}

// A watch that is not allowed any more shows nothing more.
func TestAWatchEndsWithItsRight(t *testing.T) {
	t.Parallel()
	policy := newPolicy(t, "generation: 1\nrules: [{who: spiffe://example.org/ann, watch: /}, {who: spiffe://example.org/ben, acquire: /}]\n")
	w := newWorld(t, settings{policy: policy.PolicyFile})
	ben := w.as(benID)
	complete, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var last error
		for s, err := range w.as(annID).Watch(t.Context(), "") {
			if s.Complete {
				close(complete)
			}
			if last = err; err == nil && s.Status.Resource != "" {
				last = fmt.Errorf("it was shown %s", s.Status.Resource)
				break
			}
		}
		ended <- last
	}()
	<-complete
	policy.change(t, "generation: 2\nrules: [{who: spiffe://example.org/ben, acquire: /}]\n")
	acquire(t, ben, "doc/a", "1")
	if err := <-ended; !errors.Is(err, lastword.ErrUnverified) {
		t.Errorf("the watch ended with %v, want UNVERIFIED", err)
	}
}

// A watch goes with its connection, and says so.
func TestAWatchEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settings{maxAge: 50 * time.Millisecond})
	for _, err := range w.as(annID).Watch(t.Context(), "") {
		if err != nil {
			if !errors.Is(err, lastword.ErrUnavailable) || !strings.Contains(err.Error(), "age") {
				t.Errorf("it ended with %v", err)
			}
			return
		}
	}
}

// A holder takes the identity that its connection proves as its owner.
func TestAHolderIsWhoItsCertificateSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settings{})
	holder, err := client.New(w.as(annID), client.Config{})
	check(t, err)
	defer func() { check(t, holder.Close()) }()
	if holder.Owner() != annID {
		t.Errorf("the owner is %q", holder.Owner())
	}
	lease, err := holder.Acquire(t.Context(), "doc/a", client.AcquireOptions{})
	check(t, err)
	check(t, lease.Release(t.Context()))
}
